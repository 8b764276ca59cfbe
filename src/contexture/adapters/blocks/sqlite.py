"""The block store over SQL tables, and its SQLite file with a connection pool: one writer, concurrent readers."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from time import perf_counter, thread_time
from typing import TypeVar

from contexture import workspace
from contexture.adapters.blocks import _history as history
from contexture.adapters.blocks import _pending as pending
from contexture.adapters.blocks import _queries as queries
from contexture.adapters.blocks import _selection as selection
from contexture.adapters.blocks import _writing as writing
from contexture.adapters.blocks._writing import BlockUpsert
from contexture.adapters.blocks.schema import MIGRATIONS, BlockDecoder
from contexture.adapters.sqlite import SqliteTables, Tables
from contexture.adapters.store_damage import sqlite_errors
from contexture.errors import SourceUnavailable
from contexture.types import Scope


class StoredBlocks:
    """Blocks, links and activity of every tenant in SQL tables; implements `WritableBlocks`.

    The readers of a block are resolved when it is written, and every query filters by them. Links are stored as in
    the text and resolved per scope when read, so adding, deleting or restoring a page rewrites no other block. When a
    write returns, it is durable.
    """

    def __init__(self, tables: Tables, names: workspace.FindLinks) -> None:
        self._names = names
        self._decoder = BlockDecoder()
        self._tables = tables

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self._tables.exists

    # --- reading ---

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[workspace.Block]:
        """Blocks with these ids that exist and are readable, in the order of `ids`."""
        return await self._tables.read(lambda db: queries.get_blocks(db, self._decoder, scope, ids))

    async def ancestors(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[workspace.Block]]:
        """Ancestors by block id, nearest first; a chain ends at the first ancestor the scope may not read."""
        return await self._tables.read(lambda db: queries.get_ancestors(db, self._decoder, scope, ids))

    async def siblings(self, scope: Scope, block_id: str, *, before: int, after: int) -> Sequence[workspace.Block]:
        """The nearest `before` and `after` siblings, in document order, without the block itself."""
        return await self._tables.read(
            lambda db: queries.get_siblings(db, self._decoder, scope, block_id, before, after)
        )

    async def children(
        self, scope: Scope, block_id: str, *, limit: int, after: workspace.Block | None = None
    ) -> Sequence[workspace.Block]:
        """First `limit` children after the block `after`, in document order."""
        return await self._tables.read(
            lambda db: queries.get_children(db, self._decoder, scope, block_id, limit, after)
        )

    async def subtree(
        self, scope: Scope, block_id: str, *, depth: int, limit: int, leaves: Sequence[workspace.BlockType] = ()
    ) -> Sequence[workspace.Block]:
        """First `limit` descendants in document order, at most `depth` levels down and none below `leaves`."""
        return await self._tables.read(
            lambda db: queries.get_subtree(db, self._decoder, scope, block_id, depth, limit, leaves)
        )

    async def subtrees(
        self, scope: Scope, limits: Mapping[str, int], *, depth: int, leaves: Sequence[workspace.BlockType] = ()
    ) -> Mapping[str, Sequence[workspace.Block]]:
        """Subtrees by block id, each with its own limit, all in one read transaction."""
        return await self._tables.read(
            lambda db: {
                id_: queries.get_subtree(db, self._decoder, scope, id_, depth, most, leaves)
                for id_, most in limits.items()
            }
        )

    async def links(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[workspace.BlockLink]:
        """Links from these blocks, relations first."""
        return await self._tables.read(lambda db: queries.get_links(db, scope, ids, limit))

    async def backlinks(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[workspace.BlockLink]:
        """Links to these blocks, last modified source first."""
        return await self._tables.read(lambda db: queries.get_backlinks(db, self._decoder, scope, ids, limit))

    async def recent(
        self, scope: Scope, deed: workspace.ActivityKind, *, since: datetime, limit: int
    ) -> Sequence[workspace.Activity]:
        """Newest edits or views by the scope's user, one per block, newest first."""
        return await self._tables.read(lambda db: queries.get_recent_activity(db, scope, deed, since, limit))

    async def touches(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, workspace.BlockUsage]:
        """Edits, views and authorship of these blocks by the scope's user."""
        return await self._tables.read(lambda db: queries.get_touches(db, scope, ids))

    async def facts(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, workspace.BlockFacts]:
        """Facts computed for these blocks when their re-indexing was last settled."""
        return await self._tables.read(lambda db: pending.get_facts(db, scope, ids))

    async def tasks(
        self, scope: Scope, *, due_before: datetime | None = None, open_only: bool = True, limit: int
    ) -> Sequence[workspace.Block]:
        """Todos, cards and database rows with a due date, earliest first."""
        return await self._tables.read(
            lambda db: queries.get_tasks(db, self._decoder, scope, due_before, limit, open_only=open_only)
        )

    async def select(self, scope: Scope, query: workspace.BlockQuery, *, limit: int) -> workspace.BlockSelection:
        """Blocks that a query selects, with counts."""
        return await self._tables.read(lambda db: selection.select_blocks(db, self._decoder, scope, query, limit))

    async def find_values(self, scope: Scope, values: Sequence[str], *, limit: int) -> Sequence[workspace.CellValue]:
        """Columns that hold one of these values, and people it names."""
        return await self._tables.read(lambda db: selection.find_values(db, scope, values, limit))

    async def changes(
        self, scope: Scope, *, since: datetime, until: datetime, users: Sequence[str] = (), limit: int
    ) -> workspace.ChangeFeed:
        """Blocks that changed, the latest change of each, newest first."""
        return await self._tables.read(lambda db: selection.get_changes(db, scope, since, until, users, limit))

    async def find_pages(self, scope: Scope, names: Sequence[str]) -> Mapping[str, workspace.Block]:
        """Blocks by title or alias, keyed by the name as given; pages before databases before database rows."""
        return await self._tables.read(lambda db: queries.find_pages(db, self._decoder, scope, names))

    async def find_named(self, scope: Scope, name: str, *, limit: int) -> Sequence[workspace.Block]:
        """Blocks with a title or alias; pages before databases before database rows."""
        return await self._tables.read(lambda db: queries.find_named(db, self._decoder, scope, name, limit))

    async def roots(
        self, scope: Scope, *, limit: int, after: workspace.Block | None = None
    ) -> Sequence[workspace.Block]:
        """First `limit` blocks without a readable parent, by order and id."""
        return await self._tables.read(lambda db: history.get_roots(db, self._decoder, scope, limit, after))

    async def history(self, scope: Scope, block_id: str, *, limit: int) -> Sequence[workspace.BlockRevision]:
        """Versions of a block, the current one first."""
        return await self._tables.read(lambda db: history.get_history(db, scope, block_id, limit))

    async def deletions(self, scope: Scope, *, limit: int, offset: int = 0) -> Sequence[workspace.Deletion]:
        """Deletions whose block the scope may read, the latest first."""
        return await self._tables.read(lambda db: history.list_deletions(db, self._decoder, scope, limit, offset))

    async def stale(self, *, limit: int, tenant: str | None = None) -> Sequence[workspace.StaleBlock]:
        """Blocks of a tenant, or of all, queued for re-indexing, longest waiting first."""
        if not self.exists:
            return ()
        return await self._tables.read(lambda db: pending.load_stale(db, self._decoder, limit, tenant))

    # --- writing ---

    async def put(
        self,
        scope: Scope,
        blocks: Sequence[workspace.Block],
        *,
        now: datetime,
        importing: workspace.ImportAccess | None = None,
    ) -> workspace.PutResult:
        """Upsert these blocks in one transaction; an import never widens access."""
        return await self._tables.write(
            lambda db: BlockUpsert(db, scope, self._names, now, importing).put(blocks), grows=True
        )

    async def move(
        self, scope: Scope, block_id: str, *, parent: str | None, order: float, now: datetime, version: int = 0
    ) -> None:
        """Move a block with its subtree under another parent, or make it a root."""
        move = writing.BlockMove(block_id, parent, order, now, version)
        await self._tables.write(lambda db: writing.move_block(db, scope, self._names, move), grows=True)

    async def delete(
        self, scope: Scope, ids: Sequence[str], *, now: datetime, versions: Mapping[str, int] | None = None
    ) -> Sequence[str]:
        """Soft-delete these blocks with all below them that the scope may edit; returns the ids of what was deleted."""
        return await self._tables.write(lambda db: writing.delete_blocks(db, scope, ids, now, versions or {}))

    async def restore(self, scope: Scope, ids: Sequence[str]) -> int:
        """Undo the deletion of each of these blocks; returns how many restored blocks the scope may read."""
        return await self._tables.write(lambda db: writing.restore_blocks(db, scope, ids), grows=True)

    async def view(self, scope: Scope, block_id: str, *, now: datetime) -> None:
        """Record a view of a block by the scope's user."""
        await self.note(
            scope, [workspace.Activity(block_id=block_id, user=scope.user, deed=workspace.ActivityKind.VIEW, time=now)]
        )

    async def note(self, scope: Scope, deeds: Sequence[workspace.Activity]) -> None:
        """Record edits and views; raises `NotFound` for a block the scope may not read."""
        await self._tables.write(lambda db: queries.record_activity(db, scope, deeds), grows=True)

    async def purge(self, scope: Scope, *, before: datetime) -> int:
        """Permanently remove blocks deleted before a time that the scope manages; returns how many."""
        gone = await self._tables.write(lambda db: writing.purge_deleted(db, scope, before))
        await self._tables.scrub()
        return gone

    async def trash(self, scope: Scope, *, before: datetime) -> Sequence[str]:
        """Ids of all blocks that `purge` would remove."""
        return await self._tables.read(lambda db: writing.list_trash(db, scope, before)) if self.exists else ()

    async def private(self, scope: Scope) -> Sequence[str]:
        """Ids of all blocks, deleted or not, that only the scope's user may read."""
        return await self._tables.read(lambda db: writing.list_private(db, scope)) if self.exists else ()

    async def relatives(self, scope: Scope, ids: Sequence[str]) -> Sequence[str]:
        """Ids of these blocks, of all above and below them, and of those that link to them."""
        return await self._tables.read(lambda db: writing.list_relatives(db, scope, ids)) if self.exists else ()

    async def rights(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, workspace.BlockRight]:
        """The highest right of the scope to each of these blocks that it may read."""
        return await self._tables.read(lambda db: writing.list_rights(db, scope, ids)) if self.exists else {}

    async def erase(self, scope: Scope, ids: Sequence[str]) -> Sequence[str]:
        """Permanently remove these blocks with their descendants; returns the ids of everything removed."""
        if not self.exists:
            return ()
        gone = await self._tables.write(lambda db: writing.erase_blocks(db, scope, ids))
        await self._tables.scrub()
        return gone

    async def scrub(self) -> None:
        """Remove what deleted rows left in the files of the store."""
        await self._tables.scrub()

    async def settle(self, done: Sequence[workspace.StaleBlock]) -> Sequence[workspace.StaleBlock]:
        """Mark these blocks as re-indexed; returns those that changed since `stale` returned them."""
        return await self._tables.write(lambda db: pending.settle_pending(db, self._decoder, done))

    def close(self) -> None:
        """Release the tables."""
        self._tables.close()


class SqliteBlocks(StoredBlocks):
    """Blocks in one SQLite file."""

    def __init__(self, path: Path, names: workspace.FindLinks) -> None:
        super().__init__(SqliteConnectionPool(path, MIGRATIONS), names)


T = TypeVar("T")

_MMAP_BYTES = 1 << 30
_WRITE_CACHE_KIB = 65_536  # a bulk load accesses every index at random
_BUSY_TIMEOUT_SECONDS = 30  # how long a read in a thread waits for a file that another process has locked
_INLINE_READ_SECONDS = 0.005  # processor time that a read may take on the event loop
_INLINE_WAIT_SECONDS = 0.05  # how long it may take there, with the time that it waits for the disk or a processor
_STEPS_PER_CLOCK_CHECK = 1_000  # SQLite virtual machine steps between two checks of the time limit
_RETRY_IN_THREAD_CODES = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY)


class _ReadTooLong(Exception):
    """A read exceeded its inline time limit, or would have had to wait for a lock."""


class SqliteConnectionPool:
    """One writing connection and a pool of reading ones.

    A read never waits for a write and sees the last committed state.
    """

    def __init__(self, path: Path, migrations: tuple[str, ...]) -> None:
        self._path = path
        self._writer = SqliteTables(path, migrations)
        self._guard = threading.Lock()
        self._idle: dict[int, list[sqlite3.Connection]] = {0: [], _BUSY_TIMEOUT_SECONDS: []}  # by busy timeout
        self._migrated = False
        self._closed = False

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self._writer.exists

    async def write(self, work: Callable[[sqlite3.Connection], T], *, grows: bool = False) -> T:
        """Run `work` in one write transaction and return its result once it is on disk."""

        def roomy(db: sqlite3.Connection) -> T:
            db.execute(f"PRAGMA cache_size = -{_WRITE_CACHE_KIB}")
            return work(db)

        return await self._writer.write(roomy, grows=grows)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` over one snapshot of the file and return its result.

        Reads run on the event loop first, because switching threads costs more than most reads. A read that exceeds
        `_INLINE_READ_SECONDS`, or has to wait for another process, starts again in a thread and does not block others.
        Its processor time counts: what it waits for other threads, as during a bulk write, it would wait twice.
        """
        if not self._migrated:
            await self._writer.read(_no_op)  # creates the file and its tables
            self._migrated = True
        await asyncio.sleep(0)  # lets tasks that run in a thread start first
        with suppress(_ReadTooLong):
            return self._read_inline(work)
        return await asyncio.to_thread(self._run_read, work, _BUSY_TIMEOUT_SECONDS)

    async def scrub(self) -> None:
        """Move the write-ahead log into the file and empty it; deleted rows are overwritten there."""
        await self._writer.scrub()

    def close(self) -> None:
        """Close the file; connections in use are closed when their reads end."""
        with self._guard:
            self._closed = True
            idle = [connection for each in self._idle.values() for connection in each]
        for connection in idle:
            connection.close()
        self._writer.close()

    def _read_inline(self, work: Callable[[sqlite3.Connection], T]) -> T:
        end, latest = thread_time() + _INLINE_READ_SECONDS, perf_counter() + _INLINE_WAIT_SECONDS

        def run_limited(connection: sqlite3.Connection) -> T:
            connection.set_progress_handler(
                lambda: thread_time() > end or perf_counter() > latest, _STEPS_PER_CLOCK_CHECK
            )
            return work(connection)

        try:
            return self._run_read(run_limited, 0)
        except SourceUnavailable as failure:
            code = getattr(failure.__cause__, "sqlite_errorcode", 0)  # errors raised by Python itself have no code
            if code & 0xFF not in _RETRY_IN_THREAD_CODES:
                raise
        raise _ReadTooLong

    def _run_read(self, work: Callable[[sqlite3.Connection], T], timeout: int) -> T:
        with sqlite_errors(self._path), self._borrow(timeout) as connection:
            connection.execute("BEGIN")
            with connection:
                return work(connection)

    @contextmanager
    def _borrow(self, timeout: int) -> Generator[sqlite3.Connection]:
        idle = self._idle[timeout]
        with self._guard:
            if self._closed:
                raise SourceUnavailable(f"{str(self._path)!r} is closed")
            connection = idle.pop() if idle else None
        if connection is None:
            connection = self._open(timeout)
        with ExitStack() as undo:
            # A failed read may leave a query open, which would keep an old snapshot, so its connection is closed.
            undo.callback(connection.close)
            yield connection
            with self._guard:
                if not self._closed:
                    idle.append(connection)
                    undo.pop_all()

    def _open(self, timeout: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=timeout)
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
        return connection


def _no_op(_db: sqlite3.Connection) -> None:
    """Do nothing: running it opens the file."""
