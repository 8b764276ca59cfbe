"""OCR: reads the words of an image with Tesseract, if installed, in English and Russian."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from contexture.adapters.documents.pdf.layout import FontStyle, Word
from contexture.adapters.installed_packages import import_native
from contexture.errors import SourceUnavailable

if TYPE_CHECKING:
    from PIL import Image

_TESSDATA_FOLDERS = (
    "/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",
    "/usr/local/share/tessdata",
    "/opt/homebrew/share/tessdata",
)
_LANGUAGES = ("eng", "rus")
_MIN_CONFIDENCE = 40.0  # percent: words with less are noise
_FONT_SIZE_RATIO = 0.72  # font size relative to the height of a line with capitals and descenders

_NO_LANGUAGES = "OCR needs Tesseract's language data: apt-get install tesseract-ocr-eng tesseract-ocr-rus"


def read_words(picture: Image.Image, points: float) -> list[Word]:
    """Words found by OCR, placed on a page `points` wide; raises `SourceUnavailable` as `load_tesseract` does."""
    module, folder, languages = load_tesseract()
    scale = points / picture.width
    with module.PyTessBaseAPI(path=f"{folder}/", lang=languages, psm=module.PSM.AUTO) as api:
        api.SetImage(picture)
        api.Recognize()
        return [
            _build_word(cell, scale, module)
            for cell in module.iterate_level(api.GetIterator(), module.RIL.WORD)
            if not cell.Empty(module.RIL.WORD) and cell.Confidence(module.RIL.WORD) >= _MIN_CONFIDENCE
        ]


def _build_word(cell: Any, scale: float, module: Any) -> Word:
    """Word at its position; height and font size come from its line, because few words span the full line height."""
    left, _, right, _ = cell.BoundingBox(module.RIL.WORD)
    _, top, _, bottom = cell.BoundingBox(module.RIL.TEXTLINE)
    size = max(round((bottom - top) * scale * _FONT_SIZE_RATIO), 1)
    text = str(cell.GetUTF8Text(module.RIL.WORD)).strip()
    return Word(text, left * scale, top * scale, right * scale, bottom * scale, FontStyle(float(size)))


@lru_cache(maxsize=1)
def load_tesseract() -> tuple[ModuleType, Path, str]:
    """Tesseract's module, the folder of its language data, and the languages found there.

    Raises `SourceUnavailable` with what to install when one of them is missing.
    """
    try:
        module = import_native("tesserocr", feature="OCR", extra="ocr")
    except ImportError as missing:
        raise SourceUnavailable(str(missing)) from missing
    for place in map(Path, _TESSDATA_FOLDERS):
        there = [name for name in _LANGUAGES if (place / f"{name}.traineddata").is_file()]
        if there:
            return module, place, "+".join(there)
    raise SourceUnavailable(_NO_LANGUAGES)
