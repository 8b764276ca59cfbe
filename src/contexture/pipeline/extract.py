"""The sentences of a text that matter most to a question, in the order in which they were written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from contexture.ports import TokenCounter
from contexture.text.terms import terms

Spans: TypeAlias = tuple[tuple[int, int], ...]

ELLIPSIS = " … "
"""Stands where something was left out."""

_K1 = 1.2
_B = 0.75
_LEAD = 0.1  # what the first sentence is worth for being first: less than any match


@dataclass(frozen=True, kw_only=True, slots=True)
class Extract:
    """The kept text and its spans, none when no sentence fits; `best` is the best sentence there is."""

    text: str
    spans: Spans
    best: tuple[int, int]


def extract(
    text: str,
    offsets: Sequence[tuple[int, int]],
    query: str,
    counter: TokenCounter,
    limit: int,
    *,
    weights: Sequence[float] = (),
) -> Extract:
    """Keep the best sentences of `text` that fit in `limit` tokens together, in original order.

    Neighbours stay joined as they were; `ELLIPSIS` stands between others. A sentence that does not
    fit never blocks a shorter one. Without a query, or without a match, the earlier one is better.
    `weights`, one per sentence, decide before the words of the query do.
    """
    scores = sentence_scores([text[start:end] for start, end in offsets], query)
    known = weights or [0.0] * len(offsets)
    order = sorted(range(len(offsets)), key=lambda at: (-known[at], -scores[at], at))
    chosen = _choose(text, offsets, order, counter, limit)
    while chosen and counter.count(_render(text, _spans(offsets, chosen))) > limit:
        chosen.pop()
    spans = _spans(offsets, chosen)
    return Extract(text=_render(text, spans), spans=spans, best=offsets[order[0]] if order else (0, len(text)))


def sentence_scores(pieces: Sequence[str], query: str) -> list[float]:
    """BM25 of each piece against the query, with the pieces themselves as the collection.

    A small bonus that shrinks with the position decides between pieces that match equally.
    """
    asked = _asked(query)
    if not asked:
        return [_LEAD / (1 + at) for at in range(len(pieces))]
    return list(_scored(tuple(pieces), asked))


@lru_cache(maxsize=32)
def _scored(pieces: tuple[str, ...], asked: tuple[int, ...]) -> tuple[float, ...]:
    """The scores of pieces against terms; kept, because a text is tried at several lengths."""
    counts = [Counter(terms(piece)) for piece in pieces]
    wanted = {term: _rarity(term, counts) for term in asked}
    average = sum(count.total() for count in counts) / len(counts) if counts else 0.0
    return tuple(_bm25(count, wanted, average) + _LEAD / (1 + at) for at, count in enumerate(counts))


@lru_cache(maxsize=64)
def _asked(query: str) -> tuple[int, ...]:
    """The terms of a question; kept, because many texts are measured against the same one."""
    return tuple(sorted(set(terms(query))))


def _rarity(term: int, counts: Sequence[Counter[int]]) -> float:
    holders = sum(term in count for count in counts)
    return math.log(1 + (len(counts) - holders + 0.5) / (holders + 0.5))


def _bm25(count: Counter[int], wanted: dict[int, float], average: float) -> float:
    norm = _K1 * (1 - _B + _B * count.total() / average) if average else _K1
    return math.fsum(
        rarity * count[term] * (_K1 + 1) / (count[term] + norm) for term, rarity in wanted.items() if term in count
    )


def _choose(
    text: str, offsets: Sequence[tuple[int, int]], order: Sequence[int], counter: TokenCounter, limit: int
) -> list[int]:
    """Positions that fit by the sum of their own counts, best first; the caller counts them joined."""
    gap = counter.count(ELLIPSIS)
    room = limit + gap  # n runs have n - 1 gaps
    chosen: dict[int, None] = {}
    for at in order:
        start, end = offsets[at]
        neighbours = (at - 1 in chosen) + (at + 1 in chosen)
        cost = counter.count(text[start:end]) + gap * (1 - neighbours)
        if cost <= room:
            chosen[at] = None
            room -= cost
    return list(chosen)


def _spans(offsets: Sequence[tuple[int, int]], chosen: Sequence[int]) -> Spans:
    """Runs of neighbouring sentences as one span each."""
    spans: list[tuple[int, int]] = []
    last = -2
    for at in sorted(chosen):
        start, end = offsets[at]
        if at == last + 1:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        last = at
    return tuple(spans)


def _render(text: str, spans: Spans) -> str:
    return ELLIPSIS.join(text[start:end] for start, end in spans)
