"""Reads links, for one scope at a time: what a text names leads to what the scope may read of that name."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from contexture.adapters.blocks.rows import Given, Rows, asking, can_hold, listed, most
from contexture.adapters.blocks.schema import columns, readable
from contexture.types import Scope
from contexture.workspace import Block, Link, LinkKind, names_of, plain_name

_LIVE = f"b.tenant = :tenant AND b.deletion IS NULL AND {readable()}"

_LINKS = f"""
SELECT l.id, l.kind, l.label, t.id, l.name
FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value CROSS JOIN links l ON l.source = b.row
LEFT JOIN blocks t ON t.tenant = :tenant AND t.id = l.target AND t.deletion IS NULL AND {readable("t")}
WHERE {_LIVE} ORDER BY l.kind <> '{LinkKind.RELATION}', i.key, l.place
"""

_BY_NAME = f"""
SELECT b.id FROM names n CROSS JOIN blocks b ON b.row = n.row
WHERE n.tenant = :tenant AND n.name = :name AND {_LIVE} ORDER BY n.rank, n.id LIMIT 1
"""

_TO_ID = f"""
SELECT l.modified, l.id, l.kind, l.label FROM links l CROSS JOIN blocks b ON b.row = l.source
WHERE l.tenant = :tenant AND l.target = :target AND {_LIVE} ORDER BY l.modified DESC, l.id, l.source, l.place
"""

_TO_NAME = f"""
SELECT l.modified, l.id, l.kind, l.label FROM links l CROSS JOIN blocks b ON b.row = l.source
WHERE l.tenant = :tenant AND l.name = :name AND {_LIVE} AND NOT EXISTS (
    SELECT 1 FROM blocks t WHERE t.tenant = :tenant AND t.id = l.target AND t.deletion IS NULL AND {readable("t")}
) ORDER BY l.modified DESC, l.id, l.source, l.place
"""

_PAGE = f"""
SELECT {columns()} FROM names n CROSS JOIN blocks b ON b.row = n.row
WHERE n.tenant = :tenant AND n.name = :name AND {_LIVE} ORDER BY n.rank, n.id LIMIT 1
"""

# Most blocks are named nowhere; whether those who name one may be read is asked when their links are.
_NAMED = f"""
SELECT {columns()} FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value WHERE {_LIVE} AND (
    EXISTS (SELECT 1 FROM links l WHERE l.tenant = :tenant AND l.target = b.id)
    OR EXISTS (SELECT 1 FROM names n CROSS JOIN links l ON l.tenant = :tenant AND l.name = n.name WHERE n.row = b.row)
)
"""


def links(db: sqlite3.Connection, scope: Scope, ids: Sequence[str], limit: int) -> Sequence[Link]:
    """What these blocks name and the scope may read, each once."""
    given = asking(scope)
    found = db.execute(_LINKS, {**given, "ids": listed(ids)})
    led = (
        Link(source=source, target=led_to, kind=LinkKind(kind), name=label)
        for source, kind, label, target, name in found
        if (led_to := target or _named(db, given, name)) is not None
    )
    return list(islice(_distinct(led), most(limit)))


def backlinks(db: sqlite3.Connection, rows: Rows, scope: Scope, ids: Sequence[str], limit: int) -> Sequence[Link]:
    """What names these blocks, the last modified first."""
    given = asking(scope)
    streams: list[Iterator[tuple[int, str, Link]]] = []
    for row in db.execute(_NAMED, {**given, "ids": listed(ids)}).fetchall():
        block = rows.block(db, row)
        streams.append(_towards(db.execute(_TO_ID, {**given, "target": block.id}), block.id))
        streams += _by_names(db, given, block)
    merged = merge(*streams, key=lambda each: each[:2])
    return list(islice(_distinct(link for _, _, link in merged), most(limit)))


def find_pages(db: sqlite3.Connection, rows: Rows, scope: Scope, names: Sequence[str]) -> Mapping[str, Block]:
    """By name as given, what the scope finds under it."""
    given = asking(scope)
    found: dict[str, Block] = {}
    for name in filter(can_hold, names):
        row = db.execute(_PAGE, {**given, "name": plain_name(name)}).fetchone()
        if row is not None:
            found[name] = rows.block(db, row)
    return found


def _named(db: sqlite3.Connection, given: Given, name: str | None) -> str | None:
    """Where a name leads this scope: to the first block that has it."""
    found = db.execute(_BY_NAME, {**given, "name": name}).fetchone() if name is not None else None
    return None if found is None else found[0]


def _by_names(db: sqlite3.Connection, given: Given, block: Block) -> Iterator[Iterator[tuple[int, str, Link]]]:
    """Links by each name under which this scope finds this very block, unless their id leads it elsewhere."""
    for name in names_of(block):
        if _named(db, given, name) == block.id:
            yield _towards(db.execute(_TO_NAME, {**given, "name": name}), block.id)


def _towards(found: Iterator[Sequence[Any]], target: str) -> Iterator[tuple[int, str, Link]]:
    for modified, source, kind, label in found:
        yield -modified, source, Link(source=source, target=target, kind=LinkKind(kind), name=label)


def _distinct(found: Iterator[Link]) -> Iterator[Link]:
    seen: set[tuple[str, str, str, str]] = set()
    for link in found:
        key = (link.source, link.target, link.kind, link.name)
        if key not in seen:
            seen.add(key)
            yield link
