"""Binary encoding of matrices: each number as int8, with one scale per row."""

import struct

import numpy as np

from contexture.types import Matrix

_SHAPE = struct.Struct("<II")
_INT8_MAX = 127


def pack_matrix(matrix: Matrix) -> bytes:
    """The matrix as bytes, a quarter of its size; a cosine of unit rows changes by less than .01."""
    rows = np.asarray(matrix, np.float32)
    scales = np.abs(rows).max(axis=1, initial=0.0) / _INT8_MAX
    codes = np.rint(rows / np.where(scales > 0, scales, 1.0)[:, None]).astype(np.int8)
    return _SHAPE.pack(*rows.shape) + scales.astype("<f4").tobytes() + codes.tobytes()


def unpack_matrix(data: bytes) -> Matrix:
    """The matrix that `pack_matrix` packed, up to rounding."""
    height, width = _SHAPE.unpack_from(data)
    scales = np.frombuffer(data, "<f4", height, _SHAPE.size)
    codes = np.frombuffer(data, np.int8, height * width, _SHAPE.size + 4 * height)
    return codes.reshape(height, width).astype(np.float32) * scales[:, None]
