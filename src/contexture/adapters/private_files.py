"""Files and folders of a store, readable by their owner alone whatever the umask is."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path


def create_private_file(path: Path) -> None:
    """Create an empty file of mode 0600, or give an existing one that mode; SQLite gives its log files the same.

    An existing file is not opened: closing any descriptor of a database drops the locks that SQLite has on it in this
    process, and another process would then remove the write-ahead log that is in use here.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise
    with suppress(PermissionError):  # of another owner, whose choice it is
        path.chmod(0o600)


def create_private_database(path: Path) -> None:
    """Create a SQLite file of mode 0600 without tables, or give an existing one that mode.

    It appears together with its header, so a file without a byte is never a new database, but one that was lost.
    """
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
        create_private_file(draft)
        try:
            with closing(sqlite3.connect(draft)) as db:
                db.execute("PRAGMA journal_mode = WAL")  # writes the header
            with suppress(OSError):  # created by another process meanwhile, or on a file system without links
                path.hardlink_to(draft)
        finally:
            draft.unlink(missing_ok=True)
    create_private_file(path)


def create_private_folder(path: Path) -> None:
    """Create a folder of mode 0700 and its parents, or give an existing one that mode."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):
        path.chmod(0o700)
