"""Notes what blocks are called and what they name, whenever they are written."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from contexture.adapters.blocks.stored import Stored, outdated
from contexture.adapters.sessions.database import unpacked
from contexture.types import Json
from contexture.workspace import LINKABLE, Block, BlockType, NamesIn, names_of, plain_name

_ROWS = "SELECT row, id, text, properties, modified FROM blocks WHERE parent = ? AND type = 'db_row'"


_NONE: Mapping[str, Json] = {}


class _Written(NamedTuple):
    block: Block
    modified: int


class Noting:
    """Keeps names at once and links at the end, when every schema of the write is known."""

    def __init__(self, db: sqlite3.Connection, tenant: str, names: NamesIn) -> None:
        self._db = db
        self._tenant = tenant
        self._names = names
        self._written: dict[int, _Written] = {}
        self._schemas: dict[int, Mapping[str, Json]] = {}
        self._altered: list[int] = []

    def wrote(self, row: int, block: Block, before: Stored | None, *, modified: int) -> None:
        """Note a block that was written to this row."""
        self._written[row] = _Written(block, modified)
        if before is not None:
            self._db.execute("DELETE FROM names WHERE row = ?", (row,))
            if BlockType.DB in (before.type, block.type) and _schema(before.type, before.properties) != _told(block):
                self._altered.append(row)
        if block.type in LINKABLE:
            rank = LINKABLE.index(block.type)
            self._db.executemany(
                "INSERT INTO names VALUES (?, ?, ?, ?, ?)",
                [(self._tenant, name, rank, block.id, row) for name in names_of(block)],
            )

    def finish(self) -> None:
        """Note the links of what was written, and of the rows whose database has other columns now."""
        for row, (block, modified) in self._written.items():
            self.link(row, block, modified)
        for database in self._altered:
            outdated(self._db, "parent = :parent AND type = 'db_row'", {"parent": database})
            for row, id_, text, properties, modified in self._db.execute(_ROWS, (database,)).fetchall():
                if row not in self._written:
                    block = Block(id=id_, type=BlockType.DB_ROW, text=text, properties=unpacked(properties))
                    self.link(row, block, modified)

    def link(self, row: int, block: Block, modified: int) -> None:
        """Note what a block names, instead of what it named before."""
        schema = self._schema(row) if block.type is BlockType.DB_ROW else _NONE
        self._db.execute("DELETE FROM links WHERE source = ?", (row,))
        self._db.executemany(
            "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (row, place, self._tenant, block.id, str(named.kind), named.column,
                 named.id or None, plain_name(named.page) or None, modified)
                for place, named in enumerate(self._names(block, schema))
            ],
        )  # fmt: skip

    def _schema(self, row: int) -> Mapping[str, Json]:
        """The columns of the database that a row stands in."""
        query = "SELECT p.row, p.type, p.properties FROM blocks b JOIN blocks p ON p.row = b.parent WHERE b.row = ?"
        found = self._db.execute(query, (row,)).fetchone()
        if found is None:
            return {}
        if found[0] not in self._schemas:
            self._schemas[found[0]] = _schema(found[1], found[2])
        return self._schemas[found[0]]


def _schema(kind: str, properties: str) -> Mapping[str, Json]:
    return _columns(unpacked(properties)) if kind == BlockType.DB else _NONE


def _told(block: Block) -> Mapping[str, Json]:
    return _columns(block.properties) if block.type is BlockType.DB else _NONE


def _columns(properties: Mapping[str, Json]) -> Mapping[str, Json]:
    schema = properties.get("schema")
    return schema if isinstance(schema, dict) else _NONE
