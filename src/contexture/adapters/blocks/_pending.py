"""The queue of blocks whose search records are out of date, and the facts computed about blocks."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from contexture import workspace
from contexture.adapters.blocks import schema
from contexture.types import Scope

_Key: TypeAlias = tuple[str, str]

_PENDING = "SELECT number, tenant, id, class FROM pending ORDER BY number LIMIT ?"

_PENDING_FOR = "SELECT number, tenant, id, class FROM pending WHERE tenant = ? ORDER BY number LIMIT ?"

_PENDING_OF = """
SELECT p.number, p.tenant, p.id, p.class
FROM json_each(:ids) i CROSS JOIN pending p ON p.tenant = :tenant AND p.id = i.value ORDER BY p.number
"""

_REQUEUE = """
INSERT INTO pending (tenant, id, class)
VALUES (:tenant, :id, (SELECT class FROM classes WHERE tenant = :tenant AND acl = :acl)) RETURNING number
"""

_COLUMNS = (
    "b.id, b.type, b.text, b.position, b.properties, b.readers, b.author, b.created, b.modified, b.class, "
    "b.creator, b.editors, b.managers, b.version, NULL"
)

_CHAINS = f"""
WITH RECURSIVE up (start, row, parent, level) AS (
    SELECT b.id, b.row, b.parent, 0 FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
    WHERE b.tenant = :tenant AND b.deletion IS NULL
    UNION ALL
    SELECT up.start, b.row, b.parent, up.level + 1 FROM up CROSS JOIN blocks b ON b.row = up.parent
    WHERE up.level < {schema.MAX_DEPTH}
)
SELECT {_COLUMNS}, b.row, b.facts, up.start FROM up CROSS JOIN blocks b ON b.row = up.row ORDER BY up.start, up.level
"""

_SUMMARY_LEAVES = ", ".join(f"'{kind}'" for kind in workspace.SUMMARY_LEAVES)

# In document order, without access control.
_DESCENDANTS = f"""
WITH RECURSIVE below (row, level, position, id, type) AS (
    SELECT b.row, 1, b.position, b.id, b.type FROM blocks b
    WHERE b.row IN ({schema.children_query(":parent", access_condition="1 = 1")})
    UNION ALL
    SELECT b.row, below.level + 1, b.position, b.id, b.type
    FROM below CROSS JOIN blocks b ON b.row IN ({schema.children_query("below.row", access_condition="1 = 1")})
    WHERE below.level < {workspace.SUMMARY_DEPTH} AND below.type NOT IN ({_SUMMARY_LEAVES})
    ORDER BY 2 DESC, 3, 4
    LIMIT :limit
)
SELECT {_COLUMNS} FROM below CROSS JOIN blocks b ON b.row = below.row
"""


class _PendingBlock(NamedTuple):
    """A block with its row number and stored facts."""

    block: workspace.Block
    row: int
    facts: workspace.BlockFacts | None


def load_stale(
    db: sqlite3.Connection, rows: schema.BlockDecoder, limit: int, tenant: str | None
) -> Sequence[workspace.StaleBlock]:
    """Blocks of a tenant, or of all, to re-index, longest waiting first; several changes of one block are merged."""
    most = schema.clamp_limit(limit)
    found = db.execute(_PENDING, (most,)) if tenant is None else db.execute(_PENDING_FOR, (tenant, most))
    return _hydrate(db, rows, _collapse_changes(db, rows, found).values())


def settle_pending(
    db: sqlite3.Connection, rows: schema.BlockDecoder, done: Sequence[workspace.StaleBlock]
) -> Sequence[workspace.StaleBlock]:
    """Remove these entries from the queue and store their facts; returns those that are out of date again.

    A higher number in the queue means that the block changed since it was loaded. No entry means that another process
    settled it, possibly in a newer state.
    """
    waiting: dict[_Key, workspace.StaleBlock] = {}
    for tenant, ids in _group_by_tenant(done).items():
        waiting |= _collapse_changes(
            db, rows, db.execute(_PENDING_OF, {"tenant": tenant, "ids": schema.encode_ids(ids)})
        )
    numbers = {key: each.number for key, each in waiting.items()}
    current = [each for each in done if numbers.get(_block_key(each)) == each.number]
    store_facts(db, current)
    store_cells(db, current)
    query = "DELETE FROM pending WHERE tenant = ? AND id = ? AND number <= ?"
    db.executemany(query, [(each.tenant, each.id, each.number) for each in done])
    return _find_overtaken(db, rows, [each for each in done if numbers.get(_block_key(each)) != each.number], waiting)


def _find_overtaken(
    db: sqlite3.Connection,
    rows: schema.BlockDecoder,
    late: Sequence[workspace.StaleBlock],
    waiting: Mapping[_Key, workspace.StaleBlock],
) -> Sequence[workspace.StaleBlock]:
    """Entries whose block or ancestors changed; the index may hold what either of two processes wrote."""
    bare = [_merge_changes(each, waiting.get(_block_key(each))) for each in late]
    pairs = zip(late, _hydrate(db, rows, bare), strict=True)
    differing = [(then, now) for then, now in pairs if (then.block, then.ancestors) != (now.block, now.ancestors)]
    return [now if _block_key(now) in waiting else _requeue(db, then, now) for then, now in differing]


def _requeue(db: sqlite3.Connection, then: workspace.StaleBlock, now: workspace.StaleBlock) -> workspace.StaleBlock:
    """Queue the block again, with the readers of the version just written to the index."""
    wrote = then.block or now.block
    acl = schema.encode_readers(wrote.acl if wrote is not None else ())
    number: int = db.execute(_REQUEUE, {"tenant": now.tenant, "id": now.id, "acl": acl}).fetchone()[0]
    return replace(now, number=number)


def _merge_changes(then: workspace.StaleBlock, newer: workspace.StaleBlock | None) -> workspace.StaleBlock:
    """Merge two changes under the later number, with the readers of every version that may be in the index."""
    readers = {*then.readers, *(newer.readers if newer is not None else ())}
    number = then.number if newer is None else newer.number
    return workspace.StaleBlock(number=number, tenant=then.tenant, id=then.id, readers=tuple(readers))


def _collapse_changes(
    db: sqlite3.Connection, rows: schema.BlockDecoder, found: Iterable[Sequence[Any]]
) -> dict[_Key, workspace.StaleBlock]:
    """Changes by block, several of one block merged under the last number."""
    waiting: dict[_Key, workspace.StaleBlock] = {}
    for number, tenant, id_, access in found:
        change = workspace.StaleBlock(number=number, tenant=tenant, id=id_, readers=rows.get_acl(db, access))
        before = waiting.get((tenant, id_))
        waiting[tenant, id_] = change if before is None else _merge_changes(before, change)
    return waiting


def _hydrate(
    db: sqlite3.Connection, rows: schema.BlockDecoder, bare: Iterable[workspace.StaleBlock]
) -> list[workspace.StaleBlock]:
    """The same entries with their blocks, ancestors, descendants and facts."""
    every = list(bare)
    chains = {tenant: _load_chains(db, rows, tenant, ids) for tenant, ids in _group_by_tenant(every).items()}
    return [_hydrate_one(db, rows, each, chains[each.tenant].get(each.id, [])) for each in every]


def _group_by_tenant(every: Iterable[workspace.StaleBlock]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in every:
        found.setdefault(each.tenant, []).append(each.id)
    return found


def _block_key(stale: workspace.StaleBlock) -> _Key:
    return stale.tenant, stale.id


def _load_chains(
    db: sqlite3.Connection, rows: schema.BlockDecoder, tenant: str, ids: Sequence[str]
) -> dict[str, list[_PendingBlock]]:
    """Each block with its ancestors, nearest first, by id."""
    found: dict[str, list[_PendingBlock]] = {}
    for row in db.execute(_CHAINS, {"tenant": tenant, "ids": schema.encode_ids(ids)}):
        found.setdefault(row[-1], []).append(_PendingBlock(rows.decode_block(db, row), row[-3], decode_facts(row[-2])))
    return found


def _hydrate_one(
    db: sqlite3.Connection, rows: schema.BlockDecoder, bare: workspace.StaleBlock, chain: Sequence[_PendingBlock]
) -> workspace.StaleBlock:
    """Entry with everything needed for its search record and facts."""
    if not chain:
        return replace(bare, readers=tuple(sorted(bare.readers)))
    block, row, facts = chain[0]
    return replace(
        bare,
        readers=tuple(sorted({*bare.readers, *block.acl})),
        block=block,
        ancestors=tuple(each.block for each in chain[1:]),
        below=_load_descendants(db, rows, bare.tenant, row, block) if block.type is workspace.BlockType.PAGE else None,
        facts=facts,
    )


def _load_descendants(
    db: sqlite3.Connection, rows: schema.BlockDecoder, tenant: str, row: int, page: workspace.Block
) -> tuple[workspace.Block, ...] | None:
    """First descendants of a page; None if one of them has other readers than the page."""
    found = rows.decode_blocks(
        db, db.execute(_DESCENDANTS, {"tenant": tenant, "parent": row, "limit": workspace.FOCUSED_SUMMARY_BLOCKS})
    )
    return tuple(found) if all(each.acl == page.acl for each in found) else None


_FACTS = f"""
SELECT b.id, b.facts FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
WHERE b.tenant = :tenant AND b.deletion IS NULL AND b.facts IS NOT NULL AND {schema.readable_condition()}
"""
_UPDATE_FACTS = "UPDATE blocks SET facts = :facts WHERE tenant = :tenant AND id = :id"

_ANCESTORS_CTE = f"""
WITH RECURSIVE above (row, level) AS (
    SELECT value, 1 FROM json_each(:rows)
    UNION SELECT b.parent, above.level + 1 FROM above CROSS JOIN blocks b ON b.row = above.row
    WHERE above.level < {workspace.SUMMARY_DEPTH} AND b.parent IS NOT NULL
)
"""
_ANCESTOR_PAGES = f"type = '{workspace.BlockType.PAGE}' AND row IN (SELECT row FROM above)"

_encode_facts = msgspec.msgpack.Encoder().encode
_decode_facts = msgspec.msgpack.Decoder(workspace.BlockFacts).decode


def get_facts(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> Mapping[str, workspace.BlockFacts]:
    """Stored facts of these blocks, by id."""
    found = (
        (id_, decode_facts(encoded))
        for id_, encoded in db.execute(_FACTS, schema.scope_params(scope, ids=schema.encode_ids(ids)))
    )
    return {id_: known for id_, known in found if known is not None}


def decode_facts(data: bytes | None) -> workspace.BlockFacts | None:
    """Facts of a row; None if unreadable, because facts can be computed again."""
    try:
        return None if data is None else _decode_facts(data)
    except msgspec.DecodeError:
        return None


def store_facts(db: sqlite3.Connection, done: Iterable[workspace.StaleBlock]) -> None:
    """Replace the stored facts of these blocks."""
    known = [
        {"facts": _encode_facts(each.facts), "tenant": each.tenant, "id": each.id}
        for each in done
        if each.facts is not None
    ]
    db.executemany(_UPDATE_FACTS, known)


_DELETE_CELLS = """
DELETE FROM cells WHERE row IN (
    SELECT row FROM blocks WHERE tenant = :tenant AND id IN (SELECT value FROM json_each(:ids))
)
"""
_INSERT_CELL = """
INSERT INTO cells (tenant, value, name, shown, row)
SELECT b.tenant, :value, :name, :shown, b.row FROM blocks b WHERE b.tenant = :tenant AND b.id = :id
"""


def store_cells(db: sqlite3.Connection, done: Sequence[workspace.StaleBlock]) -> None:
    """Replace what these blocks can be selected by."""
    for tenant, ids in _group_by_tenant(done).items():
        db.execute(_DELETE_CELLS, {"tenant": tenant, "ids": schema.encode_ids(ids)})
    cells = [
        {"tenant": each.tenant, "id": each.id, "name": name, "value": value, "shown": shown}
        for each in done
        if each.block is not None
        for name, value, shown in workspace.block_cells(each.block)
    ]
    db.executemany(_INSERT_CELL, cells)


def invalidate_summaries(db: sqlite3.Connection, places: Iterable[int | None]) -> None:
    """Clear the facts of pages that may summarise children of these rows, and queue the pages for re-indexing."""
    given = {"rows": json.dumps(sorted({row for row in places if row is not None}))}
    waiting = f"SELECT tenant, id, class FROM blocks WHERE deletion IS NULL AND {_ANCESTOR_PAGES}"
    db.execute(f"{_ANCESTORS_CTE} INSERT INTO pending (tenant, id, class) {waiting}", given)
    db.execute(f"{_ANCESTORS_CTE} UPDATE blocks SET facts = NULL WHERE {_ANCESTOR_PAGES}", given)
