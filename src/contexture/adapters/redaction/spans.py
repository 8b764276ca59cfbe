"""How spans that overlap become spans that do not."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from contexture.types import Span


def settle(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans without overlaps that cover every character covered before.

    Spans that overlap become one, named after the longest of them, then the surest, then the first by name: cutting
    the loser away instead would show the part of it that the winner does not cover.
    """
    settled: list[Span] = []
    best: Span | None = None
    for span in sorted(spans, key=attrgetter("start", "end", "label")):
        if best is None or span.start >= settled[-1].end:
            settled.append(span)
            best = span
            continue
        best = min(best, span, key=_precedence)
        settled[-1] = Span(settled[-1].start, max(settled[-1].end, span.end), best.label, best.score)
    return settled


def _precedence(span: Span) -> tuple[int, float, str]:
    return (span.start - span.end, -span.score, span.label)
