"""Reads DOCX and PPTX files; what they unpack to is known before they are opened."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import ParseError

import mammoth  # pyright: ignore[reportMissingTypeStubs] - it ships none; `DocxReader` is the only caller
from pptx import Presentation
from pptx.exc import PackageNotFoundError

from contexture.adapters.documents.html import markdown_of
from contexture.adapters.documents.markdown_pages import BREAK, sheets_of, title_of
from contexture.adapters.documents.slides import slide_markdown
from contexture.adapters.documents.texts import paged
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_RATIO = 200  # to one: no office file packs better
_SMALL = 2**20
_BREAK = "contexture-page-break"
_MARK = "\uf8f0"  # a private character: white space would not come through the conversion
_STYLES = "br[type='page'] => hr.contexture-page-break"
_BROKEN = (
    zipfile.BadZipFile,
    KeyError,
    ValueError,
    AttributeError,
    TypeError,
    OSError,
    ParseError,
    NotImplementedError,
)


class DocxReader:
    """Implements `DocumentReader` for Word files."""

    extensions = ("docx",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Pages by the file's own breaks, else by headings and length."""
        check_package(path, limits, part="word/document.xml")
        try:
            with path.open("rb") as file:
                html: str = cast("Any", mammoth).convert_to_html(file, style_map=_STYLES).value
        except _BROKEN as failure:
            raise InvalidRequest(f"the Word file is damaged: {failure}") from failure
        text = markdown_of(html.replace(f'<hr class="{_BREAK}" />', f"<p>{_MARK}</p>")).replace(_MARK, BREAK)
        return paged(text, limits, progress)


class PptxReader:
    """Implements `DocumentReader` for presentations: a slide is a page."""

    extensions = ("pptx",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """The slides in order, with their notes."""
        check_package(path, limits, part="ppt/presentation.xml")
        try:
            with path.open("rb") as file:
                show: Any = Presentation(file)
                slides = list(_slides(show))
        except (PackageNotFoundError, *_BROKEN) as failure:
            raise InvalidRequest(f"the presentation is damaged: {failure}") from failure
        if not slides:
            raise InvalidRequest("the presentation has no slides")
        return paged_slides(slides, limits, progress)


def paged_slides(slides: list[str], limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
    """Slides as pages, however long each is."""
    if len(slides) > limits.pages:
        raise InvalidRequest(f"the presentation has {len(slides)} slides: more than {limits.pages}")
    progress(len(slides), len(slides))
    return ReadDocument(pages=sheets_of(slides), title=title_of(slides[0]))


def check_package(path: Path, limits: ReadLimits, *, part: str) -> None:
    """Refuse what is no office file, and what would unpack to more than it may."""
    try:
        with zipfile.ZipFile(path) as package:
            entries = package.infolist()
            names = {entry.filename for entry in entries}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as failure:
        raise InvalidRequest(f"the file is damaged or protected by a password: {failure}") from failure
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.unpacked_bytes:
        raise InvalidRequest(f"it unpacks to {unpacked} bytes: more than {limits.unpacked_bytes}")
    if any(entry.file_size > max(_RATIO * entry.compress_size, _SMALL) for entry in entries):
        raise InvalidRequest("it unpacks to far more than an office file does")
    if any(entry.flag_bits & 1 for entry in entries):
        raise InvalidRequest("the file is protected by a password")
    if part not in names:
        raise InvalidRequest(f"it is no office file of this kind: {part} is missing")


def _slides(show: Any) -> Iterator[str]:
    for slide in show.slides:
        yield slide_markdown(slide)
