"""Append-only NumPy arrays that can be read while they grow."""

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

D = TypeVar("D", bound=np.generic)


class AppendArray(Generic[D]):
    """Array that grows at the end. `view` is everything appended so far; a view, once taken, never changes."""

    def __init__(self, dtype: type[D], width: int = 0) -> None:
        shape = (0, width) if width else (0,)
        self._buffer: npt.NDArray[D] = np.empty(shape, dtype)
        self.view: npt.NDArray[D] = self._buffer

    def append(self, values: npt.NDArray[D]) -> None:
        """Append rows."""
        used, wanted = len(self.view), len(self.view) + len(values)
        if wanted > len(self._buffer):
            self.reserve(max(wanted, used * 3 // 2))
        self._buffer[used:wanted] = values
        self.view = self._buffer[:wanted]

    def reserve(self, count: int) -> None:
        """Make room for `count` rows in all."""
        if count > len(self._buffer):
            used = len(self.view)
            larger = np.empty((count, *self._buffer.shape[1:]), self._buffer.dtype)
            larger[:used] = self.view
            self._buffer = larger
            self.view = larger[:used]
