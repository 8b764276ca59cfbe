"""The blocks whose search records are to be written, with all that these need."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from contexture.adapters.blocks.facts import keep, told_by
from contexture.adapters.blocks.rows import Rows, listed, most
from contexture.adapters.blocks.schema import DEEPEST, family
from contexture.adapters.blocks.stored import packed_readers
from contexture.workspace import SUMMED_DEPTH, SUMMED_FURTHER, Block, BlockFacts, BlockType, Stale

_Key: TypeAlias = tuple[str, str]

_PENDING = "SELECT number, tenant, id, class FROM pending ORDER BY number LIMIT ?"

_PENDING_OF = """
SELECT p.number, p.tenant, p.id, p.class
FROM json_each(:ids) i CROSS JOIN pending p ON p.tenant = :tenant AND p.id = i.value ORDER BY p.number
"""

_AGAIN = """
INSERT INTO pending (tenant, id, class)
VALUES (:tenant, :id, (SELECT class FROM classes WHERE tenant = :tenant AND acl = :acl)) RETURNING number
"""

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
    return _told(db, rows, _waiting(db, rows, db.execute(_PENDING, (most(limit),))).values())


def settle(db: sqlite3.Connection, rows: Rows, done: Sequence[Stale]) -> Sequence[Stale]:
    """Forget what waited when these were given out, and keep their facts; returns those that are others by now.

    A later number says that a block was altered since, and none at all that another process settled it, perhaps as
    something newer.
    """
    waiting: dict[_Key, Stale] = {}
    for tenant, ids in _by_tenant(done).items():
        waiting |= _waiting(db, rows, db.execute(_PENDING_OF, {"tenant": tenant, "ids": listed(ids)}))
    numbers = {key: each.number for key, each in waiting.items()}
    keep(db, [each for each in done if numbers.get(_key(each)) == each.number])
    query = "DELETE FROM pending WHERE tenant = ? AND id = ? AND number <= ?"
    db.executemany(query, [(each.tenant, each.id, each.number) for each in done])
    return _overtaken(db, rows, [each for each in done if numbers.get(_key(each)) != each.number], waiting)


def _overtaken(
    db: sqlite3.Connection, rows: Rows, late: Sequence[Stale], waiting: Mapping[_Key, Stale]
) -> Sequence[Stale]:
    """Those that are others by now; the index may hold what either of the two processes wrote."""
    bare = [_merged(each, waiting.get(_key(each))) for each in late]
    pairs = zip(late, _told(db, rows, bare), strict=True)
    differing = [(then, now) for then, now in pairs if (then.block, then.ancestors) != (now.block, now.ancestors)]
    return [now if _key(now) in waiting else _again(db, then, now) for then, now in differing]


def _again(db: sqlite3.Connection, then: Stale, now: Stale) -> Stale:
    """The block, waiting once more, for whoever could read what was just written of it."""
    wrote = then.block or now.block
    acl = packed_readers(wrote.acl if wrote is not None else ())
    number: int = db.execute(_AGAIN, {"tenant": now.tenant, "id": now.id, "acl": acl}).fetchone()[0]
    return replace(now, number=number)


def _merged(then: Stale, newer: Stale | None) -> Stale:
    """Both as one, under the later number, for all who could read what may have been written to the index."""
    readers = {*then.readers, *(newer.readers if newer is not None else ())}
    number = then.number if newer is None else newer.number
    return Stale(number=number, tenant=then.tenant, id=then.id, readers=tuple(readers))


def _waiting(db: sqlite3.Connection, rows: Rows, found: Iterable[Sequence[Any]]) -> dict[_Key, Stale]:
    """Several changes of one block as one, under the last number."""
    waiting: dict[_Key, Stale] = {}
    for number, tenant, id_, access in found:
        change = Stale(number=number, tenant=tenant, id=id_, readers=rows.acl(db, access))
        before = waiting.get((tenant, id_))
        waiting[tenant, id_] = change if before is None else _merged(before, change)
    return waiting


def _told(db: sqlite3.Connection, rows: Rows, bare: Iterable[Stale]) -> list[Stale]:
    """The same with their blocks, and all that these need."""
    every = list(bare)
    chains = {tenant: _chains(db, rows, tenant, ids) for tenant, ids in _by_tenant(every).items()}
    return [_stale(db, rows, each, chains[each.tenant].get(each.id, [])) for each in every]


def _by_tenant(every: Iterable[Stale]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in every:
        found.setdefault(each.tenant, []).append(each.id)
    return found


def _key(stale: Stale) -> _Key:
    return stale.tenant, stale.id


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
