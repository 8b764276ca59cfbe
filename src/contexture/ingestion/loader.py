"""Loads records from files into a collection, in batches; repeatable, with partial success.

`LoadReport` holds the outcome of every record that was read.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Some
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace as changed

from contexture.errors import ContextError, RedactionFailed, RequestError, StoreDamaged, StoreUnwritable
from contexture.ingestion.files import LoadItem, LoadProblem, SourcedRecord
from contexture.ingestion.records import read_records
from contexture.ports import Index
from contexture.retrieval.compute_thread import iterate_in_thread
from contexture.retrieval.prepare import stored_text
from contexture.text.language import detect_language
from contexture.text.unicode import repair_text
from contexture.types import PUBLIC, Collection, FieldType, Record, Scope

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the current task, how much of it is done, and the total."""

DEFAULT_FIELDS: Mapping[str, FieldType] = {"group": FieldType.KEYWORD}

OPTIMIZE_THRESHOLD = 1_000
"""Number of written records above which the index is optimized."""

_MAX_BATCH_CHARACTERS = 100_000


async def load_records(  # noqa: PLR0913 - each has a name and a default
    engine: LoadTarget,
    paths: Sequence[Path],
    *,
    collection: str,
    acl: tuple[str, ...] = (PUBLIC,),
    scope: Scope | None = None,
    fields: Mapping[str, FieldType] = DEFAULT_FIELDS,
    again: bool = False,
    progress: Progress | None = None,
    skip: Some[str] = (),
) -> LoadReport:
    """Load every record below `paths` into `collection`; loading the same files again changes nothing.

    A record that is already stored with the same text, title and metadata is skipped, unless `again` is set. A record
    that equals another of this run in everything but id, source and time is skipped as a duplicate. Failures are
    reported and the rest is loaded, so an interrupted load can be completed by repeating it. `acl` applies to records
    that name no readers, and never lets more people read a stored record; `fields` are payload fields that filters may
    use. Files with an extension in `skip` are skipped.
    """
    owner = scope or engine.scope
    await engine.create(Collection(name=collection, fields=fields), scope=owner)
    writer = RecordWriter(engine, collection, owner, again=again, importing=True)
    await write_records(writer, paths, acl=acl, progress=progress, skip=skip)
    if writer.report.added >= OPTIMIZE_THRESHOLD:
        await engine.index.optimize()
    return writer.report


async def write_records(
    writer: RecordIntake,
    paths: Sequence[Path],
    *,
    acl: tuple[str, ...] = (PUBLIC,),
    progress: Progress | None = None,
    skip: Some[str] = (),
) -> None:
    """Read every record below `paths` and pass it to a writer, in batches."""
    total = (
        0
        if progress is None
        else sum(isinstance(item, SourcedRecord) for item in read_records(paths, acl=acl, skip=skip))
    )
    async for batch in iterate_in_thread(
        batch_records(writer.drop_duplicates(read_records(paths, acl=acl, skip=skip)))
    ):
        await writer.write(batch)
        if progress is not None:
            progress("loading", writer.report.read, total)


def batch_records(found: Iterable[SourcedRecord], *, size: int = 256) -> Iterator[list[SourcedRecord]]:
    """Yield batches of up to `size` records, fewer if they are long, so that progress is steady."""
    batch: list[SourcedRecord] = []
    characters = 0
    for each in found:
        batch.append(each)
        characters += len(each.record.text)
        if len(batch) >= size or characters >= _MAX_BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


_TIME_TOLERANCE = timedelta(milliseconds=1)  # times are stored as floats


class OptimizableIndex(Index, Protocol):
    """An index that can be compacted after a large load."""

    async def optimize(self) -> None:
        """Merge small segments."""
        ...


class LoadTarget(Protocol):
    """The part of `contexture.Contexture` that loading needs."""

    @property
    def index(self) -> OptimizableIndex:
        """The index that stores the records."""
        ...

    @property
    def scope(self) -> Scope:
        """The default scope."""
        ...

    async def create(self, collection: Collection, *, scope: Scope | None) -> None:
        """Create a collection for the tenant, or add filter fields to it."""
        ...

    async def add(self, records: Sequence[Record], *, collection: str | None, scope: Scope | None) -> object:
        """Write records."""
        ...


@dataclass(kw_only=True, slots=True)
class LoadReport:
    """The outcome of everything that was read.

    Each record read was added, unchanged, a duplicate, or failed. `failed` also lists rows and files that yielded no
    record; `warnings` lists what was ignored, replaced or skipped. `collapsed` counts the added articles that are
    represented by a better copy.
    """

    read: int = 0
    added: int = 0
    unchanged: int = 0
    duplicates: int = 0
    collapsed: int = 0
    failed: list[LoadProblem] = field(default_factory=list[LoadProblem])
    warnings: list[LoadProblem] = field(default_factory=list[LoadProblem])


class RecordIntake(ABC):
    """Base of record writers: keeps the report of one load and drops duplicates within it."""

    def __init__(self) -> None:
        self.report = LoadReport()
        self._ids: dict[str, str] = {}
        self._seen: set[bytes] = set()

    def drop_duplicates(self, items: Iterable[LoadItem]) -> Iterator[SourcedRecord]:
        """Yield the records not seen before in this load, as they will be stored; problems go into the report."""
        for item in items:
            if isinstance(item, LoadProblem):
                (self.report.warnings if item.warning else self.report.failed).append(item)
                continue
            self.report.read += 1
            found = replace(item, record=_normalize_record(item.record))
            if self._is_new(found):
                yield found

    @abstractmethod
    async def write(self, batch: Sequence[SourcedRecord]) -> None:
        """Write a batch; the outcome is added to the report."""

    def _is_new(self, found: SourcedRecord) -> bool:
        record = found.record
        if record.id in self._ids:
            where = self._ids[record.id]
            self.report.failed.append(found.problem(f"id {record.id!r} was read before, at {where}; the first is kept"))
            return False
        self._ids[record.id] = f"{found.path}:{found.line}" if found.line else found.path
        content = _content_key(record)
        if record.text and content in self._seen:
            self.report.duplicates += 1
            return False
        self._seen.add(content)
        return True


class RecordWriter(RecordIntake):
    """Writes the records of one load to one collection; unchanged ones are skipped.

    With `importing`, a stored record keeps its readers if more people could read it afterwards.
    """

    def __init__(
        self, engine: LoadTarget, collection: str, scope: Scope, *, again: bool, importing: bool = False
    ) -> None:
        super().__init__()
        self._engine = engine
        self._collection = collection
        self._scope = scope
        self._again = again
        self._importing = importing

    async def write(self, batch: Sequence[SourcedRecord]) -> None:
        """Write the records that are not stored already; if a batch is refused, its records are retried one by one."""
        try:
            ids = [each.record.id for each in batch] if self._importing or not self._again else []
            stored = await self._load_stored(ids)
            limited = [self._limit_access(each, stored.get(each.record.id)) for each in batch]
            fresh = [
                each for each in limited if self._again or not _is_unchanged(stored.get(each.record.id), each.record)
            ]
            if fresh:
                records = [each.record for each in fresh]
                await self._engine.add(records, collection=self._collection, scope=self._scope)
            self.report.added += len(fresh)
            self.report.unchanged += len(batch) - len(fresh)
            if self._importing:
                self._report_access(fresh, batch, stored)
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

    def _is_new(self, found: SourcedRecord) -> bool:
        new = super()._is_new(found)
        if new and not set(found.record.acl) & set(self._scope.principals):
            who = f"user {self._scope.user!r}"
            self.report.warnings.append(found.problem(f"{who} can neither read nor replace this record", warning=True))
        return new

    async def _load_stored(self, ids: Sequence[str]) -> dict[str, Record]:
        found = await self._engine.index.get(self._scope, self._collection, ids) if ids else ()
        return {record.id: record for record in found}

    def _limit_access(self, found: SourcedRecord, stored: Record | None) -> SourcedRecord:
        """The record with its stored readers, if an import would let more people read it."""
        if not self._importing or stored is None or PUBLIC in stored.acl or set(found.record.acl) <= set(stored.acl):
            return found
        return replace(found, record=changed(found.record, acl=stored.acl))

    def _report_access(
        self, fresh: Sequence[SourcedRecord], batch: Sequence[SourcedRecord], stored: Mapping[str, Record]
    ) -> None:
        """Warn about written records whose readers the import has narrowed, or would have widened."""
        named = {each.record.id: set(each.record.acl) for each in batch}
        for each in fresh:
            before = stored.get(each.record.id)
            if before is None or set(each.record.acl) == set(before.acl) == named[each.record.id]:
                continue
            if set(each.record.acl) != named[each.record.id]:
                message = "it keeps its readers, because an import never lets more people read a record"
            elif PUBLIC in each.record.acl:
                continue
            else:
                message = "it may be read by fewer people than before"
            self.report.warnings.append(each.problem(message, warning=True))


def _normalize_record(record: Record) -> Record:
    """Return the record as the store will return it."""
    text = stored_text(record)
    return changed(record, text=text, title=repair_text(record.title), lang=record.lang or detect_language(text))


def _content_key(record: Record) -> bytes:
    """Return a hash of everything but ids, sources and times, so that duplicates have equal hashes."""
    parts = (record.hash, record.title, sorted(record.acl), record.kind, record.lang, record.session, record.position)
    return hashlib.sha256(msgspec.json.encode((*parts, record.payload), order="deterministic")).digest()


def _is_unchanged(stored: Record | None, record: Record) -> bool:
    if stored is None or not _is_same_time(stored.time, record.time):
        return False
    return changed(stored, time=record.time, acl=record.acl) == record and set(stored.acl) == set(record.acl)


def _is_same_time(one: datetime | None, other: datetime | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < _TIME_TOLERANCE
