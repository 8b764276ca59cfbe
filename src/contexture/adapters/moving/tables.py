"""Small stores on the move: every row of every table, the same columns on both sides."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

T = TypeVar("T")

_AT_ONCE = 1_000


class Table(NamedTuple):
    """A table, its columns, and the column that a store numbers by itself."""

    name: str
    columns: tuple[str, ...]
    numbered: str = ""


TABLES: Mapping[str, tuple[Table, ...]] = {
    "sessions": (
        Table("sessions", ("row", "tenant", "user", "id", "last", "touched"), "row"),
        Table("events", ("session", "position", "id", "time", "message", "metadata")),
    ),
    "replies": (Table("replies", ("tenant", "user", "id", "session", "state", "time", "body")),),
    "outbox": (
        Table(
            "items",
            (
                *("seq", "tenant", "user", "groups", "key", "memory"),
                *("due", "tries", "blames", "parked", "failure"),
            ),
            "seq",
        ),
    ),
    "graph": (Table("records", ("tenant", "id", "version", "body")), Table("names", ("tenant", "key", "id"))),
    "blocks": (
        Table("classes", ("class", "tenant", "acl"), "class"),
        Table("readers", ("class", "principal", "tenant")),
        Table(
            "blocks",
            (
                *("row", "tenant", "id", "parent", "position", "type", "text", "properties", "readers"),
                *("class", "author", "created", "modified", "due", "done", "deletion", "facts"),
            ),
            "row",
        ),
        Table("names", ("tenant", "name", "rank", "id", "row")),
        Table("links", ("source", "place", "tenant", "id", "kind", "label", "target", "name", "modified")),
        Table("touches", ("tenant", "user", "row", "deed", "id", "count", "last")),
        Table("deletions", ("number", "tenant", "root", "time"), "number"),
        Table("pending", ("number", "tenant", "id", "class"), "number"),
    ),
    "keys": (
        Table(
            "keys",
            (
                *("id", "name", "hash", "tenant", "user", "groups"),
                *("created", "expires", "revoked", "rights"),
            ),
        ),
    ),
}


class TablesPlace(Protocol):
    """The small stores of a store."""

    def run(self, store: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, inside one transaction on the tables of a store."""
        ...

    def written(self, store: str, table: str, key: str) -> None:
        """Rows came with numbers of their own: the next number is behind the highest."""
        ...


class Content(NamedTuple):
    """How many rows a store has, and a hash over them in which their order does not count."""

    rows: int
    digest: int


def content(place: TablesPlace, store: str) -> Content:
    """What a small store holds."""

    def work(db: sqlite3.Connection) -> Content:
        sums = [_digest(table, row) for table in TABLES[store] for row in _rows(db, table)]
        return Content(len(sums), sum(sums) % (1 << 256))

    return place.run(store, work)


def copy(source: TablesPlace, target: TablesPlace, store: str) -> None:
    """Write every row of a small store into an empty one, all of them or none."""
    rows = source.run(store, lambda db: {table.name: _rows(db, table) for table in TABLES[store]})

    def work(db: sqlite3.Connection) -> None:
        for table in TABLES[store]:
            marks = ", ".join("?" * len(table.columns))
            query = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"  # noqa: S608 - fixed
            for at in range(0, len(rows[table.name]), _AT_ONCE):
                db.executemany(query, rows[table.name][at : at + _AT_ONCE])

    target.run(store, work)
    for table in TABLES[store]:
        if table.numbered:
            target.written(store, table.name, table.numbered)


def _rows(db: sqlite3.Connection, table: Table) -> list[Sequence[Any]]:
    query = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608 - fixed
    return db.execute(query).fetchall()


def _digest(table: Table, row: Sequence[Any]) -> int:
    return int.from_bytes(hashlib.sha256(msgspec.msgpack.encode((table.name, *row))).digest())
