"""Files and folders of a store, readable by their owner alone whatever the umask is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def create_private_file(path: Path) -> None:
    """Create an empty file of mode 0600, or give an existing one that mode; SQLite gives its log files the same."""
    file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
    try:
        with suppress(PermissionError):  # of another owner, whose choice it is
            os.fchmod(file, 0o600)
    finally:
        os.close(file)


def create_private_folder(path: Path) -> None:
    """Create a folder of mode 0700 and its parents, or give an existing one that mode."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):
        path.chmod(0o700)
