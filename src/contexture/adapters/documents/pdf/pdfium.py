"""PDFium, typed: documents and pages; what it refuses is an `InvalidRequest`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pypdfium2 as _untyped  # pyright: ignore[reportMissingTypeStubs] - none are published
from PIL import Image
from pypdfium2 import raw as _raw  # pyright: ignore[reportMissingTypeStubs] - same

from contexture.errors import InvalidRequest

native: Any = _raw
"""PDFium's own functions."""

_pdfium: Any = _untyped
_PROTECTED = 4  # PDFium's number for a password

PageError: type[Exception] = _pdfium.PdfiumError
"""What a broken page raises."""


class OpenPage:
    """One page, until it is closed."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.size = cast("tuple[float, float]", tuple(page.get_size()))
        self.turned = int(page.get_rotation())
        left, bottom, *_ = page.get_cropbox()
        self.corner = (float(left), float(bottom))

    @property
    def handle(self) -> Any:
        """The page for PDFium's own functions."""
        return self._page.raw

    @contextmanager
    def text(self) -> Generator[tuple[Any, str]]:
        """The page's characters: a handle, and a text in which each has its place."""
        page = self._page.get_textpage()
        try:
            yield page.raw, _letters(page)
        finally:
            page.close()

    def draw(self, scale: float) -> Image.Image:
        """A picture, `scale` pixels a point."""
        bitmap = self._page.render(scale=scale)
        try:
            return bitmap.to_pil().convert("RGB")
        finally:
            bitmap.close()

    def close(self) -> None:
        """Release it."""
        self._page.close()


class OpenDocument:
    """A file of pages."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def __len__(self) -> int:
        return len(self._document)

    @property
    def title(self) -> str:
        """What the file says it is called."""
        return str(self._document.get_metadata_dict().get("Title", "")).strip()

    @contextmanager
    def page(self, number: int) -> Generator[OpenPage]:
        """A page, counted from 1."""
        page = OpenPage(self._document[number - 1])
        try:
            yield page
        finally:
            page.close()


@contextmanager
def opened(path: Path) -> Generator[OpenDocument]:
    """The document in a file."""
    try:
        document = _pdfium.PdfDocument(path)
    except PageError as failure:
        if getattr(failure, "err_code", None) == _PROTECTED:
            raise InvalidRequest("the PDF is protected by a password") from failure
        raise InvalidRequest(f"the PDF is damaged or truncated: {failure}") from failure
    try:
        yield OpenDocument(document)
    finally:
        document.close()


def _letters(page: Any) -> str:
    count = int(page.count_chars())
    whole = str(page.get_text_range(0, count)) if count else ""
    if len(whole) == count:
        return whole
    return "".join(_letter(native.FPDFText_GetUnicode(page.raw, at)) for at in range(count))


def _letter(code: int) -> str:
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else " "  # noqa: PLR2004 - Unicode
