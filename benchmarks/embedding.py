"""How fast the shipped embedders are: a query, a passage, and a vector that is already known."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.adapters.embedders.minilm import MiniLM
from contexture.adapters.embedders.use import MultilingualUSE

Numbers = dict[str, float]
Shipped = MiniLM | MultilingualUSE

ENGLISH = (
    "the ferry to the island leaves the old harbour at nine and returns before the evening tide while crews repair "
    "engines sails and radios under a grey sky that promises rain for farmers who wait on the northern shore"
).split()
RUSSIAN = (
    "паром на остров отходит из старой гавани в девять и возвращается до вечернего прилива пока команды чинят моторы "
    "паруса и рации под серым небом которое обещает дождь крестьянам ждущим на северном берегу"
).split()
QUERIES, QUERY_WORDS = 60, 8
PASSAGES, PASSAGE_WORDS = 32, 150


def embedding() -> Numbers:
    """Milliseconds a query and texts a second for passages of 150 words, on one thread; seconds to load."""
    numbers: Numbers = {}
    for name, embedder, words in (
        ("minilm_english", MiniLM(), ENGLISH),
        ("use_english", MultilingualUSE(), ENGLISH),
        ("use_russian", MultilingualUSE(), RUSSIAN),
    ):
        numbers |= {f"{name}_{key}": value for key, value in asyncio.run(_measure(embedder, words)).items()}
    return numbers


async def _measure(embedder: Shipped, words: Sequence[str]) -> Numbers:
    started = perf_counter()
    embedder.warm()
    load = perf_counter() - started
    queries = _texts(words, QUERIES, QUERY_WORDS)
    busy = process_time()
    times = [await _milliseconds(embedder, [query]) for query in queries]
    busy = process_time() - busy
    passages = _texts(words, PASSAGES, PASSAGE_WORDS)
    cpu = process_time()
    wall = await _milliseconds(embedder, passages) / 1_000
    cpu = process_time() - cpu
    return {
        "load_s": load,
        "query_ms_p50": statistics.median(times),
        "query_ms_p95": statistics.quantiles(times, n=20)[-1],
        "query_cpu_ms": busy / QUERIES * 1_000,
        "texts_per_s": PASSAGES / wall,
        "texts_per_cpu_s": PASSAGES / cpu,
        **await _cached(embedder, queries, passages),
    }


async def _cached(embedder: Shipped, queries: list[str], passages: list[str]) -> Numbers:
    with TemporaryDirectory() as folder:
        cached = CachedEmbedder(embedder, Path(folder) / "vectors.db")
        await cached.embed(passages)
        await cached.embed(queries[:1])
        batch = [await _milliseconds(cached, passages) for _ in range(20)]
        query = [await _milliseconds(cached, queries[:1]) for _ in range(200)]
        cached.close()
    return {"cached_32_ms_p50": statistics.median(batch), "cached_query_ms_p50": statistics.median(query)}


async def _milliseconds(embedder: Shipped | CachedEmbedder, texts: list[str]) -> float:
    started = perf_counter()
    await embedder.embed(texts)
    return (perf_counter() - started) * 1_000


def _texts(words: Sequence[str], count: int, length: int) -> list[str]:
    draw = random.Random(length)
    return [" ".join(draw.choices(words, k=length)) for _ in range(count)]
