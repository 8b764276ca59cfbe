"""What a folder holds, when its files do not say; and how memories are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from contexture.cli.remote import Door
    from contexture.config import Settings
    from contexture.conversation import Memory
    from contexture.engine import Contexture
    from contexture.ingestion.load import Progress
    from contexture.ingestion.writer import LoadReport
    from contexture.types import Scope


class Holding(StrEnum):
    """Documents to search, or memories to recall."""

    DOCUMENTS = "documents"
    MEMORIES = "memories"


Held = Annotated[Holding, typer.Option("--as", help="What the files hold.")]


def remember(
    settings: Settings,
    paths: Sequence[Path],
    *,
    readers: tuple[str, ...],
    door: Door | None,
    progress: Progress | None,
) -> LoadReport:
    """Load files as memories, here or through the door of the service that holds the store."""
    from contexture.cli.common import with_engine
    from contexture.ingestion.memories import Remembers, load_memories
    from contexture.types import Scope

    async def load(memory: Remembers) -> LoadReport:
        scope = Scope(tenant=settings.tenant, user=settings.user, groups=settings.groups)
        home = settings.memory_namespace, settings.memory_universe
        return await load_memories(
            memory, scope, paths, readers=readers, namespace=home[0], universe=home[1], progress=progress
        )

    async def inside(engine: Contexture) -> LoadReport:
        return await load(engine.memory)

    return asyncio.run(load(BehindDoor(door))) if door is not None else with_engine(settings, inside)


class BehindDoor:
    """Remembers through a running service; the door says who asks, and a key alone says it too."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:  # noqa: ARG002 - see above
        """Send a batch; ids in order."""
        from contexture.adapters.memory.payloads import ids_from, memory_json

        body = {"memories": [memory_json(memory) for memory in memories]}
        return ids_from(self._door.ask("POST", "/v1/ingest/memories", body), memories)
