"""BM25 over exactly the passages a scope may read, in integers.

Sums of floating-point numbers depend on the order of addition, and the search engine's order depends on every passage
it holds, hidden ones too. Sums of integers do not, as long as they are exact: below 2 to the 24th in the engine's
arithmetic.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contexture.adapters.index.record_store import PassageRow

_MAX_EXACT_SUM = (1 << 24) - 1
_IMPACT_STEP = 256
_MAX_IMPACT = 1_023
_IDF_STEP = 256.0


@dataclass(frozen=True, slots=True)
class TermWeights:
    """BM25 weight of each query term as an integer, and the factor that turns a sum into a BM25 score."""

    terms: Mapping[int, int]
    unit: float


def to_impacts(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """BM25 term weights of passages as small integers."""
    return np.clip(np.rint(weights.astype(np.float64) * _IMPACT_STEP), 1, _MAX_IMPACT)


def idf_weights(terms: Sequence[int], frequencies: Mapping[int, int], passages: int) -> TermWeights:
    """BM25's inverse document frequency of each known term over the passages a scope may read."""
    found = {
        term: math.log(1 + (passages - frequencies[term] + 0.5) / (frequencies[term] + 0.5))
        for term in terms
        if frequencies.get(term, 0) > 0
    }
    room = _MAX_EXACT_SUM / _MAX_IMPACT - len(found)
    step = min(_IDF_STEP, room / max(math.fsum(found.values()), 1.0))
    return TermWeights({term: max(round(idf * step), 1) for term, idf in found.items()}, 1 / (step * _IMPACT_STEP))


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """BM25 scores by passage, how many query terms each passage holds, and what each of them adds.

    `terms` and `parts` are the held terms and their scores, passage by passage; those of a passage begin at `starts`.
    """

    scores: Mapping[int, float]
    matched: Mapping[int, int]
    starts: Mapping[int, int]
    terms: npt.NDArray[np.uint32]
    parts: npt.NDArray[np.float64]

    def by_term(self, pid: int) -> dict[int, float]:
        """What each query term adds to the score of a passage."""
        held = slice(self.starts[pid], self.starts[pid] + self.matched[pid])
        return dict(zip(self.terms[held].tolist(), self.parts[held].tolist(), strict=True))


def bm25_scores(rows: Sequence[PassageRow], weights: TermWeights) -> LexicalScores:
    """BM25 of every passage, equal to the search engine's score, also for passages that it did not propose."""
    wanted = np.array(sorted(weights.terms), np.uint32)
    idf = np.array([weights.terms[term] for term in wanted.tolist()], np.int64)
    terms = np.frombuffer(b"".join(row.facts.terms for row in rows), np.uint32)
    values = np.frombuffer(b"".join(row.facts.weights for row in rows), np.float32)
    owner = np.repeat(np.arange(len(rows)), [len(row.facts.terms) // 4 for row in rows])
    at = np.minimum(np.searchsorted(wanted, terms), len(wanted) - 1)
    match = wanted[at] == terms
    parts = to_impacts(values[match]) * idf[at[match]]
    sums = np.bincount(owner[match], weights=parts, minlength=len(rows)).tolist()
    held = np.bincount(owner[match], minlength=len(rows))
    starts = np.cumsum(held) - held
    pids = [row.pid for row in rows]
    return LexicalScores(
        {pid: score * weights.unit for pid, score in zip(pids, sums, strict=True)},
        dict(zip(pids, held.tolist(), strict=True)),
        dict(zip(pids, starts.tolist(), strict=True)),
        terms[match],
        parts * weights.unit,
    )
