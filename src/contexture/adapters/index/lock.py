"""File lock that lets only one process open an embedded store."""

import fcntl
import os
from pathlib import Path

from contexture.announcement import read_announcement
from contexture.errors import StoreLocked, StoreUnwritable


class StoreLock:
    """Advisory lock on a folder, released by the operating system when the process ends, even by a crash.

    Raises `StoreLocked`, which names the holder, if another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as failure:
            raise StoreUnwritable(f"cannot write to {str(folder)!r}: {failure.strerror}") from failure
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            if holder == str(os.getpid()):
                raise StoreLocked(
                    f"the store in {str(folder)!r} is open in this process already; share that engine, or close it"
                ) from None
            served = read_announcement(folder)
            where = f", which serves it at {served.url}" if served and str(served.pid) == holder else ""
            raise StoreLocked(
                f"the store in {str(folder)!r} is open in another process (pid {holder}{where}); "
                "stop it, or point --home (CONTEXTURE_HOME) at another folder"
            ) from None
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, str(os.getpid()).encode(), 0)
        except OSError as failure:
            os.close(self._file)
            raise StoreUnwritable(f"cannot write to {str(folder)!r}: {failure.strerror}") from failure

    def release(self) -> None:
        """Release the lock."""
        os.close(self._file)
