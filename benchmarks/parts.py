"""Where the time of a search or a build goes."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

from benchmarks.corpus import SCOPE
from benchmarks.store import NAME, Models, builder, searcher
from benchmarks.timing import Numbers, each

from contexture.adapters.index.collection_index import ScopedView
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.record_store import SqliteRecordStore
from contexture.builders.query.request import QueryRequest
from contexture.ledger import Trace

PARTS: dict[str, tuple[tuple[type, Callable[..., Any]], ...]] = {
    "dense": ((ScopedView, ScopedView.search_dense), (ScopedView, ScopedView.similarities)),
    "lexical": ((ScopedView, ScopedView.weigh_terms), (ScopedView, ScopedView.search_lexical)),
    "sqlite": (
        (SqliteRecordStore, SqliteRecordStore.load_passages),
        (SqliteRecordStore, SqliteRecordStore.passage_keys),
    ),
}


async def shares(index: EmbeddedIndex, models: Models, asked: Sequence[str]) -> Numbers:
    """Share of an exact search spent comparing vectors, on words, in SQLite, and in Python for the rest."""
    search = searcher(index, models.encoders())
    spent: dict[str, float] = defaultdict(float)
    with ExitStack() as watches:
        for part, methods in PARTS.items():
            for owner, method in methods:
                watches.enter_context(_watched(owner, method, part, spent))
        total = sum((await each(asked, lambda text: search.search(SCOPE, NAME, text, trace=Trace()))).wall)
    numbers = {f"search_{part}_share": spent[part] / total for part in PARTS}
    return {**numbers, "search_python_share": 1 - sum(numbers.values())}


@contextmanager
def _watched(owner: type, original: Callable[..., Any], part: str, spent: dict[str, float]) -> Generator[None]:
    """Add the milliseconds of every call of a method to its part."""

    def watched(*given: Any) -> Any:
        started = perf_counter()
        try:
            return original(*given)
        finally:
            spent[part] += (perf_counter() - started) * 1_000

    setattr(owner, original.__name__, watched)
    try:
        yield
    finally:
        setattr(owner, original.__name__, original)


def profiled(index: EmbeddedIndex, models: Models, asked: Sequence[str], *, top: int = 30) -> str:
    """The dearest functions of builds without query embedding, as text; all work runs in one thread."""
    make = builder(searcher(index, models.encoders()))

    async def builds(texts: Sequence[str]) -> None:
        asyncio.get_running_loop().set_default_executor(_Inline())
        for text in texts:
            await make.build(QueryRequest(query=text, collection=NAME), scope=SCOPE)

    asyncio.run(builds(asked[:10]))
    profile = cProfile.Profile()
    profile.runcall(asyncio.run, builds(asked))
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(top)
    return out.getvalue()


class _Inline(ThreadPoolExecutor):
    """Runs what it is given at once, in the caller's thread, where the profiler can see it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as failure:  # noqa: BLE001 - it belongs to whoever waits for the future
            done.set_exception(failure)
        return done
