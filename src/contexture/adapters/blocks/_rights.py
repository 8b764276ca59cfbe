"""Who may edit and manage a block: rights are stored per block, inherited from its ancestors and checked by writers."""

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from contexture.adapters.blocks.schema import (
    MAX_DEPTH,
    BlockAccessClasses,
    BlockRow,
    encode_readers,
    load_row,
    mark_subtree_outdated,
)
from contexture.errors import NotPermitted
from contexture.types import PUBLIC, Scope
from contexture.workspace import Block, BlockRight


class _Inherited(NamedTuple):
    """The rights of a scope at one block.

    `is_managed` is whether anybody manages it: blocks that an earlier version stored have no creator. `edits` is None
    if neither the block nor an ancestor names its editors.
    """

    manages: bool
    is_managed: bool
    edits: bool | None


_NOTHING_SET = _Inherited(manages=False, is_managed=False, edits=None)


class BlockRights:
    """Rights of one scope inside one transaction; forget them with `clear` after a write that changes any.

    Readers may edit unless the block or an ancestor names its editors. The creators of a block and of its ancestors
    manage it, up to the first that names its managers. A block that nobody manages is managed by its editors.
    """

    def __init__(self, db: sqlite3.Connection, scope: Scope, classes: BlockAccessClasses) -> None:
        self._db = db
        self._user = f"user:{scope.user}"
        self._principals = frozenset(scope.principals)
        self._classes = classes
        self._known: dict[int, _Inherited] = {}

    def may_edit(self, block: BlockRow) -> bool:
        """Whether the scope may change, move and delete a block."""
        found = self._resolve(block)
        return self._classes.may_read(block.access) and (found.manages or found.edits is not False)

    def may_manage(self, block: BlockRow) -> bool:
        """Whether the scope may change a block's readers, editors and managers, and remove it for good."""
        found = self._resolve(block)
        return self._classes.may_read(block.access) and (
            found.manages or (not found.is_managed and found.edits is not False)
        )

    def highest(self, block: BlockRow) -> BlockRight:
        """The highest right of the scope to a block that it may read."""
        if self.may_manage(block):
            return BlockRight.MANAGE
        return BlockRight.EDIT if self.may_edit(block) else BlockRight.READ

    def require_edit(self, block: BlockRow) -> None:
        """Raise `NotPermitted` if the scope may not edit a block that it may read."""
        if not self.may_edit(block):
            raise NotPermitted(f"you may read block {block.id!r}, but not edit it")

    def require_manage(self, block: BlockRow, action: str) -> None:
        """Raise `NotPermitted` if the scope may not manage a block that it may read."""
        if not self.may_manage(block):
            raise NotPermitted(f"only those who manage block {block.id!r} may {action}")

    def clear(self) -> None:
        """Forget what was resolved."""
        self._known.clear()

    def _resolve(self, block: BlockRow) -> _Inherited:
        chain: list[BlockRow] = []
        at: BlockRow | None = block
        while at is not None and at.row not in self._known and len(chain) <= MAX_DEPTH:
            chain.append(at)
            at = load_row(self._db, at.parent)
        found = _NOTHING_SET if at is None else self._known.get(at.row, _NOTHING_SET)
        for each in reversed(chain):
            found = self._known[each.row] = self._extend(found, each)
        return found

    def _extend(self, above: _Inherited, block: BlockRow) -> _Inherited:
        """The rights at a block, from those at its parent."""
        created = block.creator == self._user
        if block.managers is None:
            manages, is_managed = created or above.manages, block.creator is not None or above.is_managed
        else:
            manages, is_managed = created or self._is_listed(block.managers), True
        edits = above.edits if block.editors is None else self._is_listed(block.editors)
        return _Inherited(manages=manages, is_managed=is_managed, edits=edits)

    def _is_listed(self, names: str) -> bool:
        return not self._principals.isdisjoint(json.loads(names))


def keep_rights(before: BlockRow, block: Block) -> tuple[str | None, str | None]:
    """The editors and managers of a block that is written by someone who may not change them."""
    _refuse_change(before, "editors", before.editors, block.editors)
    _refuse_change(before, "managers", before.managers, block.managers)
    return before.editors, before.managers


def keep_readers(before: BlockRow, block: Block) -> str | None:
    """The readers of a block that is written by someone who may not change them."""
    _refuse_change(before, "readers", before.readers, block.readers)
    return before.readers


def encode_names(names: Sequence[str] | None) -> str | None:
    """Principals as stored; None inherits."""
    return None if names is None else encode_readers(names)


def _refuse_change(before: BlockRow, what: str, stored: str | None, given: Sequence[str] | None) -> None:
    if given is not None and encode_readers(given) != stored:
        raise NotPermitted(f"only those who manage block {before.id!r} may change its {what}")


# Blocks below `:row` that are not deleted, each before its descendants.
_BELOW = """
WITH RECURSIVE below (row, level) AS (
    SELECT :row, 0 UNION SELECT b.row, below.level + 1 FROM below CROSS JOIN blocks b ON b.parent = below.row
    WHERE b.deletion IS NULL
)
SELECT row FROM below WHERE row <> :row ORDER BY level, row
"""


def find_kept(db: sqlite3.Connection, rights: BlockRights, root: BlockRow, *, manage: bool = False) -> list[BlockRow]:
    """The topmost blocks below `root` that the scope may not remove: they and all below them stay."""
    may_remove = rights.may_manage if manage else rights.may_edit
    kept: dict[int, BlockRow] = {}
    spared: set[int] = set()
    for (row,) in db.execute(_BELOW, {"row": root.row}).fetchall():
        block = load_row(db, row)
        if block is None:
            continue
        if block.parent in spared:
            spared.add(row)
        elif not may_remove(block):
            kept[row] = block
            spared.add(row)
    return list(kept.values())


def displace(
    db: sqlite3.Connection, classes: BlockAccessClasses, kept: Sequence[BlockRow], home: BlockRow | None
) -> None:
    """Move blocks below `home`, with the readers that they have; None makes them roots."""
    inherited = classes.get_or_create((PUBLIC,)) if home is None else home.access
    for block in kept:
        names = block.readers
        if names is None and block.access != inherited:
            names = encode_readers(sorted(classes.get_readers(block.access)))
        _set_parent(db, block, None if home is None else home.row, names)


# Blocks that a deletion moved and that are still where it put them.
_DISPLACED_ROWS = """
SELECT d.row, d.parent, d.readers FROM displaced d CROSS JOIN blocks b ON b.row = d.row
WHERE d.deletion = ? AND (b.parent = d.home OR b.parent IS NULL AND d.home IS NULL)
"""


def replace_displaced(db: sqlite3.Connection, deletion: int) -> None:
    """Move the blocks that a deletion displaced back to their places, unless they were moved again."""
    for row, parent, readers in db.execute(_DISPLACED_ROWS, (deletion,)).fetchall():
        block, above = load_row(db, row), load_row(db, parent)
        if block is None or above is None:
            continue
        mark_subtree_outdated(db, row)
        # Readers that somebody gave it meanwhile stay.
        inherits = readers is None and block.access == above.access
        _set_parent(db, block, parent, None if inherits else block.readers)


def _set_parent(db: sqlite3.Connection, block: BlockRow, parent: int | None, readers: str | None) -> None:
    query = "UPDATE blocks SET parent = ?, readers = ?, facts = NULL WHERE row = ?"
    db.execute(query, (parent, readers, block.row))
