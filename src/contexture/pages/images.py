"""Pictures of pages as JPEG files, in a folder per tenant."""

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from contexture.documents import Page
from contexture.errors import InvalidRequest, StoreUnwritable


def image_name(doc_id: str, page: int) -> str:
    """The file of a page's picture, such as `abc123_page_005.jpg`."""
    return f"{doc_id}_page_{page:03d}.jpg"


def thumb_name(doc_id: str, page: int) -> str:
    """The file of a page's small picture, such as `abc123_page_005_thumb.jpg`."""
    return f"{doc_id}_page_{page:03d}_thumb.jpg"


class PictureStore(Protocol):
    """Stores pictures by folder and name."""

    def write(self, place: str, name: str, data: bytes) -> None:
        """Write a picture atomically."""
        ...

    def read(self, place: str, name: str) -> bytes | None:
        """The bytes of a picture, or None if it does not exist."""
        ...

    def remove(self, place: str, name: str) -> None:
        """Remove a picture if it exists."""
        ...


class PictureFiles:
    """Pictures on this machine's disk."""

    def write(self, place: str, name: str, data: bytes) -> None:
        """Write a picture atomically; raises `StoreUnwritable` when the disk cannot be written."""
        try:
            Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_atomically(Path(place) / name, data)
        except OSError as failure:
            raise StoreUnwritable(f"cannot write a page's picture: {failure.strerror}") from failure

    def read(self, place: str, name: str) -> bytes | None:
        """The bytes of a picture, or None if it does not exist."""
        try:
            return (Path(place) / name).read_bytes()
        except OSError:
            return None

    def remove(self, place: str, name: str) -> None:
        """Remove a picture if it exists."""
        (Path(place) / name).unlink(missing_ok=True)


class PageImages:
    """Writes, reads and removes pictures below one folder; does not check permissions, which is up to the caller."""

    def __init__(self, folder: Path, pictures: PictureStore | None = None) -> None:
        self._folder = folder
        self._pictures = pictures or PictureFiles()

    def folder(self, tenant: str) -> Path:
        """The folder of a tenant's pictures; separate, because two tenants may store the same document."""
        return self._folder / sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def write(self, tenant: str, doc_id: str, pages: Iterable[Page]) -> None:
        """Write the pictures of these pages, each file atomically."""
        folder = str(self.folder(tenant))
        for page in pages:
            for name, data in _picture_files(doc_id, page):
                self._pictures.write(folder, name, data)

    def read(self, tenant: str, doc_id: str, page: int, *, thumb: bool = False) -> bytes | None:
        """The JPEG of a page, or None if it does not exist; raises `InvalidRequest` for an invalid document id."""
        name = thumb_name(doc_id, page) if thumb else image_name(doc_id, page)
        if Path(name).name != name:
            raise InvalidRequest(f"{doc_id!r} is not the id of a document")
        return self._pictures.read(str(self.folder(tenant)), name)

    def remove(self, tenant: str, doc_id: str, pages: Iterable[int]) -> None:
        """Remove the pictures of these pages, if they exist."""
        folder = str(self.folder(tenant))
        for page in pages:
            for name in (image_name(doc_id, page), thumb_name(doc_id, page)):
                self._pictures.remove(folder, name)


def _picture_files(doc_id: str, page: Page) -> Iterator[tuple[str, bytes]]:
    if page.image:
        yield image_name(doc_id, page.number), page.image
    if page.thumb:
        yield thumb_name(doc_id, page.number), page.thumb


def _write_atomically(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{uuid4().hex}.part")
    beside.write_bytes(data)
    os.replace(beside, path)  # noqa: PTH105 - the same on every platform
