"""Writes blocks: inheritance is worked out here, once, so that no reader has to."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from contexture.adapters.blocks.activity import count
from contexture.adapters.blocks.facts import forget_summaries
from contexture.adapters.blocks.noting import Noting
from contexture.adapters.blocks.planning import Plan, check_depth
from contexture.adapters.blocks.rows import Given, microseconds, moment
from contexture.adapters.blocks.stored import Classes, Stored, by_id, by_row, outdated, outdated_below, packed_readers
from contexture.adapters.sessions.database import packed
from contexture.errors import NotFound
from contexture.types import PUBLIC, Scope
from contexture.workspace import Activity, Block, BlockType, Deed, NamesIn, Put, done_of, due_of

_HOMES = (BlockType.PAGE, BlockType.DB, BlockType.DB_ROW)

_INSERT = """
INSERT INTO blocks (tenant, id, parent, position, type, text, properties, readers, class, author, created, modified,
    due, done)
VALUES (:tenant, :id, :parent, :position, :type, :text, :properties, :readers, :class, :author, :created, :modified,
    :due, :done)
ON CONFLICT (tenant, id) DO UPDATE SET parent = :parent, position = :position, type = :type, text = :text,
    properties = :properties, readers = :readers, class = :class, author = :author, created = :created,
    modified = :modified, due = :due, done = :done, deletion = NULL, facts = NULL
RETURNING row
"""

# Those that say who may read them are a border that inheritance does not cross.
INHERIT = """
WITH RECURSIVE heirs (row) AS (
    SELECT row FROM blocks WHERE parent = :row AND readers IS NULL
    UNION SELECT b.row FROM heirs CROSS JOIN blocks b ON b.parent = heirs.row WHERE b.readers IS NULL
)
UPDATE blocks SET class = :class, facts = NULL WHERE row IN (SELECT row FROM heirs)
"""


class _Parent(NamedTuple):
    row: int | None
    access: int


class Writing:
    """One write of blocks, inside one transaction."""

    def __init__(self, db: sqlite3.Connection, scope: Scope, names: NamesIn, now: datetime) -> None:
        self._db = db
        self._scope = scope
        self._now = now
        self._classes = Classes(db, scope)
        self._noting = Noting(db, scope.tenant, names)
        self._parents: dict[str, _Parent] = {}
        self._passed_on = False
        self._places: set[int | None] = set()

    def put(self, blocks: Sequence[Block]) -> Put:
        """Write them, parents before their children."""
        known = by_id(self._db, self._scope.tenant, (block.id for block in blocks))
        for block in blocks:
            self._check(known.get(block.id))
        self._find_parents(blocks)
        added = changed = 0
        for block in Plan(self._db, self._scope.tenant, blocks).in_order():
            before = self._now_stored(known.get(block.id))
            if before is not None and before.deletion is None and self._same(before, block):
                self._parents[block.id] = _Parent(before.row, self._access(block))
                continue
            self._write(before, block)
            added, changed = (added + 1, changed) if _is_new(before) else (added, changed + 1)
        self._noting.finish()
        forget_summaries(self._db, self._places)
        return Put(added=added, changed=changed, unchanged=len(blocks) - added - changed)

    def _check(self, before: Stored | None) -> None:
        if before is not None and not self._classes.may_read(before.access):
            raise NotFound(f"there is no block {before.id!r}")

    def _find_parents(self, blocks: Sequence[Block]) -> None:
        """Look up the parents that do not come along; each must be there for the scope."""
        coming = {block.id for block in blocks}
        outside = {
            block.parent: block.id for block in blocks if block.parent is not None and block.parent not in coming
        }
        found = by_id(self._db, self._scope.tenant, outside)
        for parent, child in outside.items():
            there = found.get(parent)
            if there is None or there.deletion is not None or not self._classes.may_read(there.access):
                raise NotFound(f"there is no block {parent!r}, which block {child!r} names as its parent")
            self._parents[parent] = _Parent(there.row, there.access)

    def _now_stored(self, before: Stored | None) -> Stored | None:
        """The block as it is by now: one above it, written before it, may have passed other readers on to it."""
        return by_row(self._db, before.row) if before is not None and self._passed_on else before

    def _parent(self, block: Block) -> _Parent:
        if block.parent is None:
            return _Parent(None, self._classes.number((PUBLIC,)))
        parent = self._parents[block.parent]
        if self._passed_on and parent.row is not None:
            query = "SELECT class FROM blocks WHERE row = ?"
            return _Parent(parent.row, self._db.execute(query, (parent.row,)).fetchone()[0])
        return parent

    def _access(self, block: Block) -> int:
        """Its own readers' class, or the one its parent has once this write is done."""
        return self._parent(block).access if block.readers is None else self._classes.number(block.readers)

    def _same(self, before: Stored, block: Block) -> bool:
        """Whether writing would change nothing; another time of modification alone does not."""
        readers = None if block.readers is None else packed_readers(block.readers)
        return (
            before.parent == self._parent(block).row
            and before.position == block.order
            and (before.type, before.text, before.readers) == (block.type, block.text, readers)
            and before.properties == packed(dict(block.properties), "properties")
            and block.author in ("", before.author)
        )

    def _write(self, before: Stored | None, block: Block) -> None:
        parent = self._parent(block)
        access = self._access(block)
        if before is not None:
            self._before(before, block, parent, access)
        modified = microseconds(block.modified or self._now)
        given = {**self._given(before, block, modified), "parent": parent.row, "class": access}
        row: int = self._db.execute(_INSERT, given).fetchone()[0]
        if _is_new(before):
            outdated(self._db, "row = :row", {"row": row})
        if before is not None and before.access != access:
            self._db.execute(INHERIT, {"row": row, "class": access})
            self._passed_on = True
        if before is not None and before.parent != parent.row:
            check_depth(self._db, row, block.id)
        self._parents[block.id] = _Parent(row, access)
        self._places |= {parent.row, None if before is None else before.parent}
        self._noting.wrote(row, block, before, modified=modified)
        edit = Activity(block_id=block.id, user=self._scope.user, deed=Deed.EDIT, time=moment(modified))
        count(self._db, self._scope.tenant, edit, row)

    def _before(self, before: Stored, block: Block, parent: _Parent, access: int) -> None:
        """What a change outdates: the block, or all below it too when they show its title or inherit from it."""
        title = (before.type, before.text) != (block.type, block.text)
        shown = title and (block.type in _HOMES or before.type in _HOMES)
        if shown or before.access != access or before.parent != parent.row:
            outdated_below(self._db, before.row)
        else:
            outdated(self._db, "row = :row", {"row": before.row})

    def _given(self, before: Stored | None, block: Block, modified: int) -> Given:
        due = due_of(block)
        first = before.created if before is not None else min(modified, microseconds(self._now))
        return {
            "tenant": self._scope.tenant,
            "id": block.id,
            "position": block.order,
            "type": str(block.type),
            "text": block.text,
            "properties": packed(dict(block.properties), f"the properties of block {block.id!r}"),
            "readers": None if block.readers is None else packed_readers(block.readers),
            "author": block.author or (before.author if before else self._scope.user),
            "created": first if block.created is None else microseconds(block.created),
            "modified": modified,
            "due": None if due is None else microseconds(due),
            "done": int(done_of(block)),
        }


def _is_new(before: Stored | None) -> bool:
    return before is None or before.deletion is not None
