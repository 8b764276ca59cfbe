"""Arguments as tokens: words, quoted texts and keys, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from contexture.builders.command.words import ALIASES
from contexture.errors import InvalidRequest

SHOWN = 40  # characters of an input that an error repeats


class Kind(StrEnum):
    """What a token is."""

    WORD = "word"
    QUOTED = "quoted"
    KEY = "key"


class Token(NamedTuple):
    """One token: its text (of a key, its name; of a quoted text, what the quotes hold) and where it stands."""

    kind: Kind
    text: str
    start: int
    end: int


_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\S+")
_KEY = re.compile(r"-{0,2}([^\W\d][\w-]*+)\s*+[=:](?!//)")
_ESCAPED = re.compile(r"\\([\\\"'«»“”„])")
# Groups are atomic, not possessive: a possessive one keeps half a round before Python 3.11.5.
# An apostrophe inside a word ends nothing, so a single quote closes only where a word could end.
_QUOTES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        '"': re.compile(r'"((?>(?:[^"\\]++|\\.)*))"', re.DOTALL),
        "'": re.compile(r"'((?>(?:[^'\\]++|\\.|'(?![\s,;]|$))*))'(?=[\s,;]|$)", re.DOTALL),
        "«": re.compile(r"«((?>(?:[^«»\\]++|\\.|«[^«»]*+»)*))»", re.DOTALL),
        "“": re.compile(r"“((?>(?:[^”\\]++|\\.)*))”", re.DOTALL),
        "„": re.compile(r"„((?>(?:[^“”\\]++|\\.)*))[“”]", re.DOTALL),
    }
)
_CLOSERS = MappingProxyType({'"': '"', "«": "»", "“": "”", "„": "“"})


def tokens(text: str, start: int = 0) -> list[Token]:
    """The tokens of a text from `start` on, in order; a quote that is not closed is named with its place."""
    return list(_tokens(text, start))


def _tokens(text: str, start: int) -> Iterator[Token]:
    at = _skipped(text, start)
    while at < len(text):
        token = _key(text, at) or _quoted(text, at) or _word(text, at)
        yield token
        at = _skipped(text, token.end)


def _skipped(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _key(text: str, at: int) -> Token | None:
    found = _KEY.match(text, at)
    key = ALIASES.get(found[1].lower()) if found else None
    return Token(Kind.KEY, key.value, at, found.end()) if found and key else None


def _quoted(text: str, at: int) -> Token | None:
    pattern = _QUOTES.get(text[at])
    if pattern is None:
        return None
    found = pattern.match(text, at)
    if found is not None:
        return Token(Kind.QUOTED, _ESCAPED.sub(r"\1", found[1]), at, found.end())
    if text[at] == "'":
        return None
    piece = text[at : at + SHOWN]
    raise InvalidRequest(
        f"the quote at character {at + 1} is not closed: {piece!r}; put {_CLOSERS[text[at]]} where it ends"
    )


def _word(text: str, at: int) -> Token:
    found = _WORD.match(text, at)
    end = found.end() if found else at + 1
    return Token(Kind.WORD, text[at:end], at, end)
