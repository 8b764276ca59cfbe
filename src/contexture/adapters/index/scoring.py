"""BM25 over exactly the passages a scope may read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from contexture.adapters.index.truth import Row


def idf_weights(terms: Sequence[int], frequencies: Mapping[int, int], passages: int) -> dict[int, float]:
    """BM25's inverse document frequency of each known term over the passages a scope may read."""
    return {
        term: math.log(1 + (passages - frequencies[term] + 0.5) / (frequencies[term] + 0.5))
        for term in terms
        if frequencies.get(term, 0) > 0
    }


def bm25_scores(rows: Sequence[Row], weights: Mapping[int, float]) -> dict[int, float]:
    """BM25 of every passage for a query whose terms weigh `weights`.

    Computed here and not taken from the engine, which adds a passage's terms in an order that
    other passages influence.
    """
    wanted = np.array(sorted(weights), np.uint32)
    idf = np.array([weights[int(term)] for term in wanted])
    terms = np.frombuffer(b"".join(row.facts.terms for row in rows), np.uint32)
    values = np.frombuffer(b"".join(row.facts.weights for row in rows), np.float32)
    owner = np.repeat(np.arange(len(rows)), [len(row.facts.terms) // 4 for row in rows])
    at = np.minimum(np.searchsorted(wanted, terms), len(wanted) - 1)
    match = wanted[at] == terms
    found = np.bincount(owner[match], weights=values[match] * idf[at[match]], minlength=len(rows))
    return {row.pid: score for row, score in zip(rows, found.tolist(), strict=True)}
