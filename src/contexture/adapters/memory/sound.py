"""Answers of other services with their texts made whole: JSON can write half a character, but nothing can store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast


def sound(value: object) -> object:
    """The value with surrogate pairs joined and lone surrogates replaced by U+FFFD, in names too."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, Mapping):
        held = cast("Mapping[object, object]", value)
        return {sound(name): sound(inner) for name, inner in held.items()}
    if isinstance(value, list):
        return [sound(inner) for inner in cast("list[object]", value)]
    return value


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
