"""Reads the tree of blocks, for one scope at a time; nothing hidden is fetched."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice

from contexture.adapters.blocks.rows import Given, Rows, asking, can_hold, holdable, listed, microseconds, most
from contexture.adapters.blocks.schema import DEEPEST, columns, family, readable
from contexture.types import Scope
from contexture.workspace import Block

_LIVE = f"b.tenant = :tenant AND b.deletion IS NULL AND {readable()}"

_GET = f"""
SELECT {columns()} FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
WHERE {_LIVE} ORDER BY i.key
"""

_PARENTS = f"""
SELECT i.value, b.parent FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value WHERE {_LIVE}
"""

# `UNION`: what stands above several blocks is walked over once.
_ABOVE = f"""
WITH RECURSIVE up (row, parent) AS (
    SELECT b.row, b.parent FROM json_each(:rows) i CROSS JOIN blocks b ON b.row = i.value WHERE {_LIVE}
    UNION
    SELECT b.row, b.parent FROM up CROSS JOIN blocks b ON b.row = up.parent WHERE {_LIVE}
)
SELECT {columns()}, b.row, b.parent FROM up CROSS JOIN blocks b ON b.row = up.row
"""

_HERE = f"""
SELECT b.row, p.row, b.position, b.id FROM blocks b
LEFT JOIN blocks p ON p.row = b.parent AND p.deletion IS NULL AND {readable("p")}
WHERE b.id = :id AND {_LIVE}
"""

_CHILDREN = f"""
SELECT {columns()} FROM blocks b
WHERE b.row IN ({family(":parent", beyond="AND (c.position, c.id) > (:position, :id)")}) ORDER BY b.position, b.id
"""

_BEFORE = f"""
SELECT {columns()} FROM blocks b
WHERE b.row IN ({family(":parent", beyond="AND (c.position, c.id) < (:position, :id)", backwards=True)})
ORDER BY b.position, b.id
"""

# Deeper ones come off the queue first, so that it is walked in document order.
_SUBTREE = f"""
WITH RECURSIVE below (row, level, position, id) AS (
    SELECT b.row, 1, b.position, b.id FROM blocks b WHERE :depth > 0 AND b.row IN ({family(":parent")})
    UNION ALL
    SELECT b.row, below.level + 1, b.position, b.id
    FROM below CROSS JOIN blocks b ON b.row IN ({family("below.row")})
    WHERE below.level < :depth
    ORDER BY 2 DESC, 3, 4
    LIMIT :limit
)
SELECT {columns()} FROM below CROSS JOIN blocks b ON b.row = below.row
"""

_TASKS = f"""
SELECT {columns()}, b.due FROM (
    SELECT DISTINCT r.class FROM readers r
    WHERE r.tenant = :tenant AND r.principal IN (SELECT value FROM json_each(:principals))
) k CROSS JOIN blocks b ON b.row IN (
    SELECT c.row FROM blocks c INDEXED BY blocks_due
    WHERE c.class = k.class AND c.done = :done AND c.due < :before AND c.due IS NOT NULL AND c.deletion IS NULL
    ORDER BY c.due, c.id LIMIT :limit
)
ORDER BY b.due, b.id LIMIT :limit
"""


def get(db: sqlite3.Connection, rows: Rows, scope: Scope, ids: Sequence[str]) -> list[Block]:
    """Those that exist, in the order asked for."""
    return rows.blocks(db, db.execute(_GET, asking(scope, ids=listed(ids))))


def ancestors(db: sqlite3.Connection, rows: Rows, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Block]]:
    """By id, the parents upwards; each is read once, however many blocks stand below it."""
    asked = holdable(ids)
    parents: dict[str, int | None] = dict(db.execute(_PARENTS, asking(scope, ids=listed(asked))))
    wanted = json.dumps(sorted({row for row in parents.values() if row is not None}))
    above: dict[int, tuple[Block, int | None]] = {
        row[-2]: (rows.block(db, row), row[-1]) for row in db.execute(_ABOVE, asking(scope, rows=wanted))
    }
    return {name: _chain(parents[name], above) for name in asked if name in parents}


def _chain(row: int | None, above: Mapping[int, tuple[Block, int | None]]) -> list[Block]:
    """The blocks from a row upwards, as far as they were read; a damaged tree that runs in a circle ends too."""
    chain: list[Block] = []
    while row is not None and row in above and len(chain) < DEEPEST:
        block, row = above[row]
        chain.append(block)
    return chain


def siblings(
    db: sqlite3.Connection, rows: Rows, scope: Scope, block_id: str, before: int, after: int
) -> Sequence[Block]:
    """The nearest on both sides, in document order."""
    here = _here(db, scope, block_id)
    if here is None or here[1] is None:
        return ()
    _, parent, position, id_ = here
    given = asking(scope, parent=parent, position=position, id=id_)
    earlier = rows.blocks(db, db.execute(_BEFORE, {**given, "limit": most(before)}))
    later = rows.blocks(db, db.execute(_CHILDREN, {**given, "limit": most(after)}))
    return [*earlier, *later]


def children(
    db: sqlite3.Connection, rows: Rows, scope: Scope, block_id: str, limit: int, after: Block | None
) -> Sequence[Block]:
    """The first children, behind `after`."""
    here = _here(db, scope, block_id)
    if here is None:
        return ()
    place: Given = {"position": float("-inf"), "id": ""} if after is None else {"position": after.order, "id": after.id}
    return rows.blocks(db, db.execute(_CHILDREN, {**asking(scope, parent=here[0], limit=most(limit)), **place}))


def subtree(db: sqlite3.Connection, rows: Rows, scope: Scope, block_id: str, depth: int, limit: int) -> Sequence[Block]:
    """The first `limit` below, in document order."""
    here = _here(db, scope, block_id)
    if here is None or limit <= 0:
        return ()
    given = asking(scope, parent=here[0], depth=min(max(0, depth), DEEPEST), limit=most(limit))
    return rows.blocks(db, db.execute(_SUBTREE, given))


def tasks(
    db: sqlite3.Connection, rows: Rows, scope: Scope, due_before: datetime | None, limit: int, *, open_only: bool
) -> Sequence[Block]:
    """Those with a date, the earliest first; done and open ones stand in two places and are merged."""
    before = (1 << 62) if due_before is None else microseconds(due_before)
    given = asking(scope, before=before, limit=most(limit))
    states = [db.execute(_TASKS, {**given, "done": done}) for done in ((0,) if open_only else (0, 1))]
    first = merge(*states, key=lambda row: (row[-1], row[0]))
    return rows.blocks(db, islice(first, most(limit)))


def _here(db: sqlite3.Connection, scope: Scope, block_id: str) -> tuple[int, int | None, float, str] | None:
    """A block's row, that of its parent where that may be read, and its place."""
    if not can_hold(block_id):
        return None
    return db.execute(_HERE, asking(scope, id=block_id)).fetchone()
