"""Shorter forms of a text that still say where every character came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from contexture.errors import InvalidRequest
from contexture.pipeline.extract import Spans, extract
from contexture.ports import TokenCounter
from contexture.text.sentences import sentences

MIN_TOKENS = 100
MIN_CHARS = 50
_WORD = 40  # a cut moves back to the last white space within so many characters


class TruncationStrategy(StrEnum):
    """What to keep of a text that is too long."""

    KEEP_START = "keep_start"
    KEEP_END = "keep_end"
    EXTRACTIVE = "extractive"
    SUMMARIZE = "summarize"


@dataclass(frozen=True, kw_only=True, slots=True)
class Truncated:
    """A shorter text, what it counts, and the spans of the original it consists of, in order.

    Joined by `extract.ELLIPSIS` the spans give the text; a summary is nobody's words and has none.
    """

    text: str
    tokens: int
    spans: Spans


def truncate(
    text: str,
    counter: TokenCounter,
    limit: int,
    *,
    strategy: TruncationStrategy = TruncationStrategy.EXTRACTIVE,
    query: str = "",
    offsets: Sequence[tuple[int, int]] | None = None,
    min_tokens: int = MIN_TOKENS,
    min_chars: int = MIN_CHARS,
) -> Truncated | None:
    """The text in at most `limit` tokens, counted on the result; None when that is not worth having.

    A text that fits is returned whole. Otherwise it is cut only if `limit` is at least `min_tokens`
    and at least `min_chars` characters remain. `offsets` are the text's sentences, if known.
    """
    tokens = counter.count(text)
    if tokens <= limit:
        return Truncated(text=text, tokens=tokens, spans=((0, len(text)),) if text else ())
    if limit < max(1, min_tokens):
        return None
    cut = _cut(text, counter, limit, strategy, query, offsets)
    return cut if len(cut.text) >= min_chars and cut.text else None


def _cut(
    text: str,
    counter: TokenCounter,
    limit: int,
    strategy: TruncationStrategy,
    query: str,
    offsets: Sequence[tuple[int, int]] | None,
) -> Truncated:
    if strategy is TruncationStrategy.KEEP_START:
        return _piece(text, 0, keep_start(text, counter, limit), counter)
    if strategy is TruncationStrategy.KEEP_END:
        return _piece(text, keep_end(text, counter, limit), len(text), counter)
    if strategy is TruncationStrategy.EXTRACTIVE:
        return _extractive(text, counter, limit, query, sentences(text) if offsets is None else offsets)
    raise InvalidRequest("`summarize` needs a model; use `contexture.pipeline.summarize.summarize`")


def keep_start(text: str, counter: TokenCounter, limit: int) -> int:
    """Where to stop reading so that the beginning fits, between two words if there is a gap nearby."""
    end = len(counter.prefix(text, limit))
    word = _last_gap(text, end)
    return word if word and counter.count(text[:word]) <= limit else end


def keep_end(text: str, counter: TokenCounter, limit: int) -> int:
    """Where to start reading so that the rest fits, between two words if there is a gap nearby."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if counter.count(text[middle:]) <= limit else (middle, high)
    word = _next_gap(text, high)
    return word if word < len(text) and counter.count(text[word:]) <= limit else high


def _extractive(
    text: str, counter: TokenCounter, limit: int, query: str, offsets: Sequence[tuple[int, int]]
) -> Truncated:
    found = extract(text, offsets, query, counter, limit)
    if found.spans:
        return Truncated(text=found.text, tokens=counter.count(found.text), spans=found.spans)
    start, end = found.best
    return _piece(text, start, start + keep_start(text[start:end], counter, limit), counter)


def _piece(text: str, start: int, end: int, counter: TokenCounter) -> Truncated:
    piece = text[start:end]
    return Truncated(text=piece, tokens=counter.count(piece), spans=((start, end),) if piece else ())


def _last_gap(text: str, end: int) -> int:
    """The end of the last whole word before `end`, or `end` when no gap is near."""
    if end == len(text) or text[end].isspace():
        return len(text[:end].rstrip())
    for at in range(end - 1, max(0, end - _WORD), -1):
        if text[at].isspace():
            return len(text[:at].rstrip())
    return end


def _next_gap(text: str, start: int) -> int:
    """The start of the first whole word from `start` on, or `start` when no gap is near."""
    if start == 0 or text[start - 1].isspace():
        return start
    for at in range(start, min(len(text), start + _WORD)):
        if text[at].isspace():
            return len(text) - len(text[at:].lstrip())
    return start
