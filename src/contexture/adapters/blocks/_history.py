"""Earlier versions of blocks, the trash, and the blocks at the top of what a scope may read."""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

import sqlite3
from collections.abc import Sequence
from heapq import merge
from itertools import islice

from contexture import workspace
from contexture.adapters.blocks import schema
from contexture.adapters.sqlite import decode_json
from contexture.errors import Conflict
from contexture.types import Scope

MAX_REVISIONS = 500
"""Earlier versions that are kept of a block."""

_KEEP_REVISION = """
INSERT INTO revisions (row, version, type, text, properties, class, writer, written)
SELECT row, version, type, text, properties, class, coalesce(writer, author), coalesce(written, modified)
FROM blocks WHERE row = :row
"""


def keep_revision(db: sqlite3.Connection, row: int, version: int) -> None:
    """Keep what a block says, in its current version, before it is overwritten."""
    db.execute(_KEEP_REVISION, {"row": row})
    db.execute("DELETE FROM revisions WHERE row = ? AND version <= ?", (row, version - MAX_REVISIONS))


def check_version(block_id: str, current: int, expected: int) -> None:
    """Raise `Conflict` if a version is expected and is not the current one, which is 0 if there is no such block."""
    if expected and expected != current:
        state = f"has version {current}" if current else "does not exist"
        raise Conflict(f"block {block_id!r} {state}, not version {expected}", version=current)


_HISTORY = f"""
SELECT v.version, v.type, v.text, v.properties, v.writer, v.written FROM (
    SELECT row, version, type, text, properties, class, coalesce(writer, author) AS writer,
        coalesce(written, modified) AS written FROM blocks WHERE row = :row
    UNION ALL
    SELECT row, version, type, text, properties, class, writer, written FROM revisions WHERE row = :row
) v WHERE {schema.readable_condition("v")} ORDER BY v.version DESC LIMIT :limit
"""


def get_history(db: sqlite3.Connection, scope: Scope, block_id: str, limit: int) -> Sequence[workspace.BlockRevision]:
    """Versions of a block, the current one first, without those that the scope could not have read at the time."""
    block = schema.load_rows_by_id(db, scope.tenant, [block_id]).get(block_id)
    if block is None or block.deletion is not None:
        return ()
    if not schema.BlockAccessClasses(db, scope).may_read(block.access):
        return ()
    given = schema.scope_params(scope, row=block.row, limit=schema.clamp_limit(limit))
    return [
        workspace.BlockRevision(
            version=version,
            type=workspace.BlockType(kind),
            text=text,
            properties=decode_json(properties),
            user=writer,
            time=schema.from_microseconds(written),
        )
        for version, kind, text, properties, writer, written in db.execute(_HISTORY, given)
    ]


_DELETIONS = f"""
SELECT {schema.block_columns()}, d.number, d.writer, d.time FROM deletions d CROSS JOIN blocks b ON b.row = d.root
WHERE d.tenant = :tenant AND b.deletion = d.number AND {schema.readable_condition()}
ORDER BY d.number DESC LIMIT :limit OFFSET :offset
"""
_COUNT_DELETED = f"SELECT count(*) FROM blocks b WHERE b.deletion = :number AND {schema.readable_condition()}"


def list_deletions(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, limit: int, offset: int
) -> Sequence[workspace.Deletion]:
    """Deletions whose block the scope may read, the latest first."""
    given = schema.scope_params(scope, limit=schema.clamp_limit(limit), offset=schema.clamp_limit(offset))
    return [
        workspace.Deletion(
            block=rows.decode_block(db, row),
            user=row[-2] or "",
            time=schema.from_microseconds(row[-1]),
            count=db.execute(_COUNT_DELETED, {**given, "number": row[-3]}).fetchone()[0],
        )
        for row in db.execute(_DELETIONS, given).fetchall()
    ]


_TOP = f"""
SELECT {schema.block_columns()} FROM blocks b
WHERE b.tenant = :tenant AND b.parent IS NULL AND b.deletion IS NULL AND {schema.readable_condition()}
AND (b.position, b.id) > (:position, :id) ORDER BY b.position, b.id LIMIT :limit
"""

# Only a block with readers of its own may be readable below one that is not.
_SHARED = f"""
SELECT {schema.block_columns()} FROM blocks b CROSS JOIN blocks p ON p.row = b.parent
WHERE b.tenant = :tenant AND b.readers IS NOT NULL AND b.parent IS NOT NULL AND b.deletion IS NULL
AND {schema.readable_condition()} AND NOT {schema.readable_condition("p")}
AND (b.position, b.id) > (:position, :id) ORDER BY b.position, b.id LIMIT :limit
"""


def get_roots(
    db: sqlite3.Connection, rows: schema.BlockDecoder, scope: Scope, limit: int, after: workspace.Block | None
) -> Sequence[workspace.Block]:
    """The first blocks without a readable parent, by position and id."""
    most = schema.clamp_limit(limit)
    position, name = (float("-inf"), "") if after is None else (after.order, after.id)
    given = schema.scope_params(scope, limit=most, position=position, id=name)
    found = (rows.decode_blocks(db, db.execute(query, given).fetchall()) for query in (_TOP, _SHARED))
    return list(islice(merge(*found, key=lambda block: (block.order, block.id)), most))
