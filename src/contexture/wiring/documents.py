"""What reads files into pages, from settings."""

from __future__ import annotations

from contexture.adapters.documents.kinds import EXTENSIONS, TEXTS
from contexture.adapters.documents.workers import ReadingWorkers

PAGE_FILES = EXTENSIONS
"""Endings of the files that can be read into pages."""

PAGED_FILES = EXTENSIONS - TEXTS
"""Those that are read into pages unless something else is said; text files are records by themselves."""


def reading_workers() -> ReadingWorkers:
    """Processes that read files; close them, or use them as an async context."""
    return ReadingWorkers()
