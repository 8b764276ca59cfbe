"""BM25 over exactly the passages a scope may read, in whole numbers.

Sums of floating-point numbers depend on the order in which they are added, and the engine's order depends on every
passage it holds, hidden ones too. Sums of whole numbers do not, as long as they stay exact: below 2 to the 24th in the
engine's arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contexture.adapters.index.truth import Row

_EXACT = (1 << 24) - 1
_IMPACT_STEP = 256
_IMPACT_MOST = 1_023
_IDF_STEP = 256.0


@dataclass(frozen=True, slots=True)
class Weights:
    """What each term of a question weighs, as whole numbers, and what a sum of 1 means in BM25."""

    terms: Mapping[int, int]
    unit: float


def impacts(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Term weights of passages as whole numbers; BM25's saturation keeps them small."""
    return np.clip(np.rint(weights.astype(np.float64) * _IMPACT_STEP), 1, _IMPACT_MOST)


def idf_weights(terms: Sequence[int], frequencies: Mapping[int, int], passages: int) -> Weights:
    """BM25's inverse document frequency of each known term over the passages a scope may read."""
    found = {
        term: math.log(1 + (passages - frequencies[term] + 0.5) / (frequencies[term] + 0.5))
        for term in terms
        if frequencies.get(term, 0) > 0
    }
    room = _EXACT / _IMPACT_MOST - len(found)
    step = min(_IDF_STEP, room / max(math.fsum(found.values()), 1.0))
    return Weights({term: max(round(idf * step), 1) for term, idf in found.items()}, 1 / (step * _IMPACT_STEP))


@dataclass(frozen=True, slots=True)
class Lexical:
    """BM25 of passages, and how many of the question's terms each of them holds."""

    scores: Mapping[int, float]
    matched: Mapping[int, int]


def bm25_scores(rows: Sequence[Row], weights: Weights) -> Lexical:
    """BM25 of every passage: what the engine would say of those it proposed, and of the others too."""
    wanted = np.array(sorted(weights.terms), np.uint32)
    idf = np.array([weights.terms[term] for term in wanted.tolist()], np.int64)
    terms = np.frombuffer(b"".join(row.facts.terms for row in rows), np.uint32)
    values = np.frombuffer(b"".join(row.facts.weights for row in rows), np.float32)
    owner = np.repeat(np.arange(len(rows)), [len(row.facts.terms) // 4 for row in rows])
    at = np.minimum(np.searchsorted(wanted, terms), len(wanted) - 1)
    match = wanted[at] == terms
    sums = np.bincount(owner[match], weights=impacts(values[match]) * idf[at[match]], minlength=len(rows)).tolist()
    held = np.bincount(owner[match], minlength=len(rows)).tolist()
    pids = [row.pid for row in rows]
    return Lexical(
        {pid: score * weights.unit for pid, score in zip(pids, sums, strict=True)}, dict(zip(pids, held, strict=True))
    )
