"""Free disk space check, made before a store writes."""

from pathlib import Path
from shutil import disk_usage

from contexture.errors import StoreUnwritable

MIN_FREE_BYTES = 64 << 20  # enough for the files of a new collection, a database log and some batches


def has_free_space(folder: Path) -> bool:
    """Whether the disk has `MIN_FREE_BYTES` left; True if that cannot be determined."""
    try:
        return disk_usage(folder).free >= MIN_FREE_BYTES
    except OSError:
        return True


def check_free_space(folder: Path) -> None:
    """Raise `StoreUnwritable` when the disk is nearly full.

    Writing to a memory-mapped file on a full disk kills the process.
    """
    if not has_free_space(folder):
        raise StoreUnwritable(
            f"the disk of {str(folder)!r} has less than {MIN_FREE_BYTES >> 20} MB left: nothing was stored; "
            "free some space first"
        )
