"""Small files on the move: builds, pictures of pages, the salt of hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

BUILDS = "builds"
PICTURES = "pages"
SALT = "salt"


class FilesPlace(Protocol):
    """The files of a store, by place and name."""

    def names(self) -> Sequence[tuple[str, str]]:
        """Every file by place and name, the oldest build first."""
        ...

    def read(self, place: str, name: str) -> bytes | None:
        """A file, or None where there is none."""
        ...

    def write(self, place: str, name: str, data: bytes) -> None:
        """Write a file instead of the one there was."""
        ...
