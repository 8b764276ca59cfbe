"""How long the event loop stands still while a batch is written, for each route that takes one.

A heartbeat on the loop sleeps for a millisecond again and again; how much later than that it wakes up is a pause: for
so long nobody else was served. Vectors are given, in a thread as those of the shipped models are, so that what is
measured is the service and not a model.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import structlog
from benchmarks.corpus import records
from benchmarks.timing import Numbers, percentile

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.retrieval.encoders import Encoders
from contexture.service.app import create_app
from contexture.service.server import freeze_heap
from contexture.types import Matrix, Vector

SIZE = 1_000
CHARACTERS = 1_000
_BEAT_SECONDS = 0.001
_NOTICED_SECONDS = 0.01  # shorter pauses are those of threads that take turns
_NOISE = 1 << 20
_CRITICAL = 50  # the service's log of requests is not what is measured

BATCHES: dict[str, tuple[str, Callable[[Sequence[str]], dict[str, Any]]]] = {
    "records": ("/v1/ingest/documents", lambda texts: {"records": _rows(texts, "r")}),
    "memories": ("/v1/ingest/memories", lambda texts: {"memories": [{"text": text} for text in texts]}),
    "remember_batch": ("/memory/remember/batch", lambda texts: {"memories": [{"text": t[::-1]} for t in texts]}),
    "articles": ("/v1/ingest/articles", lambda texts: {"articles": _rows(texts, "a")}),
    "blocks": ("/v1/ingest/blocks", lambda texts: {"blocks": _rows(texts, "b")}),
    "pages": ("/v1/ingest/documents", lambda texts: {"files": [_file(texts)]}),
}
"""The routes that take a batch, and what is sent to them."""


def pauses() -> Numbers:
    """By route: the longest pause, one in a hundred, the share of the time in pauses, and the time of the batch."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_CRITICAL))
    with TemporaryDirectory(prefix="contexture-bench-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> Numbers:
    encoders = Encoders(specialists={"en": _GivenVectors("minilm", 384)}, generalist=_GivenVectors("use", 512))
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=encoders.vectors))
    engine = Contexture(Settings(home=folder, max_body_bytes=1 << 24), index, encoders)
    numbers: Numbers = {}
    try:
        transport = httpx.ASGITransport(create_app(engine, keys=None, settings=engine.settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            warm, *texts = _texts(1 + SIZE)
            for path, make in BATCHES.values():
                (await client.post(path, json=make([warm]))).raise_for_status()
            freeze_heap()  # as the service does before it listens
            for name, (path, make) in BATCHES.items():
                numbers |= await _measure_batch(client, name, path, json.dumps(make(texts)).encode())
    finally:
        gc.unfreeze()
        await engine.close()
    return numbers


async def _measure_batch(client: httpx.AsyncClient, name: str, path: str, body: bytes) -> Numbers:
    """The pauses while one batch is written."""
    heart = _Heartbeat()
    beating = asyncio.create_task(heart.beat())
    started = perf_counter()
    answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    seconds = perf_counter() - started
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)
    if problems := answer.raise_for_status().json().get("failed"):
        raise ValueError(f"{path}: {problems[0]}")
    return {
        f"pause_{name}_ms": max(heart.pauses) * 1_000,
        f"pause_{name}_p99_ms": percentile(heart.pauses, 0.99) * 1_000,
        f"pause_{name}_share": sum(each for each in heart.pauses if each > _NOTICED_SECONDS) / seconds,
        f"pause_{name}_batch_s": seconds,
    }


class _Heartbeat:
    """Wakes up every millisecond and notes how many seconds late it was."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def beat(self) -> None:
        while True:
            before = perf_counter()
            try:
                await asyncio.sleep(_BEAT_SECONDS)
            finally:  # a pause that the end of the measurement cut short counts too
                self.pauses.append(max(0.0, perf_counter() - before - _BEAT_SECONDS))


@dataclass(frozen=True, slots=True)
class _GivenVectors:
    """Unit vectors that depend on the text alone, made in a thread."""

    name: str
    dimensions: int

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as they are."""
        return np.clip(cosine, 0.0, 1.0)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """A unit row per text."""
        return await asyncio.to_thread(self._rows, texts)

    def _rows(self, texts: Sequence[str]) -> Matrix:
        noise = np.random.default_rng(self.dimensions).standard_normal(_NOISE, np.float32)
        rows = np.empty((len(texts), self.dimensions), np.float32)
        for at, text in enumerate(texts):
            start = zlib.crc32(text.encode()) % (_NOISE - self.dimensions)
            rows[at] = noise[start : start + self.dimensions]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _texts(count: int) -> list[str]:
    """That many texts of `CHARACTERS` characters each."""
    words = " ".join(owned.record.text for block in records(4 * count) for owned in block)
    return [words[at * CHARACTERS : (at + 1) * CHARACTERS] for at in range(count)]


def _rows(texts: Sequence[str], prefix: str) -> list[dict[str, Any]]:
    return [{"id": f"{prefix}{at}", "text": text} for at, text in enumerate(texts)]


def _file(texts: Sequence[str]) -> dict[str, Any]:
    content = "\n\n".join(f"# Part {at}\n\n{text}" for at, text in enumerate(texts))
    return {"filename": "parts.md", "content": base64.b64encode(content.encode()).decode()}
