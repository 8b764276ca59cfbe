"""Small JSON key-value file in which a process records the state of its own search indexes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from contexture.errors import StoreUnwritable


class KeyValueFile:
    """String keys and values in a small JSON file; an unreadable file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = _load_values(path)

    def get(self, key: str) -> str | None:
        """Value of a key; None when it is not set."""
        return self._values.get(key)

    def set(self, noted: Mapping[str, str]) -> None:
        """Set these keys; the file is replaced atomically. Raises `StoreUnwritable` if it cannot be written."""
        self._values = {**self._values, **noted}
        draft = self._path.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(self._values), "utf-8")
            draft.replace(self._path)
        except OSError as failure:
            raise StoreUnwritable(f"cannot write {str(self._path)!r}: {failure.strerror}") from failure

    def clear(self) -> None:
        """Remove all keys and delete the file."""
        self._values = {}
        self._path.unlink(missing_ok=True)


def _load_values(path: Path) -> dict[str, str]:
    try:
        found: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, str]", found) if isinstance(found, dict) else {}
