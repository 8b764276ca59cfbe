"""Write operations inside one transaction: upsert, move, delete, restore and purge blocks.

Inherited readers are resolved and links are indexed at write time, so that reads need not.
"""
# ruff: noqa: S608 - queries are put together from fixed pieces, values are parameters

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from contexture import workspace
from contexture.adapters.blocks import schema
from contexture.adapters.blocks._history import check_version, keep_revision
from contexture.adapters.blocks._pending import invalidate_summaries
from contexture.adapters.blocks._queries import count_activity
from contexture.adapters.blocks._rights import (
    BlockRights,
    displace,
    encode_names,
    find_kept,
    keep_readers,
    keep_rights,
    replace_displaced,
)
from contexture.adapters.sqlite import decode_json, encode_json
from contexture.errors import InvalidRequest, NotFound
from contexture.types import PUBLIC, Json, Scope

_TITLED_TYPES = (workspace.BlockType.PAGE, workspace.BlockType.DB, workspace.BlockType.DB_ROW)

_UPSERT_BLOCK = """
INSERT INTO blocks (tenant, id, parent, position, type, text, properties, readers, class, author, created, modified,
    due, done, creator, editors, managers, writer, written)
VALUES (:tenant, :id, :parent, :position, :type, :text, :properties, :readers, :class, :author, :created, :modified,
    :due, :done, :creator, :editors, :managers, :writer, :written)
ON CONFLICT (tenant, id) DO UPDATE SET parent = :parent, position = :position, type = :type, text = :text,
    properties = :properties, readers = :readers, class = :class, author = :author, created = :created,
    modified = :modified, due = :due, done = :done, editors = :editors, managers = :managers,
    writer = :writer, written = :written, version = blocks.version + 1, deletion = NULL, facts = NULL
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
        names: workspace.FindLinks,
        now: datetime,
        importing: workspace.ImportAccess | None = None,
    ) -> None:
        self._db = db
        self._scope = scope
        self._now = now
        self._importing = importing
        self._kept_readers: list[str] = []
        self._narrowed: list[str] = []
        self._classes = schema.BlockAccessClasses(db, scope)
        self._rights = BlockRights(db, scope, self._classes)
        self._links = LinkIndexer(db, scope.tenant, names)
        self._parents: dict[str, _Parent] = {}
        self._hidden_parents: dict[str, int] = {}
        self._access_changed = False
        self._changed_parents: set[int | None] = set()

    def put(self, blocks: Sequence[workspace.Block]) -> workspace.PutResult:
        """Write the blocks, parents before children; unchanged ones are skipped.

        Raises `NotPermitted` for a block or parent that the scope may read but not edit, and for a change of readers,
        editors or managers by someone who does not manage the block. Raises `Conflict` for another version.
        """
        known = schema.load_rows_by_id(self._db, self._scope.tenant, (block.id for block in blocks))
        for block in blocks:
            self._check_readable(known.get(block.id))
            check_version(block.id, _live_version(known.get(block.id)), block.version)
        self._load_parents(blocks, known)
        added = changed = 0
        for block in WritePlan(self._db, self._scope.tenant, blocks).in_order():
            before = self._reload(known.get(block.id))
            block = self._limit_write(before, block)  # noqa: PLW2901 - the block that is written
            if before is not None and before.deletion is None and self._is_unchanged(before, block):
                self._parents[block.id] = _Parent(before.row, self._resolve_access(block))
                continue
            self._write_block(before, block)
            added, changed = (added + 1, changed) if _is_new(before) else (added, changed + 1)
        self._links.finish()
        invalidate_summaries(self._db, self._changed_parents)
        return workspace.PutResult(
            added=added,
            changed=changed,
            unchanged=len(blocks) - added - changed,
            kept_readers=tuple(self._kept_readers),
            narrowed=tuple(self._narrowed),
        )

    def _limit_write(self, before: schema.BlockRow | None, block: workspace.Block) -> workspace.Block:
        """The block with the rights that the scope may give it; editors and managers stay in an import."""
        if self._importing is None:
            block = replace(block, author="")  # of a new block the writer, of others the one that is stored
        if before is None:
            return block
        manages = self._rights.may_manage(before)
        editors, managers = _decode(before.editors), _decode(before.managers)
        if self._importing is not None:
            block = replace(block, editors=editors, managers=managers)
            return self._limit_access(before, block, self._importing, manages=manages)
        if manages:
            return block
        keep_rights(before, block)
        return replace(block, readers=_decode(keep_readers(before, block)), editors=editors, managers=managers)

    def _limit_access(
        self, before: schema.BlockRow, block: workspace.Block, importing: workspace.ImportAccess, *, manages: bool
    ) -> workspace.Block:
        """The block with readers of whom none is new; its stored readers stay if the import does not change them."""
        stored = _decode(before.readers)
        if not manages:
            if block.readers not in (None, stored) and block.id not in importing.unchanged:
                self._kept_readers.append(block.id)
            return replace(block, readers=stored)
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

    def _check_readable(self, before: schema.BlockRow | None) -> None:
        if before is not None and not self._classes.may_read(before.access):
            raise NotFound(f"there is no block {before.id!r}")

    def _load_parents(self, blocks: Sequence[workspace.Block], known: Mapping[str, schema.BlockRow]) -> None:
        """Load the parents that are not in the batch; raises `NotFound` for one the scope cannot read.

        Raises `NotPermitted` for one that would get a child and that the scope may not edit.
        """
        coming = {block.id for block in blocks}
        outside = {
            block.parent: block.id for block in blocks if block.parent is not None and block.parent not in coming
        }
        self._find_hidden_parents(blocks, known)
        found = schema.load_rows_by_id(self._db, self._scope.tenant, outside)
        for parent, child in outside.items():
            there = found.get(parent)
            if there is None or there.deletion is not None or not self._classes.may_read(there.access):
                raise NotFound(f"there is no block {parent!r}, which block {child!r} names as its parent")
            if known.get(child) is None or known[child].parent != there.row:
                self._rights.require_edit(there)
            self._parents[parent] = _Parent(there.row, there.access)

    def _find_hidden_parents(self, blocks: Sequence[workspace.Block], known: Mapping[str, schema.BlockRow]) -> None:
        """Find the parents of blocks that were read, and are written back, without a parent the scope may not read."""
        for block in blocks:
            before = known.get(block.id)
            if block.parent is not None or before is None or before.parent is None or before.deletion is not None:
                continue
            above = schema.load_row(self._db, before.parent)
            if above is not None and above.deletion is None and not self._classes.may_read(above.access):
                self._hidden_parents[block.id] = above.row

    def _reload(self, before: schema.BlockRow | None) -> schema.BlockRow | None:
        """Current row: an ancestor written earlier in this upsert may have changed its access class."""
        return schema.load_row(self._db, before.row) if before is not None and self._access_changed else before

    def _resolve_parent(self, block: workspace.Block) -> _Parent:
        if block.id in self._hidden_parents:
            row = self._hidden_parents[block.id]
            above = schema.load_row(self._db, row)
            return _Parent(row, self._classes.get_or_create((PUBLIC,)) if above is None else above.access)
        if block.parent is None:
            return _Parent(None, self._classes.get_or_create((PUBLIC,)))
        parent = self._parents[block.parent]
        if self._access_changed and parent.row is not None:
            query = "SELECT class FROM blocks WHERE row = ?"
            return _Parent(parent.row, self._db.execute(query, (parent.row,)).fetchone()[0])
        return parent

    def _resolve_access(self, block: workspace.Block) -> int:
        """Access class of the block's own readers, or the one its parent has after this write."""
        return (
            self._resolve_parent(block).access if block.readers is None else self._classes.get_or_create(block.readers)
        )

    def _is_unchanged(self, before: schema.BlockRow, block: workspace.Block) -> bool:
        """Whether writing would change nothing; a different modification time alone is no change."""
        readers = None if block.readers is None else schema.encode_readers(block.readers)
        return (
            before.parent == self._resolve_parent(block).row
            and before.position == block.order
            and (before.type, before.text, before.readers) == (block.type, block.text, readers)
            and before.properties == encode_json(dict(block.properties), "properties")
            and block.author in ("", before.author)
            and (before.editors, before.managers) == (encode_names(block.editors), encode_names(block.managers))
        )

    def _write_block(self, before: schema.BlockRow | None, block: workspace.Block) -> None:
        parent = self._resolve_parent(block)
        access = self._resolve_access(block)
        if before is not None:
            self._check_rights(before, block, parent, access)
            self._queue_outdated(before, block, parent, access)
            keep_revision(self._db, before.row, before.version)
        modified = schema.to_microseconds(block.modified or self._now)
        given = {**self._row_params(before, block, modified), "parent": parent.row, "class": access}
        row: int = self._db.execute(_UPSERT_BLOCK, given).fetchone()[0]
        if _is_new(before):
            schema.mark_outdated(self._db, "row = :row", {"row": row})
        if before is not None and before.access != access:
            self._db.execute(INHERIT_ACCESS, {"row": row, "class": access})
            self._access_changed = True
        if before is not None and before.parent != parent.row:
            check_depth(self._db, row, block.id)
        self._parents[block.id] = _Parent(row, access)
        self._changed_parents |= {parent.row, None if before is None else before.parent}
        self._links.add_block(row, block, before, modified=modified)
        if self._importing is None:
            edit = workspace.Activity(
                block_id=block.id,
                user=self._scope.user,
                deed=workspace.ActivityKind.EDIT,
                time=schema.from_microseconds(modified),
            )
            count_activity(self._db, self._scope.tenant, edit, row)

    def _check_rights(self, before: schema.BlockRow, block: workspace.Block, parent: _Parent, access: int) -> None:
        self._rights.require_edit(before)
        if before.parent != parent.row:
            _require_edit_of_parent(self._db, self._rights, self._classes, before)
            if access != before.access and self._importing is None:
                self._rights.require_manage(before, "move it to a place with other readers")
        if (before.editors, before.managers) != (encode_names(block.editors), encode_names(block.managers)):
            self._rights.clear()

    def _queue_outdated(self, before: schema.BlockRow, block: workspace.Block, parent: _Parent, access: int) -> None:
        """Queue what a change outdates: the block, and its subtree if that shows its title or inherits its access."""
        title = (before.type, before.text) != (block.type, block.text)
        shown = title and (block.type in _TITLED_TYPES or before.type in _TITLED_TYPES)
        if shown or before.access != access or before.parent != parent.row:
            schema.mark_subtree_outdated(self._db, before.row)
        else:
            schema.mark_outdated(self._db, "row = :row", {"row": before.row})

    def _row_params(self, before: schema.BlockRow | None, block: workspace.Block, modified: int) -> schema.SqlParams:
        due = workspace.task_due(block)
        first = before.created if before is not None else min(modified, schema.to_microseconds(self._now))
        return {
            "tenant": self._scope.tenant,
            "id": block.id,
            "position": block.order,
            "type": str(block.type),
            "text": block.text,
            "properties": encode_json(dict(block.properties), f"the properties of block {block.id!r}"),
            "readers": None if block.readers is None else schema.encode_readers(block.readers),
            "author": block.author or (before.author if before else self._scope.user),
            "created": first if block.created is None else schema.to_microseconds(block.created),
            "modified": modified,
            "due": None if due is None else schema.to_microseconds(due),
            "done": int(workspace.is_done(block)),
            "creator": f"user:{self._scope.user}",
            "editors": encode_names(block.editors),
            "managers": encode_names(block.managers),
            "writer": self._scope.user,
            "written": schema.to_microseconds(self._now),
        }


def _decode(names: str | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(json.loads(names))


def _live_version(block: schema.BlockRow | None) -> int:
    return block.version if block is not None and block.deletion is None else 0


def _require_edit_of_parent(
    db: sqlite3.Connection, rights: BlockRights, classes: schema.BlockAccessClasses, block: schema.BlockRow
) -> None:
    """Raise `NotPermitted` if the scope may read, but not edit, the parent that a block leaves."""
    above = schema.load_row(db, block.parent)
    if above is not None and classes.may_read(above.access):
        rights.require_edit(above)


def _is_new(before: schema.BlockRow | None) -> bool:
    return before is None or before.deletion is not None


_RESTORE_STATEMENTS = (
    "INSERT INTO pending (tenant, id, class) SELECT tenant, id, class FROM blocks WHERE deletion = ?",
    "UPDATE blocks SET deletion = NULL, facts = NULL WHERE deletion = ?",
    "DELETE FROM deletions WHERE number = ?",
    "DELETE FROM displaced WHERE deletion = ?",
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


class BlockMove(NamedTuple):
    """Where a block goes, when, and the version that is moved, 0 for any."""

    id: str
    parent: str | None
    order: float
    now: datetime
    version: int


def move_block(db: sqlite3.Connection, scope: Scope, names: workspace.FindLinks, move: BlockMove) -> None:
    """Move a block under another parent, or make it a root.

    Raises `NotFound` for a block the scope cannot read, `NotPermitted` for one it may not edit, `Conflict` for another
    version, and `InvalidRequest` for a cycle or a tree that is too deep.
    """
    classes = schema.BlockAccessClasses(db, scope)
    block = _load_live(db, scope, classes, move.id)
    below = None if move.parent is None else _load_live(db, scope, classes, move.parent)
    rights = BlockRights(db, scope, classes)
    rights.require_edit(block)
    check_version(block.id, block.version, move.version)
    if block.parent != (None if below is None else below.row):
        _require_edit_of_parent(db, rights, classes, block)
    if below is not None:
        rights.require_edit(below)
        _check_not_below_itself(db, block, below)
    schema.mark_subtree_outdated(db, block.row)
    inherited = classes.get_or_create((PUBLIC,)) if below is None else below.access
    access = inherited if block.readers is None else block.access
    if access != block.access:
        rights.require_manage(block, "move it to a place with other readers")
    keep_revision(db, block.row, block.version)
    db.execute(
        "UPDATE blocks SET parent = ?, position = ?, class = ?, version = version + 1, facts = NULL, "
        "writer = ?, written = ? WHERE row = ?",
        (
            *(None if below is None else below.row, move.order, access),
            *(scope.user, schema.to_microseconds(move.now), block.row),
        ),
    )
    check_depth(db, block.row, block.id)
    invalidate_summaries(db, [block.parent, None if below is None else below.row])
    if access != block.access:
        db.execute(INHERIT_ACCESS, {"row": block.row, "class": access})
    if block.type == workspace.BlockType.DB_ROW:
        written = workspace.Block(
            id=block.id, type=workspace.BlockType.DB_ROW, text=block.text, properties=decode_json(block.properties)
        )
        LinkIndexer(db, scope.tenant, names).replace_links(block.row, written, block.modified)


def delete_blocks(
    db: sqlite3.Connection, scope: Scope, ids: Sequence[str], now: datetime, versions: Mapping[str, int]
) -> Sequence[str]:
    """Soft-delete each of these blocks with the live descendants that the scope may edit, as one deletion each.

    Other descendants move to the parent of the block. Raises `NotPermitted` for a block that the scope may read but
    not edit, and `Conflict` for another version. Returns the ids of the blocks that were deleted.
    """
    classes = schema.BlockAccessClasses(db, scope)
    rights = BlockRights(db, scope, classes)
    gone: list[str] = []
    for name in ids:
        block = schema.load_rows_by_id(db, scope.tenant, [name]).get(name)
        if block is None or block.deletion is not None or not classes.may_read(block.access):
            continue
        rights.require_edit(block)
        check_version(name, block.version, versions.get(name, 0))
        schema.mark_subtree_outdated(db, block.row)
        query = "INSERT INTO deletions (tenant, root, time, writer) VALUES (?, ?, ?, ?) RETURNING number"
        given = (scope.tenant, block.row, schema.to_microseconds(now), scope.user)
        number: int = db.execute(query, given).fetchone()[0]
        kept = find_kept(db, rights, block)
        db.executemany(
            "INSERT INTO displaced VALUES (?, ?, ?, ?, ?)",
            [(number, each.row, each.parent, block.parent, each.readers) for each in kept],
        )
        displace(db, classes, kept, schema.load_row(db, block.parent))
        db.execute(
            f"{schema.SUBTREE_CTE} UPDATE blocks SET deletion = :number "
            "WHERE deletion IS NULL AND row IN (SELECT row FROM below)",
            {"row": block.row, "number": number},
        )
        invalidate_summaries(db, [block.parent])
        gone += _list_readable(db, scope, number)
    return gone


def restore_blocks(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> int:
    """Undo the deletion of each of these blocks; raises `InvalidRequest` while its parent is deleted.

    Blocks that the deletion moved return to their places, unless they were moved again.
    """
    classes = schema.BlockAccessClasses(db, scope)
    rights = BlockRights(db, scope, classes)
    back = 0
    for name in ids:
        block = schema.load_rows_by_id(db, scope.tenant, [name]).get(name)
        if block is None or block.deletion is None or not classes.may_read(block.access):
            continue
        rights.require_edit(block)
        above = db.execute(_OUTER_PARENTS, {"number": block.deletion}).fetchall()
        if any(deletion is not None for _, deletion in above):
            raise InvalidRequest(f"block {name!r} cannot be restored while its parent is deleted")
        back += len(_list_readable(db, scope, block.deletion))
        replace_displaced(db, block.deletion)
        for step in _RESTORE_STATEMENTS:
            db.execute(step, (block.deletion,))
        rights.clear()
        invalidate_summaries(db, [row for row, _ in above])
    return back


def purge_deleted(db: sqlite3.Connection, scope: Scope, before: datetime) -> int:
    """Permanently remove the blocks deleted before a time that the scope manages; returns how many."""
    classes = schema.BlockAccessClasses(db, scope)
    rights = BlockRights(db, scope, classes)
    return sum(_purge_deletion(db, classes, rights, number) for number in _deletions_before(db, scope, before))


def _deletions_before(db: sqlite3.Connection, scope: Scope, before: datetime) -> list[int]:
    query = "SELECT number FROM deletions WHERE tenant = ? AND time < ? ORDER BY number"
    return [row[0] for row in db.execute(query, (scope.tenant, schema.to_microseconds(before)))]


def _load_deleted(db: sqlite3.Connection, number: int) -> list[schema.BlockRow]:
    """The blocks of one deletion, and descendants that were deleted earlier."""
    rows = [row[0] for row in db.execute(_DELETED_ROWS, {"number": number})]
    return [block for row in rows if (block := schema.load_row(db, row)) is not None]


def _purge_deletion(
    db: sqlite3.Connection, classes: schema.BlockAccessClasses, rights: BlockRights, number: int
) -> int:
    """Remove the blocks of a deletion that the scope manages; the others stay deleted, below the next that is left."""
    found = _load_deleted(db, number)
    removed = {block.row: block for block in found if rights.may_manage(block)}
    left = [block for block in found if block.row not in removed]
    for block in left:
        above = block.parent
        while above in removed:
            above = removed[above].parent
        if above != block.parent:
            displace(db, classes, [block], schema.load_row(db, above))
    _delete_rows(db, json.dumps(list(removed)))
    rights.clear()
    if not left:
        db.execute("DELETE FROM deletions WHERE number = ?", (number,))
        db.execute("DELETE FROM displaced WHERE deletion = ?", (number,))
    return len(removed)


def list_trash(db: sqlite3.Connection, scope: Scope, before: datetime) -> list[str]:
    """Ids of the blocks that `purge_deleted` removes."""
    rights = BlockRights(db, scope, schema.BlockAccessClasses(db, scope))
    found = (block for number in _deletions_before(db, scope, before) for block in _load_deleted(db, number))
    return list(dict.fromkeys(block.id for block in found if rights.may_manage(block)))


def list_private(db: sqlite3.Connection, scope: Scope) -> list[str]:
    """Ids of the blocks, deleted or not, whose only reader is the scope's user."""
    query = (
        "SELECT b.id FROM blocks b JOIN classes c ON c.class = b.class WHERE b.tenant = ? AND c.acl = ? ORDER BY b.row"
    )
    return [str(row[0]) for row in db.execute(query, (scope.tenant, schema.encode_readers([f"user:{scope.user}"])))]


def list_relatives(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> list[str]:
    """Ids of these readable blocks, of all above and below them, and of those that link to them."""
    classes = schema.BlockAccessClasses(db, scope)
    found: dict[str, None] = {}
    for block in schema.load_rows_by_id(db, scope.tenant, ids).values():
        if not classes.may_read(block.access):
            continue
        below = [row[0] for row in db.execute(f"{schema.SUBTREE_CTE} SELECT row FROM below", {"row": block.row})]
        above = list(islice(schema.walk_up(db, block.row), schema.MAX_DEPTH))
        near = _ids_of_rows(db, json.dumps([*below, *above]))
        names = json.dumps([row[0] for row in db.execute("SELECT name FROM names WHERE row = ?", (block.row,))])
        linking = db.execute(
            "SELECT id FROM links WHERE tenant = :tenant AND (target = :id "
            "OR name IN (SELECT value FROM json_each(:names)))",
            {"tenant": scope.tenant, "id": block.id, "names": names},
        )
        found.update(dict.fromkeys((*near, *(str(row[0]) for row in linking))))
    return list(found)


def list_rights(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> dict[str, workspace.BlockRight]:
    """The highest right of the scope to each of these blocks that it may read."""
    classes = schema.BlockAccessClasses(db, scope)
    rights = BlockRights(db, scope, classes)
    found = schema.load_rows_by_id(db, scope.tenant, ids).values()
    return {block.id: rights.highest(block) for block in found if classes.may_read(block.access)}


def erase_blocks(db: sqlite3.Connection, scope: Scope, ids: Sequence[str]) -> list[str]:
    """Permanently remove these readable blocks with their descendants, deleted or not; returns all removed ids.

    Raises `NotPermitted` for a block that the scope does not manage; descendants that it does not manage move to the
    parent of the block.
    """
    classes = schema.BlockAccessClasses(db, scope)
    rights = BlockRights(db, scope, classes)
    gone: list[str] = []
    for name in ids:
        block = schema.load_rows_by_id(db, scope.tenant, [name]).get(name)
        if block is None or not classes.may_read(block.access):
            continue
        rights.require_manage(block, "erase it")
        schema.mark_subtree_outdated(db, block.row)
        displace(db, classes, find_kept(db, rights, block, manage=True), schema.load_row(db, block.parent))
        rows = json.dumps(
            [row[0] for row in db.execute(f"{schema.SUBTREE_CTE} SELECT row FROM below", {"row": block.row})]
        )
        gone += _ids_of_rows(db, rows)
        invalidate_summaries(db, [block.parent])
        _delete_rows(db, rows)
        db.execute("DELETE FROM deletions WHERE root IN (SELECT value FROM json_each(:rows))", {"rows": rows})
    return gone


def _ids_of_rows(db: sqlite3.Connection, rows: str) -> list[str]:
    query = "SELECT b.id FROM json_each(:rows) i CROSS JOIN blocks b ON b.row = i.value"
    return [str(row[0]) for row in db.execute(query, {"rows": rows})]


def _delete_rows(db: sqlite3.Connection, rows: str) -> None:
    tables = {"links": "source", "names": "row", "touches": "row", "cells": "row"}
    tables |= {"revisions": "row", "blocks": "row"}
    for table, column in tables.items():
        db.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(:rows))", {"rows": rows})


def _load_live(db: sqlite3.Connection, scope: Scope, classes: schema.BlockAccessClasses, name: str) -> schema.BlockRow:
    found = schema.load_rows_by_id(db, scope.tenant, [name]).get(name)
    if found is None or found.deletion is not None or not classes.may_read(found.access):
        raise NotFound(f"there is no block {name!r}")
    return found


def _check_not_below_itself(db: sqlite3.Connection, block: schema.BlockRow, below: schema.BlockRow) -> None:
    if block.row in islice(schema.walk_up(db, below.row), schema.MAX_DEPTH):
        raise InvalidRequest(f"block {block.id!r} would become its own descendant")


def _list_readable(db: sqlite3.Connection, scope: Scope, number: int) -> list[str]:
    """The ids of the blocks of a deletion that the scope may read."""
    query = f"SELECT b.id FROM blocks b WHERE b.deletion = :number AND {schema.readable_condition()} ORDER BY b.row"
    return [found for (found,) in db.execute(query, schema.scope_params(scope, number=number))]


_PARENT_ID = "SELECT p.id FROM blocks b JOIN blocks p ON p.row = b.parent WHERE b.tenant = ? AND b.id = ?"

_SUBTREE_HEIGHT = f"""
WITH RECURSIVE below (row, level) AS (
    SELECT :row, 0 UNION SELECT b.row, below.level + 1 FROM below CROSS JOIN blocks b ON b.parent = below.row
    WHERE below.level < {schema.MAX_DEPTH}
)
SELECT max(level) FROM below
"""


def check_depth(db: sqlite3.Connection, row: int, name: str) -> None:
    """Raise `InvalidRequest` if a block or its descendants are deeper than `MAX_DEPTH` after a move."""
    above = sum(1 for _ in islice(schema.walk_up(db, row), schema.MAX_DEPTH + 1))
    if above + db.execute(_SUBTREE_HEIGHT, {"row": row}).fetchone()[0] > schema.MAX_DEPTH:
        raise InvalidRequest(
            f"block {name!r} or one of its descendants would be more than {schema.MAX_DEPTH} levels deep"
        )


class WritePlan:
    """The order in which a batch of blocks is written: parents before children."""

    def __init__(self, db: sqlite3.Connection, tenant: str, blocks: Sequence[workspace.Block]) -> None:
        self._db = db
        self._tenant = tenant
        self._incoming = {block.id: block for block in blocks}
        self._depths: dict[str, int] = {}

    def in_order(self) -> Iterator[workspace.Block]:
        """Yield the blocks, each after its parent; raises `InvalidRequest` for a cycle or a tree that is too deep."""
        for name in self._incoming:
            yield from self._with_parents(name)

    def _with_parents(self, name: str) -> Iterator[workspace.Block]:
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
            if depth > schema.MAX_DEPTH:
                raise InvalidRequest(f"block {name!r} would be more than {schema.MAX_DEPTH} levels deep")
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
    block: workspace.Block
    modified: int


class LinkIndexer:
    """Stores names of written blocks immediately, and their links in `finish`, when all database schemas are known."""

    def __init__(self, db: sqlite3.Connection, tenant: str, names: workspace.FindLinks) -> None:
        self._db = db
        self._tenant = tenant
        self._names = names
        self._written: dict[int, _WrittenBlock] = {}
        self._schemas: dict[int, Mapping[str, Json]] = {}
        self._changed_databases: list[int] = []

    def add_block(self, row: int, block: workspace.Block, before: schema.BlockRow | None, *, modified: int) -> None:
        """Record a block that was written to this row."""
        self._written[row] = _WrittenBlock(block, modified)
        if before is not None:
            self._db.execute("DELETE FROM names WHERE row = ?", (row,))
            if workspace.BlockType.DB in (before.type, block.type) and _stored_schema(
                before.type, before.properties
            ) != _block_schema(block):
                self._changed_databases.append(row)
        if block.type in workspace.LINKABLE_TYPES:
            rank = workspace.LINKABLE_TYPES.index(block.type)
            self._db.executemany(
                "INSERT INTO names VALUES (?, ?, ?, ?, ?)",
                [(self._tenant, name, rank, block.id, row) for name in workspace.link_names(block)],
            )

    def finish(self) -> None:
        """Store the links of all written blocks, and of database rows whose database changed its columns."""
        for row, (block, modified) in self._written.items():
            self.replace_links(row, block, modified)
        for database in self._changed_databases:
            schema.mark_outdated(self._db, "parent = :parent AND type = 'db_row'", {"parent": database})
            for row, id_, text, properties, modified in self._db.execute(_DATABASE_ROWS, (database,)).fetchall():
                if row not in self._written:
                    block = workspace.Block(
                        id=id_, type=workspace.BlockType.DB_ROW, text=text, properties=decode_json(properties)
                    )
                    self.replace_links(row, block, modified)

    def replace_links(self, row: int, block: workspace.Block, modified: int) -> None:
        """Replace the stored links of a block."""
        schema = self._parent_schema(row) if block.type is workspace.BlockType.DB_ROW else _NO_COLUMNS
        self._db.execute("DELETE FROM links WHERE source = ?", (row,))
        self._db.executemany(
            "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (row, place, self._tenant, block.id, str(named.kind), named.column,
                 named.id or None, workspace.plain_name(named.page) or None, modified)
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
    return _schema_columns(decode_json(properties)) if kind == workspace.BlockType.DB else _NO_COLUMNS


def _block_schema(block: workspace.Block) -> Mapping[str, Json]:
    return _schema_columns(block.properties) if block.type is workspace.BlockType.DB else _NO_COLUMNS


def _schema_columns(properties: Mapping[str, Json]) -> Mapping[str, Json]:
    schema = properties.get("schema")
    return schema if isinstance(schema, dict) else _NO_COLUMNS
