"""Write operations inside one transaction: upsert, move, delete, restore and purge blocks.

Inherited readers are resolved and links are indexed at write time, so that reads need not.
"""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from contexture.adapters.blocks._pending import invalidate_summaries
from contexture.adapters.blocks._queries import count_activity
from contexture.adapters.blocks.schema import (
    MAX_DEPTH,
    SUBTREE_CTE,
    BlockAccessClasses,
    BlockRow,
    SqlParams,
    encode_readers,
    from_microseconds,
    load_row,
    load_rows_by_id,
    mark_outdated,
    mark_subtree_outdated,
    readable_condition,
    scope_params,
    to_microseconds,
    walk_up,
)
from contexture.adapters.sqlite import decode_json, encode_json
from contexture.errors import InvalidRequest, NotFound
from contexture.types import PUBLIC, Json, Scope
from contexture.workspace import (
    LINKABLE_TYPES,
    Activity,
    ActivityKind,
    Block,
    BlockType,
    FindLinks,
    ImportAccess,
    PutResult,
    is_done,
    link_names,
    plain_name,
    task_due,
)

_TITLED_TYPES = (BlockType.PAGE, BlockType.DB, BlockType.DB_ROW)

_UPSERT_BLOCK = """
INSERT INTO blocks (tenant, id, parent, position, type, text, properties, readers, class, author, created, modified,
    due, done)
VALUES (:tenant, :id, :parent, :position, :type, :text, :properties, :readers, :class, :author, :created, :modified,
    :due, :done)
ON CONFLICT (tenant, id) DO UPDATE SET parent = :parent, position = :position, type = :type, text = :text,
    properties = :properties, readers = :readers, class = :class, author = :author, created = :created,
    modified = :modified, due = :due, done = :done, deletion = NULL, facts = NULL
RETURNING row
"""

# Blocks with their own readers stop the inheritance: they and their descendants keep their access class.
INHERIT_ACCESS = """
WITH RECURSIVE heirs (row) AS (
    SELECT row FROM blocks WHERE parent = :row AND readers IS NULL
    UNION SELECT b.row FROM heirs CROSS JOIN blocks b ON b.parent = heirs.row WHERE b.readers IS NULL
)
UPDATE blocks SET class = :class, facts = NULL WHERE row IN (SELECT row FROM heirs)
"""


class _Parent(NamedTuple):
    row: int | None
    access: int


class BlockUpsert:
    """One upsert of blocks inside one transaction.

    Resolves inherited readers, records links and activity, queues re-indexing.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        scope: Scope,
        names: FindLinks,
        now: datetime,
        importing: ImportAccess | None = None,
    ) -> None:
        self._db = db
        self._scope = scope
        self._now = now
        self._importing = importing
        self._kept_readers: list[str] = []
        self._narrowed: list[str] = []
        self._classes = BlockAccessClasses(db, scope)
        self._links = LinkIndexer(db, scope.tenant, names)
        self._parents: dict[str, _Parent] = {}
        self._access_changed = False
        self._changed_parents: set[int | None] = set()

    def put(self, blocks: Sequence[Block]) -> PutResult:
        """Write the blocks, parents before children; unchanged ones are skipped."""
        known = load_rows_by_id(self._db, self._scope.tenant, (block.id for block in blocks))
        for block in blocks:
            self._check_readable(known.get(block.id))
        self._load_parents(blocks)
        added = changed = 0
        for block in WritePlan(self._db, self._scope.tenant, blocks).in_order():
            before = self._reload(known.get(block.id))
            if self._importing is not None and before is not None:
                block = self._limit_access(before, block, self._importing)  # noqa: PLW2901 - the block that is written
            if before is not None and before.deletion is None and self._is_unchanged(before, block):
                self._parents[block.id] = _Parent(before.row, self._resolve_access(block))
                continue
            self._write_block(before, block)
            added, changed = (added + 1, changed) if _is_new(before) else (added, changed + 1)
        self._links.finish()
        invalidate_summaries(self._db, self._changed_parents)
        return PutResult(
            added=added,
            changed=changed,
            unchanged=len(blocks) - added - changed,
            kept_readers=tuple(self._kept_readers),
            narrowed=tuple(self._narrowed),
        )

    def _limit_access(self, before: BlockRow, block: Block, importing: ImportAccess) -> Block:
        """The block with readers of whom none is new; its stored readers stay if the import does not change them."""
        stored = None if before.readers is None else tuple(json.loads(before.readers))
        named = stored if block.readers is None or block.id in importing.unchanged else block.readers
        wanted = replace(block, readers=named)
        allowed, asked = (
            self._classes.get_readers(before.access),
            self._classes.get_readers(self._resolve_access(wanted)),
        )
        widens = PUBLIC not in allowed and not asked <= allowed
        if widens:
            self._kept_readers.append(block.id)
        elif asked != allowed and PUBLIC not in asked:
            self._narrowed.append(block.id)
        return replace(block, readers=tuple(sorted(allowed))) if widens else wanted

    def _check_readable(self, before: BlockRow | None) -> None:
        if before is not None and not self._classes.may_read(before.access):
            raise NotFound(f"there is no block {before.id!r}")

    def _load_parents(self, blocks: Sequence[Block]) -> None:
        """Load the parents that are not in the batch; raises `NotFound` for one the scope cannot read."""
        coming = {block.id for block in blocks}
        outside = {
            block.parent: block.id for block in blocks if block.parent is not None and block.parent not in coming
        }
        found = load_rows_by_id(self._db, self._scope.tenant, outside)
        for parent, child in outside.items():
            there = found.get(parent)
            if there is None or there.deletion is not None or not self._classes.may_read(there.access):
                raise NotFound(f"there is no block {parent!r}, which block {child!r} names as its parent")
            self._parents[parent] = _Parent(there.row, there.access)

    def _reload(self, before: BlockRow | None) -> BlockRow | None:
        """Current row: an ancestor written earlier in this upsert may have changed its access class."""
        return load_row(self._db, before.row) if before is not None and self._access_changed else before

    def _resolve_parent(self, block: Block) -> _Parent:
        if block.parent is None:
            return _Parent(None, self._classes.get_or_create((PUBLIC,)))
        parent = self._parents[block.parent]
        if self._access_changed and parent.row is not None:
            query = "SELECT class FROM blocks WHERE row = ?"
            return _Parent(parent.row, self._db.execute(query, (parent.row,)).fetchone()[0])
        return parent

    def _resolve_access(self, block: Block) -> int:
        """Access class of the block's own readers, or the one its parent has after this write."""
        return (
            self._resolve_parent(block).access if block.readers is None else self._classes.get_or_create(block.readers)
        )

    def _is_unchanged(self, before: BlockRow, block: Block) -> bool:
        """Whether writing would change nothing; a different modification time alone is no change."""
        readers = None if block.readers is None else encode_readers(block.readers)
        return (
            before.parent == self._resolve_parent(block).row
            and before.position == block.order
            and (before.type, before.text, before.readers) == (block.type, block.text, readers)
            and before.properties == encode_json(dict(block.properties), "properties")
            and block.author in ("", before.author)
        )

    def _write_block(self, before: BlockRow | None, block: Block) -> None:
        parent = self._resolve_parent(block)
        access = self._resolve_access(block)
        if before is not None:
            self._queue_outdated(before, block, parent, access)
        modified = to_microseconds(block.modified or self._now)
        given = {**self._row_params(before, block, modified), "parent": parent.row, "class": access}
        row: int = self._db.execute(_UPSERT_BLOCK, given).fetchone()[0]
        if _is_new(before):
            mark_outdated(self._db, "row = :row", {"row": row})
        if before is not None and before.access != access:
            self._db.execute(INHERIT_ACCESS, {"row": row, "class": access})
            self._access_changed = True
        if before is not None and before.parent != parent.row:
            check_depth(self._db, row, block.id)
        self._parents[block.id] = _Parent(row, access)
        self._changed_parents |= {parent.row, None if before is None else before.parent}
        self._links.add_block(row, block, before, modified=modified)
        if self._importing is None:
            edit = Activity(
                block_id=block.id, user=self._scope.user, deed=ActivityKind.EDIT, time=from_microseconds(modified)
            )
            count_activity(self._db, self._scope.tenant, edit, row)

    def _queue_outdated(self, before: BlockRow, block: Block, parent: _Parent, access: int) -> None:
        """Queue what a change outdates: the block, and its subtree if that shows its title or inherits its access."""
        title = (before.type, before.text) != (block.type, block.text)
        shown = title and (block.type in _TITLED_TYPES or before.type in _TITLED_TYPES)
        if shown or before.access != access or before.parent != parent.row:
            mark_subtree_outdated(self._db, before.row)
        else:
            mark_outdated(self._db, "row = :row", {"row": before.row})

    def _row_params(self, before: BlockRow | None, block: Block, modified: int) -> SqlParams:
        due = task_due(block)
        first = before.created if before is not None else min(modified, to_microseconds(self._now))
        return {
            "tenant": self._scope.tenant,
            "id": block.id,
            "position": block.order,
            "type": str(block.type),
            "text": block.text,
            "properties": encode_json(dict(block.properties), f"the properties of block {block.id!r}"),
            "readers": None if block.readers is None else encode_readers(block.readers),
            "author": block.author or (before.author if before else self._scope.user),
            "created": first if block.created is None else to_microseconds(block.created),
            "modified": modified,
            "due": None if due is None else to_microseconds(due),
            "done": int(is_done(block)),
        }


def _is_new(before: BlockRow | None) -> bool:
    return before is None or before.deletion is not None


_RESTORE_STATEMENTS = (
    "INSERT INTO pending (tenant, id, class) SELECT tenant, id, class FROM blocks WHERE deletion = ?",
    "UPDATE blocks SET deletion = NULL, facts = NULL WHERE deletion = ?",
    "DELETE FROM deletions WHERE number = ?",
)

# A block that was rewritten and deleted again belongs to a later deletion than its descendants.
_OUTER_PARENTS = """
SELECT DISTINCT p.row, p.deletion FROM blocks b CROSS JOIN blocks p ON p.row = b.parent
WHERE b.deletion = :number AND (p.deletion IS NULL OR p.deletion <> :number)
"""

_DELETED_ROWS = """
WITH RECURSIVE gone (row) AS (
    SELECT row FROM blocks WHERE deletion = :number
    UNION SELECT b.row FROM gone CROSS JOIN blocks b ON b.parent = gone.row WHERE b.deletion IS NOT NULL
)
SELECT row FROM gone
"""


def move_block(
    db: sqlite3.Connection, scope: Scope, names: FindLinks, block_id: str, parent: str | None, order: float
) -> None:
    """Move a block under another parent, or make it a root.

    Raises `NotFound` for a block the scope cannot read, and `InvalidRequest` for a cycle or a tree that is too deep.
    """
    classes = BlockAccessClasses(db, scope)
    block = _load_live(db, scope, classes, block_id)
    below = None if parent is None else _load_live(db, scope, classes, parent)
    if below is not None:
        _check_not_below_itself(db, block, below)
    mark_subtree_outdated(db, block.row)
    inherited = classes.get_or_create((PUBLIC,)) if below is None else below.access
    access = inherited if block.readers is None else block.access
    db.execute(
        "UPDATE blocks SET parent = ?, position = ?, class = ?, facts = NULL WHERE row = ?",
        (None if below is None else below.row, order, access, block.row),
    )
    check_depth(db, block.row, block.id)
    invalidate_summaries(db, [block.parent, None if below is None else below.row])
    if access != block.access:
        db.execute(INHERIT_ACCESS, {"row": block.row, "class": access})
    if block.type == BlockType.DB_ROW:
        told = Block(id=block.id, type=BlockType.DB_ROW, text=block.text, properties=decode_json(block.properties))
        LinkIndexer(db, scope.tenant, names).replace_links(block.row, told, block.modified)


def delete_blocks(db: sqlite3.Connection, scope: Scope, ids: Sequence[str], now: datetime) -> int:
    """Soft-delete each of these blocks with its live descendants, as one deletion each.

    Returns how many of the deleted blocks the scope may read.
    """
    classes = BlockAccessClasses(db, scope)
    gone = 0
    for name in ids:
        block = load_rows_by_id(db, scope.tenant, [name]).get(name)
        if block is None or block.deletion is not None or not classes.may_read(block.access):
            continue
        mark_subtree_outdated(db, block.row)
        query = "INSERT INTO deletions (tenant, root, time) VALUES (?, ?, ?) RETURNING number"
        number: int = db.execute(query, (scope.tenant, block.row, to_microseconds(now))).fetchone()[0]
        db.execute(
            f"{SUBTREE_CTE} UPDATE blocks SET deletion = :number "
            "WHERE deletion IS NULL AND row IN (SELECT row FROM below)",
            {"row": block.row, "number": number},
        )
        invalidate_summaries(db, [block.parent])
        gone += _count_readable(db, scope, number)
    return gone


def restore_blocks(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> int:
    """Undo the deletion of each of these blocks; raises `InvalidRequest` while its parent is deleted."""
    classes = BlockAccessClasses(db, scope)
    back = 0
    for name in ids:
        block = load_rows_by_id(db, scope.tenant, [name]).get(name)
        if block is None or block.deletion is None or not classes.may_read(block.access):
            continue
        above = db.execute(_OUTER_PARENTS, {"number": block.deletion}).fetchall()
        if any(deletion is not None for _, deletion in above):
            raise InvalidRequest(f"block {name!r} cannot be restored while its parent is deleted")
        back += _count_readable(db, scope, block.deletion)
        for step in _RESTORE_STATEMENTS:
            db.execute(step, (block.deletion,))
        invalidate_summaries(db, [row for row, _ in above])
    return back


def purge_deleted(db: sqlite3.Connection, scope: Scope, before: datetime) -> int:
    """Permanently remove blocks deleted before a time, where the scope may read the deleted root.

    Returns how many of the removed blocks the scope may read.
    """
    classes = BlockAccessClasses(db, scope)
    query = "SELECT number, root FROM deletions WHERE tenant = ? AND time < ?"
    gone = 0
    for number, row in db.execute(query, (scope.tenant, to_microseconds(before))).fetchall():
        root = load_row(db, row)
        if root is None or classes.may_read(root.access):
            gone += _purge_deletion(db, scope, number)
    return gone


def _purge_deletion(db: sqlite3.Connection, scope: Scope, number: int) -> int:
    """Permanently remove the blocks of one deletion, and descendants that were deleted earlier."""
    rows = json.dumps([row[0] for row in db.execute(_DELETED_ROWS, {"number": number})])
    count = (
        f"SELECT count(*) FROM json_each(:rows) i CROSS JOIN blocks b ON b.row = i.value WHERE {readable_condition()}"
    )
    gone: int = db.execute(count, scope_params(scope, rows=rows)).fetchone()[0]
    _delete_rows(db, rows)
    db.execute("DELETE FROM deletions WHERE number = ?", (number,))
    return gone


def list_trash(db: sqlite3.Connection, scope: Scope, before: datetime) -> list[str]:
    """Ids of the blocks that `purge_deleted` removes, hidden ones too."""
    classes = BlockAccessClasses(db, scope)
    query = "SELECT number, root FROM deletions WHERE tenant = ? AND time < ?"
    ids: dict[str, None] = {}
    for number, row in db.execute(query, (scope.tenant, to_microseconds(before))).fetchall():
        root = load_row(db, row)
        if root is None or classes.may_read(root.access):
            rows = json.dumps([each[0] for each in db.execute(_DELETED_ROWS, {"number": number})])
            ids.update(dict.fromkeys(_ids_of_rows(db, rows)))
    return list(ids)


def list_relatives(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> list[str]:
    """Ids of these readable blocks, of all above and below them, and of those that link to them."""
    classes = BlockAccessClasses(db, scope)
    found: dict[str, None] = {}
    for block in load_rows_by_id(db, scope.tenant, ids).values():
        if not classes.may_read(block.access):
            continue
        below = [row[0] for row in db.execute(f"{SUBTREE_CTE} SELECT row FROM below", {"row": block.row})]
        above = list(islice(walk_up(db, block.row), MAX_DEPTH))
        near = _ids_of_rows(db, json.dumps([*below, *above]))
        names = json.dumps([row[0] for row in db.execute("SELECT name FROM names WHERE row = ?", (block.row,))])
        linking = db.execute(
            "SELECT id FROM links WHERE tenant = :tenant AND (target = :id "
            "OR name IN (SELECT value FROM json_each(:names)))",
            {"tenant": scope.tenant, "id": block.id, "names": names},
        )
        found.update(dict.fromkeys((*near, *(str(row[0]) for row in linking))))
    return list(found)


def erase_blocks(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> list[str]:
    """Permanently remove these readable blocks with all their descendants, deleted or not; returns all removed ids."""
    classes = BlockAccessClasses(db, scope)
    gone: list[str] = []
    for name in ids:
        block = load_rows_by_id(db, scope.tenant, [name]).get(name)
        if block is None or not classes.may_read(block.access):
            continue
        mark_subtree_outdated(db, block.row)
        rows = json.dumps([row[0] for row in db.execute(f"{SUBTREE_CTE} SELECT row FROM below", {"row": block.row})])
        gone += _ids_of_rows(db, rows)
        invalidate_summaries(db, [block.parent])
        _delete_rows(db, rows)
        db.execute("DELETE FROM deletions WHERE root IN (SELECT value FROM json_each(:rows))", {"rows": rows})
    return gone


def _ids_of_rows(db: sqlite3.Connection, rows: str) -> list[str]:
    query = "SELECT b.id FROM json_each(:rows) i CROSS JOIN blocks b ON b.row = i.value"
    return [str(row[0]) for row in db.execute(query, {"rows": rows})]


def _delete_rows(db: sqlite3.Connection, rows: str) -> None:
    tables = {"links": "source", "names": "row", "touches": "row", "cells": "row", "blocks": "row"}
    for table, column in tables.items():
        db.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(:rows))", {"rows": rows})


def _load_live(db: sqlite3.Connection, scope: Scope, classes: BlockAccessClasses, name: str) -> BlockRow:
    found = load_rows_by_id(db, scope.tenant, [name]).get(name)
    if found is None or found.deletion is not None or not classes.may_read(found.access):
        raise NotFound(f"there is no block {name!r}")
    return found


def _check_not_below_itself(db: sqlite3.Connection, block: BlockRow, below: BlockRow) -> None:
    if block.row in islice(walk_up(db, below.row), MAX_DEPTH):
        raise InvalidRequest(f"block {block.id!r} would become its own descendant")


def _count_readable(db: sqlite3.Connection, scope: Scope, number: int) -> int:
    """Number of blocks of a deletion that the scope may read."""
    query = f"SELECT count(*) FROM blocks b WHERE b.deletion = :number AND {readable_condition()}"
    found: int = db.execute(query, scope_params(scope, number=number)).fetchone()[0]
    return found


_PARENT_ID = "SELECT p.id FROM blocks b JOIN blocks p ON p.row = b.parent WHERE b.tenant = ? AND b.id = ?"

_SUBTREE_HEIGHT = f"""
WITH RECURSIVE below (row, level) AS (
    SELECT :row, 0 UNION SELECT b.row, below.level + 1 FROM below CROSS JOIN blocks b ON b.parent = below.row
    WHERE below.level < {MAX_DEPTH}
)
SELECT max(level) FROM below
"""


def check_depth(db: sqlite3.Connection, row: int, name: str) -> None:
    """Raise `InvalidRequest` if a block or its descendants are deeper than `MAX_DEPTH` after a move."""
    above = sum(1 for _ in islice(walk_up(db, row), MAX_DEPTH + 1))
    if above + db.execute(_SUBTREE_HEIGHT, {"row": row}).fetchone()[0] > MAX_DEPTH:
        raise InvalidRequest(f"block {name!r} or one of its descendants would be more than {MAX_DEPTH} levels deep")


class WritePlan:
    """The order in which a batch of blocks is written: parents before children."""

    def __init__(self, db: sqlite3.Connection, tenant: str, blocks: Sequence[Block]) -> None:
        self._db = db
        self._tenant = tenant
        self._incoming = {block.id: block for block in blocks}
        self._depths: dict[str, int] = {}

    def in_order(self) -> Iterator[Block]:
        """Yield the blocks, each after its parent; raises `InvalidRequest` for a cycle or a tree that is too deep."""
        for name in self._incoming:
            yield from self._with_parents(name)

    def _with_parents(self, name: str) -> Iterator[Block]:
        """Yield the ancestors that were not yielded yet, then the block."""
        chain: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in self._depths:
            if at in chain:
                raise InvalidRequest(f"block {name!r} would become its own descendant")
            chain[at] = None
            at = self._parent(at)
        depth = 0 if at is None else self._depths[at]
        for each in reversed(chain):
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidRequest(f"block {name!r} would be more than {MAX_DEPTH} levels deep")
            self._depths[each] = depth
            if each in self._incoming:
                yield self._incoming[each]

    def _parent(self, name: str) -> str | None:
        if name in self._incoming:
            return self._incoming[name].parent
        found = self._db.execute(_PARENT_ID, (self._tenant, name)).fetchone()
        return None if found is None else found[0]


_DATABASE_ROWS = "SELECT row, id, text, properties, modified FROM blocks WHERE parent = ? AND type = 'db_row'"

_NO_COLUMNS: Mapping[str, Json] = {}


class _WrittenBlock(NamedTuple):
    block: Block
    modified: int


class LinkIndexer:
    """Stores names of written blocks immediately, and their links in `finish`, when all database schemas are known."""

    def __init__(self, db: sqlite3.Connection, tenant: str, names: FindLinks) -> None:
        self._db = db
        self._tenant = tenant
        self._names = names
        self._written: dict[int, _WrittenBlock] = {}
        self._schemas: dict[int, Mapping[str, Json]] = {}
        self._changed_databases: list[int] = []

    def add_block(self, row: int, block: Block, before: BlockRow | None, *, modified: int) -> None:
        """Record a block that was written to this row."""
        self._written[row] = _WrittenBlock(block, modified)
        if before is not None:
            self._db.execute("DELETE FROM names WHERE row = ?", (row,))
            if BlockType.DB in (before.type, block.type) and _stored_schema(
                before.type, before.properties
            ) != _block_schema(block):
                self._changed_databases.append(row)
        if block.type in LINKABLE_TYPES:
            rank = LINKABLE_TYPES.index(block.type)
            self._db.executemany(
                "INSERT INTO names VALUES (?, ?, ?, ?, ?)",
                [(self._tenant, name, rank, block.id, row) for name in link_names(block)],
            )

    def finish(self) -> None:
        """Store the links of all written blocks, and of database rows whose database changed its columns."""
        for row, (block, modified) in self._written.items():
            self.replace_links(row, block, modified)
        for database in self._changed_databases:
            mark_outdated(self._db, "parent = :parent AND type = 'db_row'", {"parent": database})
            for row, id_, text, properties, modified in self._db.execute(_DATABASE_ROWS, (database,)).fetchall():
                if row not in self._written:
                    block = Block(id=id_, type=BlockType.DB_ROW, text=text, properties=decode_json(properties))
                    self.replace_links(row, block, modified)

    def replace_links(self, row: int, block: Block, modified: int) -> None:
        """Replace the stored links of a block."""
        schema = self._parent_schema(row) if block.type is BlockType.DB_ROW else _NO_COLUMNS
        self._db.execute("DELETE FROM links WHERE source = ?", (row,))
        self._db.executemany(
            "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (row, place, self._tenant, block.id, str(named.kind), named.column,
                 named.id or None, plain_name(named.page) or None, modified)
                for place, named in enumerate(self._names(block, schema))
            ],
        )  # fmt: skip

    def _parent_schema(self, row: int) -> Mapping[str, Json]:
        """Columns of the database that a database row belongs to."""
        query = "SELECT p.row, p.type, p.properties FROM blocks b JOIN blocks p ON p.row = b.parent WHERE b.row = ?"
        found = self._db.execute(query, (row,)).fetchone()
        if found is None:
            return {}
        if found[0] not in self._schemas:
            self._schemas[found[0]] = _stored_schema(found[1], found[2])
        return self._schemas[found[0]]


def _stored_schema(kind: str, properties: str) -> Mapping[str, Json]:
    return _schema_columns(decode_json(properties)) if kind == BlockType.DB else _NO_COLUMNS


def _block_schema(block: Block) -> Mapping[str, Json]:
    return _schema_columns(block.properties) if block.type is BlockType.DB else _NO_COLUMNS


def _schema_columns(properties: Mapping[str, Json]) -> Mapping[str, Json]:
    schema = properties.get("schema")
    return schema if isinstance(schema, dict) else _NO_COLUMNS
