"""Selects the embedder for each language, and the names under which its vectors are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from contexture.ports import Embedder
from contexture.types import Vector

OTHER_LANGUAGES = "other"


class Similarity(NamedTuple):
    """A calibrated similarity from 0 to 1, comparable across embedders, and the raw cosine."""

    calibrated: float
    cosine: float


class Encoders:
    """Routes texts to embedders by language and names their vectors.

    A specialist embeds the passages and questions of its own language. The generalist embeds every passage, so that a
    question in another language can find it. Its vectors of a specialist's passages are stored under their own name
    (`use@en`): a question then searches each passage in one space only, without a filter.
    """

    def __init__(self, *, specialists: Mapping[str, Embedder], generalist: Embedder) -> None:
        self._specialists = dict(specialists)
        self._generalist = generalist
        self._embedders: dict[str, Embedder] = {
            **{specialist.name: specialist for specialist in specialists.values()},
            **{self._generalist_name(lang): generalist for lang in (*specialists, OTHER_LANGUAGES)},
        }

    @property
    def vectors(self) -> dict[str, int]:
        """Names and lengths of every vector a passage may carry."""
        return {name: embedder.dimensions for name, embedder in self._embedders.items()}

    @property
    def generalist_vectors(self) -> dict[str, int]:
        """Names and lengths of the generalist's vectors; every passage carries exactly one of them."""
        return {
            self._generalist_name(lang): self._generalist.dimensions for lang in (*self._specialists, OTHER_LANGUAGES)
        }

    async def passages(self, texts: Sequence[str], langs: Sequence[str]) -> list[dict[str, Vector]]:
        """The vectors of each passage by name."""
        found: list[dict[str, Vector]] = [{} for _ in texts]

        async def fill(embedder: Embedder, names: Mapping[int, str]) -> None:
            rows = await embedder.embed([texts[index] for index in names])
            for (index, name), row in zip(names.items(), rows, strict=True):
                found[index][name] = row

        # Concurrent, because each embedder runs best on one core.
        await asyncio.gather(
            fill(self._generalist, {index: self._generalist_name(lang) for index, lang in enumerate(langs)}),
            *(
                fill(specialist, {index: specialist.name for index, spoken in enumerate(langs) if spoken == lang})
                for lang, specialist in self._specialists.items()
            ),
        )
        return found

    async def question(self, text: str, lang: str, among: Container[str] | None = None) -> dict[str, Vector]:
        """The vectors of a question by name: the specialist's for its language, the generalist's for all others.

        With `among`, only vectors with these names are returned, and an embedder without any is not run.
        """
        choices = [(self._specialists[lang], [self._specialists[lang].name])] if lang in self._specialists else []
        choices.append(
            (
                self._generalist,
                [self._generalist_name(name) for name in (*self._specialists, OTHER_LANGUAGES) if name != lang],
            )
        )
        wanted = [(each, [name for name in names if among is None or name in among]) for each, names in choices]
        used = [(embedder, names) for embedder, names in wanted if names]
        rows = await asyncio.gather(*(embedder.embed([text]) for embedder, _ in used))
        return {name: row[0] for (_, names), row in zip(used, rows, strict=True) for name in names}

    def similarities(self, scores: Sequence[Mapping[str, float]]) -> list[Similarity | None]:
        """The best similarity of each passage over its vectors, given raw scores by name; None without a vector."""
        best: list[Similarity | None] = [None] * len(scores)
        for name, embedder in self._embedders.items():
            having = [at for at, each in enumerate(scores) if name in each]
            cosines = [scores[at][name] for at in having]
            calibrated = embedder.calibrate(np.array(cosines, np.float32)).tolist()
            for at, found in zip(having, map(Similarity, calibrated, cosines), strict=True):
                best[at] = max(found, best[at] or found)
        return best

    def _generalist_name(self, lang: str) -> str:
        return f"{self._generalist.name}@{lang if lang in self._specialists else OTHER_LANGUAGES}"
