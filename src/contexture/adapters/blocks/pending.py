"""The blocks whose search records are to be written, with all that these need."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contexture.adapters.blocks.facts import keep, told_by
from contexture.adapters.blocks.rows import Rows, listed, most
from contexture.adapters.blocks.schema import DEEPEST, family
from contexture.workspace import SUMMED_DEPTH, SUMMED_FURTHER, Block, BlockFacts, BlockType, Stale

_PENDING = "SELECT number, tenant, id, class FROM pending ORDER BY number LIMIT ?"

_COLUMNS = "b.id, b.type, b.text, b.position, b.properties, b.readers, b.author, b.created, b.modified, b.class, NULL"

_CHAINS = f"""
WITH RECURSIVE up (start, row, parent, level) AS (
    SELECT b.id, b.row, b.parent, 0 FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
    WHERE b.tenant = :tenant AND b.deletion IS NULL
    UNION ALL
    SELECT up.start, b.row, b.parent, up.level + 1 FROM up CROSS JOIN blocks b ON b.row = up.parent
    WHERE up.level < {DEEPEST}
)
SELECT {_COLUMNS}, b.row, b.facts, up.start FROM up CROSS JOIN blocks b ON b.row = up.row ORDER BY up.start, up.level
"""

# In document order, whoever may read them.
_BELOW = f"""
WITH RECURSIVE below (row, level, position, id) AS (
    SELECT b.row, 1, b.position, b.id FROM blocks b WHERE b.row IN ({family(":parent", readers="1 = 1")})
    UNION ALL
    SELECT b.row, below.level + 1, b.position, b.id
    FROM below CROSS JOIN blocks b ON b.row IN ({family("below.row", readers="1 = 1")})
    WHERE below.level < {SUMMED_DEPTH}
    ORDER BY 2 DESC, 3, 4
    LIMIT :limit
)
SELECT {_COLUMNS} FROM below CROSS JOIN blocks b ON b.row = below.row
"""


class _Waiting(NamedTuple):
    """A block with its row and what is kept of it."""

    block: Block
    row: int
    facts: BlockFacts | None


def stale(db: sqlite3.Connection, rows: Rows, limit: int) -> Sequence[Stale]:
    """The longest waiting; several changes of one block are one."""
    waiting: dict[tuple[str, str], tuple[int, set[str]]] = {}
    for number, tenant, id_, access in db.execute(_PENDING, (most(limit),)):
        _, readers = waiting.get((tenant, id_), (0, set[str]()))
        waiting[tenant, id_] = (number, readers | set(rows.acl(db, access)))
    chains = {
        tenant: _chains(db, rows, tenant, [id_ for of, id_ in waiting if of == tenant])
        for tenant in dict.fromkeys(tenant for tenant, _ in waiting)
    }
    bare = [Stale(number=waited, tenant=of, id=id_, readers=tuple(who)) for (of, id_), (waited, who) in waiting.items()]
    return [_stale(db, rows, each, chains[each.tenant].get(each.id, [])) for each in bare]


def settle(db: sqlite3.Connection, done: Sequence[Stale]) -> None:
    """Forget what waited when these were given out, and keep their facts; what changed since still waits."""
    keep(db, done)
    query = "DELETE FROM pending WHERE tenant = ? AND id = ? AND number <= ?"
    db.executemany(query, [(each.tenant, each.id, each.number) for each in done])


def _chains(db: sqlite3.Connection, rows: Rows, tenant: str, ids: Sequence[str]) -> dict[str, list[_Waiting]]:
    """By id, the block and all its parents upwards."""
    found: dict[str, list[_Waiting]] = {}
    for row in db.execute(_CHAINS, {"tenant": tenant, "ids": listed(ids)}):
        found.setdefault(row[-1], []).append(_Waiting(rows.block(db, row), row[-3], told_by(row[-2])))
    return found


def _stale(db: sqlite3.Connection, rows: Rows, bare: Stale, chain: Sequence[_Waiting]) -> Stale:
    """What waits, with all that its search record and its facts need."""
    if not chain:
        return replace(bare, readers=tuple(sorted(bare.readers)))
    block, row, facts = chain[0]
    return replace(
        bare,
        readers=tuple(sorted({*bare.readers, *block.acl})),
        block=block,
        ancestors=tuple(each.block for each in chain[1:]),
        below=_below(db, rows, bare.tenant, row, block) if block.type is BlockType.PAGE else None,
        facts=facts,
    )


def _below(db: sqlite3.Connection, rows: Rows, tenant: str, row: int, page: Block) -> tuple[Block, ...] | None:
    """The first blocks below a page; None where one of them has other readers than the page."""
    found = rows.blocks(db, db.execute(_BELOW, {"tenant": tenant, "parent": row, "limit": SUMMED_FURTHER}))
    return tuple(found) if all(each.acl == page.acl for each in found) else None
