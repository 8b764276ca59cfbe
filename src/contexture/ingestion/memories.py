"""Loads files as memories, through the same service that remembers conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from contexture.adapters.memory.payloads import memory_from
from contexture.conversation import Memory, MemoryKind
from contexture.errors import ContextError, RedactionFailed, RequestError
from contexture.ingestion.load import Progress, fill
from contexture.ingestion.problems import Sourced
from contexture.ingestion.writer import Intake, LoadReport
from contexture.types import Record, Scope


class Remembers(Protocol):
    """The part of a memory service that loading needs."""

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all of them or none; ids in order."""
        ...


async def load_memories(
    memory: Remembers,
    scope: Scope,
    paths: Sequence[Path],
    *,
    readers: tuple[str, ...] = (),
    namespace: str = "wm",
    universe: str = "",
    progress: Progress | None = None,
) -> LoadReport:
    """Every record below `paths`, remembered; what fails is reported and the rest goes on.

    A row may have the fields of a memory: `session_id`, `persona_id`, `tags`, `type`, `kind`, `importance`,
    `ttl_seconds`, `idempotency_key`; what else it has is metadata. `readers` are for rows that name none.
    """
    writer = MemoryWriter(memory, scope, {"namespace": namespace, "universe": universe})
    await fill(writer, paths, acl=readers, progress=progress)
    return writer.report


def memory_of(record: Record, *, namespace: str = "wm", universe: str = "") -> Memory:
    """A record as a memory, with its own id, time and readers."""
    kind = record.kind if record.kind in list(MemoryKind) else MemoryKind.EPISODIC
    own: Mapping[str, Any] = {
        "id": record.id,
        "text": record.text,
        "kind": kind,
        "session_id": record.session or record.payload.get("session_id"),
        "readers": list(record.acl),
        "timestamp": record.time,
    }
    extra = {"title": record.title, "source": record.source, "position": record.position}
    told = {name: value for name, value in extra.items() if value not in ("", None)}
    return memory_from({**told, **record.payload, **own}, namespace=namespace, universe=universe)


class MemoryWriter(Intake):
    """Remembers batches; a service that knows a memory already leaves it alone, and it still counts as added."""

    def __init__(self, memory: Remembers, scope: Scope, home: Mapping[str, str]) -> None:
        super().__init__()
        self._memory = memory
        self._scope = scope
        self._home = home

    async def write(self, batch: Sequence[Sourced]) -> None:
        """Remember a batch; a refused one is tried again one by one."""
        try:
            await self._memory.remember(self._scope, [memory_of(each.record, **self._home) for each in batch])
            self.report.added += len(batch)
        except (RequestError, RedactionFailed) as refusal:
            if len(batch) == 1:
                self.report.failed.append(batch[0].problem(str(refusal)))
            else:
                for each in batch:
                    await self.write([each])
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
