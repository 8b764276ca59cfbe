"""Moves a whole store into another one, and compares the two afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from contexture.adapters.index.checks import merged
from contexture.adapters.moving.files import FilesPlace
from contexture.adapters.moving.records import Part, RecordsPlace, digest
from contexture.adapters.moving.tables import TABLES, TablesPlace, content, copy
from contexture.errors import BrokenPromise, InvalidRequest, NotFound
from contexture.types import Prepared

Progress = Callable[[str, int, int], None]

_PAGE = 250


class Store(Protocol):
    """One end of a move."""

    name: str
    records: RecordsPlace
    tables: TablesPlace
    files: FilesPlace

    def close(self) -> None:
        """Let others have it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """What the target holds now and the source does too, and how much of that was there before."""

    records: int
    rows: int
    files: int
    known_records: int


def store_at(where: str, *, existing: bool) -> Store:
    """The store at an address: a folder, or `postgres://HOST/NAME`."""
    if where.startswith(("postgres://", "postgresql://")):
        from contexture.adapters.moving.postgres import PostgresStore

        return PostgresStore(where, existing=existing)
    from contexture.adapters.moving.folder import FolderStore

    if "://" in where:
        raise InvalidRequest(
            f"{where.partition('://')[0]!r} is no kind of store: name a folder or postgres://HOST/NAME; "
            "of a store in Qdrant the truth is moved, and Qdrant is filled anew"
        )
    if existing and not (Path(where) / "truth.sqlite").is_file():
        raise NotFound(f"there is no store in {where!r}")
    return FolderStore(Path(where))


def move(source: Store, target: Store, progress: Progress | None = None) -> Moved:
    """Write everything that the source holds into the target, and compare what they hold.

    What is there already is left alone, so that a move that was cut short goes on where it was. A small store that
    holds something else is refused.
    """
    tell = progress or _nobody
    _move_declared(source.records, target.records)
    before = sum(_move_part(source, target, part, count, tell) for part, count in source.records.parts().items())
    for store in TABLES:
        tell("move the rest", 0, 0)
        _move_tables(source, target, store)
    _move_files(source.files, target.files)
    return compared(source, target, before, tell)


def compared(source: Store, target: Store, before: int, tell: Progress) -> Moved:
    """Compare records, rows and files by their number and content; the first that differs is named."""
    _same_declared(source, target)
    records = sum(_same_part(source, target, part, count, tell) for part, count in source.records.parts().items())
    rows = 0
    for store in TABLES:
        mine, theirs = content(source.tables, store), content(target.tables, store)
        if mine != theirs:
            raise BrokenPromise(
                f"{store}: {mine.rows} rows of {source.name} are not the {theirs.rows} of {target.name}"
            )
        rows += mine.rows
    return Moved(records=records, rows=rows, files=_same_files(source, target), known_records=before)


def _move_declared(source: RecordsPlace, target: RecordsPlace) -> None:
    """Let every tenant have the collections and fields that it has in the source."""
    known = target.declared()
    for part, collection in source.declared().items():
        wanted = merged(known.get(part), collection)
        if wanted != known.get(part):
            target.declare(part.tenant, wanted)


def _same_declared(source: Store, target: Store) -> None:
    theirs = target.records.declared()
    for part, mine in source.records.declared().items():
        found = theirs.get(part)
        if found is None or not mine.fields.items() <= found.fields.items():
            raise BrokenPromise(f"the fields of {part.collection!r} are not the same in {target.name}")


def _move_part(source: Store, target: Store, part: Part, count: int, tell: Progress) -> int:
    """Write the records of a part; how many of them were there already."""
    done = before = 0
    for page in _pages(source.records, part):
        there = target.records.among(part, [item.record.id for item in page])
        new = [item for item in page if not _same(item, there.get(item.record.id))]
        if new:
            target.records.write(part, new)
        done, before = done + len(page), before + len(page) - len(new)
        tell(f"move {part.collection}", done, count)
    return before


def _same_part(source: Store, target: Store, part: Part, count: int, tell: Progress) -> int:
    done = 0
    for page in _pages(source.records, part):
        there = target.records.among(part, [item.record.id for item in page])
        for item in page:
            if not _same(item, there.get(item.record.id)):
                raise BrokenPromise(
                    f"record {item.record.id!r} of {part.collection!r} is not the same in {target.name}"
                )
        done += len(page)
        tell(f"compare {part.collection}", done, count)
    held = target.records.parts().get(part, 0)
    if not done == count == held:
        raise BrokenPromise(f"{part.collection!r} has {done} records in {source.name} and {held} in {target.name}")
    return done


def _same(item: Prepared, other: Prepared | None) -> bool:
    return other is not None and digest(item) == digest(other)


def _pages(records: RecordsPlace, part: Part) -> Iterator[Sequence[Prepared]]:
    after = ""
    while page := records.page(part, after, _PAGE):
        yield page
        after = page[-1].record.id


def _move_tables(source: Store, target: Store, store: str) -> None:
    mine, theirs = content(source.tables, store), content(target.tables, store)
    if mine == theirs:
        return
    if theirs.rows:
        raise InvalidRequest(f"{target.name} has other {store} already; move into an empty store")
    copy(source.tables, target.tables, store)


def _move_files(source: FilesPlace, target: FilesPlace) -> None:
    for place, name in source.names():
        data = source.read(place, name)
        if data is not None and target.read(place, name) != data:
            target.write(place, name, data)


def _same_files(source: Store, target: Store) -> int:
    names = source.files.names()
    for place, name in names:
        if source.files.read(place, name) != target.files.read(place, name):
            raise BrokenPromise(f"the file {name!r} of {place} is not the same in {target.name}")
    return len(names)


def _nobody(task: str, done: int, total: int) -> None:
    del task, done, total
