"""Search for framework integrations: a question in, the best passages out, with or without an event loop."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import to_builtins

from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.sync import SyncContexture
from contexture.types import Candidate, Filter, Scope

AnyContexture: TypeAlias = Contexture | SyncContexture
"""An engine from `contexture.open` (with an event loop) or `contexture.open_sync` (without one)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookup:
    """A search with fixed options: engine, scope, filter, and number of passages.

    Omitted options use the engine's settings.
    """

    engine: AnyContexture
    k: int = 10
    collection: str | None = None
    scope: Scope | None = None
    where: Filter | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InvalidRequest(f"`k` must be at least 1, not {self.k}")

    def run(self, question: str) -> list[Candidate]:
        """Return the best passages, redacted; needs an engine of `contexture.open_sync`."""
        if isinstance(self.engine, Contexture):
            raise InvalidRequest("this engine is asynchronous; for synchronous calls, use `contexture.open_sync`")
        found = self.engine.search(
            question, collection=self.collection, scope=self.scope, where=self.where, limit=self.k
        )
        return list(found.found)

    async def run_async(self, question: str) -> list[Candidate]:
        """Return the best passages, redacted, from either kind of engine."""
        if isinstance(self.engine, SyncContexture):
            return await asyncio.to_thread(self.run, question)
        found = await self.engine.search(
            question, collection=self.collection, scope=self.scope, where=self.where, limit=self.k
        )
        return list(found.found)


def passage_metadata(found: Candidate) -> dict[str, Any]:
    """Return the metadata of a passage as plain values; `citation` refers to the stored record."""
    return {
        "record_id": found.record_id,
        "title": found.title,
        "source": found.source,
        "kind": found.kind,
        "lang": found.lang,
        "time": found.time.isoformat() if found.time else None,
        "score": found.score,
        "signals": dict(found.signals),
        "citation": to_builtins(found.citation),
    }
