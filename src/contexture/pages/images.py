"""Pictures of pages as JPEG files, in a folder per tenant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from contexture.documents import Page
from contexture.errors import InvalidRequest, StoreUnwritable


def image_name(doc_id: str, page: int) -> str:
    """The file of a page's picture, such as `abc123_page_005.jpg`."""
    return f"{doc_id}_page_{page:03d}.jpg"


def thumb_name(doc_id: str, page: int) -> str:
    """The file of a page's small picture, such as `abc123_page_005_thumb.jpg`."""
    return f"{doc_id}_page_{page:03d}_thumb.jpg"


class PageImages:
    """Writes, reads and removes pictures below one folder; who may see a page is asked elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder(self, tenant: str) -> Path:
        """Where a tenant's pictures lie: two tenants may hold the same document."""
        return self._folder / sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def write(self, tenant: str, doc_id: str, pages: Iterable[Page]) -> None:
        """Write the pictures of these pages; each file is whole or not there."""
        folder = self.folder(tenant)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for page in pages:
                for name, data in _files(doc_id, page):
                    _replace(folder / name, data)
        except OSError as failure:
            raise StoreUnwritable(f"cannot write a page's picture: {failure.strerror}") from failure

    def read(self, tenant: str, doc_id: str, page: int, *, thumb: bool = False) -> bytes | None:
        """A picture, or None where there is none."""
        name = thumb_name(doc_id, page) if thumb else image_name(doc_id, page)
        if Path(name).name != name:
            raise InvalidRequest(f"{doc_id!r} is not the id of a document")
        try:
            return (self.folder(tenant) / name).read_bytes()
        except OSError:
            return None

    def remove(self, tenant: str, doc_id: str, pages: Iterable[int]) -> None:
        """Remove the pictures of these pages, where there are any."""
        folder = self.folder(tenant)
        for page in pages:
            for name in (image_name(doc_id, page), thumb_name(doc_id, page)):
                (folder / name).unlink(missing_ok=True)


def _files(doc_id: str, page: Page) -> Iterator[tuple[str, bytes]]:
    if page.image:
        yield image_name(doc_id, page.number), page.image
    if page.thumb:
        yield thumb_name(doc_id, page.number), page.thumb


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{uuid4().hex}.part")
    beside.write_bytes(data)
    os.replace(beside, path)  # noqa: PTH105 - the same on every platform
