"""The marks of the feeds that were loaded, in one small file."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from contexture.errors import StoreUnwritable
from contexture.feeds import Mark


class MarkFile:
    """Implements the `FeedMarks` contract; a file that is missing or spoilt only means that feeds are read again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str) -> Mark:
        """The mark under this key; an empty one when there is none."""
        return self._all().get(key, Mark())

    def put(self, key: str, mark: Mark) -> None:
        """Write the file anew, whole or not at all."""
        data = msgspec.json.encode({**self._all(), key: mark})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._path.parent, prefix=self._path.name, delete=False) as file:
                file.write(data)
            os.replace(file.name, self._path)  # noqa: PTH105 - both ends are paths already
        except OSError as failure:
            raise StoreUnwritable(f"cannot write {str(self._path)!r}: {failure.strerror}") from failure

    def _all(self) -> dict[str, Mark]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Mark])
        except (OSError, msgspec.DecodeError):
            return {}
