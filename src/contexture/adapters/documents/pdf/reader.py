"""Reads PDF files: words with their places, then pages; what has no text layer is read by its picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from contexture.adapters.documents.ocr import read_words
from contexture.adapters.documents.pdf.characters import sheet
from contexture.adapters.documents.pdf.pages import has_text, pages_of
from contexture.adapters.documents.pdf.pdfium import OpenDocument, OpenPage, PageError, opened
from contexture.adapters.documents.pdf.words import Sheet
from contexture.adapters.documents.pictures import LARGEST, jpegs
from contexture.documents import BadPage, Page, ReadDocument, ReadLimits
from contexture.errors import InvalidRequest, SourceUnavailable

_SCALE = 1.4  # pixels a point: about 100 dots an inch
_OCR_PIXELS = 1_900  # of the longer side: about 160 dots an inch of an A4 page


@dataclass(slots=True)
class _Seen:
    """A page on the way: its words, its pictures, and what was lost."""

    sheet: Sheet
    image: bytes = b""
    thumb: bytes = b""
    scanned: bool = False
    notes: tuple[str, ...] = ()


class PdfReader:
    """Implements `DocumentReader` with PDFium."""

    extensions = ("pdf",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Pages in reading order; a page that cannot be read is reported and the others are there."""
        with opened(path) as document:
            count = len(document)
            if not count:
                raise InvalidRequest("the PDF has no pages")
            if count > limits.pages:
                raise InvalidRequest(f"the PDF has {count} pages: more than {limits.pages}")
            seen: list[_Seen] = []
            bad: list[BadPage] = []
            for number in range(1, count + 1):
                try:
                    seen.append(_look(document, number, draw=limits.draw))
                except (PageError, MemoryError, ValueError) as failure:
                    bad.append(BadPage(number=number, reason=f"the page cannot be read: {failure}"))
                progress(number, count)
            title = document.title
        if not seen:
            raise InvalidRequest(f"none of its {count} pages can be read: {bad[0].reason}")
        return ReadDocument(pages=_pages(seen), bad=tuple(bad), title=title)


def _look(document: OpenDocument, number: int, *, draw: bool) -> _Seen:
    with document.page(number) as page:
        found = _Seen(sheet(page, number))
        if not has_text(found.sheet.words) and found.sheet.pictures:
            _read_picture(page, found)
        if draw:
            found.image, found.thumb = jpegs(page.draw(min(_SCALE, LARGEST / max(page.size))))
        return found


def _read_picture(page: OpenPage, found: _Seen) -> None:
    found.scanned = True
    try:
        found.sheet.words = read_words(page.draw(_OCR_PIXELS / max(page.size)), found.sheet.width)
    except SourceUnavailable as missing:
        found.notes = (f"there is no text layer, and {missing}",)
        return
    if not has_text(found.sheet.words):
        found.notes = ("there is no text layer, and no words were found in the picture",)


def _pages(seen: list[_Seen]) -> tuple[Page, ...]:
    pages = pages_of([each.sheet for each in seen])
    return tuple(
        replace(page, image=each.image, thumb=each.thumb, scanned=each.scanned, notes=each.notes)
        for page, each in zip(pages, seen, strict=True)
    )
