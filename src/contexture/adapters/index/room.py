"""The room that a store needs on its disk."""

from __future__ import annotations

from pathlib import Path
from shutil import disk_usage

from contexture.errors import StoreUnwritable

NEEDED = 64 << 20  # bytes: the files of a new collection, the log of a database and some batches


def has_room(folder: Path) -> bool:
    """Whether something can be written there; where nobody can say, writing will show it."""
    try:
        return disk_usage(folder).free >= NEEDED
    except OSError:
        return True


def check_room(folder: Path) -> None:
    """Refuse to write to a disk that is nearly full.

    The engine writes into files that it maps, and a process that does so without room is ended by the system.
    """
    if not has_room(folder):
        raise StoreUnwritable(
            f"the disk of {str(folder)!r} has less than {NEEDED >> 20} MB left: nothing was stored; make room first"
        )
