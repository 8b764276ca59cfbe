"""What a process notes about its own parts of an index, beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from contexture.errors import StoreUnwritable


class Notes:
    """Keys and values in a small file; one that cannot be read is an empty one, and the parts are built anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted = _read(path)

    def get(self, key: str) -> str | None:
        """What is noted under a key."""
        return self._noted.get(key)

    def set(self, noted: Mapping[str, str]) -> None:
        """Note something under each key; it is on the disk when this returns, or nothing changed."""
        self._noted = {**self._noted, **noted}
        draft = self._path.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(self._noted), "utf-8")
            draft.replace(self._path)
        except OSError as failure:
            raise StoreUnwritable(f"cannot write {str(self._path)!r}: {failure.strerror}") from failure

    def clear(self) -> None:
        """Forget everything."""
        self._noted = {}
        self._path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, str]:
    try:
        found: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, str]", found) if isinstance(found, dict) else {}
