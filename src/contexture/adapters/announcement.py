"""Where a running service is, written beside the store it holds, for the same user's commands."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from contexture.errors import StoreUnwritable

FILE = "serve.json"


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A service that holds a store: its process, its address, and the token of the local command line."""

    pid: int
    url: str
    token: str


@contextmanager
def announced(folder: Path, announcement: Announcement) -> Generator[None]:
    """Let commands find a service while this lasts; only the user who runs it can read where it is."""
    path = folder / FILE
    draft = folder / f"{FILE}.{announcement.pid}"
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(msgspec.json.encode(announcement))
        draft.replace(path)
    except OSError as failure:
        raise StoreUnwritable(f"cannot write {str(path)!r}: {failure.strerror}") from failure
    try:
        yield
    finally:
        if announcement == read_announcement(folder):
            path.unlink(missing_ok=True)


def read_announcement(folder: Path) -> Announcement | None:
    """The service that says it holds the store, if its process is alive; one that was killed left its file behind."""
    try:
        found = msgspec.json.decode((folder / FILE).read_bytes(), type=Announcement)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if _alive(found.pid) else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
