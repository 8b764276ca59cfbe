"""Loads files as memories, through the same service that stores memories of conversations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from contexture.conversation import Memory, MemoryKind
from contexture.errors import ContextError, RedactionFailed, RequestError, StoreDamaged, StoreUnwritable
from contexture.ingestion.files import SourcedRecord
from contexture.ingestion.loader import LoadReport, Progress, RecordIntake, write_records
from contexture.memory_payloads import memory_from_json
from contexture.types import Record, Scope


class MemorySink(Protocol):
    """The part of a memory service that loading needs."""

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order."""
        ...


async def load_memories(
    memory: MemorySink,
    scope: Scope,
    paths: Sequence[Path],
    *,
    readers: tuple[str, ...] = (),
    namespace: str = "wm",
    universe: str = "",
    progress: Progress | None = None,
) -> LoadReport:
    """Store every record below `paths` as a memory; failures are reported and the rest is stored.

    A row may have the fields of a memory: `session_id`, `persona_id`, `tags`, `type`, `kind`, `importance`,
    `ttl_seconds`, `idempotency_key`; other fields become metadata. `readers` applies to rows that name none.
    """
    writer = MemoryIntake(memory, scope, {"namespace": namespace, "universe": universe})
    await write_records(writer, paths, acl=readers, progress=progress)
    return writer.report


def record_to_memory(record: Record, *, namespace: str = "wm", universe: str = "") -> Memory:
    """Convert a record to a memory with the same id, time and readers."""
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
    fields = {name: value for name, value in extra.items() if value not in ("", None)}
    return memory_from_json({**fields, **record.payload, **own}, namespace=namespace, universe=universe)


class MemoryIntake(RecordIntake):
    """Stores memories in batches; one that the service already has is left unchanged, and still counts as added."""

    def __init__(self, memory: MemorySink, scope: Scope, home: Mapping[str, str]) -> None:
        super().__init__()
        self._memory = memory
        self._scope = scope
        self._home = home

    async def write(self, batch: Sequence[SourcedRecord]) -> None:
        """Store a batch; if it is refused, its memories are retried one by one."""
        try:
            await self._memory.remember(self._scope, [record_to_memory(each.record, **self._home) for each in batch])
            self.report.added += len(batch)
        except (RequestError, RedactionFailed) as refusal:
            if len(batch) == 1:
                self.report.failed.append(batch[0].problem(str(refusal)))
            else:
                for each in batch:
                    await self.write([each])
        except (StoreDamaged, StoreUnwritable):  # nothing more can be stored
            raise
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
