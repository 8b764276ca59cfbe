"""Cross-encoders that fastembed can run, from its hub cache or a local folder."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from contexture.adapters.embedders.catalogue import RERANKERS, entry, load
from contexture.adapters.embedders.texts import encodable


class FastEmbedReranker:
    """A cross-encoder of fastembed's catalogue, such as `Xenova/ms-marco-MiniLM-L-6-v2`.

    Scores are the logistic of the model's output, so they rise with it and lie between 0 and 1.
    Every pair runs by itself, so a score does not depend on the other texts.
    """

    def __init__(
        self, model: str, *, cache_dir: Path | None = None, path: Path | None = None, threads: int = 1
    ) -> None:
        self._model = str(entry(RERANKERS, model)["model"])
        self._cache_dir = cache_dir
        self._path = path
        self._threads = threads
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """The catalogue name, marked as run by fastembed."""
        return f"fastembed-{self._model}"

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One score between 0 and 1 per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._rerank, encodable(query), [encodable(text) for text in texts])

    def _rerank(self, query: str, texts: list[str]) -> list[float]:
        return [_logistic(float(score)) for score in self._running().rerank(query, texts, batch_size=1)]

    def _running(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = load(
                    RERANKERS, self._model, cache_dir=self._cache_dir, path=self._path, threads=self._threads
                )
            return self._loaded


def _logistic(score: float) -> float:
    # Written so that neither end overflows.
    return 0.5 * (1.0 + math.tanh(score / 2.0))
