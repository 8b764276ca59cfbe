"""File beside a store that announces the URL of the running service to commands of the same user."""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from contexture.errors import StoreUnwritable

ANNOUNCEMENT_FILE = "serve.json"


class ServiceAnnouncement(msgspec.Struct, frozen=True, kw_only=True):
    """A service that has a store open: its process id, URL, and the token for the local command line."""

    pid: int
    url: str
    token: str


def make_token() -> str:
    """A new token for the local command line.

    It begins like an API key, so that a service refuses the token of an earlier process, whatever else it accepts.
    """
    return f"ctx_local_{secrets.token_urlsafe(32)}"


@contextmanager
def announce_service(folder: Path, announcement: ServiceAnnouncement) -> Generator[None]:
    """Announce a service to commands until the context exits; the file has mode 0600. Raises `StoreUnwritable`."""
    path = folder / ANNOUNCEMENT_FILE
    draft = folder / f"{ANNOUNCEMENT_FILE}.{announcement.pid}"
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


def read_announcement(folder: Path) -> ServiceAnnouncement | None:
    """Announced service of a store; None if there is none or its process is gone (killed without cleanup)."""
    try:
        found = msgspec.json.decode((folder / ANNOUNCEMENT_FILE).read_bytes(), type=ServiceAnnouncement)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if _is_alive(found.pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
