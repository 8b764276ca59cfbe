"""Vectors of one name as small integers, all of them compared in one sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import simsimd

from contexture.adapters.index.growing import Growing
from contexture.types import Matrix, Vector

Bytes: TypeAlias = npt.NDArray[np.int8]
Numbers: TypeAlias = npt.NDArray[np.int64]

_TOP = 127
_LARGE = 1 << 21  # bytes of codes that are worth a second thread
_dot = cast("Callable[..., Any]", simsimd.cdist)


class View(NamedTuple):
    """The codes as one search sees them: a write makes a new view and leaves this one alone."""

    codes: Bytes
    scales: Vector
    slots: Numbers


class Codes:
    """Vectors as signed bytes, each with a scale of its own, so that no code depends on another vector.

    Products of bytes are whole numbers: the same on every machine, whatever else is stored. `slots` say whose
    vectors they are, in rising order.
    """

    def __init__(self, size: int) -> None:
        self._codes = Growing(np.int8, size)
        self._scales = Growing(np.float32)
        self._slots = Growing(np.int64)
        self.view = View(self._codes.view, self._scales.view, self._slots.view)

    def append(self, slots: Numbers, vectors: Matrix) -> None:
        """Add vectors behind those there are."""
        codes, scales = quantised(vectors)
        self._codes.append(codes)
        self._scales.append(scales)
        self._slots.append(slots)
        self.view = View(self._codes.view, self._scales.view, self._slots.view)


def quantised(vectors: Matrix) -> tuple[Bytes, Vector]:
    """Each row as signed bytes and the number that makes them the row again."""
    scales = np.abs(vectors).max(axis=1, initial=0.0) / _TOP
    divisors = np.where(scales > 0, scales, 1.0)[:, None]
    return np.rint(vectors / divisors).astype(np.int8), scales.astype(np.float32)


def products(view: View, vector: Vector, helpers: Executor | None) -> Vector:
    """The product of `vector` with every vector of a view; half of a large view is left to a helper."""
    question, scale = quantised(vector[None, :])
    half = len(view.slots) // 2
    if helpers is None or view.codes.nbytes < _LARGE:
        found = _swept(question, view.codes)
    else:
        first = helpers.submit(_swept, question, view.codes[:half])
        second = _swept(question, view.codes[half:])
        found = np.concatenate((first.result(), second))
    found *= view.scales
    found *= scale[0]
    return found


def products_at(view: View, vector: Vector, slots: Sequence[int] | Numbers) -> tuple[Numbers, Vector]:
    """Those of `slots` that have a vector, and the products with them."""
    wanted = np.asarray(slots, np.int64)
    if not len(view.slots) or not len(wanted):
        return wanted[:0], np.empty(0, np.float32)
    at = np.minimum(np.searchsorted(view.slots, wanted), len(view.slots) - 1)
    known = view.slots[at] == wanted
    at = at[known]
    some = View(view.codes[at], view.scales[at], view.slots[at])
    return wanted[known], products(some, vector, None)


def _swept(question: Bytes, codes: Bytes) -> Vector:
    if not len(codes):
        return np.empty(0, np.float32)
    return np.asarray(_dot(question, codes, "dot", out_dtype="f32"), np.float32).reshape(-1)
