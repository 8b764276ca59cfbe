"""`ComputeThread`: CPU-bound work beside the event loop, in bounded pieces and in order.

Between its pieces, long work of one tenant gives way to the short requests of others (`RequestsInProgress`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from time import monotonic
from typing import TypeVar, cast

_T = TypeVar("_T")
_R = TypeVar("_R")

INLINE_CHARACTERS = 2_000
"""Text up to this length is worked on in the caller's own thread.

Preparing it takes about 4 ms, less than the 5 ms after which the interpreter lets another thread run, while a change
of threads costs 0.1 ms, and 5 ms more if the thread has work: one memory or chat turn must not wait behind a batch.
"""

_ITEM_CHARACTERS = 100  # what an item without any text costs beside its characters
_PIECE_CHARACTERS = 16_000  # about 30 ms: so soon is it somebody else's turn, and so soon does a cancelled caller stop


LONG_SECONDS = 0.25
"""Work of a request is long, and gives way to others, after it has taken so long."""

SHORT_SECONDS = 1.0
"""Others give way to a request for so long at most: it may be waiting for a model."""

_QUIET_SECONDS = 0.05  # a caller who sends one request after another is present between two of them
_MAX_WAIT_FACTOR = 4  # waits at most so many times as long as it has worked: a fifth of the time is left to it
_MAX_WAIT_SECONDS = 4.0
_POLL_SECONDS = 0.01


class RequestWork:
    """What one request computes: whose it is, since when without a break, and whether it is known to be long."""

    def __init__(self, tenant: str, started: float, *, is_long: bool) -> None:
        self.tenant = tenant
        self.started = started
        self.resumed = started
        self.is_long = is_long


class RequestsInProgress:
    """The requests of each tenant in progress, so that long work of one tenant gives way to short requests of others.

    Threads of one process take turns with the interpreter, and the processor has few cores: what a load computes is
    what others wait for, however fairly slots and queues are shared. Requests that are long themselves do not count:
    two loads do not wait for each other.
    """

    def __init__(
        self, clock: Callable[[], float] = monotonic, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._short: set[RequestWork] = set()
        self._last: dict[str, float] = {}  # by tenant, when a request ended, in order of time

    @contextmanager
    def enter(self, tenant: str, *, is_long: bool = False) -> Generator[RequestWork]:
        """Count the block as a request of a tenant, and let work in it give way; `is_long` from the beginning."""
        work = RequestWork(tenant, self._clock(), is_long=is_long)
        if not is_long:
            self._short.add(work)
        token = _CURRENT.set((self, work))
        try:
            yield work
        finally:
            _CURRENT.reset(token)
            self._stop_counting(work)

    def is_shared(self, tenant: str) -> bool:
        """Whether short requests of other tenants are in progress, or were a moment ago."""
        now = self._clock()
        while self._last and (oldest := next(iter(self._last.items())))[1] < now - _QUIET_SECONDS:
            del self._last[oldest[0]]
        running = (each.tenant for each in self._short if each.started > now - SHORT_SECONDS)
        return any(each != tenant for each in (*running, *self._last))

    async def give_way(self, work: RequestWork) -> None:
        """Wait while others are present, if the work has become long; no longer than a multiple of its own time."""
        spent = self._clock() - work.resumed
        if not work.is_long and spent < LONG_SECONDS:
            return
        self._stop_counting(work)
        end = self._clock() + min(_MAX_WAIT_FACTOR * spent, _MAX_WAIT_SECONDS)
        while self.is_shared(work.tenant) and self._clock() < end:
            await self._sleep(_POLL_SECONDS)
        work.resumed = self._clock()

    def _stop_counting(self, work: RequestWork) -> None:
        if work.is_long:
            return
        work.is_long = True
        self._short.discard(work)
        self._last.pop(work.tenant, None)
        self._last[work.tenant] = self._clock()


_CURRENT: ContextVar[tuple[RequestsInProgress, RequestWork] | None] = ContextVar("_CURRENT", default=None)


async def give_way() -> None:
    """Let short requests of other tenants go first, if the work around this call is long; call it between pieces."""
    if (current := _CURRENT.get()) is not None:
        requests, work = current
        await requests.give_way(work)


class ComputeThread:
    """Runs functions over items in one thread of its own, started when it is first needed.

    One thread, because Python code in a second one would not be faster and the event loop would have to wait for the
    interpreter behind both. Callers take turns after every piece. After `close()`, and for little work, functions run
    in the caller's thread.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    async def map(self, compute: Callable[[_T], _R], items: Sequence[_T], characters: Callable[[_T], int]) -> list[_R]:
        """`compute` of each item, in order; the first error ends it. `characters` says how long an item's text is.

        When the caller is cancelled, the piece under way is finished, its results are dropped, and no other begins.
        """
        if self._is_inline(items, characters):
            return [compute(item) for item in items]
        done: list[_R] = []
        for piece in _split_pieces(items, characters):
            if done:
                await give_way()
            done += await self._run(lambda piece=piece: [compute(item) for item in piece])
        return done

    async def run(self, compute: Callable[[], _R], items: Iterable[_T], characters: Callable[[_T], int]) -> _R:
        """The result of one function that works on all items together."""
        return compute() if self._is_inline(items, characters) else await self._run(compute)

    def close(self) -> None:
        """Wait for the piece under way and end the thread."""
        self._closed = True
        if self._executor is not None:
            self._executor.shutdown()

    def _is_inline(self, items: Iterable[_T], characters: Callable[[_T], int]) -> bool:
        return self._closed or sum(_ITEM_CHARACTERS + characters(item) for item in items) <= INLINE_CHARACTERS

    async def _run(self, work: Callable[[], _R]) -> _R:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="contexture-compute")
        return await asyncio.get_running_loop().run_in_executor(self._executor, copy_context().run, work)


async def iterate_in_thread(items: Iterator[_T]) -> AsyncGenerator[_T]:
    """The items in order, each of them made in a thread; for iterators that give batches.

    Between two batches, others go first.
    """
    end = object()
    first = True
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        if not first:
            await give_way()
        first = False
        yield cast("_T", item)


def _split_pieces(items: Iterable[_T], characters: Callable[[_T], int]) -> Iterator[list[_T]]:
    piece: list[_T] = []
    length = 0
    for item in items:
        piece.append(item)
        length += _ITEM_CHARACTERS + characters(item)
        if length >= _PIECE_CHARACTERS:
            yield piece
            piece, length = [], 0
    if piece:
        yield piece
