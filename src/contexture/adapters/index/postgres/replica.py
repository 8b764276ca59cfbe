"""Replica folder: local search indexes of one process of a shared index; each process locks its own folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.postgres.key_value_file import KeyValueFile
from contexture.adapters.index.postgres.record_store import FLUSHED_KEY, MARK_KEY, PostgresRecordStore
from contexture.adapters.index.record_store import StoreState
from contexture.errors import StoreLocked, StoreUnwritable

_MAX_REPLICAS = 256
_STORE_KEY = "store"


class ReplicaFolder:
    """The first unlocked folder below `folder`, with the search indexes that an earlier process left in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = _lock_free_folder(folder)
        self.state_file = KeyValueFile(self.folder / "notes.json")

    def discard_if_stale(self, record_store: PostgresRecordStore) -> None:
        """Delete search indexes built from another store, or from a state that this store cannot replay from."""
        identity, seen = (
            record_store.store_id(),
            StoreState(int(self.state_file.get(FLUSHED_KEY) or 0), self.state_file.get(MARK_KEY) or ""),
        )
        if self.state_file.get(_STORE_KEY) != identity or not record_store.has_history_since(seen):
            shutil.rmtree(self.folder / "index", ignore_errors=True)
            self.state_file.clear()
            self.state_file.set({_STORE_KEY: identity})

    def release(self) -> None:
        """Release the lock on the folder."""
        self._lock.release()


def _lock_free_folder(folder: Path) -> tuple[Path, StoreLock]:
    for number in range(_MAX_REPLICAS):
        place = folder / str(number)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            return place, StoreLock(place)
        except OSError as failure:
            raise StoreUnwritable(f"cannot create {str(place)!r}: {failure.strerror}") from failure
        except StoreLocked:
            continue
    raise StoreLocked(
        f"{_MAX_REPLICAS} processes hold an index in {str(folder)!r}; point --home (CONTEXTURE_HOME) elsewhere"
    )
