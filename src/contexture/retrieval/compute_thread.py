"""`ComputeThread`: CPU-bound work beside the event loop, in bounded pieces and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
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
    """The items in order, each of them made in a thread; for iterators that give batches."""
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
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
