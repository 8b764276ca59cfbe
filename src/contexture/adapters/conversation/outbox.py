"""The outbox: memories are stored first and delivered to the memory service in the background, at least once.

A delivery round sends batches by scope, and single items where a batch is refused. Callers can wait for their own
in-flight memories.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from contexture.adapters.conversation import outbox_table
from contexture.adapters.conversation.outbox_table import DamagedItem, OutboxItem, OutboxStatus, RetryDecision
from contexture.adapters.sqlite import SqliteTables, Tables
from contexture.adapters.store_migration.salvage import set_file_aside
from contexture.conversation import ErasureTarget, Memory
from contexture.errors import ContextError, ContractError, SourceError, StoreDamaged, StoreUnwritable
from contexture.ports import Clock, MemoryWriter
from contexture.types import Scope

T = TypeVar("T")

_MAX_DOUBLINGS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxOptions:
    """Retry policy of the outbox.

    Batches have at most `batch` items. Retries use exponential backoff from `first_wait` to `longest_wait` seconds. An
    item that is refused while the service accepts others gets a blame; after `blames` of them it is parked. A service
    that accepts nothing has an outage, and items wait until it ends. `stop` waits at most `stop_seconds` for running
    and pending deliveries. `wait_delivered` does not wait behind more than `max_pending_to_wait` puts.
    """

    batch: int = 32
    blames: int = 8
    first_wait: float = 0.5
    longest_wait: float = 60.0
    stop_seconds: float = 3.0
    max_pending_to_wait: int = 64


class Outbox:
    """Durable queue that delivers memories to a `MemoryService` at least once.

    When `put` returns, the memories are on disk. Each has an idempotency key, so a repeated delivery is harmless.
    `start` delivers in the background until `stop`; `drain` delivers immediately. `place` is a file, or tables that
    several processes share. `on_parked` is called with each item that is parked. An item that cannot be read is taken
    out of delivery and the others are delivered: one that cannot be decoded is marked, and a damaged file is replaced
    by a new one with the items that can be read. `on_damaged` is called with what happened.
    """

    def __init__(
        self,
        place: Path | Tables,
        memory: MemoryWriter,
        *,
        clock: Clock,
        options: OutboxOptions | None = None,
        on_parked: Callable[[OutboxItem], None] | None = None,
        on_damaged: Callable[[str], None] | None = None,
    ) -> None:
        self._database = _open_tables(place) if isinstance(place, Path) else place
        self._path = place if isinstance(place, Path) else None
        self._shared = not isinstance(place, Path)
        self._memory = memory
        self._clock = clock
        self._options = options or OutboxOptions()
        self._on_parked = on_parked
        self._on_damaged = on_damaged
        self._file_lock = asyncio.Lock()
        self._closed = False
        self._jitter = random.Random()  # noqa: S311 - spreads retries, no security use
        self._round_lock = asyncio.Lock()
        self._wake_up = asyncio.Event()
        self._in_flight = InFlight()
        self._worker: asyncio.Task[None] | None = None
        self._stopped = False

    async def put(self, scope: Scope, *memories: Memory) -> None:
        """Store the memories in one transaction; one whose key is already pending is not stored twice."""
        now = self._clock.now().timestamp()
        new = [outbox_table.make_row(scope, memory, now) for memory in memories]
        await asyncio.shield(self._take(scope, new))

    async def wait_delivered(self, scope: Scope, patience: float) -> bool:
        """Wait until the memories this scope has put were tried once; False after `patience` seconds.

        Returns True at once if the background worker is not running, and False at once if more than
        `max_pending_to_wait` puts are pending, because waiting during an overload slows every caller down.
        """
        if self._worker is None or patience <= 0:
            return True
        if self._in_flight.count_before(scope) > self._options.max_pending_to_wait:
            return False
        try:
            async with asyncio.timeout(patience):
                if self._shared:
                    await self._adopt_untried(scope)
                await self._in_flight.wait_until_tried(scope)
        except TimeoutError:
            return False
        return True

    async def status(self) -> OutboxStatus:
        """Number of waiting and of parked items."""
        if not self._database.exists:
            return OutboxStatus(waiting=0, parked=0)
        found = await self._read(outbox_table.read_status)
        aside = [] if self._path is None else sorted(self._path.parent.glob(f"{self._path.name}.damaged-*[0-9]"))
        return replace(found, set_aside=aside[-1].name) if aside else found

    async def list_parked(self) -> Sequence[OutboxItem]:
        """Parked items with the reason of failure, oldest first; they stay stored."""
        return await self._read(outbox_table.select_parked)

    async def retry_parked(self) -> None:
        """Unpark all items; they are retried as if they were new."""
        await self._write(outbox_table.unpark_all)
        self._wake_up.set()

    async def erase(self, scope: Scope, target: ErasureTarget, *, preview: bool = False) -> Sequence[str]:
        """Remove the waiting and parked memories that copy the target's texts; returns their idempotency keys.

        A running delivery round ends first, so that what it delivers is in the memory service afterwards.
        """
        if not self._database.exists:
            return ()
        if preview:
            return await self._database.read(lambda db: outbox_table.erase_items(db, scope, target, preview=True))
        async with self._round_lock:
            gone = await self._database.write(lambda db: outbox_table.erase_items(db, scope, target))
        await self._database.scrub()
        return gone

    async def drain(self) -> OutboxStatus:
        """Try all waiting items, due or not, until none is left or a round delivers nothing."""
        if not self._database.exists:
            return await self.status()
        await self._write(outbox_table.make_all_due)
        while await self._deliver(self._clock.now().timestamp()):
            pass
        return await self.status()

    def start(self) -> None:
        """Start the background worker; it begins with items left by an earlier process."""
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="contexture-outbox")

    async def stop(self) -> None:
        """Stop the background worker, try waiting items once more, and close the tables; the rest stays stored.

        Takes at most `stop_seconds`, even if the service hangs or the database is unavailable.
        """
        if self._stopped:
            return
        self._stopped = True
        worker, self._worker = self._worker, None
        self._wake_up.set()
        try:
            with suppress(TimeoutError, SourceError):
                async with asyncio.timeout(self._options.stop_seconds):
                    if worker is not None:
                        await asyncio.wait([worker])
                    await self.drain()
        finally:
            if worker is not None and worker.cancel():
                await asyncio.wait([worker])
            self._closed = True
            self._database.close()

    async def _take(self, scope: Scope, new: Sequence[outbox_table.OutboxRow]) -> None:
        """Store the rows and wake the worker; `put` shields this from cancellation of the caller."""
        await self._write(lambda db: outbox_table.insert_rows(db, new), grows=True)
        self._in_flight.put(scope)
        self._wake_up.set()

    async def _adopt_untried(self, scope: Scope) -> None:
        """Mark items of this scope that another process has put, and that were never tried, as in flight here too."""
        now = self._clock.now().timestamp()
        with suppress(SourceError):  # without the database there is nothing to adopt
            if await self._read(lambda db: outbox_table.has_untried(db, scope, now)):
                self._in_flight.put(scope)
                self._wake_up.set()

    async def _work(self) -> None:
        if not self._database.exists:
            self._in_flight.mark_tried(0)
            await self._wake_up.wait()
        fresh = True
        while not self._stopped:
            self._wake_up.clear()
            try:
                if fresh:  # a restart retries everything
                    await self._write(outbox_table.make_all_due)
                    fresh = False
                taken = await self._deliver(self._clock.now().timestamp())
                wait = 0.0 if taken else await self._until_due()
            except SourceError:  # the database fails, as on a full disk; stored items stay there
                self._in_flight.mark_tried(self._in_flight.count)
                wait = self._options.longest_wait
            if wait != 0.0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):  # unlike `wait_for`, it never swallows a cancellation
                        await self._wake_up.wait()

    async def _until_due(self) -> float | None:
        due = await self._read(outbox_table.next_due_time)
        if due is None:  # another process may add items
            return self._options.longest_wait if self._shared else None
        return max(0.001, due - self._clock.now().timestamp())

    async def _deliver(self, before: float) -> int:
        """Try items due before this time; returns how many were delivered."""
        upto = self._in_flight.count
        async with self._round_lock:
            items, damaged = await self._read(lambda db: outbox_table.select_due(db, before))
            if damaged:
                await self._set_aside(damaged)
            outcome = await deliver_items(self._memory, items, self._options.batch)
            if items:
                await self._settle(outcome)
            if len(items) + len(damaged) < outbox_table.MAX_DUE_ITEMS:  # otherwise more may be due
                self._in_flight.mark_tried(upto)
            return len(outcome.taken)

    async def _set_aside(self, damaged: Sequence[DamagedItem]) -> None:
        """Take items that cannot be decoded out of delivery, and report each."""
        await self._write(lambda db: outbox_table.set_aside(db, damaged))
        if self._on_damaged is not None:
            for item in damaged:
                self._on_damaged(f"item {item.seq} is set aside: {item.reason}")

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._database.read(work)
        except StoreDamaged as failure:
            await self._replace_file(failure)
        return await self._database.read(work)

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, grows: bool = False) -> T:
        try:
            return await self._database.write(work, grows=grows)
        except StoreDamaged as failure:
            await self._replace_file(failure)
        return await self._database.write(work, grows=grows)

    async def _replace_file(self, failure: StoreDamaged) -> None:
        """Put a new file with every readable item in the place of a damaged one, and report it."""
        path, damaged = self._path, self._database
        if path is None or self._closed:
            raise failure
        async with self._file_lock:
            if self._database is not damaged:  # another call has replaced it
                return
            damaged.close()
            try:
                aside, copied = await asyncio.to_thread(set_file_aside, path)
            except OSError as refused:
                raise StoreUnwritable(f"cannot replace {str(path)!r}: {refused.strerror}") from refused
            self._database = _open_tables(path)
        if self._on_damaged is not None:
            self._on_damaged(f"{failure}; {copied.rows} items go on in a new file, and the old one is {str(aside)!r}")

    async def _settle(self, outcome: DeliveryRound) -> None:
        verdicts = [self._decide_retry(item, failure, outcome) for item, failure in outcome.failed]
        verdicts += [self._postpone(item) for item in outcome.untried]
        await self._write(lambda db: outbox_table.write_outcome(db, [item.seq for item in outcome.taken], verdicts))
        if self._on_parked is not None:
            given_up = {verdict.seq: verdict.failure for verdict in verdicts if verdict.parked}
            for item, _ in outcome.failed:
                if item.seq in given_up:
                    self._on_parked(replace(item, failure=given_up[item.seq]))

    def _decide_retry(self, item: OutboxItem, failure: ContextError, outcome: DeliveryRound) -> RetryDecision:
        blames = item.blames + outcome.is_item_fault(failure)
        reason = f"{type(failure).__name__}: {failure}"
        due = self._next_due(item.tries)
        return RetryDecision(item.tries + 1, blames, due, blames >= self._options.blames, reason, item.seq)

    def _postpone(self, item: OutboxItem) -> RetryDecision:
        """Reschedule an untried item, earlier than tried ones, so that a few bad items never delay others."""
        return RetryDecision(item.tries, item.blames, self._next_due(0), False, item.failure, item.seq)

    def _next_due(self, tries: int) -> float:
        wait = self._options.first_wait * 2 ** min(tries, _MAX_DOUBLINGS)
        return self._clock.now().timestamp() + min(wait, self._options.longest_wait) * self._jitter.uniform(0.5, 1.0)


_OUTAGE_FAILURES = 3  # failures without any delivery, after which the rest of a round is not tried


@dataclass(slots=True)
class DeliveryRound:
    """Outcome of one delivery round; each item is in exactly one of the three lists."""

    taken: list[OutboxItem] = field(default_factory=list[OutboxItem])
    failed: list[tuple[OutboxItem, ContextError]] = field(default_factory=list[tuple[OutboxItem, ContextError]])
    untried: list[OutboxItem] = field(default_factory=list[OutboxItem])

    @property
    def is_outage(self) -> bool:
        """Whether the service appears to be down: several failures and nothing delivered in this round."""
        downs = sum(isinstance(failure, SourceError) for _, failure in self.failed)
        return not self.taken and downs >= _OUTAGE_FAILURES

    def is_item_fault(self, failure: ContextError) -> bool:
        """Whether the item itself is at fault: it was refused as invalid, or the service accepted others."""
        return bool(self.taken) or not isinstance(failure, SourceError)


async def deliver_items(memory: MemoryWriter, items: Sequence[OutboxItem], batch: int) -> DeliveryRound:
    """Try to deliver the items, in batches of one scope each."""
    outcome = DeliveryRound()
    for portion in _batches_by_scope(items, batch):
        if outcome.is_outage:
            outcome.untried.extend(portion)
        elif len(portion) == 1 or not await _deliver_batch(memory, portion, outcome):
            await _deliver_each(memory, portion, outcome)
    return outcome


def _batches_by_scope(items: Sequence[OutboxItem], batch: int) -> list[list[OutboxItem]]:
    by_scope: dict[Scope, list[OutboxItem]] = {}
    for item in items:
        by_scope.setdefault(item.scope, []).append(item)
    return [group[at : at + batch] for group in by_scope.values() for at in range(0, len(group), batch)]


async def _deliver_batch(memory: MemoryWriter, items: list[OutboxItem], outcome: DeliveryRound) -> bool:
    if await _try_remember(memory, items) is not None:
        return False
    outcome.taken.extend(items)
    return True


async def _deliver_each(memory: MemoryWriter, items: list[OutboxItem], outcome: DeliveryRound) -> None:
    for item in items:
        if outcome.is_outage:
            outcome.untried.append(item)
        elif (failure := await _try_remember(memory, [item])) is not None:
            outcome.failed.append((item, failure))
        else:
            outcome.taken.append(item)


async def _try_remember(memory: MemoryWriter, items: list[OutboxItem]) -> ContextError | None:
    """Deliver items of one scope; returns the failure, or None on success.

    An unexpected exception becomes a `ContractError`, so that one bad item cannot end all deliveries.
    """
    work = memory.remember(items[0].scope, [item.memory for item in items])
    (found,) = await asyncio.gather(work, return_exceptions=True)
    if isinstance(found, ContextError):
        return found
    if isinstance(found, Exception):
        return ContractError(f"the memory service raised {type(found).__name__}: {found}")
    if isinstance(found, BaseException):
        raise found
    return None


def _open_tables(path: Path) -> SqliteTables:
    return SqliteTables(path, outbox_table.OUTBOX_MIGRATIONS)


OwnerKey = tuple[str, str]


class InFlight:
    """Numbers every put and tracks up to which number all were tried, so that a reader can wait for its own writes.

    Items left by an earlier process may belong to any scope: until they were tried, they are in flight for everyone.
    """

    def __init__(self) -> None:
        self._count = 0
        self._tried = -1
        self._last: dict[OwnerKey, int] = {}
        self._more_tried = asyncio.Event()

    @property
    def count(self) -> int:
        """Number of puts so far."""
        return self._count

    def put(self, scope: Scope) -> None:
        """Count a put of this scope as in flight."""
        self._count += 1
        self._last[_owner_of_scope(scope)] = self._count

    def mark_tried(self, upto: int) -> None:
        """Mark all puts up to this number as tried, and wake up waiters."""
        self._tried = max(self._tried, upto)
        self._last = {owner: last for owner, last in self._last.items() if last > self._tried}
        self._more_tried.set()
        self._more_tried.clear()

    def count_before(self, scope: Scope) -> int:
        """Number of puts, of any scope, to try until those of this scope are tried."""
        return max(0, self._last.get(_owner_of_scope(scope), 0) - self._tried)

    async def wait_until_tried(self, scope: Scope) -> None:
        """Wait until all puts of this scope so far were tried."""
        last = self._last.get(_owner_of_scope(scope), 0)
        while self._tried < last:
            await self._more_tried.wait()


def _owner_of_scope(scope: Scope) -> OwnerKey:
    return scope.tenant, scope.user
