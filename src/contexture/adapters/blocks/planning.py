"""The order in which blocks that come together are written, and what makes that impossible."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice

from contexture.adapters.blocks.schema import DEEPEST
from contexture.adapters.blocks.stored import upwards
from contexture.errors import InvalidRequest
from contexture.workspace import Block

_PARENT = "SELECT p.id FROM blocks b JOIN blocks p ON p.row = b.parent WHERE b.tenant = ? AND b.id = ?"

_LEVELS = f"""
WITH RECURSIVE below (row, level) AS (
    SELECT :row, 0 UNION SELECT b.row, below.level + 1 FROM below CROSS JOIN blocks b ON b.parent = below.row
    WHERE below.level < {DEEPEST}
)
SELECT max(level) FROM below
"""  # noqa: S608 - a number


def check_depth(db: sqlite3.Connection, row: int, name: str) -> None:
    """Refuse the place that a block was just given when it, or what stands below it, is too deep there."""
    above = sum(1 for _ in islice(upwards(db, row), DEEPEST + 1))
    if above + db.execute(_LEVELS, {"row": row}).fetchone()[0] > DEEPEST:
        raise InvalidRequest(f"block {name!r}, or what stands below it, would be more than {DEEPEST} levels deep")


class Plan:
    """The tree as it will be once these blocks are written."""

    def __init__(self, db: sqlite3.Connection, tenant: str, blocks: Sequence[Block]) -> None:
        self._db = db
        self._tenant = tenant
        self._coming = {block.id: block for block in blocks}
        self._depths: dict[str, int] = {}

    def in_order(self) -> Iterator[Block]:
        """The blocks, each behind its parent; one that would stand below itself, or too deep, is refused."""
        for name in self._coming:
            yield from self._with_parents(name)

    def _with_parents(self, name: str) -> Iterator[Block]:
        """The block behind those of its parents that were not yet given out."""
        chain: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in self._depths:
            if at in chain:
                raise InvalidRequest(f"block {name!r} would stand below itself")
            chain[at] = None
            at = self._parent(at)
        depth = 0 if at is None else self._depths[at]
        for each in reversed(chain):
            depth += 1
            if depth > DEEPEST:
                raise InvalidRequest(f"block {name!r} would be more than {DEEPEST} levels deep")
            self._depths[each] = depth
            if each in self._coming:
                yield self._coming[each]

    def _parent(self, name: str) -> str | None:
        if name in self._coming:
            return self._coming[name].parent
        found = self._db.execute(_PARENT, (self._tenant, name)).fetchone()
        return None if found is None else found[0]
