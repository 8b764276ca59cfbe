"""Writes what was read: new and changed records once, and the reason for every other one."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace as changed

from contexture.errors import ContextError, RedactionFailed, RequestError
from contexture.ingestion.problems import Item, Problem, Sourced
from contexture.ports import Index
from contexture.retrieval.prepare import mended, text_of
from contexture.text.language import detect
from contexture.types import Collection, Record, Scope

_TICK = timedelta(milliseconds=1)  # times are stored as floats


class Store(Index, Protocol):
    """An index that can be tidied up after a large load."""

    async def optimize(self) -> None:
        """Merge what was written in small pieces."""
        ...


class Engine(Protocol):
    """What loading needs of `contexture.Contexture`."""

    @property
    def index(self) -> Store:
        """Where records are kept."""
        ...

    @property
    def scope(self) -> Scope:
        """Who loads, when nobody else is named."""
        ...

    async def create(self, collection: Collection, *, scope: Scope | None) -> None:
        """Make a collection for the tenant, or add filter fields to it."""
        ...

    async def add(self, records: Sequence[Record], *, collection: str | None, scope: Scope | None) -> int:
        """Write records."""
        ...


@dataclass(kw_only=True, slots=True)
class LoadReport:
    """What became of everything that was read.

    Each record read was added, unchanged, a duplicate, or failed. `failed` also names rows and files
    that gave no record; `warnings` say what was ignored, replaced or passed over. `collapsed` counts
    the articles among those added that a better copy stands for.
    """

    read: int = 0
    added: int = 0
    unchanged: int = 0
    duplicates: int = 0
    collapsed: int = 0
    failed: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])


class Intake(ABC):
    """Keeps the report of one load, and passes on each record once."""

    def __init__(self) -> None:
        self.report = LoadReport()
        self._ids: dict[str, str] = {}
        self._seen: set[bytes] = set()

    def distinct(self, items: Iterable[Item]) -> Iterator[Sourced]:
        """The records that this load has not met before, as they will be stored."""
        for item in items:
            if isinstance(item, Problem):
                (self.report.warnings if item.warning else self.report.failed).append(item)
                continue
            self.report.read += 1
            found = replace(item, record=_cleaned(item.record))
            if self._is_new(found):
                yield found

    @abstractmethod
    async def write(self, batch: Sequence[Sourced]) -> None:
        """Take a batch; what becomes of it is in the report."""

    def _is_new(self, found: Sourced) -> bool:
        record = found.record
        if record.id in self._ids:
            where = self._ids[record.id]
            self.report.failed.append(found.problem(f"id {record.id!r} was read before, at {where}; the first is kept"))
            return False
        self._ids[record.id] = f"{found.path}:{found.line}" if found.line else found.path
        content = _content(record)
        if record.text and content in self._seen:
            self.report.duplicates += 1
            return False
        self._seen.add(content)
        return True


class Writer(Intake):
    """Writes the records of one load to one collection."""

    def __init__(self, engine: Engine, collection: str, scope: Scope, *, again: bool) -> None:
        super().__init__()
        self._engine = engine
        self._collection = collection
        self._scope = scope
        self._again = again

    async def write(self, batch: Sequence[Sourced]) -> None:
        """Write those that are not stored already; a refused batch is tried again one by one."""
        try:
            fresh = batch if self._again else await self._changed(batch)
            if fresh:
                records = [each.record for each in fresh]
                await self._engine.add(records, collection=self._collection, scope=self._scope)
            self.report.added += len(fresh)
            self.report.unchanged += len(batch) - len(fresh)
        except (RequestError, RedactionFailed) as refusal:
            if len(batch) == 1:
                self.report.failed.append(batch[0].problem(str(refusal)))
            else:
                for each in batch:
                    await self.write([each])
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)

    def _is_new(self, found: Sourced) -> bool:
        new = super()._is_new(found)
        if new and not set(found.record.acl) & set(self._scope.principals):
            who = f"user {self._scope.user!r}"
            self.report.warnings.append(found.problem(f"{who} may not read or replace what is loaded", warning=True))
        return new

    async def _changed(self, batch: Sequence[Sourced]) -> list[Sourced]:
        ids = [each.record.id for each in batch]
        stored = {record.id: record for record in await self._engine.index.get(self._scope, self._collection, ids)}
        return [each for each in batch if not _same(stored.get(each.record.id), each.record)]


def _cleaned(record: Record) -> Record:
    """The record as the store will give it back."""
    text = text_of(record)
    return changed(record, text=text, title=mended(record.title), lang=record.lang or detect(text))


def _content(record: Record) -> bytes:
    """What makes two records copies of each other: all but their ids, sources and times."""
    parts = (record.hash, record.title, sorted(record.acl), record.kind, record.lang, record.session, record.position)
    return hashlib.sha256(msgspec.json.encode((*parts, record.payload), order="deterministic")).digest()


def _same(stored: Record | None, record: Record) -> bool:
    if stored is None or not _together(stored.time, record.time):
        return False
    return changed(stored, time=record.time, acl=record.acl) == record and set(stored.acl) == set(record.acl)


def _together(one: datetime | None, other: datetime | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < _TICK
