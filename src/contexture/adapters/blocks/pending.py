"""The blocks whose search records are to be written, with all that these need."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from contexture.adapters.blocks.rows import Rows, listed, most
from contexture.adapters.blocks.schema import DEEPEST
from contexture.workspace import Block, Stale

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
SELECT {_COLUMNS}, up.start FROM up CROSS JOIN blocks b ON b.row = up.row ORDER BY up.start, up.level
"""


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
    return [
        _stale(tenant, id_, number, readers, chains[tenant].get(id_, []))
        for (tenant, id_), (number, readers) in waiting.items()
    ]


def settle(db: sqlite3.Connection, done: Sequence[Stale]) -> None:
    """Forget what waited when these were given out; what changed since still waits."""
    query = "DELETE FROM pending WHERE tenant = ? AND id = ? AND number <= ?"
    db.executemany(query, [(each.tenant, each.id, each.number) for each in done])


def _chains(db: sqlite3.Connection, rows: Rows, tenant: str, ids: Sequence[str]) -> dict[str, list[Block]]:
    """By id, the block and all its parents upwards."""
    found: dict[str, list[Block]] = {}
    for row in db.execute(_CHAINS, {"tenant": tenant, "ids": listed(ids)}):
        found.setdefault(row[-1], []).append(rows.block(db, row))
    return found


def _stale(tenant: str, id_: str, number: int, readers: set[str], chain: Sequence[Block]) -> Stale:
    block = chain[0] if chain else None
    everyone = readers | set(block.acl if block else ())
    return Stale(
        number=number,
        tenant=tenant,
        id=id_,
        readers=tuple(sorted(everyone)),
        block=block,
        ancestors=tuple(chain[1:]),
    )
