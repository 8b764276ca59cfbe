"""Reads HTML files: the visible content, as Markdown."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

from contexture.adapters.documents._text import build_document, decode_text
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_HIDDEN_TAGS = (
    "script style noscript template nav header footer aside form iframe object svg head dialog button".split()
)
_MARKDOWNIFY_OPTIONS = {"heading_style": "ATX", "bullets": "-", "escape_misc": False}
_BLANK_LINES = re.compile(r"\n{3,}")
_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)


class HtmlReader:
    """Implements `DocumentReader` for HTML."""

    extensions = ("html", "htm", "xhtml")

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read an HTML file without scripts, styles and navigation; pages are split at headings and by length."""
        text, title = _parse_html(path.read_bytes())
        return build_document(text, limits, progress, title)


def html_to_markdown(html: str) -> str:
    """Convert HTML to Markdown without scripts, styles and navigation."""
    return tree_to_markdown(cast("Any", BeautifulSoup)(html, "html.parser"))


def tree_to_markdown(tree: Any) -> str:
    """Convert a parsed tree to Markdown; removes hidden elements from the tree."""
    for element in tree.find_all(_HIDDEN_TAGS):
        if not element.decomposed:
            element.decompose()
    _add_table_headers(tree)
    try:
        text: str = cast("Any", MarkdownConverter)(**_MARKDOWNIFY_OPTIONS).convert_soup(tree)
    except RecursionError as failure:
        raise InvalidRequest("the HTML is nested too deeply to be read") from failure
    return _BLANK_LINES.sub("\n\n", text).strip()


def _add_table_headers(tree: Any) -> None:
    """Turn the first row of a table without a header into one: Markdown tables need a header."""
    for table in tree.find_all("table"):
        row = table.find("tr")
        if row is not None and table.find("th") is None:
            for cell in row.find_all("td"):
                cell.name = "th"


def _parse_html(data: bytes) -> tuple[str, str]:
    named = _CHARSET.search(data[:4_096])
    try:
        html = data.decode(named[1].decode(), "replace") if named else decode_text(data)
    except LookupError:
        html = decode_text(data)
    tree: Any = cast("Any", BeautifulSoup)(html, "html.parser")
    title = " ".join(str(tree.title.string or "").split()) if tree.title else ""
    return tree_to_markdown(tree), title
