"""Reads HTML files: what a reader would see, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

from contexture.adapters.documents.texts import decoded, paged
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_HIDDEN = "script style noscript template nav header footer aside form iframe object svg head dialog button".split()
_OPTIONS = {"heading_style": "ATX", "bullets": "-", "escape_misc": False}
_LINES = re.compile(r"\n{3,}")
_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)


class HtmlReader:
    """Implements `DocumentReader` for HTML."""

    extensions = ("html", "htm", "xhtml")

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Pages by headings and length; scripts, styles and navigation are left out."""
        text, title = _read(path.read_bytes())
        return paged(text, limits, progress, title)


def markdown_of(html: str) -> str:
    """HTML as Markdown."""
    return markdown_from(cast("Any", BeautifulSoup)(html, "html.parser"))


def markdown_from(tree: Any) -> str:
    """A tree of elements as Markdown; those a reader does not see are taken out of it."""
    for element in tree.find_all(_HIDDEN):
        if not element.decomposed:
            element.decompose()
    _head_tables(tree)
    try:
        text: str = cast("Any", MarkdownConverter)(**_OPTIONS).convert_soup(tree)
    except RecursionError as failure:
        raise InvalidRequest("the HTML is nested too deeply to be read") from failure
    return _LINES.sub("\n\n", text).strip()


def _head_tables(tree: Any) -> None:
    """Make the first row of a table its head where it has none: Markdown has no tables without."""
    for table in tree.find_all("table"):
        row = table.find("tr")
        if row is not None and table.find("th") is None:
            for cell in row.find_all("td"):
                cell.name = "th"


def _read(data: bytes) -> tuple[str, str]:
    named = _CHARSET.search(data[:4_096])
    try:
        html = data.decode(named[1].decode(), "replace") if named else decoded(data)
    except LookupError:
        html = decoded(data)
    tree: Any = cast("Any", BeautifulSoup)(html, "html.parser")
    title = " ".join(str(tree.title.string or "").split()) if tree.title else ""
    return markdown_from(tree), title
