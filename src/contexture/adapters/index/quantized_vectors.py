"""Vectors quantized to int8, compared by dot product, or first by Hamming distance of their sign bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import simsimd

from contexture.adapters.index.append_array import AppendArray
from contexture.types import Matrix, Vector

Int8Array: TypeAlias = npt.NDArray[np.int8]
BitArray: TypeAlias = npt.NDArray[np.uint8]
IntArray: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_INT8_MAX = 127
_PARALLEL_CODE_BYTES = 1 << 23  # from this size of codes on, a second thread is used
_PARALLEL_SIGN_BYTES = 1 << 21  # the same for sign bits
_SIGN_CHUNK = 1 << 16  # vectors whose sign bits are compared at once
_cdist = cast("Callable[..., Any]", simsimd.cdist)


class QuantizedView(NamedTuple):
    """Immutable view of quantized vectors: a write makes a new view and does not change this one."""

    codes: Int8Array
    signs: BitArray
    scales: Vector
    slots: IntArray

    def before_slot(self, slot: int) -> QuantizedView:
        """The view restricted to slots below this one."""
        count = int(np.searchsorted(self.slots, slot))
        return QuantizedView(self.codes[:count], self.signs[:count], self.scales[:count], self.slots[:count])

    def take(self, places: IntArray, *, signs: bool = False) -> QuantizedView:
        """The vectors at these positions; without their sign bits, unless `signs`."""
        held = self.signs.take(places, axis=0) if signs else self.signs[:0]
        return QuantizedView(self.codes.take(places, axis=0), held, self.scales[places], self.slots[places])


class QuantizedVectors:
    """Vectors as int8, each with its own scale, so that no code depends on another vector.

    `slots` are the slots of their passages, ascending.
    """

    def __init__(self, size: int) -> None:
        self._codes = AppendArray(np.int8, size)
        self._signs = AppendArray(np.uint8, (size + 7) // 8)
        self._scales = AppendArray(np.float32)
        self._slots = AppendArray(np.int64)
        self.view = self._make_view()

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(array.nbytes for array in self.view)

    def reserve(self, count: int) -> None:
        """Make room for so many vectors, so that nothing is copied while they are appended."""
        for array in (self._codes, self._signs, self._scales, self._slots):
            array.reserve(count)

    def append(self, slots: IntArray, vectors: Matrix) -> None:
        """Append vectors; slots must be greater than those before."""
        codes, scales = quantize(vectors)
        self._codes.append(codes)
        self._signs.append(pack_signs(codes))
        self._scales.append(scales)
        self._slots.append(slots)
        self.view = self._make_view()

    def _make_view(self) -> QuantizedView:
        return QuantizedView(self._codes.view, self._signs.view, self._scales.view, self._slots.view)


def quantize(vectors: Matrix) -> tuple[Int8Array, Vector]:
    """Each row as int8 codes, and the scale that multiplies them back to the row."""
    scales = np.abs(vectors).max(axis=1, initial=0.0) / _INT8_MAX
    divisors = np.where(scales > 0, scales, 1.0)[:, None]
    return np.rint(vectors / divisors).astype(np.int8), scales.astype(np.float32)


def pack_signs(codes: Int8Array) -> BitArray:
    """Sign bits of each row: one bit per number, set if it is above zero."""
    return np.packbits(codes > 0, axis=1)


def prefilter_by_signs(
    view: QuantizedView, vector: Vector, mask: Mask | None, wanted: int, helpers: Executor | None
) -> IntArray:
    """Positions of the `wanted` vectors nearest by Hamming distance of sign bits, and all that tie with the last.

    Only vectors in the mask are considered; without a mask, all of them.
    """
    question = pack_signs(quantize(vector[None, :])[0])
    differing = np.empty(len(view.signs), np.int16)
    half = len(differing) // 2 if helpers is not None and view.signs.nbytes >= _PARALLEL_SIGN_BYTES else 0
    far = 8 * question.shape[1] + 1

    def compare(part: slice) -> None:
        _hamming_distances(question, view.signs[part], differing[part])
        if mask is not None:
            np.maximum(differing[part], ~mask[part] * np.int16(far), out=differing[part])

    first = helpers.submit(compare, slice(half)) if helpers is not None and half else None
    compare(slice(half, None))
    if first is not None:
        first.result()
    edge = np.partition(differing, wanted - 1)[wanted - 1] if wanted < len(differing) else far
    return np.flatnonzero(differing <= min(int(edge), far - 1))


def _hamming_distances(question: BitArray, signs: BitArray, differing: npt.NDArray[np.int16]) -> None:
    """Write the Hamming distance of each vector to `differing`; in chunks that fit in the CPU cache."""
    for start in range(0, len(differing), _SIGN_CHUNK):
        part = slice(start, start + _SIGN_CHUNK)
        differing[part] = np.asarray(_cdist(question, signs[part], "hamming", dtype="bin8")).reshape(-1)


def dot_products(view: QuantizedView, vector: Vector, helpers: Executor | None) -> Vector:
    """Dot products of `vector` with every vector of a view; `helpers` compute half of a large view."""
    question, scale = quantize(vector[None, :])
    half = len(view.slots) // 2
    if helpers is None or view.codes.nbytes < _PARALLEL_CODE_BYTES:
        found = _int8_products(question, view.codes)
    else:
        first = helpers.submit(_int8_products, question, view.codes[:half])
        second = _int8_products(question, view.codes[half:])
        found = np.concatenate((first.result(), second))
    found *= view.scales
    found *= scale[0]
    return found


def dot_products_at(view: QuantizedView, vector: Vector, slots: Sequence[int] | IntArray) -> tuple[IntArray, Vector]:
    """Those of `slots` that have a vector, and the dot products with these vectors."""
    wanted = np.asarray(slots, np.int64)
    if not len(view.slots) or not len(wanted):
        return wanted[:0], np.empty(0, np.float32)
    at = np.minimum(np.searchsorted(view.slots, wanted), len(view.slots) - 1)
    known = view.slots[at] == wanted
    at = at[known]
    return wanted[known], dot_products(view.take(at), vector, None)


def _int8_products(question: Int8Array, codes: Int8Array) -> Vector:
    if not len(codes):
        return np.empty(0, np.float32)
    return np.asarray(_cdist(question, codes, "dot", out_dtype="f32"), np.float32).reshape(-1)
