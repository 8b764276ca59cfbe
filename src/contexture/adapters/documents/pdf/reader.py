"""Reads PDF files: words with their positions, then pages; pages without a text layer are read by OCR."""

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import pypdfium2 as _untyped  # pyright: ignore[reportMissingTypeStubs] - none are published
from PIL import Image
from pypdfium2 import raw as _raw  # pyright: ignore[reportMissingTypeStubs] - same

from contexture.adapters.documents._images import MAX_IMAGE_SIDE, encode_jpegs
from contexture.adapters.documents.ocr import read_words
from contexture.adapters.documents.pdf.layout import FontStyle, RawPage, Rectangle, Word
from contexture.adapters.documents.pdf.pages import build_pages, has_text
from contexture.documents import BadPage, Page, ReadDocument, ReadLimits
from contexture.errors import InvalidRequest, SourceUnavailable

pdfium_c: Any = _raw
"""PDFium's C functions."""

_pdfium: Any = _untyped
_PASSWORD_ERROR = 4  # PDFium's error code for a missing or wrong password

PdfiumError: type[Exception] = _pdfium.PdfiumError
"""Error that PDFium raises for a damaged document or page."""


class PdfiumPage:
    """An open page; close it after use."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.size = cast("tuple[float, float]", tuple(page.get_size()))
        self.rotation = int(page.get_rotation())
        left, bottom, *_ = page.get_cropbox()
        self.origin = (float(left), float(bottom))

    @property
    def handle(self) -> Any:
        """Page handle for PDFium's C functions."""
        return self._page.raw

    @contextmanager
    def open_text(self) -> Generator[tuple[Any, str]]:
        """Text page handle, and its characters as a string with one character per PDFium index."""
        page = self._page.get_textpage()
        try:
            yield page.raw, _read_characters(page)
        finally:
            page.close()

    def render(self, scale: float) -> Image.Image:
        """Render the page at `scale` pixels per point."""
        bitmap = self._page.render(scale=scale)
        try:
            return bitmap.to_pil().convert("RGB")
        finally:
            bitmap.close()

    def close(self) -> None:
        """Close the page handle."""
        self._page.close()


class PdfiumDocument:
    """An open PDF document."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def __len__(self) -> int:
        return len(self._document)

    @property
    def title(self) -> str:
        """Title from the document metadata."""
        return str(self._document.get_metadata_dict().get("Title", "")).strip()

    @contextmanager
    def open_page(self, number: int) -> Generator[PdfiumPage]:
        """Open a page, numbered from 1."""
        page = PdfiumPage(self._document[number - 1])
        try:
            yield page
        finally:
            page.close()


@contextmanager
def open_pdf(path: Path) -> Generator[PdfiumDocument]:
    """Open a PDF file; raises `InvalidRequest` if it is damaged or password-protected."""
    try:
        document = _pdfium.PdfDocument(path)
    except PdfiumError as failure:
        if getattr(failure, "err_code", None) == _PASSWORD_ERROR:
            raise InvalidRequest("the PDF is protected by a password") from failure
        raise InvalidRequest(f"the PDF is damaged or truncated: {failure}") from failure
    try:
        yield PdfiumDocument(document)
    finally:
        document.close()


def _read_characters(page: Any) -> str:
    count = int(page.count_chars())
    whole = str(page.get_text_range(0, count)) if count else ""
    if len(whole) == count:
        return whole
    return "".join(_decode_character(pdfium_c.FPDFText_GetUnicode(page.raw, at)) for at in range(count))


def _decode_character(code: int) -> str:
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else " "  # noqa: PLR2004 - Unicode


_MAX_OBJECTS = 20_000  # objects read per page: a page with more is a drawing, not a table
_MAX_RULE_THICKNESS = 2.5  # points: a thinner path is a ruling line
_RECTANGLE_SEGMENTS = {4, 5}  # number of path segments of a rectangle
_MIN_PICTURE_SHARE = 0.01  # of the page area: a smaller picture is decoration
_WORD = re.compile(r"\S+")
_HYPHEN_CODE = 2  # PDFium's code for a hyphen at a line end
_CHARACTER_MAP = {
    **{code: " " for code in range(32) if code != _HYPHEN_CODE},
    0xFFFE: _HYPHEN_CODE,
    0xAD: _HYPHEN_CODE,
    0xF0B7: "•",
    0x200B: " ",
    0xFEFF: " ",
}
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_FIXED_PITCH_FLAG, _FORCE_BOLD_FLAG = 1, 1 << 18
_MIN_BOLD_WEIGHT = 600
_MAX_TILT_DEGREES = 3.0
_MIN_WORD_GAP = 0.28  # times the font size: a wider gap separates words

PdfEdges: TypeAlias = tuple[float, float, float, float]
"""Left, bottom, right and top in PDFium's coordinates."""


@dataclass(frozen=True, slots=True)
class _RotatedStyle:
    """Font style, and rotation in degrees: a multiple of 90, or None for any other angle."""

    style: FontStyle
    rotation: int | None


@dataclass(frozen=True, slots=True)
class _PageTransform:
    """Converts PDF coordinates (y upwards, unrotated) to page coordinates (y downwards, rotated upright)."""

    left: float
    bottom: float
    width: float
    height: float
    rotation: int

    def to_page(self, left: float, bottom: float, right: float, top: float) -> Rectangle:
        x0, y0, x1, y1 = left - self.left, bottom - self.bottom, right - self.left, top - self.bottom
        if self.rotation == 90:  # noqa: PLR2004 - degrees
            return Rectangle(y0, x0, y1, x1)
        if self.rotation == 180:  # noqa: PLR2004 - degrees
            return Rectangle(self.width - x1, y0, self.width - x0, y1)
        if self.rotation == 270:  # noqa: PLR2004 - degrees
            return Rectangle(self.width - y1, self.height - x1, self.width - y0, self.height - x0)
        return Rectangle(x0, self.height - y1, x1, self.height - y0)


def extract_page(page: PdfiumPage, number: int) -> RawPage:
    """Words, ruling lines and pictures of a page, rotated so that most words are upright."""
    with page.open_text() as (handle, letters):
        found = list(_extract_words(handle, letters.translate(_CHARACTER_MAP)))
    frame = _find_transform(page, found)
    upright = [each for each in found if each[2].rotation == frame.rotation]
    words = [
        Word(text, area.left, area.top, area.right, area.bottom, face.style)
        for text, edges, face in upright or found  # a page may have nothing but slanting words
        if (area := frame.to_page(*edges))
    ]
    rules, pictures = _extract_drawings(page.handle, frame)
    return RawPage(number=number, width=frame.width, height=frame.height, words=words, rules=rules, pictures=pictures)


RawWord: TypeAlias = tuple[str, PdfEdges, _RotatedStyle]
"""A word in PDF coordinates, before the page rotation is known."""


def _find_transform(page: PdfiumPage, words: Sequence[RawWord]) -> _PageTransform:
    letters: Counter[int] = Counter()
    for text, _, face in words:
        if face.rotation is not None:
            letters[face.rotation] += len(text)
    turned = max(letters, key=lambda turn: (letters[turn], turn == page.rotation)) if letters else page.rotation
    width, height = page.size
    return _PageTransform(
        *page.origin, *((height, width) if (turned - page.rotation) % 180 else (width, height)), turned
    )


def _extract_words(handle: Any, letters: str) -> Iterator[RawWord]:
    """Words in the order in which the file draws them."""
    styles = _StyleCache(handle)
    for found in _WORD.finditer(letters):
        style = styles.read(found.start())
        for start, end, edges in _split_runs(handle, found.start(), found.end(), style):
            face = style if start == found.start() else styles.read(start)
            yield letters[start:end].translate(_LIGATURES), edges, face


def _union(first: PdfEdges, last: PdfEdges) -> PdfEdges:
    return min(first[0], last[0]), min(first[1], last[1]), max(first[2], last[2]), max(first[3], last[3])


def _split_runs(handle: Any, start: int, end: int, style: _RotatedStyle) -> Iterator[tuple[int, int, PdfEdges]]:
    """Character ranges between `start` and `end`, split where the next character is elsewhere on the page."""
    first, last = _character_box(handle, start), _character_box(handle, end - 1)
    size = style.style.size
    if first is None or last is None:
        return
    if style.rotation != 0 or _is_contiguous(first, last, end - start, size):
        yield start, end, _union(first, last)
        return
    before, begin, opening = first, start, first
    for at in range(start + 1, end):
        box = _character_box(handle, at)
        if box is not None and _has_gap(before, box, size):
            yield begin, at, _union(opening, before)
            begin, opening = at, box
        before = box or before
    yield begin, end, _union(opening, before)


def _is_contiguous(first: PdfEdges, last: PdfEdges, count: int, size: float) -> bool:
    return 0 <= last[2] - first[0] <= count * size and abs(first[1] - last[1]) < size / 2


def _character_box(handle: Any, at: int) -> PdfEdges | None:
    box = pdfium_c.FS_RECTF()
    found = pdfium_c.FPDFText_GetLooseCharBox(handle, at, ctypes.byref(box))
    return (box.left, box.bottom, box.right, box.top) if found else None


class _StyleCache:
    """Reads styles; what depends on the font alone is read once for each font of a page."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._fonts: dict[int | None, tuple[bool, bool]] = {}
        self._styles: dict[tuple[Any, ...], _RotatedStyle] = {}

    def read(self, at: int) -> _RotatedStyle:
        """Style of the character at an index."""
        handle, matrix = self._handle, pdfium_c.FS_MATRIX()
        drawn = pdfium_c.FPDFText_GetTextObject(handle, at)
        font = ctypes.cast(pdfium_c.FPDFTextObj_GetFont(drawn), ctypes.c_void_p).value if drawn else None
        pdfium_c.FPDFText_GetMatrix(handle, at, ctypes.byref(matrix))
        key = (font, pdfium_c.FPDFText_GetFontSize(handle, at), matrix.a, matrix.b, matrix.c, matrix.d)
        found = self._styles.get(key)
        if found is None:
            if font not in self._fonts:
                self._fonts[font] = _read_font(handle, at)
            bold, mono = self._fonts[font]
            size = round(2 * key[1] * (math.hypot(matrix.c, matrix.d) or 1.0)) / 2
            turned = -math.degrees(pdfium_c.FPDFText_GetCharAngle(handle, at)) % 360
            right = round(turned / 90) * 90
            found = self._styles[key] = _RotatedStyle(
                FontStyle(size or 1.0, bold=bold, mono=mono),
                right % 360 if abs(turned - right) < _MAX_TILT_DEGREES else None,
            )
        return found


def _read_font(handle: Any, at: int) -> tuple[bool, bool]:
    """Whether the font of a character is bold, and whether it is monospaced."""
    flags, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    pdfium_c.FPDFText_GetFontInfo(handle, at, name, 128, ctypes.byref(flags))
    called = name.value.decode("utf-8", "replace").lower()
    bold = (
        "bold" in called
        or pdfium_c.FPDFText_GetFontWeight(handle, at) >= _MIN_BOLD_WEIGHT
        or bool(flags.value & _FORCE_BOLD_FLAG)
    )
    mono = bool(flags.value & _FIXED_PITCH_FLAG) or "mono" in called or "courier" in called or "typewriter" in called
    return bold or _is_tex_bold(called), mono or _is_tex_mono(called)


def _is_tex_bold(name: str) -> bool:
    return name.rpartition("+")[2].startswith(("cmbx", "cmb10", "cmssbx", "sfbx", "ecbx"))


def _is_tex_mono(name: str) -> bool:
    return name.rpartition("+")[2].startswith(("cmtt", "cmsltt", "sftt", "ectt", "cmitt"))


def _has_gap(last: PdfEdges, box: PdfEdges, size: float) -> bool:
    return box[0] - last[2] > _MIN_WORD_GAP * size or box[0] < last[0] - size or abs(box[1] - last[1]) > size / 2


def _extract_drawings(page: Any, frame: _PageTransform) -> tuple[list[Rectangle], list[Rectangle]]:
    """Ruling lines and pictures of a page."""
    rules: list[Rectangle] = []
    pictures: list[Rectangle] = []
    edges = [ctypes.c_float() for _ in range(4)]
    get_object, get_type, text = pdfium_c.FPDFPage_GetObject, pdfium_c.FPDFPageObj_GetType, pdfium_c.FPDF_PAGEOBJ_TEXT
    for at in range(min(pdfium_c.FPDFPage_CountObjects(page), _MAX_OBJECTS)):
        thing = get_object(page, at)
        kind = get_type(thing)
        if kind == text:  # nearly all of them
            continue
        if kind not in {pdfium_c.FPDF_PAGEOBJ_PATH, pdfium_c.FPDF_PAGEOBJ_IMAGE}:
            continue
        if not pdfium_c.FPDFPageObj_GetBounds(thing, *map(ctypes.byref, edges)):
            continue
        area = frame.to_page(*(edge.value for edge in edges))
        if kind == pdfium_c.FPDF_PAGEOBJ_IMAGE:
            if area.width * area.height >= _MIN_PICTURE_SHARE * frame.width * frame.height:
                pictures.append(area)
        else:
            rules += _path_to_rules(thing, area)
    return rules, pictures


def _path_to_rules(path: Any, area: Rectangle) -> list[Rectangle]:
    """Ruling lines of a path: the path itself if thin, four sides if it is a stroked rectangle."""
    if min(area.width, area.height) <= _MAX_RULE_THICKNESS:
        return [area] if max(area.width, area.height) > _MAX_RULE_THICKNESS else []
    filled, stroked = ctypes.c_int(), ctypes.c_int()
    if pdfium_c.FPDFPath_CountSegments(path) not in _RECTANGLE_SEGMENTS:
        return []
    pdfium_c.FPDFPath_GetDrawMode(path, ctypes.byref(filled), ctypes.byref(stroked))
    if not stroked.value:
        return []
    left, top, right, bottom = area.left, area.top, area.right, area.bottom
    return [
        Rectangle(left, top, right, top), Rectangle(left, bottom, right, bottom),
        Rectangle(left, top, left, bottom), Rectangle(right, top, right, bottom),
    ]  # fmt: skip


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
        words = read_words(page.render(_OCR_PIXELS / max(page.size)), found.raw.width)
    except SourceUnavailable as missing:
        found.notes = (f"there is no text layer, and {missing}",)
        return
    # The few letters of a text layer, such as the label of a picture, stay where OCR reads less.
    found.raw.words = max(words, found.raw.words, key=lambda each: sum(len(word.text) for word in each))
    if not has_text(found.raw.words):
        found.notes = ("there is no text layer, and no words were found in the picture",)


def _finish_pages(seen: list[_PageInProgress]) -> tuple[Page, ...]:
    pages = build_pages([each.raw for each in seen])
    return tuple(
        replace(page, image=each.image, thumb=each.thumb, scanned=each.scanned, notes=(*each.notes, *page.notes))
        for page, each in zip(pages, seen, strict=True)
    )
