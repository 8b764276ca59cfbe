"""Selects the embedder for each language, and the names under which its vectors are stored."""

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from contexture.ports import Embedder, EmbeddingCache
from contexture.types import Vector

OTHER_LANGUAGES = "other"

_CONTEXT_SUFFIX = "+context"


class Similarity(NamedTuple):
    """A calibrated similarity from 0 to 1, comparable across embedders, the raw cosine, and its contrast.

    The contrast is how far the cosine lies above the cosine to which the calibration gives 0, as a share of what is
    possible: in proportion to the cosine, but 0 for texts that have nothing in common.
    """

    calibrated: float
    cosine: float
    contrast: float


class Encoders:
    """Routes texts to embedders by language and names their vectors.

    A specialist embeds the passages and questions of its own language. The generalist embeds every passage, so that a
    question in another language can find it. Its vectors of a specialist's passages are stored under their own name
    (`use@en`): a question then searches each passage in one space only, without a filter.

    A passage that is given with its context has two vectors in its own language, of the passage and of the passage
    after its context. Their mean is stored, not normalised and under a name of its own (`granite+context`), so that the
    dot product with a question is the mean of both cosines.

    `former` are embedders of passages stored earlier, by the language of their questions: questions are embedded for
    their vectors where a collection still has some.
    """

    def __init__(
        self,
        *,
        specialists: Mapping[str, Embedder],
        generalist: Embedder,
        former: Mapping[str, Sequence[Embedder]] | None = None,
    ) -> None:
        self._specialists = dict(specialists)
        self._generalist = generalist
        self._former = {lang: tuple(embedders) for lang, embedders in (former or {}).items()}
        own = {
            **{specialist.name: specialist for specialist in specialists.values()},
            self._generalist_name(OTHER_LANGUAGES): generalist,
        }
        self._embedders: dict[str, Embedder] = {
            **own,
            **{self._generalist_name(lang): generalist for lang in (*specialists, OTHER_LANGUAGES)},
            **{name + _CONTEXT_SUFFIX: embedder for name, embedder in own.items()},
            **{
                name: each
                for embedders in self._former.values()
                for each in embedders
                for name in _names_in_store(each)
            },
        }

        self._zeros = {name: _highest_zero(embedder) for name, embedder in self._embedders.items()}

    @property
    def embedders(self) -> dict[str, Embedder]:
        """The embedders by their own names, the generalist first."""
        return {each.name: each for each in (self._generalist, *self._specialists.values())}

    @property
    def vectors(self) -> dict[str, int]:
        """Names and lengths of every vector a passage may carry."""
        return {name: embedder.dimensions for name, embedder in self._embedders.items()}

    @property
    def former_vectors(self) -> frozenset[str]:
        """Names of vectors that only passages stored earlier carry."""
        return frozenset(
            name for embedders in self._former.values() for each in embedders for name in _names_in_store(each)
        )

    @property
    def generalist_vectors(self) -> dict[str, int]:
        """Names and lengths of the generalist's vectors; every passage carries exactly one of them."""
        own = self._generalist_name(OTHER_LANGUAGES)
        names = (*map(self._generalist_name, self._specialists), own, own + _CONTEXT_SUFFIX)
        return dict.fromkeys(names, self._generalist.dimensions)

    @property
    def context_free_vectors(self) -> dict[str, int]:
        """Names and lengths of the vectors that a passage without context may carry."""
        specialists = {each.name: each.dimensions for each in self._specialists.values()}
        names = map(self._generalist_name, (*self._specialists, OTHER_LANGUAGES))
        return {**specialists, **dict.fromkeys(names, self._generalist.dimensions)}

    async def passages(
        self, texts: Sequence[str], langs: Sequence[str], contexts: Sequence[str] = ()
    ) -> list[dict[str, Vector]]:
        """The vectors of each passage by name; `contexts` are the texts before each passage, empty for none."""
        found: list[dict[str, Vector]] = [{} for _ in texts]
        before = dict(enumerate(contexts))
        by_embedder: dict[str, tuple[Embedder, dict[int, str]]] = {}

        def assign(embedder: Embedder, index: int, name: str) -> None:
            by_embedder.setdefault(embedder.name, (embedder, {}))[1][index] = name

        for index, lang in enumerate(langs):
            assign(self._generalist, index, self._generalist_name(lang))
            if lang in self._specialists:
                assign(self._specialists[lang], index, self._specialists[lang].name)

        async def fill(embedder: Embedder, names: Mapping[int, str]) -> None:
            joined = {
                index: _join_context(before[index], texts[index])
                for index in names
                if before.get(index) and self._is_own(embedder, langs[index])
            }
            rows = await embedder.embed([*(texts[index] for index in names), *joined.values()])
            for (index, name), row in zip(names.items(), rows[: len(names)], strict=True):
                found[index][name] = row
            for index, row in zip(joined, rows[len(names) :], strict=True):
                found[index][names[index] + _CONTEXT_SUFFIX] = (found[index].pop(names[index]) + row) / 2

        # Concurrent, because each embedder runs best on one core.
        await asyncio.gather(*(fill(embedder, names) for embedder, names in by_embedder.values()))
        return found

    async def forget(self, texts: Sequence[str], contexts: Sequence[str] = ()) -> None:
        """Remove the vectors of these texts, alone and after their contexts, from the caches of all embedders."""
        joined = [_join_context(context, text) for context, text in zip(contexts, texts, strict=False) if context]
        for embedder in {id(each): each for each in self._embedders.values()}.values():
            if isinstance(embedder, EmbeddingCache):
                await embedder.forget([*texts, *joined])

    async def question(self, text: str, lang: str, among: Container[str] | None = None) -> dict[str, Vector]:
        """The vectors of a question by name: the specialist's for its language, the generalist's for all others.

        With `among`, only vectors with these names are returned, and an embedder without any is not run. Vectors of
        former embedders are returned only then.
        """
        choices = [(self._specialists[lang], [self._specialists[lang].name])] if lang in self._specialists else []
        choices.append(
            (
                self._generalist,
                [self._generalist_name(name) for name in (*self._specialists, OTHER_LANGUAGES) if name != lang],
            )
        )
        choices = [
            (each, [*names, *(name + _CONTEXT_SUFFIX for name in names if name + _CONTEXT_SUFFIX in self._embedders)])
            for each, names in choices
        ]
        if among is not None:
            choices += [(each, [*_names_in_store(each)]) for each in self._former.get(lang, ())]
        wanted = [(each, [name for name in names if among is None or name in among]) for each, names in choices]
        used = [(embedder, names) for embedder, names in wanted if names]
        rows = await asyncio.gather(*(embedder.embed([text]) for embedder, _ in used))
        return {name: row[0] for (_, names), row in zip(used, rows, strict=True) for name in names}

    async def compare(self, text: str, lang: str, others: Sequence[str], langs: Sequence[str]) -> list[float]:
        """The calibrated similarity of a text to each of some others, each embedded only by the embedder of the pair.

        That is the specialist of their common language, or else the generalist.
        """
        found = [0.0] * len(others)

        async def fill(embedder: Embedder, positions: Sequence[int]) -> None:
            rows = await embedder.embed([text, *(others[at] for at in positions)])
            cosines = np.asarray(rows[1:], np.float32) @ np.asarray(rows[0], np.float32)
            for at, similarity in zip(positions, embedder.calibrate(cosines).tolist(), strict=True):
                found[at] = float(similarity)

        common = self._specialists.get(lang)
        alike = [at for at, spoken in enumerate(langs) if common is not None and spoken == lang]
        other = [at for at, spoken in enumerate(langs) if common is None or spoken != lang]
        work = [fill(common, alike)] if common is not None and alike else []
        await asyncio.gather(*work, *([fill(self._generalist, other)] if other else []))
        return found

    def similarities(self, scores: Sequence[Mapping[str, float]]) -> list[Similarity | None]:
        """The best similarity of each passage over its vectors, given raw scores by name; None without a vector."""
        best: list[Similarity | None] = [None] * len(scores)
        for name, embedder in self._embedders.items():
            having = [at for at, each in enumerate(scores) if name in each]
            if not having:
                continue
            cosines = [scores[at][name] for at in having]
            calibrated = embedder.calibrate(np.array(cosines, np.float32)).tolist()
            zero = self._zeros[name]
            contrasts = [max(0.0, cosine - zero) / (1 - zero) for cosine in cosines]
            for at, found in zip(having, map(Similarity, calibrated, cosines, contrasts), strict=True):
                best[at] = max(found, best[at] or found)
        return best

    def _is_own(self, embedder: Embedder, lang: str) -> bool:
        """Whether this embedder is the one that questions in the passage's own language use."""
        return embedder is self._specialists.get(lang, self._generalist)

    def _generalist_name(self, lang: str) -> str:
        return f"{self._generalist.name}@{lang if lang in self._specialists else OTHER_LANGUAGES}"


def _join_context(context: str, text: str) -> str:
    """What is embedded for a text after its context."""
    return f"{context}\n{text}"


def _names_in_store(specialist: Embedder) -> tuple[str, str]:
    """The names of a specialist's vectors, of passages without and with their context."""
    return specialist.name, specialist.name + _CONTEXT_SUFFIX


def _highest_zero(embedder: Embedder) -> float:
    """The highest cosine, to the hundredth, to which an embedder's calibration gives 0."""
    steps = (np.arange(100) / 100).astype(np.float32)
    zeros = np.flatnonzero(embedder.calibrate(steps) <= 0)
    return float(steps[zeros[-1]]) if len(zeros) else 0.0
