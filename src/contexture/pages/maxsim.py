"""How well pages answer a question, both given as rows of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contexture.types import Matrix, Vector


class Seen(NamedTuple):
    """The MaxSim of each page, and which of its rows answers the question best."""

    scores: Vector
    rows: npt.NDArray[np.int64]


def maxsim(question: Matrix, pages: Sequence[Matrix]) -> Seen:
    """For each page the mean, over the question's rows, of the best dot product with any of the page's rows.

    Every page needs at least one row. The row that answers best has the highest mean over the question's rows.
    """
    if not pages:
        return Seen(np.zeros(0, np.float32), np.zeros(0, np.int64))
    sizes = np.array([len(rows) for rows in pages])
    starts = np.cumsum(sizes) - sizes
    products = np.concatenate(pages) @ question.T
    means = products.mean(axis=1)
    rows = np.array([means[at : at + size].argmax() for at, size in zip(starts, sizes, strict=True)])
    return Seen(np.maximum.reduceat(products, starts, axis=0).mean(axis=1), rows)
