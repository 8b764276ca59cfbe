"""Vectors of one name as small integers, all of them compared in one sweep, or first by their signs alone."""

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
Bits: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_TOP = 127
_LARGE = 1 << 23  # bytes of codes that are worth a second thread
_MANY_SIGNS = 1 << 21  # the same for signs
_PIECE = 1 << 16  # vectors whose signs are compared at once
_compare = cast("Callable[..., Any]", simsimd.cdist)


class View(NamedTuple):
    """The codes as one search sees them: a write makes a new view and leaves this one alone."""

    codes: Bytes
    signs: Bits
    scales: Vector
    slots: Numbers

    def until(self, slot: int) -> View:
        """The view without vectors of this slot and those behind it."""
        count = int(np.searchsorted(self.slots, slot))
        return View(self.codes[:count], self.signs[:count], self.scales[:count], self.slots[:count])

    def at(self, places: Numbers) -> View:
        """Some of the vectors, whose signs have been compared already."""
        return View(self.codes.take(places, axis=0), self.signs[:0], self.scales[places], self.slots[places])


class Codes:
    """Vectors as signed bytes, each with a scale of its own, so that no code depends on another vector.

    Products of bytes are whole numbers: the same on every machine, whatever else is stored. `slots` say whose
    vectors they are, in rising order.
    """

    def __init__(self, size: int) -> None:
        self._codes = Growing(np.int8, size)
        self._signs = Growing(np.uint8, (size + 7) // 8)
        self._scales = Growing(np.float32)
        self._slots = Growing(np.int64)
        self.view = self._view()

    def append(self, slots: Numbers, vectors: Matrix) -> None:
        """Add vectors behind those there are."""
        codes, scales = quantised(vectors)
        self._codes.append(codes)
        self._signs.append(signs_of(codes))
        self._scales.append(scales)
        self._slots.append(slots)
        self.view = self._view()

    def _view(self) -> View:
        return View(self._codes.view, self._signs.view, self._scales.view, self._slots.view)


def quantised(vectors: Matrix) -> tuple[Bytes, Vector]:
    """Each row as signed bytes and the number that makes them the row again."""
    scales = np.abs(vectors).max(axis=1, initial=0.0) / _TOP
    divisors = np.where(scales > 0, scales, 1.0)[:, None]
    return np.rint(vectors / divisors).astype(np.int8), scales.astype(np.float32)


def signs_of(codes: Bytes) -> Bits:
    """A bit for each number of each row: whether it is above zero."""
    return np.packbits(codes > 0, axis=1)


def promising(view: View, vector: Vector, mask: Mask | None, wanted: int, helpers: Executor | None) -> Numbers:
    """Where the `wanted` vectors are whose signs differ least from the question's, and all that tie with the last.

    Only vectors that the mask lets through have a say; without one, all of them do.
    """
    question = signs_of(quantised(vector[None, :])[0])
    differing = np.empty(len(view.signs), np.int16)
    half = len(differing) // 2 if helpers is not None and view.signs.nbytes >= _MANY_SIGNS else 0
    far = 8 * question.shape[1] + 1

    def compare(part: slice) -> None:
        _compare_signs(question, view.signs[part], differing[part])
        if mask is not None:
            np.maximum(differing[part], ~mask[part] * np.int16(far), out=differing[part])

    first = helpers.submit(compare, slice(half)) if helpers is not None and half else None
    compare(slice(half, None))
    if first is not None:
        first.result()
    edge = np.partition(differing, wanted - 1)[wanted - 1] if wanted < len(differing) else far
    return np.flatnonzero(differing <= min(int(edge), far - 1))


def _compare_signs(question: Bits, signs: Bits, differing: npt.NDArray[np.int16]) -> None:
    """In how many signs each vector differs, written to `differing`; in pieces that stay in the processor's cache."""
    for start in range(0, len(differing), _PIECE):
        part = slice(start, start + _PIECE)
        differing[part] = np.asarray(_compare(question, signs[part], "hamming", dtype="bin8")).reshape(-1)


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
    return wanted[known], products(view.at(at), vector, None)


def _swept(question: Bytes, codes: Bytes) -> Vector:
    if not len(codes):
        return np.empty(0, np.float32)
    return np.asarray(_compare(question, codes, "dot", out_dtype="f32"), np.float32).reshape(-1)
