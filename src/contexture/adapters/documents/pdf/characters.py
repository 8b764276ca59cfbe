"""The characters of a PDF page, gathered into words, and what is drawn around them."""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from contexture.adapters.documents.pdf.pdfium import OpenPage
from contexture.adapters.documents.pdf.pdfium import native as _native
from contexture.adapters.documents.pdf.words import Area, Look, Sheet, Word

_OBJECTS = 20_000  # of a page: beyond them lies a drawing, not a table
_THIN = 2.5  # points: what is thinner is a rule
_BOX = {4, 5}  # segments of a path that is a rectangle
_PICTURE = 0.01  # of a page: what is smaller is decoration
_PRINTED = re.compile(r"\S+")
_HYPHEN = 2  # what PDFium gives for the hyphen at a line's end
_CLEAN = {
    **{code: " " for code in range(32) if code != _HYPHEN},
    0xFFFE: _HYPHEN,
    0xAD: _HYPHEN,
    0xF0B7: "•",
    0x200B: " ",
    0xFEFF: " ",
}
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_FIXED, _FORCE_BOLD = 1, 1 << 18
_BOLD = 600
_TILT = 3.0  # degrees
_GAP = 0.28  # of the size: a wider one parts words


Edges: TypeAlias = tuple[float, float, float, float]
"""Left, bottom, right and top in PDFium's coordinates."""


@dataclass(frozen=True, slots=True)
class _Face:
    """How letters look, and by how many degrees they are turned; None for some other angle than a right one."""

    look: Look
    turned: int | None


@dataclass(frozen=True, slots=True)
class _Frame:
    """Turns PDFium's coordinates, which grow upwards and know no rotation, into ours."""

    left: float
    bottom: float
    width: float
    height: float
    turned: int

    def area(self, left: float, bottom: float, right: float, top: float) -> Area:
        x0, y0, x1, y1 = left - self.left, bottom - self.bottom, right - self.left, top - self.bottom
        if self.turned == 90:  # noqa: PLR2004 - degrees
            return Area(y0, x0, y1, x1)
        if self.turned == 180:  # noqa: PLR2004 - degrees
            return Area(self.width - x1, y0, self.width - x0, y1)
        if self.turned == 270:  # noqa: PLR2004 - degrees
            return Area(self.width - y1, self.height - x1, self.width - y0, self.height - x0)
        return Area(x0, self.height - y1, x1, self.height - y0)


def sheet(page: OpenPage, number: int) -> Sheet:
    """Everything on one page that reading it needs, turned so that most of its words stand upright."""
    with page.text() as (handle, letters):
        found = list(_words(handle, letters.translate(_CLEAN)))
    frame = _frame(page, found)
    words = [
        Word(text, area.left, area.top, area.right, area.bottom, face.look)
        for text, edges, face in found
        if face.turned == frame.turned and (area := frame.area(*edges))
    ]
    rules, pictures = _drawn(page.handle, frame)
    return Sheet(number=number, width=frame.width, height=frame.height, words=words, rules=rules, pictures=pictures)


Placed: TypeAlias = tuple[str, Edges, _Face]
"""A word before it is known which way is up."""


def _frame(page: OpenPage, words: Sequence[Placed]) -> _Frame:
    letters: Counter[int] = Counter()
    for text, _, face in words:
        if face.turned is not None:
            letters[face.turned] += len(text)
    turned = max(letters, key=lambda turn: (letters[turn], turn == page.turned)) if letters else page.turned
    width, height = page.size
    return _Frame(*page.corner, *((height, width) if (turned - page.turned) % 180 else (width, height)), turned)


def _words(handle: Any, letters: str) -> Iterator[Placed]:
    """Words in the order in which the file draws them."""
    faces: dict[int | None, _Face] = {}
    for found in _PRINTED.finditer(letters):
        for start, end in _runs(handle, found.start(), found.end(), faces):
            first, last = _box(handle, start), _box(handle, end - 1)
            if first is not None and last is not None:
                yield letters[start:end].translate(_LIGATURES), _around(first, last), _face(handle, start, faces)


def _around(first: Edges, last: Edges) -> Edges:
    return min(first[0], last[0]), min(first[1], last[1]), max(first[2], last[2]), max(first[3], last[3])


def _runs(handle: Any, start: int, end: int, faces: dict[int | None, _Face]) -> Iterator[tuple[int, int]]:
    """The characters from `start` to `end`, cut where the next one stands elsewhere on the page."""
    first, last = _box(handle, start), _box(handle, end - 1)
    face = _face(handle, start, faces)
    size = face.look.size
    if face.turned != 0 or first is None or last is None or _plausible(first, last, end - start, size):
        yield start, end
        return
    before, begin = first, start
    for at in range(start + 1, end):
        box = _box(handle, at)
        if box is not None and _parted(before, box, size):
            yield begin, at
            begin = at
        before = box or before
    yield begin, end


def _plausible(first: Edges, last: Edges, count: int, size: float) -> bool:
    return 0 <= last[2] - first[0] <= count * size and abs(first[1] - last[1]) < size / 2


def _box(handle: Any, at: int) -> Edges | None:
    box = _native.FS_RECTF()
    found = _native.FPDFText_GetLooseCharBox(handle, at, ctypes.byref(box))
    return (box.left, box.bottom, box.right, box.top) if found else None


def _face(handle: Any, at: int, faces: dict[int | None, _Face]) -> _Face:
    thing = _native.FPDFText_GetTextObject(handle, at)
    key = ctypes.cast(thing, ctypes.c_void_p).value
    found = faces.get(key)
    if found is None:
        found = faces[key] = _new_face(handle, at)
    return found


def _new_face(handle: Any, at: int) -> _Face:
    matrix, flags = _native.FS_MATRIX(), ctypes.c_int()
    name = ctypes.create_string_buffer(128)
    _native.FPDFText_GetMatrix(handle, at, ctypes.byref(matrix))
    _native.FPDFText_GetFontInfo(handle, at, name, 128, ctypes.byref(flags))
    scale = math.hypot(matrix.c, matrix.d) or 1.0
    size = round(2 * _native.FPDFText_GetFontSize(handle, at) * scale) / 2
    called = name.value.decode("utf-8", "replace").lower()
    bold = "bold" in called or _native.FPDFText_GetFontWeight(handle, at) >= _BOLD or bool(flags.value & _FORCE_BOLD)
    mono = bool(flags.value & _FIXED) or "mono" in called or "courier" in called or "typewriter" in called
    turned = -math.degrees(_native.FPDFText_GetCharAngle(handle, at)) % 360
    right = round(turned / 90) * 90
    return _Face(
        Look(size or 1.0, bold=bold or _tex_bold(called), mono=mono or _tex_mono(called)),
        right % 360 if abs(turned - right) < _TILT else None,
    )


def _tex_bold(name: str) -> bool:
    return name.rpartition("+")[2].startswith(("cmbx", "cmb10", "cmssbx", "sfbx", "ecbx"))


def _tex_mono(name: str) -> bool:
    return name.rpartition("+")[2].startswith(("cmtt", "cmsltt", "sftt", "ectt", "cmitt"))


def _parted(last: Edges, box: Edges, size: float) -> bool:
    return box[0] - last[2] > _GAP * size or box[0] < last[0] - size or abs(box[1] - last[1]) > size / 2


def _drawn(page: Any, frame: _Frame) -> tuple[list[Area], list[Area]]:
    """The rules and the pictures of a page."""
    rules: list[Area] = []
    pictures: list[Area] = []
    edges = [ctypes.c_float() for _ in range(4)]
    for at in range(min(_native.FPDFPage_CountObjects(page), _OBJECTS)):
        thing = _native.FPDFPage_GetObject(page, at)
        kind = _native.FPDFPageObj_GetType(thing)
        if kind not in {_native.FPDF_PAGEOBJ_PATH, _native.FPDF_PAGEOBJ_IMAGE}:
            continue
        if not _native.FPDFPageObj_GetBounds(thing, *map(ctypes.byref, edges)):
            continue
        area = frame.area(*(edge.value for edge in edges))
        if kind == _native.FPDF_PAGEOBJ_IMAGE:
            if area.width * area.height >= _PICTURE * frame.width * frame.height:
                pictures.append(area)
        else:
            rules += _rules(thing, area)
    return rules, pictures


def _rules(path: Any, area: Area) -> list[Area]:
    """A path as rules: itself when it is thin, its four sides when it is a box that is drawn and not filled."""
    if min(area.width, area.height) <= _THIN:
        return [area] if max(area.width, area.height) > _THIN else []
    filled, stroked = ctypes.c_int(), ctypes.c_int()
    if _native.FPDFPath_CountSegments(path) not in _BOX:
        return []
    _native.FPDFPath_GetDrawMode(path, ctypes.byref(filled), ctypes.byref(stroked))
    if not stroked.value:
        return []
    left, top, right, bottom = area.left, area.top, area.right, area.bottom
    return [
        Area(left, top, right, top), Area(left, bottom, right, bottom),
        Area(left, top, left, bottom), Area(right, top, right, bottom),
    ]  # fmt: skip
