"""Reads Markdown and plain text files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from contexture.adapters.documents.markdown_pages import pages_of, title_of
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_SAMPLE = 8_192


class TextReader:
    """Implements `DocumentReader` for text that needs no conversion."""

    extensions = ("md", "markdown", "txt", "text", "rst")

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Pages by form feeds, headings and length."""
        text = decoded(path.read_bytes())
        return paged(text, limits, progress)


def paged(text: str, limits: ReadLimits, progress: Callable[[int, int], None], title: str = "") -> ReadDocument:
    """A Markdown text as a document."""
    pages = pages_of(text, most=limits.pages)
    if len(pages) > limits.pages:
        raise InvalidRequest(f"the file makes more than {limits.pages} pages")
    if not any(page.text.strip() for page in pages):
        raise InvalidRequest("the file holds no text")
    progress(len(pages), len(pages))
    return ReadDocument(pages=pages, title=title or title_of(text))


def decoded(data: bytes) -> str:
    """Bytes as text: UTF-8, or UTF-16 where the file says so; what is neither is replaced by U+FFFD."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace")
    if b"\0" in data[:_SAMPLE]:
        raise InvalidRequest("a binary file, not a text")
    return data.decode("utf-8-sig", "replace")
