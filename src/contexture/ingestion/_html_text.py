"""Converts HTML to the plain text that a reader would see."""

import html
import re

_HIDDEN_TAGS = frozenset("script style template noscript iframe object svg math head title select textarea".split())
_RAW_TAGS = frozenset("script style".split())  # their content is not markup
_BLOCK_TAGS = frozenset(
    """address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header
    hr li main nav ol p pre section table td th tr ul""".split()
)
_MARKUP = re.compile(r"<[a-zA-Z/!?]|&[a-zA-Z#]")
_OPENING = re.compile(r"<(?=[a-zA-Z/!?])")
# Atomic, not possessive: before Python 3.11.5 a possessive group keeps half a repetition. Bounded, to limit memory.
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)(?>(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?){0,99999})>")
_DECLARATION = re.compile(r"<(?:[!?]|/(?![a-zA-Z]))[^>]*+>")  # declaration, processing instruction, or stray end tag
_END_TAGS = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in _RAW_TAGS}
_OVERLONG_REFERENCE = re.compile(r"&#0*+\d{8,}+;?")  # not a valid code point, and int() refuses very long ones
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_COMMENT_START, _COMMENT_END = "<!--", "-->"


def html_to_text(text: str) -> str:
    """Return the text of some HTML: tags, scripts, styles and comments removed, entities decoded, a line per block.

    A text without markup is only trimmed. A script, comment or the like that is never closed hides what follows it. A
    tag that is never closed, or has tens of thousands of attributes, is treated as text. Runs in linear time for any
    input.
    """
    if not _MARKUP.search(text):
        return text.strip()
    joined = "".join(_HtmlTextReader(text).read()).replace("\xa0", " ")
    return _LINES.sub("\n", _SPACES.sub(" ", joined)).strip()


class _HtmlTextReader:
    """Reads the visible text in one pass; an unclosed construct ends it, so the time stays linear."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._pieces: list[str] = []
        self._hidden: list[str] = []

    def read(self) -> list[str]:
        """Return the visible pieces of text."""
        while self._at < len(self._text):
            found = _OPENING.search(self._text, self._at)
            self._emit_text(found.start() if found else len(self._text))
            if found:
                self._skip_markup()
        return self._pieces

    def _skip_markup(self) -> None:
        """Skip the markup at the current position."""
        if self._text.startswith(_COMMENT_START, self._at):
            self._skip(self._text.find(_COMMENT_END, self._at + len("<!")), len(_COMMENT_END))
        elif tag := _TAG.match(self._text, self._at):
            self._at = tag.end()
            self._handle_tag(tag[2].lower(), opens=not tag[1], closed=tag[0].endswith("/>"))
        elif aside := _DECLARATION.match(self._text, self._at):
            self._at = aside.end()
        else:
            self._emit_text(len(self._text))

    def _handle_tag(self, name: str, *, opens: bool, closed: bool) -> None:
        if opens and name in _RAW_TAGS:
            found = _END_TAGS[name].search(self._text, self._at)
            self._skip(found.start() if found else -1, 0)
        elif opens and name in _HIDDEN_TAGS and not closed:
            self._hidden += [] if name in self._hidden else [name]
        elif name in self._hidden and not opens:
            del self._hidden[self._hidden.index(name) :]
        elif name in _BLOCK_TAGS:
            self._pieces.append("\n")

    def _skip(self, end: int, more: int) -> None:
        self._at = len(self._text) if end < 0 else end + more

    def _emit_text(self, end: int) -> None:
        if not self._hidden and end > self._at:
            self._pieces.append(
                html.unescape(_OVERLONG_REFERENCE.sub("\N{REPLACEMENT CHARACTER}", self._text[self._at : end]))
            )
        self._at = end
