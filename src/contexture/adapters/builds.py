"""Recent builds on disk, so that they can be explained and replayed later."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from contexture.errors import NotFound, StoreUnwritable

_BUILD_ID = re.compile(r"ctx-[0-9a-f]{12}")


class BuildFolder:
    """Stores the capsules of the last `keep` builds as files; older ones are deleted."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._kept: dict[Path, None] | None = None
        self._guard = threading.Lock()

    def save(self, build_id: str, capsule: bytes) -> None:
        """Write one capsule atomically; raises `StoreUnwritable`."""
        if not self._keep:
            return
        path = self._path(build_id)
        try:
            with self._guard:
                self._write(path, capsule)
                self._prune(path)
        except OSError as failure:
            raise StoreUnwritable(f"cannot store build {build_id}: {failure.strerror}") from failure

    def load(self, build_id: str) -> bytes:
        """Capsule of a build; raises `NotFound` for unknown and malformed ids alike."""
        try:
            return self._path(build_id).read_bytes()
        except OSError:
            raise NotFound(f"no build {build_id!r} is stored here") from None

    def _write(self, path: Path, capsule: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        draft.touch(mode=0o600)
        draft.write_bytes(capsule)
        draft.replace(path)

    def _path(self, build_id: str) -> Path:
        if not _BUILD_ID.fullmatch(build_id):
            raise NotFound(f"no build {build_id!r} is stored here")
        return self._folder / f"{build_id}.json"

    def _prune(self, newest: Path) -> None:
        """Delete the oldest builds; the folder is listed once and cached, because listing costs more than writing."""
        if self._kept is None:
            files = sorted(self._folder.glob("ctx-*.json"), key=lambda path: path.stat().st_mtime_ns)
            self._kept = dict.fromkeys(files)
        self._kept.pop(newest, None)
        self._kept[newest] = None
        while len(self._kept) > self._keep:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            oldest.unlink(missing_ok=True)
