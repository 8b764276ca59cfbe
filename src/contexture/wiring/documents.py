"""What reads files into pages, from settings."""

from __future__ import annotations

from importlib.util import find_spec

from contexture.adapters.documents.kinds import EXTENSIONS, TEXTS
from contexture.adapters.documents.ocr import load_tesseract
from contexture.adapters.documents.workers import ReadingWorkers
from contexture.errors import SourceUnavailable

PAGE_FILES = EXTENSIONS
"""Endings of the files that can be read into pages."""

PAGED_FILES = EXTENSIONS - TEXTS
"""Those that are read into pages unless something else is said; text files are records by themselves."""


def missing_for_ocr() -> str:
    """What to install so that the extra `ocr` reads pictures; empty when it does, or is not installed."""
    if find_spec("tesserocr") is None:
        return ""
    try:
        load_tesseract()
    except SourceUnavailable as missing:
        return str(missing)
    return ""


def reading_workers() -> ReadingWorkers:
    """Processes that read files; close them, or use them as an async context."""
    return ReadingWorkers()
