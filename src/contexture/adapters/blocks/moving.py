"""Moves, removes and brings back whole subtrees."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from contexture.adapters.blocks.facts import forget_summaries
from contexture.adapters.blocks.noting import Noting
from contexture.adapters.blocks.planning import check_depth
from contexture.adapters.blocks.rows import asking, microseconds
from contexture.adapters.blocks.schema import DEEPEST, readable
from contexture.adapters.blocks.stored import BELOW, Classes, Stored, by_id, by_row, outdated_below, upwards
from contexture.adapters.blocks.writing import INHERIT
from contexture.adapters.sessions.database import unpacked
from contexture.errors import InvalidRequest, NotFound
from contexture.types import PUBLIC, Scope
from contexture.workspace import Block, BlockType, NamesIn

_BACK = (
    "INSERT INTO pending (tenant, id, class) SELECT tenant, id, class FROM blocks WHERE deletion = ?",
    "UPDATE blocks SET deletion = NULL, facts = NULL WHERE deletion = ?",
    "DELETE FROM deletions WHERE number = ?",
)

# A block that was written again, and deleted again, went later than what stands below it.
_OUTSIDE = """
SELECT DISTINCT p.row, p.deletion FROM blocks b CROSS JOIN blocks p ON p.row = b.parent
WHERE b.deletion = :number AND (p.deletion IS NULL OR p.deletion <> :number)
"""

_GONE = """
WITH RECURSIVE gone (row) AS (
    SELECT row FROM blocks WHERE deletion = :number
    UNION SELECT b.row FROM gone CROSS JOIN blocks b ON b.parent = gone.row WHERE b.deletion IS NOT NULL
)
SELECT row FROM gone
"""


def move(db: sqlite3.Connection, scope: Scope, names: NamesIn, block_id: str, parent: str | None, order: float) -> None:
    """Put a block below another one, or make it a root."""
    classes = Classes(db, scope)
    block = _there(db, scope, classes, block_id)
    below = None if parent is None else _there(db, scope, classes, parent)
    if below is not None:
        _check_place(db, block, below)
    outdated_below(db, block.row)
    inherited = classes.number((PUBLIC,)) if below is None else below.access
    access = inherited if block.readers is None else block.access
    db.execute(
        "UPDATE blocks SET parent = ?, position = ?, class = ?, facts = NULL WHERE row = ?",
        (None if below is None else below.row, order, access, block.row),
    )
    check_depth(db, block.row, block.id)
    forget_summaries(db, [block.parent, None if below is None else below.row])
    if access != block.access:
        db.execute(INHERIT, {"row": block.row, "class": access})
    if block.type == BlockType.DB_ROW:
        told = Block(id=block.id, type=BlockType.DB_ROW, text=block.text, properties=unpacked(block.properties))
        Noting(db, scope.tenant, names).link(block.row, told, block.modified)


def delete(db: sqlite3.Connection, scope: Scope, ids: Sequence[str], now: datetime) -> int:
    """Mark each of these, and what is still there below it, as gone together."""
    classes = Classes(db, scope)
    gone = 0
    for name in ids:
        block = by_id(db, scope.tenant, [name]).get(name)
        if block is None or block.deletion is not None or not classes.may_read(block.access):
            continue
        outdated_below(db, block.row)
        query = "INSERT INTO deletions (tenant, root, time) VALUES (?, ?, ?) RETURNING number"
        number: int = db.execute(query, (scope.tenant, block.row, microseconds(now))).fetchone()[0]
        db.execute(
            f"{BELOW} UPDATE blocks SET deletion = :number WHERE deletion IS NULL AND row IN (SELECT row FROM below)",
            {"row": block.row, "number": number},
        )
        forget_summaries(db, [block.parent])
        gone += _seen(db, scope, number)
    return gone


def restore(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> int:
    """Bring back what went with each of these; a block never stands below one that is gone."""
    classes = Classes(db, scope)
    back = 0
    for name in ids:
        block = by_id(db, scope.tenant, [name]).get(name)
        if block is None or block.deletion is None or not classes.may_read(block.access):
            continue
        above = db.execute(_OUTSIDE, {"number": block.deletion}).fetchall()
        if any(deletion is not None for _, deletion in above):
            raise InvalidRequest(f"block {name!r} cannot be restored before what it stood in")
        back += _seen(db, scope, block.deletion)
        for step in _BACK:
            db.execute(step, (block.deletion,))
        forget_summaries(db, [row for row, _ in above])
    return back


def purge(db: sqlite3.Connection, scope: Scope, before: datetime) -> int:
    """Forget what went before then, where the scope may read the block it went with."""
    classes = Classes(db, scope)
    query = "SELECT number, root FROM deletions WHERE tenant = ? AND time < ?"
    gone = 0
    for number, row in db.execute(query, (scope.tenant, microseconds(before))).fetchall():
        root = by_row(db, row)
        if root is None or classes.may_read(root.access):
            gone += _forget(db, scope, number)
    return gone


def _forget(db: sqlite3.Connection, scope: Scope, number: int) -> int:
    """Remove what went in one deletion, and what had gone below it before."""
    rows = json.dumps([row[0] for row in db.execute(_GONE, {"number": number})])
    count = f"SELECT count(*) FROM json_each(:rows) i CROSS JOIN blocks b ON b.row = i.value WHERE {readable()}"
    gone: int = db.execute(count, asking(scope, rows=rows)).fetchone()[0]
    for table, column in (("links", "source"), ("names", "row"), ("touches", "row"), ("blocks", "row")):
        db.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(:rows))", {"rows": rows})
    db.execute("DELETE FROM deletions WHERE number = ?", (number,))
    return gone


def _there(db: sqlite3.Connection, scope: Scope, classes: Classes, name: str) -> Stored:
    found = by_id(db, scope.tenant, [name]).get(name)
    if found is None or found.deletion is not None or not classes.may_read(found.access):
        raise NotFound(f"there is no block {name!r}")
    return found


def _check_place(db: sqlite3.Connection, block: Stored, below: Stored) -> None:
    if block.row in islice(upwards(db, below.row), DEEPEST):
        raise InvalidRequest(f"block {block.id!r} would stand below itself")


def _seen(db: sqlite3.Connection, scope: Scope, number: int) -> int:
    """How many blocks of a deletion the scope may read."""
    query = f"SELECT count(*) FROM blocks b WHERE b.deletion = :number AND {readable()}"
    found: int = db.execute(query, asking(scope, number=number)).fetchone()[0]
    return found
