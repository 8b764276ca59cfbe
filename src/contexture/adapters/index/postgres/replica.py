"""A folder in which one process keeps its own parts of a shared index; another process takes the next folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.postgres.notes import Notes
from contexture.adapters.index.postgres.truth import FLUSHED, MARK, PostgresTruth
from contexture.adapters.index.truth import State
from contexture.errors import StoreLocked, StoreUnwritable

_MOST = 256
_STORE = "store"


class Replica:
    """The first free folder below `folder`; whatever an earlier process left in it saves reading it again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = _free(folder)
        self.notes = Notes(self.folder / "notes.json")

    def belongs(self, truth: PostgresTruth) -> None:
        """Throw away what was built from another store, or from a state that this one is not, or no longer, behind."""
        identity, seen = truth.identity(), State(int(self.notes.get(FLUSHED) or 0), self.notes.get(MARK) or "")
        if self.notes.get(_STORE) != identity or not truth.tells_since(seen):
            shutil.rmtree(self.folder / "index", ignore_errors=True)
            self.notes.clear()
            self.notes.set({_STORE: identity})

    def release(self) -> None:
        """Let another process have the folder."""
        self._lock.release()


def _free(folder: Path) -> tuple[Path, StoreLock]:
    for number in range(_MOST):
        place = folder / str(number)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            return place, StoreLock(place)
        except OSError as failure:
            raise StoreUnwritable(f"cannot create {str(place)!r}: {failure.strerror}") from failure
        except StoreLocked:
            continue
    raise StoreLocked(f"{_MOST} processes hold an index in {str(folder)!r}; point --home (CONTEXTURE_HOME) elsewhere")
