"""A workspace's blocks in tables, and in a SQLite file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from contexture.adapters.blocks import activity, facts, linking, moving, pending, tree
from contexture.adapters.blocks.connections import Connections
from contexture.adapters.blocks.rows import Rows
from contexture.adapters.blocks.schema import MIGRATIONS
from contexture.adapters.blocks.writing import Writing
from contexture.adapters.sessions.database import Tables
from contexture.types import Scope
from contexture.workspace import Activity, Block, BlockFacts, Deed, Link, NamesIn, Put, Stale, Touch


class StoredBlocks:
    """Blocks, links and activity of every tenant, in tables.

    Implements `WritableBlocks`. Who may read a block is worked out when it is written, and is a condition of every
    query. Links are kept as texts have them and looked up for whoever asks, so that a page that comes later, goes, or
    comes back needs nothing else to be written. When a write returns, it survives the end of the process.
    """

    def __init__(self, tables: Tables, names: NamesIn) -> None:
        self._names = names
        self._rows = Rows()
        self._file = tables

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self._file.exists

    # --- reading ---

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[Block]:
        """Those of `ids` that exist, in the order asked for."""
        return await self._file.read(lambda db: tree.get(db, self._rows, scope, ids))

    async def ancestors(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Block]]:
        """By id, the parents upwards, nearest first; the chain ends where the first hidden one stands."""
        return await self._file.read(lambda db: tree.ancestors(db, self._rows, scope, ids))

    async def siblings(self, scope: Scope, block_id: str, *, before: int, after: int) -> Sequence[Block]:
        """The nearest `before` and `after` siblings, in document order, without the block itself."""
        return await self._file.read(lambda db: tree.siblings(db, self._rows, scope, block_id, before, after))

    async def children(self, scope: Scope, block_id: str, *, limit: int, after: Block | None = None) -> Sequence[Block]:
        """The first children in order, behind `after`."""
        return await self._file.read(lambda db: tree.children(db, self._rows, scope, block_id, limit, after))

    async def subtree(self, scope: Scope, block_id: str, *, depth: int, limit: int) -> Sequence[Block]:
        """Up to `limit` blocks below it in document order, at most `depth` levels down."""
        return await self._file.read(lambda db: tree.subtree(db, self._rows, scope, block_id, depth, limit))

    async def subtrees(self, scope: Scope, limits: Mapping[str, int], *, depth: int) -> Mapping[str, Sequence[Block]]:
        """By id, what `subtree` gives with its limit; all of them in one read."""
        return await self._file.read(
            lambda db: {id_: tree.subtree(db, self._rows, scope, id_, depth, most) for id_, most in limits.items()}
        )

    async def links(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Link]:
        """What these blocks name, relations first."""
        return await self._file.read(lambda db: linking.links(db, scope, ids, limit))

    async def backlinks(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Link]:
        """What names these blocks, the last modified source first."""
        return await self._file.read(lambda db: linking.backlinks(db, self._rows, scope, ids, limit))

    async def recent(self, scope: Scope, deed: Deed, *, since: datetime, limit: int) -> Sequence[Activity]:
        """The scope's own user's newest deeds, one per block, newest first."""
        return await self._file.read(lambda db: activity.recent(db, scope, deed, since, limit))

    async def touches(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Touch]:
        """What the scope's own user has had to do with these blocks."""
        return await self._file.read(lambda db: activity.touches(db, scope, ids))

    async def facts(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockFacts]:
        """What was computed about these blocks when they were last settled."""
        return await self._file.read(lambda db: facts.facts(db, scope, ids))

    async def tasks(
        self, scope: Scope, *, due_before: datetime | None = None, open_only: bool = True, limit: int
    ) -> Sequence[Block]:
        """Todos, cards and rows that have a due date, the earliest due first."""
        return await self._file.read(
            lambda db: tree.tasks(db, self._rows, scope, due_before, limit, open_only=open_only)
        )

    async def find_pages(self, scope: Scope, names: Sequence[str]) -> Mapping[str, Block]:
        """By name, the page, else the database, else the row that has it as title or alias."""
        return await self._file.read(lambda db: linking.find_pages(db, self._rows, scope, names))

    async def stale(self, *, limit: int) -> Sequence[Stale]:
        """Blocks whose search records are to be written, the longest waiting first."""
        if not self.exists:
            return ()
        return await self._file.read(lambda db: pending.stale(db, self._rows, limit))

    # --- writing ---

    async def put(self, scope: Scope, blocks: Sequence[Block], *, now: datetime) -> Put:
        """Write these, or none."""
        return await self._file.write(lambda db: Writing(db, scope, self._names, now).put(blocks))

    async def move(self, scope: Scope, block_id: str, *, parent: str | None, order: float) -> None:
        """Put a block and all below it under another parent, or make it a root."""
        await self._file.write(lambda db: moving.move(db, scope, self._names, block_id, parent, order))

    async def delete(self, scope: Scope, ids: Sequence[str], *, now: datetime) -> int:
        """Hide these and all below them until they are restored."""
        return await self._file.write(lambda db: moving.delete(db, scope, ids, now))

    async def restore(self, scope: Scope, ids: Sequence[str]) -> int:
        """Bring back all that went with each of these in one deletion."""
        return await self._file.write(lambda db: moving.restore(db, scope, ids))

    async def view(self, scope: Scope, block_id: str, *, now: datetime) -> None:
        """Note that the scope's user looked at a block."""
        await self.note(scope, [Activity(block_id=block_id, user=scope.user, deed=Deed.VIEW, time=now)])

    async def note(self, scope: Scope, deeds: Sequence[Activity]) -> None:
        """Note what users did with blocks that the scope may read."""
        await self._file.write(lambda db: activity.note(db, scope, deeds))

    async def purge(self, scope: Scope, *, before: datetime) -> int:
        """Forget for good what was deleted before then."""
        return await self._file.write(lambda db: moving.purge(db, scope, before))

    async def settle(self, done: Sequence[Stale]) -> Sequence[Stale]:
        """Say that the search records of these are as they were when they were given out; returns what is not so."""
        return await self._file.write(lambda db: pending.settle(db, self._rows, done))

    def close(self) -> None:
        """Release the tables."""
        self._file.close()


class SqliteBlocks(StoredBlocks):
    """Blocks in one file that one process holds."""

    def __init__(self, path: Path, names: NamesIn) -> None:
        super().__init__(Connections(path, MIGRATIONS), names)
