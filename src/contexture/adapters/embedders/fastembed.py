"""Any embedder that fastembed can run, from its hub cache or a local folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from contexture.adapters.embedders.calibration import UNFITTED, Calibration, unit
from contexture.adapters.embedders.catalogue import EMBEDDERS, entry, load
from contexture.adapters.embedders.texts import encodable
from contexture.types import Matrix, Vector


class FastEmbed:
    """A model of fastembed's catalogue, such as `BAAI/bge-small-en-v1.5`.

    `path` is a folder with the model's files; without it they come from `cache_dir`, and are
    downloaded into it when they are not there. Every text runs by itself: many of these models
    are quantised with one scale per batch, which would make a vector depend on its companions.
    Similarities are plain cosines unless a fitted `calibration` is given.
    """

    def __init__(
        self,
        model: str,
        *,
        cache_dir: Path | None = None,
        path: Path | None = None,
        threads: int = 1,
        calibration: Calibration = UNFITTED,
    ) -> None:
        self._model = model
        self._dimensions = int(entry(EMBEDDERS, model)["dim"])
        self._cache_dir = cache_dir
        self._path = path
        self._threads = threads
        self._calibration = calibration
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """The catalogue name, marked as run by fastembed."""
        return f"fastembed-{self._model}"

    @property
    def dimensions(self) -> int:
        """Length of every vector, from the catalogue."""
        return self._dimensions

    def warm(self) -> None:
        """Load the model now, downloading it if need be."""
        self._embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit row per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._embed, [encodable(text) for text in texts])

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as the given calibration maps them."""
        return self._calibration(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        rows = np.empty((len(texts), self._dimensions), np.float32)
        for row, vector in enumerate(self._running().embed(texts, batch_size=1)):
            rows[row] = unit(np.asarray(vector, np.float32))
        return rows

    def _running(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = load(
                    EMBEDDERS, self._model, cache_dir=self._cache_dir, path=self._path, threads=self._threads
                )
            return self._loaded
