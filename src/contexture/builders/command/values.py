"""The values of keys: each read from its own small set, or refused with one that would do."""

from __future__ import annotations

import re

from contexture.builders.command.lexer import SHOWN, Token
from contexture.builders.command.words import BOUNDS, CLOSED, EXAMPLES, Key
from contexture.errors import InvalidRequest
from contexture.news.domains import domain_of

_NUMBER = re.compile(r"[+-]?\d+")
_ENDS = ",;"


def closed_value(key: Key, text: str) -> str | None:
    """What a text means for a key with a closed set of values, numbers clamped; None when it means nothing."""
    word = text.rstrip(_ENDS).lower()
    if key in CLOSED:
        return CLOSED[key].get(word)
    if key not in BOUNDS or not _NUMBER.fullmatch(word):
        return None
    low, high = BOUNDS[key]
    return str(min(max(_whole(word), low), high))


def understood(key: Key, token: Token) -> str:
    """The value of a key with a closed set; one that is not in it is named with its place."""
    found = closed_value(key, token.text)
    if found is None:
        raise InvalidRequest(
            f"{token.text[:SHOWN]!r} at character {token.start + 1} is not a value of {key}: "
            f"{_choices(key)}, such as {EXAMPLES[key]}"
        )
    return found


def names_of(text: str) -> tuple[str, ...]:
    """The sources in a list, each once, in one spelling."""
    spelled = (_spelling(part) for part in re.split(r"[,;]", text))
    return tuple(dict.fromkeys(name for name in spelled if name))


def _spelling(name: str) -> str:
    """A domain in its normal form, which has no other normal form."""
    while (bare := domain_of(name)) != name:
        name = bare
    return name


def _whole(word: str) -> int:
    """The number, or one that is as good when it is clamped: Python reads no endless ones."""
    sign = -1 if word.startswith("-") else 1
    digits = word.lstrip("+-").lstrip("0")
    return sign * int(digits[:6] or "0")


def _choices(key: Key) -> str:
    if key in BOUNDS:
        low, high = BOUNDS[key]
        return f"give a whole number from {low} to {high}"
    return f"give one of {', '.join(dict.fromkeys(CLOSED[key].values()))}"
