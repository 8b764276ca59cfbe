"""Replaces what a redactor finds, before anything is counted, cached, logged or shown; fails closed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from contexture.errors import RedactionFailed
from contexture.ledger import Reason, Trace
from contexture.pipeline.operators import Operator
from contexture.ports import Redactor
from contexture.types import Candidate, Citation, Span


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters `start` to `end` of the original became `new_start` to `new_end` of the redacted text."""

    start: int
    end: int
    new_start: int
    new_end: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted text and where its characters came from.

    A position strictly inside a replaced stretch maps to the end of the stretch, in both directions.
    """

    text: str
    edits: tuple[Edit, ...] = field(default=())

    def moved(self, position: int) -> int:
        """Where a position in the original is now."""
        index = bisect_right(self.edits, position, key=lambda edit: edit.start) - 1
        if index < 0:
            return position
        edit = self.edits[index]
        if position == edit.start:
            return edit.new_start
        return edit.new_end + max(0, position - edit.end)

    def origin(self, position: int) -> int:
        """Where a position in the redacted text was."""
        index = bisect_right(self.edits, position, key=lambda edit: edit.new_start) - 1
        if index < 0:
            return position
        edit = self.edits[index]
        if position == edit.new_start:
            return edit.start
        return edit.end + max(0, position - edit.new_end)


def apply(text: str, spans: Sequence[Span], operator: Operator) -> Redacted:
    """`text` with every span replaced; raises `RedactionFailed` when the spans break the port's promise."""
    _check(text, spans)
    if len(spans) == 0 and not operator.lookalikes(text):
        return Redacted(text)
    pieces: list[str] = []
    edits: list[Edit] = []
    done = length = 0
    for span in _guarded(text, spans, operator):
        shown = operator.hide(span.label, text[span.start : span.end])
        new_start = length + span.start - done
        edits.append(Edit(span.start, span.end, new_start, new_start + len(shown)))
        pieces += (text[done : span.start], shown)
        done, length = span.end, new_start + len(shown)
    return Redacted("".join((*pieces, text[done:])), tuple(edits))


def scanned(text: str, redactor: Redactor, *, lang: str = "") -> Sequence[Span]:
    """What must not be shown of a text; raises `RedactionFailed`, whatever the redactor raised."""
    return _scan(redactor, text, lang)


def redact_text(text: str, redactor: Redactor, operator: Operator, *, lang: str = "") -> Redacted:
    """One text, scanned and redacted; raises `RedactionFailed`, whatever the redactor raised."""
    return apply(text, _scan(redactor, text, lang), operator)


def redact(candidates: Iterable[Candidate], redactor: Redactor, operator: Operator, trace: Trace) -> list[Candidate]:
    """Candidates with text, title, label and source redacted; one that could not be scanned is dropped.

    Stored spans are applied where there are any; everything else is scanned now, equal texts once. A candidate that
    is already redacted is left as it is.
    """
    clean = _Cleaner(redactor, operator)
    kept: list[Candidate] = []
    for candidate in candidates:
        try:
            kept.append(candidate if candidate.redacted else clean(candidate))
        except RedactionFailed as failure:
            trace.drop(candidate, Reason.REDACTION_FAILED, note=str(failure))
            trace.degraded(f"redactor:{type(redactor).__name__}", str(failure))
    return kept


class _Cleaner:
    """Redacts the texts of one build, scanning equal texts once."""

    def __init__(self, redactor: Redactor, operator: Operator) -> None:
        self._redactor = redactor
        self._operator = operator
        self._seen: dict[tuple[str, str], str] = {}

    def __call__(self, candidate: Candidate) -> Candidate:
        spans = candidate.redactions
        if spans is None:
            spans = _scan(self._redactor, candidate.text, candidate.lang)
        done = apply(candidate.text, spans, self._operator)
        title = self._title(candidate)
        return replace(
            _moved(candidate, done) if done.edits else candidate,
            text=done.text,
            title=title,
            label=self._line(candidate.label, candidate.lang),
            source=self._line(candidate.source, candidate.lang),
            citation=self._citation(candidate, title),
            tokens={} if done.edits else candidate.tokens,
            redactions=(),
            title_redactions=(),
            redacted=True,
        )

    def _title(self, candidate: Candidate) -> str:
        if candidate.title_redactions is None:
            return self._line(candidate.title, candidate.lang)
        return apply(candidate.title, candidate.title_redactions, self._operator).text

    def _citation(self, candidate: Candidate, title: str) -> Citation | None:
        citation = candidate.citation
        if citation is None or citation.title == candidate.title:
            return citation and replace(citation, title=title)
        return replace(citation, title=self._line(citation.title, candidate.lang))

    def _line(self, text: str, lang: str) -> str:
        if not text:
            return text
        if (text, lang) not in self._seen:
            self._seen[text, lang] = redact_text(text, self._redactor, self._operator, lang=lang).text
        return self._seen[text, lang]


def _scan(redactor: Redactor, text: str, lang: str) -> Sequence[Span]:
    try:
        spans = tuple(redactor.scan(text, lang))
        _check(text, spans)
    except Exception as failure:  # noqa: BLE001 - a plug-in may raise anything, and what it saw must not be shown then
        cause = type(failure).__name__
    else:
        return spans
    # Raised out here, so that a message which quotes the text does not travel along as the cause.
    raise RedactionFailed(f"{type(redactor).__name__} failed with {cause}")


def _check(text: str, spans: Sequence[Span]) -> None:
    if len(spans) == 0:
        return
    inside = all(0 <= span.start < span.end <= len(text) for span in spans)
    apart = all(left.end <= right.start for left, right in pairwise(spans))
    if not inside or not apart:
        raise RedactionFailed("a redactor returned spans that are out of range, inverted, unsorted or overlapping")


def _guarded(text: str, spans: Sequence[Span], operator: Operator) -> Sequence[Span]:
    """The spans, and between them whatever could pass for the operator's own writing."""
    forged = operator.lookalikes(text)
    if not forged:
        return spans
    starts = [span.start for span in spans]
    free = [item for item in forged if not _touches(item, spans, bisect_right(starts, item.start))]
    return sorted((*spans, *free), key=lambda span: span.start)


def _touches(item: Span, spans: Sequence[Span], index: int) -> bool:
    """Whether the span before `index` reaches into `item`, or the one at `index` starts inside it."""
    return (index > 0 and item.start < spans[index - 1].end) or (index < len(spans) and spans[index].start < item.end)


def _moved(candidate: Candidate, done: Redacted) -> Candidate:
    """Sentences as ranges of the redacted text, with what is known of each; one inside a replaced stretch is gone."""
    moved = [(done.moved(start), done.moved(end)) for start, end in candidate.sentences]
    kept = [at for at, (start, end) in enumerate(moved) if start < end]
    return replace(
        candidate,
        sentences=tuple(moved[at] for at in kept),
        origins=tuple(candidate.origins[at] for at in kept) if candidate.origins else (),
        weights=tuple(candidate.weights[at] for at in kept) if candidate.weights else (),
    )
