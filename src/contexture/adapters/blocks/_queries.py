"""Queries for one scope: the block tree, tasks, links, backlinks, pages by name, and edits and views per user.

Blocks the scope may not read are never fetched.
"""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from contexture import workspace
from contexture.adapters.blocks import schema
from contexture.adapters.sqlite import check_storable
from contexture.errors import NotFound
from contexture.types import Scope

_LIVE = f"b.tenant = :tenant AND b.deletion IS NULL AND {schema.readable_condition()}"

_GET = f"""
SELECT {schema.block_columns()} FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
WHERE {_LIVE} ORDER BY i.key
"""

_PARENTS = f"""
SELECT i.value, b.parent FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value WHERE {_LIVE}
"""

# `UNION`: shared ancestors are visited once.
_ABOVE = f"""
WITH RECURSIVE up (row, parent) AS (
    SELECT b.row, b.parent FROM json_each(:rows) i CROSS JOIN blocks b ON b.row = i.value WHERE {_LIVE}
    UNION
    SELECT b.row, b.parent FROM up CROSS JOIN blocks b ON b.row = up.parent WHERE {_LIVE}
)
SELECT {schema.block_columns()}, b.row, b.parent FROM up CROSS JOIN blocks b ON b.row = up.row
"""

_LOCATE = f"""
SELECT b.row, p.row, b.position, b.id FROM blocks b
LEFT JOIN blocks p ON p.row = b.parent AND p.deletion IS NULL AND {schema.readable_condition("p")}
WHERE b.id = :id AND {_LIVE}
"""

_CHILDREN = f"""
SELECT {schema.block_columns()} FROM blocks b
WHERE b.row IN ({schema.children_query(":parent", after_condition="AND (c.position, c.id) > (:position, :id)")})
ORDER BY b.position, b.id
"""

_BEFORE = f"""
SELECT {schema.block_columns()} FROM blocks b
WHERE b.row IN (
{schema.children_query(":parent", after_condition="AND (c.position, c.id) < (:position, :id)", descending=True)})
ORDER BY b.position, b.id
"""

# Deeper blocks leave the queue first, which makes the walk depth-first, in document order.
_SUBTREE = f"""
WITH RECURSIVE below (row, level, position, id, type) AS (
    SELECT b.row, 1, b.position, b.id, b.type FROM blocks b
    WHERE :depth > 0 AND b.row IN ({schema.children_query(":parent")})
    UNION ALL
    SELECT b.row, below.level + 1, b.position, b.id, b.type
    FROM below CROSS JOIN blocks b ON b.row IN ({schema.children_query("below.row")})
    WHERE below.level < :depth AND below.type NOT IN (SELECT value FROM json_each(:leaves))
    ORDER BY 2 DESC, 3, 4
    LIMIT :limit
)
SELECT {schema.block_columns()} FROM below CROSS JOIN blocks b ON b.row = below.row
"""

_TASKS = f"""
SELECT {schema.block_columns()}, b.due FROM (
    SELECT DISTINCT r.class FROM readers r
    WHERE r.tenant = :tenant AND r.principal IN (SELECT value FROM json_each(:principals))
) k CROSS JOIN blocks b ON b.row IN (
    SELECT c.row FROM blocks c INDEXED BY blocks_due
    WHERE c.class = k.class AND c.done = :done AND c.due < :before AND c.due IS NOT NULL AND c.deletion IS NULL
    ORDER BY c.due, c.id LIMIT :limit
)
ORDER BY b.due, b.id LIMIT :limit
"""


def get_blocks(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, ids: Sequence[str]
) -> list[workspace.Block]:
    """Blocks with these ids that exist and are readable, in the order of `ids`."""
    return rows.decode_blocks(db, db.execute(_GET, schema.scope_params(scope, ids=schema.encode_ids(ids))))


def get_ancestors(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, ids: Sequence[str]
) -> Mapping[str, Sequence[workspace.Block]]:
    """Ancestors by block id, nearest first; shared ancestors are read once."""
    asked = schema.drop_unstorable_ids(ids)
    parents: dict[str, int | None] = dict(
        db.execute(_PARENTS, schema.scope_params(scope, ids=schema.encode_ids(asked)))
    )
    wanted = json.dumps(sorted({row for row in parents.values() if row is not None}))
    above: dict[int, tuple[workspace.Block, int | None]] = {
        row[-2]: (rows.decode_block(db, row), row[-1])
        for row in db.execute(_ABOVE, schema.scope_params(scope, rows=wanted))
    }
    return {name: _build_chain(parents[name], above) for name in asked if name in parents}


def _build_chain(row: int | None, above: Mapping[int, tuple[workspace.Block, int | None]]) -> list[workspace.Block]:
    """Loaded blocks from a row upwards; `MAX_DEPTH` bounds the walk in a damaged tree with a cycle."""
    chain: list[workspace.Block] = []
    while row is not None and row in above and len(chain) < schema.MAX_DEPTH:
        block, row = above[row]
        chain.append(block)
    return chain


def get_siblings(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, block_id: str, before: int, after: int
) -> Sequence[workspace.Block]:
    """Nearest siblings on both sides, in document order; none if the parent is not readable."""
    here = _locate(db, scope, block_id)
    if here is None or here[1] is None:
        return ()
    _, parent, position, id_ = here
    given = schema.scope_params(scope, parent=parent, position=position, id=id_)
    earlier = rows.decode_blocks(db, db.execute(_BEFORE, {**given, "limit": schema.clamp_limit(before)}))
    later = rows.decode_blocks(db, db.execute(_CHILDREN, {**given, "limit": schema.clamp_limit(after)}))
    return [*earlier, *later]


def get_children(
    db: sqlite3.Connection,
    rows: schema.BlockDecoder,
    scope: Scope,
    block_id: str,
    limit: int,
    after: workspace.Block | None,
) -> Sequence[workspace.Block]:
    """First `limit` children after the block `after`, in document order."""
    here = _locate(db, scope, block_id)
    if here is None:
        return ()
    place: schema.SqlParams = (
        {"position": float("-inf"), "id": ""} if after is None else {"position": after.order, "id": after.id}
    )
    return rows.decode_blocks(
        db,
        db.execute(_CHILDREN, {**schema.scope_params(scope, parent=here[0], limit=schema.clamp_limit(limit)), **place}),
    )


def get_subtree(
    db: sqlite3.Connection,
    rows: schema.BlockDecoder,
    scope: Scope,
    block_id: str,
    depth: int,
    limit: int,
    leaves: Sequence[workspace.BlockType],
) -> Sequence[workspace.Block]:
    """First `limit` descendants, at most `depth` levels down and none below `leaves`, in document order."""
    here = _locate(db, scope, block_id)
    if here is None or limit <= 0:
        return ()
    given = schema.scope_params(
        scope,
        parent=here[0],
        depth=min(max(0, depth), schema.MAX_DEPTH),
        limit=schema.clamp_limit(limit),
        leaves=json.dumps([str(kind) for kind in leaves]),
    )
    return rows.decode_blocks(db, db.execute(_SUBTREE, given))


def get_tasks(
    db: sqlite3.Connection,
    rows: schema.BlockDecoder,
    scope: Scope,
    due_before: datetime | None,
    limit: int,
    *,
    open_only: bool,
) -> Sequence[workspace.Block]:
    """Tasks with a due date, earliest first; open and done ones are separate index ranges and are merged."""
    before = (1 << 62) if due_before is None else schema.to_microseconds(due_before)
    given = schema.scope_params(scope, before=before, limit=schema.clamp_limit(limit))
    states = [db.execute(_TASKS, {**given, "done": done}) for done in ((0,) if open_only else (0, 1))]
    first = merge(*states, key=lambda row: (row[-1], row[0]))
    return rows.decode_blocks(db, islice(first, schema.clamp_limit(limit)))


def _locate(db: sqlite3.Connection, scope: Scope, block_id: str) -> tuple[int, int | None, float, str] | None:
    """Row of a block, row of its parent if readable, and its position and id."""
    if not schema.is_storable_id(block_id):
        return None
    return db.execute(_LOCATE, schema.scope_params(scope, id=block_id)).fetchone()


_LINKS = f"""
SELECT l.id, l.kind, l.label, t.id, l.name
FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value CROSS JOIN links l ON l.source = b.row
LEFT JOIN blocks t ON t.tenant = :tenant AND t.id = l.target AND t.deletion IS NULL AND {schema.readable_condition("t")}
WHERE {_LIVE} ORDER BY l.kind <> '{workspace.LinkKind.RELATION}', i.key, l.place
"""

_ID_BY_NAME = f"""
SELECT b.id FROM names n CROSS JOIN blocks b ON b.row = n.row
WHERE n.tenant = :tenant AND n.name = :name AND {_LIVE} ORDER BY n.rank, n.id LIMIT 1
"""

_LINKS_TO_ID = f"""
SELECT l.modified, l.id, l.kind, l.label FROM links l CROSS JOIN blocks b ON b.row = l.source
WHERE l.tenant = :tenant AND l.target = :target AND {_LIVE} ORDER BY l.modified DESC, l.id, l.source, l.place
"""

_LINKS_TO_NAME = f"""
SELECT l.modified, l.id, l.kind, l.label FROM links l CROSS JOIN blocks b ON b.row = l.source
WHERE l.tenant = :tenant AND l.name = :name AND {_LIVE} AND NOT EXISTS (
    SELECT 1 FROM blocks t
    WHERE t.tenant = :tenant AND t.id = l.target AND t.deletion IS NULL AND {schema.readable_condition("t")}
) ORDER BY l.modified DESC, l.id, l.source, l.place
"""

_PAGE_BY_NAME = f"""
SELECT {schema.block_columns()} FROM names n CROSS JOIN blocks b ON b.row = n.row
WHERE n.tenant = :tenant AND n.name = :name AND {_LIVE} ORDER BY n.rank, n.id LIMIT :limit
"""

# Most blocks have no backlinks, so this filters early; access to the linking blocks is checked when links are read.
_LINKED_BLOCKS = f"""
SELECT {schema.block_columns()} FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value WHERE {_LIVE} AND (
    EXISTS (SELECT 1 FROM links l WHERE l.tenant = :tenant AND l.target = b.id)
    OR EXISTS (SELECT 1 FROM names n CROSS JOIN links l ON l.tenant = :tenant AND l.name = n.name WHERE n.row = b.row)
)
"""


def get_links(db: sqlite3.Connection, scope: Scope, ids: Sequence[str], limit: int) -> Sequence[workspace.BlockLink]:
    """Links from these blocks to blocks that the scope may read, without duplicates."""
    given = schema.scope_params(scope)
    found = db.execute(_LINKS, {**given, "ids": schema.encode_ids(ids)})
    led = (
        workspace.BlockLink(source=source, target=led_to, kind=workspace.LinkKind(kind), name=label)
        for source, kind, label, target, name in found
        if (led_to := target or _resolve_name(db, given, name)) is not None
    )
    return list(islice(_drop_duplicates(led), schema.clamp_limit(limit)))


def get_backlinks(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, ids: Sequence[str], limit: int
) -> Sequence[workspace.BlockLink]:
    """Links to these blocks, last modified source first."""
    given = schema.scope_params(scope)
    streams: list[Iterator[tuple[int, str, workspace.BlockLink]]] = []
    for row in db.execute(_LINKED_BLOCKS, {**given, "ids": schema.encode_ids(ids)}).fetchall():
        block = rows.decode_block(db, row)
        streams.append(_decode_links(db.execute(_LINKS_TO_ID, {**given, "target": block.id}), block.id))
        streams += _links_by_name(db, given, block)
    merged = merge(*streams, key=lambda each: each[:2])
    return list(islice(_drop_duplicates(link for _, _, link in merged), schema.clamp_limit(limit)))


def find_pages(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, names: Sequence[str]
) -> Mapping[str, workspace.Block]:
    """Blocks by title or alias, keyed by the name as given."""
    found = ((name, find_named(db, rows, scope, name, 1)) for name in names)
    return {name: blocks[0] for name, blocks in found if blocks}


def find_named(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, name: str, limit: int
) -> Sequence[workspace.Block]:
    """Blocks with a title or alias, pages first."""
    if not schema.is_storable_id(name):
        return ()
    given = schema.scope_params(scope, name=workspace.plain_name(name), limit=schema.clamp_limit(limit))
    return rows.decode_blocks(db, db.execute(_PAGE_BY_NAME, given).fetchall())


def _resolve_name(db: sqlite3.Connection, given: schema.SqlParams, name: str | None) -> str | None:
    """Id of the first readable block with a name."""
    found = db.execute(_ID_BY_NAME, {**given, "name": name}).fetchone() if name is not None else None
    return None if found is None else found[0]


def _links_by_name(
    db: sqlite3.Connection, given: schema.SqlParams, block: workspace.Block
) -> Iterator[Iterator[tuple[int, str, workspace.BlockLink]]]:
    """Yield links by name, for each name this scope resolves to the block; links with a readable id are excluded."""
    for name in workspace.link_names(block):
        if _resolve_name(db, given, name) == block.id:
            yield _decode_links(db.execute(_LINKS_TO_NAME, {**given, "name": name}), block.id)


def _decode_links(found: Iterator[Sequence[Any]], target: str) -> Iterator[tuple[int, str, workspace.BlockLink]]:
    for modified, source, kind, label in found:
        yield (
            -modified,
            source,
            workspace.BlockLink(source=source, target=target, kind=workspace.LinkKind(kind), name=label),
        )


def _drop_duplicates(found: Iterator[workspace.BlockLink]) -> Iterator[workspace.BlockLink]:
    seen: set[tuple[str, str, str, str]] = set()
    for link in found:
        key = (link.source, link.target, link.kind, link.name)
        if key not in seen:
            seen.add(key)
            yield link


_RECENT = f"""
SELECT t.id, t.last FROM touches t CROSS JOIN blocks b ON b.row = t.row
WHERE t.tenant = :tenant AND t.user = :user AND t.deed = :deed AND t.last >= :since AND {_LIVE}
ORDER BY t.last DESC, t.id LIMIT :limit
"""

_TOUCHES = f"""
SELECT b.id, b.author = :user, t.deed, t.count, t.last
FROM json_each(:ids) i CROSS JOIN blocks b ON b.id = i.value
LEFT JOIN touches t ON t.tenant = :tenant AND t.user = :user AND t.row = b.row
WHERE {_LIVE}
"""

_UPSERT_TOUCH = """
INSERT INTO touches (tenant, user, row, deed, id, count, last) VALUES (?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (tenant, user, row, deed) DO UPDATE SET count = touches.count + 1,
    last = CASE WHEN excluded.last > touches.last THEN excluded.last ELSE touches.last END
"""


def get_recent_activity(
    db: sqlite3.Connection, scope: Scope, deed: workspace.ActivityKind, since: datetime, limit: int
) -> Sequence[workspace.Activity]:
    """Newest edits or views by the scope's user, one per block."""
    given = schema.scope_params(
        scope, user=scope.user, deed=str(deed), since=schema.to_microseconds(since), limit=schema.clamp_limit(limit)
    )
    found = db.execute(_RECENT, given)
    return [
        workspace.Activity(block_id=id_, user=scope.user, deed=deed, time=schema.from_microseconds(last))
        for id_, last in found
    ]


def get_touches(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> Mapping[str, workspace.BlockUsage]:
    """Edits and views of these blocks by the scope's user."""
    found: dict[str, workspace.BlockUsage] = {}
    for id_, author, deed, count, last in db.execute(
        _TOUCHES, schema.scope_params(scope, user=scope.user, ids=schema.encode_ids(ids))
    ):
        if not author and deed is None:
            continue
        known = found.get(id_) or workspace.BlockUsage(author=bool(author))
        found[id_] = known if deed is None else _add_touch(known, deed, count, schema.from_microseconds(last))
    return found


def _add_touch(known: workspace.BlockUsage, deed: str, count: int, last: datetime) -> workspace.BlockUsage:
    return workspace.BlockUsage(
        edits=count if deed == workspace.ActivityKind.EDIT else known.edits,
        views=count if deed == workspace.ActivityKind.VIEW else known.views,
        last=last if known.last is None else max(known.last, last),
        author=known.author,
    )


def record_activity(db: sqlite3.Connection, scope: Scope, deeds: Iterable[workspace.Activity]) -> None:
    """Count edits and views of blocks; raises `NotFound` for a block that the scope may not read."""
    for deed in deeds:
        query = f"SELECT b.row FROM blocks b WHERE b.id = :id AND {_LIVE}"
        found = (
            db.execute(query, schema.scope_params(scope, id=deed.block_id)).fetchone()
            if schema.is_storable_id(deed.block_id)
            else None
        )
        if found is None:
            raise NotFound(f"there is no block {deed.block_id!r}")
        count_activity(db, scope.tenant, deed, found[0])


def count_activity(db: sqlite3.Connection, tenant: str, deed: workspace.Activity, row: int) -> None:
    """Count one edit or view of the block in this row."""
    user = check_storable("the user", deed.user)
    db.execute(_UPSERT_TOUCH, (tenant, user, row, str(deed.deed), deed.block_id, schema.to_microseconds(deed.time)))
