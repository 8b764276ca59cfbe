"""Arrays that grow at the end while others read them."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

D = TypeVar("D", bound=np.generic)


class Growing(Generic[D]):
    """An array with room to grow. `view` is what was appended so far; a view, once taken, never changes."""

    def __init__(self, dtype: type[D], width: int = 0) -> None:
        shape = (0, width) if width else (0,)
        self._room: npt.NDArray[D] = np.empty(shape, dtype)
        self.view: npt.NDArray[D] = self._room

    def append(self, values: npt.NDArray[D]) -> None:
        """Add rows behind those there are."""
        used, wanted = len(self.view), len(self.view) + len(values)
        if wanted > len(self._room):
            larger = np.empty((max(wanted, used * 3 // 2), *self._room.shape[1:]), self._room.dtype)
            larger[:used] = self.view
            self._room = larger
        self._room[used:wanted] = values
        self.view = self._room[:wanted]
