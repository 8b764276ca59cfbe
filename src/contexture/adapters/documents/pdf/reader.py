"""Reads PDF files: words with their positions, then pages; pages without a text layer are read by OCR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from contexture.adapters.documents._images import MAX_IMAGE_SIDE, encode_jpegs
from contexture.adapters.documents.ocr import read_words
from contexture.adapters.documents.pdf._pdfium import PdfiumDocument, PdfiumError, PdfiumPage, extract_page, open_pdf
from contexture.adapters.documents.pdf.layout import RawPage
from contexture.adapters.documents.pdf.pages import build_pages, has_text
from contexture.documents import BadPage, Page, ReadDocument, ReadLimits
from contexture.errors import InvalidRequest, SourceUnavailable

_IMAGE_SCALE = 1.4  # pixels per point: about 100 dpi
_OCR_PIXELS = 1_900  # of the longer side: about 160 dpi for an A4 page


@dataclass(slots=True)
class _PageInProgress:
    """A page being read: its raw content, images, and notes about missing text."""

    raw: RawPage
    image: bytes = b""
    thumb: bytes = b""
    scanned: bool = False
    notes: tuple[str, ...] = ()


class PdfReader:
    """Implements `DocumentReader` with PDFium."""

    extensions = ("pdf",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read all pages; unreadable ones are reported in `bad`.

        Raises `InvalidRequest` for no pages, too many pages, or no readable page.
        """
        with open_pdf(path) as document:
            count = len(document)
            if not count:
                raise InvalidRequest("the PDF has no pages")
            if count > limits.pages:
                raise InvalidRequest(f"the PDF has {count} pages; the limit is {limits.pages}")
            seen: list[_PageInProgress] = []
            bad: list[BadPage] = []
            for number in range(1, count + 1):
                try:
                    seen.append(_read_page(document, number, draw=limits.draw))
                except (PdfiumError, MemoryError, ValueError) as failure:
                    bad.append(BadPage(number=number, reason=f"the page cannot be read: {failure}"))
                progress(number, count)
            title = document.title
        if not seen:
            raise InvalidRequest(f"none of its {count} pages can be read: {bad[0].reason}")
        return ReadDocument(pages=_finish_pages(seen), bad=tuple(bad), title=title)


def _read_page(document: PdfiumDocument, number: int, *, draw: bool) -> _PageInProgress:
    with document.open_page(number) as page:
        found = _PageInProgress(extract_page(page, number))
        if not has_text(found.raw.words) and found.raw.pictures:
            _read_by_ocr(page, found)
        if draw:
            found.image, found.thumb = encode_jpegs(page.render(min(_IMAGE_SCALE, MAX_IMAGE_SIDE / max(page.size))))
        return found


def _read_by_ocr(page: PdfiumPage, found: _PageInProgress) -> None:
    found.scanned = True
    try:
        found.raw.words = read_words(page.render(_OCR_PIXELS / max(page.size)), found.raw.width)
    except SourceUnavailable as missing:
        found.notes = (f"there is no text layer, and {missing}",)
        return
    if not has_text(found.raw.words):
        found.notes = ("there is no text layer, and no words were found in the picture",)


def _finish_pages(seen: list[_PageInProgress]) -> tuple[Page, ...]:
    pages = build_pages([each.raw for each in seen])
    return tuple(
        replace(page, image=each.image, thumb=each.thumb, scanned=each.scanned, notes=(*each.notes, *page.notes))
        for page, each in zip(pages, seen, strict=True)
    )
