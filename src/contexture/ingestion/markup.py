"""HTML as plain text: what a reader would see."""

from __future__ import annotations

import html
import re

_HIDDEN = frozenset("script style template noscript iframe object svg math head title select textarea".split())
_RAW = frozenset("script style".split())  # what stands in them is no markup
_BLOCKS = frozenset(
    """address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header
    hr li main nav ol p pre section table td th tr ul""".split()
)
_MARKUP = re.compile(r"<[a-zA-Z/!?]|&[a-zA-Z#]")
_OPENING = re.compile(r"<(?=[a-zA-Z/!?])")
# Atomic, not possessive: a possessive group keeps half a round before Python 3.11.5. Bounded, so is what it remembers.
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)(?>(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?){0,99999})>")
_ASIDE = re.compile(r"<(?:[!?]|/(?![a-zA-Z]))[^>]*+>")  # a declaration, an instruction, an end of nothing
_ENDS = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in _RAW}
_ENDLESS = re.compile(r"&#0*+\d{8,}+;?")  # no character has such a number, and Python reads no endless ones
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_COMMENT, _COMMENTED = "<!--", "-->"


def plain(text: str) -> str:
    """The text of some HTML: tags, scripts, styles and comments left out, entities decoded, a block a line.

    A text without markup is only trimmed; a script, a comment or the like that is never closed hides what follows it,
    and a tag that is never closed, or has tens of thousands of attributes, is text. Takes time in proportion to the
    length of the text, whatever it holds.
    """
    if not _MARKUP.search(text):
        return text.strip()
    joined = "".join(_Reader(text).read()).replace("\xa0", " ")
    return _LINES.sub("\n", _SPACES.sub(" ", joined)).strip()


class _Reader:
    """Reads one text from left to right; what is not closed ends the reading, so that nothing is searched twice."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._pieces: list[str] = []
        self._hidden: list[str] = []

    def read(self) -> list[str]:
        """The pieces that a reader would see."""
        while self._at < len(self._text):
            found = _OPENING.search(self._text, self._at)
            self._show(found.start() if found else len(self._text))
            if found:
                self._markup()
        return self._pieces

    def _markup(self) -> None:
        """Pass over what begins here."""
        if self._text.startswith(_COMMENT, self._at):
            self._skip(self._text.find(_COMMENTED, self._at + len("<!")), len(_COMMENTED))
        elif tag := _TAG.match(self._text, self._at):
            self._at = tag.end()
            self._tag(tag[2].lower(), opens=not tag[1], closed=tag[0].endswith("/>"))
        elif aside := _ASIDE.match(self._text, self._at):
            self._at = aside.end()
        else:
            self._show(len(self._text))

    def _tag(self, name: str, *, opens: bool, closed: bool) -> None:
        if opens and name in _RAW:
            found = _ENDS[name].search(self._text, self._at)
            self._skip(found.start() if found else -1, 0)
        elif opens and name in _HIDDEN and not closed:
            self._hidden += [] if name in self._hidden else [name]
        elif name in self._hidden and not opens:
            del self._hidden[self._hidden.index(name) :]
        elif name in _BLOCKS:
            self._pieces.append("\n")

    def _skip(self, end: int, more: int) -> None:
        self._at = len(self._text) if end < 0 else end + more

    def _show(self, end: int) -> None:
        if not self._hidden and end > self._at:
            self._pieces.append(html.unescape(_ENDLESS.sub("\N{REPLACEMENT CHARACTER}", self._text[self._at : end])))
        self._at = end
