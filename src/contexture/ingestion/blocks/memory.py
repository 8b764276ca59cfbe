"""What an import remembers of the last one: which block got which id, order and time."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct, field

from contexture.errors import InvalidRequest, StoreUnwritable

HINT = 80
"""Characters of a block's text that are kept, to know it again after an edit."""


class Kept(Struct, frozen=True, kw_only=True, array_like=True):
    """A block as it was written last time; `parent` is the place of its parent in the document, -1 for the root."""

    id: str
    digest: str
    hint: str
    parent: int
    order: float
    modified: float | None = None


class KeptDocument(Struct, frozen=True, kw_only=True, array_like=True):
    """The blocks of a document in document order, the root first, and the block they stand below."""

    blocks: tuple[Kept, ...]
    under: str | None = None

    @property
    def ids(self) -> set[str]:
        """The ids of its blocks."""
        return {kept.id for kept in self.blocks}


class Remembered(Struct, frozen=True, kw_only=True):
    """What was imported from one source: where it was, and its documents by path."""

    root: str
    documents: dict[str, KeptDocument] = field(default_factory=dict[str, KeptDocument])


class ImportMemory:
    """Keeps one file per source of a tenant, in a folder of the home."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, tenant: str, source: str) -> Remembered | None:
        """What was remembered; None when nothing was, or when it cannot be read as what we write."""
        try:
            return msgspec.msgpack.decode(self._path(tenant, source).read_bytes(), type=Remembered)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            return None  # ids are made from the source again, as at the first import
        except OSError as failure:
            raise InvalidRequest(f"what was imported before cannot be read: {failure}") from failure

    def write(self, tenant: str, source: str, remembered: Remembered) -> None:
        """Remember; a crash leaves the old file or the new one."""
        path = self._path(tenant, source)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_bytes(msgspec.msgpack.encode(remembered))
            os.replace(part, path)  # noqa: PTH105 - said as what it is
        except OSError as failure:
            raise StoreUnwritable(f"what was imported cannot be remembered: {failure}") from failure

    def _path(self, tenant: str, source: str) -> Path:
        readable = re.sub(r"[^\w-]+", "-", source)[:40]
        said = blake2b(f"{tenant}\0{source}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        return self._folder / f"{readable}-{said}.msgpack"
