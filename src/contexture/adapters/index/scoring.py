"""Exact scores of proposed passages, computed from what SQLite holds and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from contexture.adapters.index.codec import Facts
from contexture.types import Vector


def idf_weights(terms: Sequence[int], frequencies: Mapping[int, int], passages: int) -> dict[int, float]:
    """BM25's inverse document frequency of each known term over the passages a scope may read."""
    return {
        term: math.log(1 + (passages - frequencies[term] + 0.5) / (frequencies[term] + 0.5))
        for term in terms
        if frequencies.get(term, 0) > 0
    }


def bm25_scores(facts: Sequence[Facts], weights: Mapping[int, float]) -> list[float]:
    """BM25 of every passage for a query whose terms weigh `weights`."""
    if not weights or not facts:
        return [0.0] * len(facts)
    wanted = np.array(sorted(weights), np.uint32)
    idf = np.array([weights[int(term)] for term in wanted])
    terms = np.frombuffer(b"".join(f.terms for f in facts), np.uint32)
    values = np.frombuffer(b"".join(f.weights for f in facts), np.float32)
    owner = np.repeat(np.arange(len(facts)), [len(f.terms) // 4 for f in facts])
    at = np.minimum(np.searchsorted(wanted, terms), len(wanted) - 1)
    match = wanted[at] == terms
    found = np.bincount(owner[match], weights=values[match] * idf[at[match]], minlength=len(facts))
    return found.tolist()


def dense_scores(facts: Sequence[Facts], name: str, query: Vector) -> list[float | None]:
    """Dot products with the stored vector of that name; None where a passage has none."""
    having = [index for index, f in enumerate(facts) if name in f.vectors]
    scores: list[float | None] = [None] * len(facts)
    if having:
        stored = np.frombuffer(b"".join(facts[index].vectors[name] for index in having), np.float16)
        # Not `@`: BLAS rounds a row differently depending on which rows stand beside it.
        products = np.einsum("ij,j->i", stored.reshape(len(having), -1).astype(np.float32), query)
        for index, score in zip(having, products.tolist(), strict=True):
            scores[index] = score
    return scores
