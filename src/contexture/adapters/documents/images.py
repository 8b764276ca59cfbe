"""Reads image files: a picture a page, its words by OCR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PIL import Image

from contexture.adapters.documents.ocr import read_words
from contexture.adapters.documents.pdf.pages import pages_of
from contexture.adapters.documents.pdf.words import Area, Sheet, Word
from contexture.adapters.documents.pictures import jpegs, opened
from contexture.documents import Page, ReadDocument, ReadLimits
from contexture.errors import SourceUnavailable

_WIDTH = 595.0  # points: as wide as a sheet of paper


class ImageReader:
    """Implements `DocumentReader` for pictures."""

    extensions = ("png", "jpg", "jpeg", "tif", "tiff", "webp", "bmp")

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """A page per frame."""
        frames = opened(path)[: limits.pages]
        pages: list[Page] = []
        for number, frame in enumerate(frames, start=1):
            pages.append(_page(frame, number, draw=limits.draw))
            progress(number, len(frames))
        return ReadDocument(pages=tuple(pages))


def _page(frame: Image.Image, number: int, *, draw: bool) -> Page:
    height = _WIDTH * frame.height / frame.width
    words, notes = _words(frame)
    sheet = Sheet(number, _WIDTH, height, words, [], [Area(0, 0, _WIDTH, height)])
    image, thumb = jpegs(frame) if draw else (b"", b"")
    return replace(pages_of([sheet])[0], image=image, thumb=thumb, scanned=True, notes=notes)


def _words(frame: Image.Image) -> tuple[list[Word], tuple[str, ...]]:
    try:
        return read_words(frame, _WIDTH), ()
    except SourceUnavailable as missing:
        return [], (f"there is no text layer, and {missing}",)
