"""An index for several processes: PostgreSQL is the truth, and each process finds in parts of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from contexture.adapters.index.checks import check_unchanged, merged
from contexture.adapters.index.declared import Declared, columns_of
from contexture.adapters.index.engine import Draft
from contexture.adapters.index.journal import WriteJournal
from contexture.adapters.index.over_truth import IndexOverTruth
from contexture.adapters.index.parts import Parts
from contexture.adapters.index.postgres import write
from contexture.adapters.index.postgres.listening import Listener
from contexture.adapters.index.postgres.packing import pack
from contexture.adapters.index.postgres.replica import Replica
from contexture.adapters.index.postgres.schema import MIGRATIONS
from contexture.adapters.index.postgres.truth import PostgresTruth, Write
from contexture.adapters.index.shelf import EmbeddedOptions, Shelf
from contexture.adapters.index.truth import Change, State
from contexture.adapters.postgres.migrating import migrate
from contexture.adapters.postgres.pool import Pool
from contexture.errors import SourceUnavailable
from contexture.types import Collection, Prepared, Record, Scope

_AT_ONCE = 4_000  # passages held in memory while following
# It holds nobody up, and may be idle for long while parts are built.
SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL idle_in_transaction_session_timeout = 0"
_REMEMBERED = 100_000  # writes that those who follow may be behind
_MANY = 50  # passages from which on another thread is worth waking


class Mine(NamedTuple):
    """A write of this process, and what was made of it while the database was at work."""

    change: Change
    draft: Future[Draft] | None


class PostgresIndex(IndexOverTruth):
    """Implements the `Index` port over a database that several processes share.

    index = await PostgresIndex.open("postgres://db/app", Path(".contexture"), EmbeddedOptions(vectors={...}))

    Before it answers, a process asks for the number of the last write and follows those it has not seen, so that what
    was acknowledged anywhere is found everywhere. `folder` holds what can be built again.
    """

    def __init__(self, pool: Pool, folder: Path, options: EmbeddedOptions) -> None:
        self.pool = pool
        self._torn = False
        self._shift = 0  # what is added to numbers, so that they rise even where those of the database fall
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="contexture-draft")
        with ExitStack() as undo:
            undo.callback(pool.close)
            migrate(pool, pool.schema, MIGRATIONS)
            self._replica = Replica(folder)
            undo.callback(self._replica.release)
            self._database = PostgresTruth(pool, self._replica.notes)
            with pool.transaction(SNAPSHOT):
                self._database.at = self._database.state()
                self._replica.belongs(self._database)
                shelf = self._shelve(options)
                undo.callback(shelf.release)
                super().__init__(pool.name, self._database, shelf, options)
                shelf.heal()
            self._listener = Listener(pool, self._hear)
            self._listener.start()
            undo.pop_all()

    @classmethod
    async def open(cls, url: str, folder: Path, options: EmbeddedOptions) -> PostgresIndex:
        """Open the store, made where it is missing; what this process has not seen yet is read."""
        return await asyncio.to_thread(lambda: cls(Pool(url), folder, options))

    def _shelve(self, options: EmbeddedOptions) -> Parts:
        """What finds: parts of this process."""
        return Shelf(self._replica.folder, self._database, options)

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self.pool.lent():
            self._catch_up()
            yield

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """As far as is known without asking the database again: who searches has just asked for the version."""
        known = self._declared.find(scope.tenant, collection) is not None
        access = self._at_hand(scope, collection) if known else None
        return None if access is None else self._shelf.spaces(collection, access)

    @contextmanager
    def _still(self) -> Generator[None]:
        with self._writing, self._snapshot():
            yield

    def _save(self, tenant: str, collection: Collection) -> None:
        with self.pool.transaction() as db:
            db.execute("SELECT FROM counter FOR UPDATE")  # another process may be giving it other fields
            wanted = merged(self._database.declared_by(tenant, collection.name), collection)
            write.declare(db, tenant, wanted)
        self._catch_up()

    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], unchanged: Sequence[Record] = ()
    ) -> int:
        packed = pack(records)
        drafts: list[Future[Draft]] = []

        def meanwhile(change: Change) -> None:
            if len(change.added) >= _MANY:
                drafts.append(self._aside.submit(self._shelf.draft, collection, change.added))

        with self.pool.transaction() as db:
            if unchanged:
                db.execute("SELECT FROM counter FOR UPDATE")  # nobody else writes from now on
                stored = self._database.records(collection, scope.tenant, [record.id for record in unchanged])
                check_unchanged(unchanged, (record for _, record in stored.values()))
            change = write.upsert(db, scope, collection, packed, meanwhile)
        self._catch_up(Mine(change, drafts[0] if drafts else None))
        return change.seq + self._shift

    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        with self.pool.transaction() as db:
            removed = write.delete(db, scope, collection, ids)
        self._catch_up()
        return removed

    def _optimize(self) -> None:
        with self._writing, self._snapshot():
            self._shelf.optimize()
        with self.pool.transaction() as db:
            db.execute("UPDATE counter SET forgotten = greatest(forgotten, seq - %s)", (_REMEMBERED,))
            db.execute("DELETE FROM writes WHERE seq < (SELECT forgotten FROM counter)")

    def _release(self) -> None:
        self._listener.stop()
        try:
            self._shelf.flush()
        finally:
            self._shelf.release()
            self._aside.shutdown()
            self._replica.release()
            self.pool.close()

    # --- following ---

    def _hear(self) -> None:
        """Somebody wrote: follow now, so that the next question need not."""
        with self._gate.inside(), self._reading():
            pass

    def _catch_up(self, mine: Mine | None = None) -> None:
        """Let the parts follow every write there is; `mine` need not be read again."""
        if self._database.state() == self._database.at and not self._torn:
            return
        with self._writing, self._snapshot(mine):
            pass

    @contextmanager
    def _snapshot(self, mine: Mine | None = None) -> Generator[None]:
        """The database as it is now, the parts brought up to it; for one thread at a time."""
        with self.pool.transaction(SNAPSHOT):
            self._follow(self._database.state(), mine)
            yield

    def _follow(self, now: State, mine: Mine | None) -> None:
        seen = self._database.at
        if now == seen and not self._torn:
            return
        missed = self._torn or not self._database.tells_since(seen)  # or an earlier state was put back
        self._torn = True  # until all of them have followed: some parts of a process may have, and others not
        if missed:
            self._begin_anew(now.seq)
        else:
            self._go_on(now.seq, mine)
        self._torn = False
        self._database.at = now  # after all else: who sees this number takes everything up to it for followed

    def _begin_anew(self, last: int) -> None:
        """Build every part from what there is now; nothing that caches hold from before counts."""
        self._declared = Declared(self._database.declared())
        self._added(-1)
        for gone in self._shelf.columns.keys() - self._database.columns().keys():
            self._shelf.forget(gone)
        self._shelf.rebuild()
        self._classes.clear()
        self._versions.clear()
        self._journal = WriteJournal()
        self._shift += max(0, self._database.seq - last) + 1
        self._opened = last + self._shift

    def _go_on(self, last: int, mine: Mine | None) -> None:
        """Let the parts follow what was written since, and note it for caches."""
        seen = self._database.seq
        writes = self._database.writes(seen, last)
        self._learn(writes)  # before the parts follow: they must not find what nobody knows the readers of
        full = self._added(seen)
        self._apply([each for each in writes if each.collection not in full], seen, mine)
        self._note(writes)

    def _added(self, seen: int) -> set[str]:
        """Take collections that are new or have new fields; those that nobody had have seen everything."""
        known = set(self._shelf.columns)
        for tenant, collection in self._database.declared_since(seen):
            self._shelf.add(collection.name, columns_of(collection))
            self._declared.add(tenant, collection)
        return self._shelf.columns.keys() - known

    def _apply(self, writes: Sequence[Write], seen: int, mine: Mine | None) -> None:
        whole: set[str] = set()
        for until in write.chunks(((each.seq, each.added + len(each.removed)) for each in writes), _AT_ONCE):
            some = [each for each in writes if seen < each.seq <= until]
            for name in sorted({each.collection for each in some} - whole):
                if mine and (seen, until) == (mine.change.seq - 1, mine.change.seq):
                    anew = self._shelf.follow(name, mine.change, _drafted(mine))
                else:
                    anew = self._shelf.follow(name, self._between(seen, until, name, some))
                if anew:
                    whole.add(name)  # it has seen what is still to come, and must not take it twice
            seen = until

    def _between(self, seen: int, until: int, name: str, writes: Sequence[Write]) -> Change:
        """What these writes did to one collection."""
        removed = tuple(pid for each in writes if each.collection == name for pid in each.removed)
        return Change(seq=until, added=tuple(self._database.between(seen, until, name)), removed=removed)

    def _learn(self, writes: Sequence[Write]) -> None:
        """Take the access classes that writes have touched."""
        for name, known in self._classes.items():
            touched = {number for each in writes if each.collection == name for number in each.classes}
            if touched:
                known.update(self._database.classes_at(touched))

    def _note(self, writes: Sequence[Write]) -> None:
        """Remember what was touched."""
        for each in writes:
            known, seq = self._known_classes(each.collection), each.seq + self._shift
            touched = [(id_, known.readers(number)) for id_, number in zip(each.ids, each.classes, strict=True)]
            self._journal.note(each.tenant, each.collection, seq, touched)
            self._versions[each.tenant, each.collection] = seq


def _drafted(mine: Mine) -> Draft | None:
    """What was made of a write; nothing where its part was being built anew."""
    with suppress(SourceUnavailable):
        return mine.draft.result() if mine.draft else None
    return None
