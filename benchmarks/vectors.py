"""Vectors that cost nothing: a text lies near the centre of the topic it names."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from benchmarks.lexicon import TOPICS, lexicon

from contexture.ports import Embedder
from contexture.text.terms import split_words
from contexture.types import Matrix, Vector

_NOISE = 1 << 20


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Stands in for `real` under its name and calibration.

    With `pay` the real embedder works too and its rows are thrown away: the same places are then
    searched as without, and only the price differs.
    """

    real: Embedder
    pay: bool = False

    @property
    def name(self) -> str:
        """The real embedder's name."""
        return self.real.name

    @property
    def dimensions(self) -> int:
        """The real embedder's dimensions."""
        return self.real.dimensions

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as the real embedder maps them."""
        return self.real.calibrate(cosine)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """A unit row per text; texts on one topic have a cosine of about .5, others of about 0."""
        if self.pay:
            await self.real.embed(texts)
        centres = _normals(self.name, TOPICS * self.dimensions).reshape(TOPICS, self.dimensions)
        noise = _normals("noise", _NOISE)
        rows = np.empty((len(texts), self.dimensions), np.float32)
        for at, text in enumerate(texts):
            start = zlib.crc32(text.encode()) % (_NOISE - self.dimensions)
            rows[at] = centres[_topic(text)] + noise[start : start + self.dimensions]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _topic(text: str) -> int:
    """The first topic a text names; a text that names none still has its own."""
    names = _topics()
    return next((names[word] for word in split_words(text) if word in names), zlib.crc32(text.encode()) % TOPICS)


@cache
def _topics() -> dict[str, int]:
    return {name: topic for lang in ("en", "ru") for topic, name in enumerate(lexicon(lang).names)}


@cache
def _normals(name: str, count: int) -> Vector:
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(count, np.float32)
