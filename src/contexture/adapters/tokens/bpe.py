"""Exact token counts for the byte-pair encodings of OpenAI's models, offline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Protocol, cast

from contexture.adapters.tokens.framing import framed
from contexture.types import Message

ENCODINGS = ("cl100k_base", "o200k_base")

# Ordinary prose needs fewer characters per token than this, so one window is usually enough.
CHARACTERS_PER_TOKEN = 6

_SHORT = 1_000
_LONG = 8_000
_REMEMBERED = 4_096

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class BytePairCounter:
    """Counts as the model does; text that spells a special token is counted as ordinary text.

    Lone surrogates count as the replacement character that a request would carry. The ranks,
    which ship inside the `rs_bpe` wheel, are read on first use.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._count)

    @property
    def encoding(self) -> str:
        """The name of the byte-pair encoding."""
        return self._encoding

    @property
    def exact(self) -> bool:
        """Always true."""
        return True

    def count(self, text: str) -> int:
        """Tokens of a bare text; those of short ones are remembered, for a history comes again with every turn.

        A long one is counted by paragraph: a prompt that did not fit comes again with one paragraph less.
        """
        if len(text) <= _SHORT:
            return self._remembered(text)
        parts = paragraphs(text)
        return sum(self._remembered(part) if len(part) <= _LONG else self._count(part) for part in parts)

    def _count(self, text: str) -> int:
        bpe = _ranks(self._encoding)
        try:
            return bpe.count(text)
        except UnicodeEncodeError:
            return bpe.count(_carried(text))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat with its roles, names and framing."""
        return framed(messages, self.count)

    def prefix(self, text: str, limit: int) -> str:
        """The prefix that counts at most `limit` and cannot be extended by one character.

        Time grows with `limit`, not with the text.
        """
        if limit <= 0:
            return ""
        size = limit * CHARACTERS_PER_TOKEN
        while self._fits(text[:size], limit):
            if size >= len(text):
                return text
            size *= 2
        return self._cut(text[:size], limit)

    def _fits(self, text: str, limit: int) -> bool:
        bpe = _ranks(self._encoding)
        try:
            return bpe.count_till_limit(text, limit) is not None
        except UnicodeEncodeError:
            return bpe.count(_carried(text)) <= limit

    def _cut(self, window: str, limit: int) -> str:
        # A token boundary is nearly always right. Where the cut changes how the last word splits, step to it.
        end = self._boundary(window, limit)
        while not self._fits(window[:end], limit):
            end -= 1
        while self._fits(window[: end + 1], limit):
            end += 1
        return window[:end]

    def _boundary(self, window: str, limit: int) -> int:
        bpe = _ranks(self._encoding)
        tokens = bpe.encode(LONE_SURROGATE.sub("\ufffd", window))
        for kept in range(limit, 0, -1):
            text = bpe.decode(tokens[:kept])
            if text is not None:
                return min(len(text), len(window) - 1)
        return 0


def paragraphs(text: str) -> Iterator[str]:
    """The text, cut wherever an empty line ends and a word begins: no token reaches over that.

    Into white space and, behind a sign, a slash one may.
    """
    start, at = 0, text.find("\n\n")
    while at >= 0:
        if not text[at + 2 : at + 3].isspace() and text[at + 2 : at + 3] not in ("", "/"):
            yield text[start : at + 2]
            start = at + 2
        at = text.find("\n\n", at + 1)
    yield text[start:]


class _Ranks(Protocol):
    def count(self, text: str) -> int: ...
    def count_till_limit(self, text: str, limit: int) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: list[int]) -> str | None: ...


@cache
def _ranks(encoding: str) -> _Ranks:
    library: Any = import_module("rs_bpe.bpe").openai
    return cast("_Ranks", getattr(library, encoding)())


def _carried(text: str) -> str:
    """The text as a request can carry it: surrogates joined in pairs, or replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
