"""HTML as plain text: what a reader would see."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_HIDDEN = frozenset("script style template noscript iframe object svg math head title select textarea".split())
_BLOCKS = frozenset(
    """address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header
    hr li main nav ol p pre section table td th tr ul""".split()
)
_MARKUP = re.compile(r"<[a-zA-Z/!?]|&[a-zA-Z#]")
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")


def plain(text: str) -> str:
    """The text of some HTML: tags, scripts, styles and comments left out, entities decoded, a block a line.

    A text without markup is only trimmed; a script or the like that is never closed hides what follows it.
    """
    if not _MARKUP.search(text):
        return text.strip()
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return _LINES.sub("\n", _SPACES.sub(" ", "".join(reader.pieces).replace("\xa0", " "))).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)
