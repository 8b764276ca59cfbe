"""Memories on their way to the memory service: written down first, delivered in the background, at least once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from contexture.adapters.outbox import rows
from contexture.adapters.outbox.coming import Coming
from contexture.adapters.outbox.delivery import Round, deliver
from contexture.adapters.outbox.rows import Item, OutboxStatus, Verdict
from contexture.adapters.sessions.database import Database, Tables
from contexture.conversation import Memory
from contexture.errors import ContextError, SourceError
from contexture.ports import Clock, MemoryService
from contexture.types import Scope

_MOST_DOUBLINGS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxOptions:
    """How deliveries are repeated.

    An item that the service refuses while it takes others is blamed for it; after `blames` of those it is parked.
    A service that takes nothing is out: items then wait for it, however long that lasts. `last_try` is how many
    seconds `stop` gives what is under way and what still waits. Nobody waits for more than `worth_waiting` puts.
    """

    batch: int = 32
    blames: int = 8
    first_wait: float = 0.5
    longest_wait: float = 60.0
    last_try: float = 3.0
    worth_waiting: int = 64


class Outbox:
    """Takes memories for a `MemoryService` and sees to it that they arrive.

    When `put` returns, the memories survive the end of the process. Each has an idempotency key, so that a second
    delivery does no harm. `start` delivers in the background until `stop`; `drain` delivers at once. `place` is a file,
    or tables that several processes share.
    """

    def __init__(
        self,
        place: Path | Tables,
        memory: MemoryService,
        *,
        clock: Clock,
        options: OutboxOptions | None = None,
        on_parked: Callable[[Item], None] | None = None,
    ) -> None:
        self._database = Database(place, rows.MIGRATIONS) if isinstance(place, Path) else place
        self._shared = not isinstance(place, Path)
        self._memory = memory
        self._clock = clock
        self._options = options or OutboxOptions()
        self._on_parked = on_parked
        self._jitter = random.Random()  # noqa: S311 - it spreads retries, it hides nothing
        self._round = asyncio.Lock()
        self._news = asyncio.Event()
        self._coming = Coming()
        self._worker: asyncio.Task[None] | None = None
        self._stopped = False

    async def put(self, scope: Scope, *memories: Memory) -> None:
        """Take the memories, all or none; one whose key is waiting already is not taken twice."""
        now = self._clock.now().timestamp()
        new = [rows.new_row(scope, memory, now) for memory in memories]
        await asyncio.shield(self._take(scope, new))

    async def arrived(self, scope: Scope, patience: float) -> bool:
        """Wait until what this scope has put was taken or refused; False when that takes longer than `patience`.

        Where nothing is delivered in the background there is nothing to wait for, and where much waits already, as in
        an overload, waiting would only make everybody slow.
        """
        if self._worker is None or patience <= 0:
            return True
        if self._coming.before(scope) > self._options.worth_waiting:
            return False
        try:
            async with asyncio.timeout(patience):
                if self._shared:
                    await self._look_for(scope)
                await self._coming.arrived(scope)
        except TimeoutError:
            return False
        return True

    async def status(self) -> OutboxStatus:
        """How many wait and how many were given up on."""
        if not self._database.exists:
            return OutboxStatus(waiting=0, parked=0)
        return await self._database.read(rows.status)

    async def parked(self) -> Sequence[Item]:
        """Every memory that was given up on and why, oldest first; they stay in the file."""
        return await self._database.read(rows.parked)

    async def retry_parked(self) -> None:
        """Try every parked memory again as if it were new."""
        await self._database.write(rows.unpark)
        self._news.set()

    async def drain(self) -> OutboxStatus:
        """Try everything that waits, due or not, until nothing waits or nothing more is taken."""
        if not self._database.exists:
            return await self.status()
        await self._database.write(rows.hasten)
        while await self._deliver(self._clock.now().timestamp()):
            pass
        return await self.status()

    def start(self) -> None:
        """Deliver in the background from now on, beginning with what an earlier process left."""
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="contexture-outbox")

    async def stop(self) -> None:
        """End the background work, try what waits once more, and release the file; the rest waits for a restart.

        A service that hangs is not waited for longer than `last_try`, nor a database that is gone.
        """
        if self._stopped:
            return
        self._stopped = True
        worker, self._worker = self._worker, None
        self._news.set()
        try:
            with suppress(TimeoutError, SourceError):
                async with asyncio.timeout(self._options.last_try):
                    if worker is not None:
                        await asyncio.wait([worker])
                    await self.drain()
        finally:
            if worker is not None and worker.cancel():
                await asyncio.wait([worker])
            self._database.close()

    async def _take(self, scope: Scope, new: Sequence[rows.Row]) -> None:
        """Write them down and see to it that they are delivered; whoever goes away meanwhile changes neither."""
        await self._database.write(lambda db: rows.insert(db, new))
        self._coming.put(scope)
        self._news.set()

    async def _look_for(self, scope: Scope) -> None:
        """Let what another process has put of this scope, and nobody has tried yet, be tried here too."""
        now = self._clock.now().timestamp()
        with suppress(SourceError):  # then nothing can be told of it
            if await self._database.read(lambda db: rows.untried(db, scope, now)):
                self._coming.put(scope)
                self._news.set()

    async def _work(self) -> None:
        if not self._database.exists:
            self._coming.tried(0)
            await self._news.wait()
        fresh = True
        while not self._stopped:
            self._news.clear()
            try:
                if fresh:  # a restart is a reason to try again
                    await self._database.write(rows.hasten)
                    fresh = False
                taken = await self._deliver(self._clock.now().timestamp())
                wait = 0.0 if taken else await self._until_due()
            except SourceError:  # the file fails, as on a full disk; what is in it stays there
                self._coming.tried(self._coming.count)
                wait = self._options.longest_wait
            if wait != 0.0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):  # unlike `wait_for`, it never swallows a cancellation
                        await self._news.wait()

    async def _until_due(self) -> float | None:
        due = await self._database.read(rows.next_due)
        if due is None:  # another process may leave something behind
            return self._options.longest_wait if self._shared else None
        return max(0.001, due - self._clock.now().timestamp())

    async def _deliver(self, before: float) -> int:
        """Try what is due before this time; returns how many were taken."""
        upto = self._coming.count
        async with self._round:
            items = await self._database.read(lambda db: rows.due(db, before))
            outcome = await deliver(self._memory, items, self._options.batch)
            if items:
                await self._settle(outcome)
            if len(items) < rows.AT_ONCE:  # otherwise more may be due
                self._coming.tried(upto)
            return len(outcome.taken)

    async def _settle(self, outcome: Round) -> None:
        verdicts = [self._verdict(item, failure, outcome) for item, failure in outcome.failed]
        verdicts += [self._put_off(item) for item in outcome.untried]
        await self._database.write(lambda db: rows.settle(db, [item.seq for item in outcome.taken], verdicts))
        if self._on_parked is not None:
            given_up = {verdict.seq: verdict.failure for verdict in verdicts if verdict.parked}
            for item, _ in outcome.failed:
                if item.seq in given_up:
                    self._on_parked(replace(item, failure=given_up[item.seq]))

    def _verdict(self, item: Item, failure: ContextError, outcome: Round) -> Verdict:
        blames = item.blames + outcome.blames(failure)
        reason = f"{type(failure).__name__}: {failure}"
        due = self._later(item.tries)
        return Verdict(item.tries + 1, blames, due, blames >= self._options.blames, reason, item.seq)

    def _put_off(self, item: Item) -> Verdict:
        """Untried: sooner than those that were tried, so that a few bad items never keep others waiting."""
        return Verdict(item.tries, item.blames, self._later(0), False, item.failure, item.seq)

    def _later(self, tries: int) -> float:
        wait = self._options.first_wait * 2 ** min(tries, _MOST_DOUBLINGS)
        return self._clock.now().timestamp() + min(wait, self._options.longest_wait) * self._jitter.uniform(0.5, 1.0)
