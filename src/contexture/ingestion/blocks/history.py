"""The snapshot of the last import of a source: the id, order and time of each block, one file per tenant and source."""

import os
import re
from collections.abc import Container
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct, field

from contexture.errors import InvalidRequest, StoreUnwritable

HINT_LENGTH = 80
"""Characters of a block's text that are stored, to recognise it after an edit."""


class ImportedBlock(Struct, frozen=True, kw_only=True, array_like=True):
    """A block as the last import wrote it; `parent` is its parent's position in the document, -1 for the root."""

    id: str
    digest: str
    hint: str
    parent: int
    order: float
    modified: float | None = None
    readers: tuple[str, ...] | None = None


class ImportedDocument(Struct, frozen=True, kw_only=True, array_like=True):
    """The blocks that the last import wrote for a document, in document order, and the block above its root."""

    blocks: tuple[ImportedBlock, ...]
    under: str | None = None

    @property
    def ids(self) -> set[str]:
        """The ids of its blocks."""
        return {kept.id for kept in self.blocks}


class ImportSnapshot(Struct, frozen=True, kw_only=True):
    """The snapshot of the last import of a source: the location of the source, and its documents by path."""

    root: str
    documents: dict[str, ImportedDocument] = field(default_factory=dict[str, ImportedDocument])


class ImportHistory:
    """Stores the snapshot of the last import, one file per tenant and source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, tenant: str, source: str) -> ImportSnapshot | None:
        """Return the stored snapshot; None if there is none, or if it cannot be decoded."""
        try:
            return msgspec.msgpack.decode(self._path(tenant, source).read_bytes(), type=ImportSnapshot)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            return None  # ids are derived from the source again, as in the first import
        except OSError as failure:
            raise InvalidRequest(f"the import history cannot be read: {failure}") from failure

    def write(self, tenant: str, source: str, remembered: ImportSnapshot) -> None:
        """Store a snapshot atomically: a crash leaves the old file or the new one."""
        self._write(self._path(tenant, source), remembered)

    def _write(self, path: Path, remembered: ImportSnapshot) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)  # holds beginnings of texts, also of an earlier version that made it for everyone
            part = path.with_suffix(".part")
            part.touch(mode=0o600)
            part.write_bytes(msgspec.msgpack.encode(remembered))
            os.replace(part, path)  # noqa: PTH105 - said as what it is
        except OSError as failure:
            raise StoreUnwritable(f"the import history cannot be written: {failure}") from failure

    def forget_texts(self, ids: Container[str]) -> int:
        """Remove the stored beginnings of the texts of these blocks; returns how many there were.

        The hashes stay, so that the next import of an unchanged source does not bring the blocks back.
        """
        gone = 0
        for path in sorted(self._folder.glob("*.msgpack")):
            try:
                found = msgspec.msgpack.decode(path.read_bytes(), type=ImportSnapshot)
            except (OSError, msgspec.DecodeError):
                continue
            hits = sum(each.id in ids and bool(each.hint) for doc in found.documents.values() for each in doc.blocks)
            if hits:
                documents = {name: _without_hints(each, ids) for name, each in found.documents.items()}
                self._write(path, msgspec.structs.replace(found, documents=documents))
                gone += hits
        return gone

    def _path(self, tenant: str, source: str) -> Path:
        readable = re.sub(r"[^\w-]+", "-", source)[:40]
        said = blake2b(f"{tenant}\0{source}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        return self._folder / f"{readable}-{said}.msgpack"


def _without_hints(document: ImportedDocument, ids: Container[str]) -> ImportedDocument:
    blocks = tuple(msgspec.structs.replace(each, hint="") if each.id in ids else each for each in document.blocks)
    return msgspec.structs.replace(document, blocks=blocks)
