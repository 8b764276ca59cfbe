"""Replaces the spans a redactor finds, before anything is counted, cached, logged or shown; fails closed.

An operator decides what replaces a value: a reversible placeholder, a mask, or a salted hash.
"""

import hashlib
import hmac
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn, Protocol

from msgspec.structs import replace

from contexture.errors import RedactionFailed
from contexture.ledger import Reason, Trace
from contexture.ports import Redactor
from contexture.types import Candidate, Citation, Span, content_hash

LITERAL_LABEL = "LITERAL"
_PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]{0,63}_[0-9]{1,9}>")
_NOT_IN_PLACEHOLDER_NAME = re.compile("[^A-Z0-9]+")
_MAX_NAME_CHARS = 48
_MAX_PLACEHOLDER_CHARS = 76
_HASH_CHARS = 12


class RedactionOperator(Protocol):
    """Decides what a redacted value is replaced with."""

    def hide(self, label: str, value: str) -> str:
        """The replacement for a value; equal values of one label give equal replacements."""
        ...

    def lookalikes(self, text: str) -> Sequence[Span]:
        """Spans of untrusted `text` that look like a replacement written by this operator."""
        ...


class Placeholders:
    """Replaces values with `<EMAIL_1>` and puts them back; the same value always gets the same placeholder.

    The values are held in this object only. It cannot be pickled, copied or serialized to JSON, and its repr shows
    counts, so that values never leave the process. Text that already contains something like `<EMAIL_1>` keeps it, and
    no value gets that placeholder; if a value has it already, the text gets a placeholder of its own. So a forged
    placeholder never resolves to someone's value, and a redacted text stays as it is.

    hidden = Placeholders()
    hidden.hide("EMAIL", "anna@example.org")     # '<EMAIL_1>'
    hidden.restore("mail <EMAIL_1> today")       # 'mail anna@example.org today'
    """

    __slots__ = ("_counts", "_issued", "_kept", "_values")

    def __init__(self) -> None:
        self._issued: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}
        self._kept: set[str] = set()
        self._counts: dict[str, int] = {}

    def hide(self, label: str, value: str) -> str:
        """The placeholder of this value."""
        known = self._issued.get((label, value))
        if known is not None:
            return known
        if label == LITERAL_LABEL and value not in self._values and _PLACEHOLDER.fullmatch(value):
            self._kept.add(value)
            return value
        placeholder = self._next_placeholder(_placeholder_name(label))
        self._issued[label, value] = placeholder
        self._values[placeholder] = value
        return placeholder

    def keep_written(self, text: str) -> None:
        """Never issue a placeholder that this text contains already, because it was redacted before."""
        self._kept.update(found for found in _PLACEHOLDER.findall(text) if found not in self._values)

    def _next_placeholder(self, name: str) -> str:
        while True:
            self._counts[name] = self._counts.get(name, 0) + 1
            placeholder = f"<{name}_{self._counts[name]}>"
            if placeholder not in self._kept:
                return placeholder

    def restore(self, text: str) -> str:
        """`text` with every placeholder issued here replaced by its value, in one pass."""
        return _PLACEHOLDER.sub(lambda match: self._values.get(match[0], match[0]), text)

    def lookalikes(self, text: str) -> Sequence[Span]:
        """Everything in `text` that has the form of a placeholder."""
        if "<" not in text:
            return ()
        return [Span(match.start(), match.end(), LITERAL_LABEL) for match in _PLACEHOLDER.finditer(text)]

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        counts = ", ".join(f"{label}: {count}" for label, count in sorted(self._counts.items()))
        return f"Placeholders({counts})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the values behind placeholders never leave the process")


class StreamingRestore:
    """Restores a stream of chunks; the joined output equals the restored whole text, however it was split.

    It holds back only a suffix that may be the beginning of a placeholder; call `flush` at the end of the stream.
    """

    __slots__ = ("_held", "_restore")

    def __init__(self, restore: Callable[[str], str]) -> None:
        self._restore = restore
        self._held = ""

    def feed(self, chunk: str) -> str:
        """The restored text that can be shown after this chunk."""
        text = self._held + chunk
        begin = text.rfind("<")
        is_open = begin >= 0 and ">" not in text[begin:] and len(text) - begin <= _MAX_PLACEHOLDER_CHARS
        settled = text[:begin] if is_open else text
        self._held = text[len(settled) :]
        return self._restore(settled)

    def flush(self) -> str:
        """What is held back."""
        rest, self._held = self._held, ""
        return self._restore(rest)


def restorer(operator: RedactionOperator) -> Callable[[str], str]:
    """What puts the values of an operator back; the texts are unchanged if it cannot."""
    return operator.restore if isinstance(operator, Placeholders) else _keep_text


def _keep_text(text: str) -> str:
    return text


def _placeholder_name(label: str) -> str:
    """A redactor's label reduced to the characters that `restore` matches, for any redactor plug-in."""
    name = _NOT_IN_PLACEHOLDER_NAME.sub("_", label.upper()).strip("_")[:_MAX_NAME_CHARS]
    return name if name and name[0].isalpha() else f"VALUE_{name}".rstrip("_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Masked:
    """Replaces a value with `****` and its last `keep` characters; short values are hidden completely.

    Masked().hide("CARD", "4111111111111111")    # '****1111'
    """

    keep: int = 4

    def hide(self, label: str, value: str) -> str:
        """Four asterisks, and the last `keep` characters of a value at least three times that long."""
        del label
        return "****" + (value[-self.keep :] if self.keep and len(value) >= 3 * self.keep else "")

    def lookalikes(self, text: str) -> Sequence[Span]:
        """No spans: a mask cannot be reversed, so a forged one reveals nothing."""
        del text
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Hashed:
    """Replaces a value with a keyed hash, equal across builds that share the salt: `<EMAIL:5a1e…>`.

    The salt prevents guessing a value by hashing likely ones; keep it secret.
    """

    salt: bytes = field(repr=False)

    def hide(self, label: str, value: str) -> str:
        """The label and the first hexadecimal digits of an HMAC."""
        message = f"{label}\0{value}".encode("utf-8", "surrogatepass")
        return f"<{label}:{hmac.new(self.salt, message, hashlib.sha256).hexdigest()[:_HASH_CHARS]}>"

    def lookalikes(self, text: str) -> Sequence[Span]:
        """No spans: a hash cannot be reversed, so a forged one reveals nothing."""
        del text
        return ()


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement: `start` to `end` of the original became `new_start` to `new_end` of the redacted text."""

    start: int
    end: int
    new_start: int
    new_end: int


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A redacted text, and the edits that map its positions to those of the original.

    A position strictly inside a replaced span maps to the end of the span, in both directions.
    """

    text: str
    edits: tuple[Edit, ...] = field(default=())

    def to_redacted_position(self, position: int) -> int:
        """The position in the redacted text of a position in the original."""
        index = bisect_right(self.edits, position, key=lambda edit: edit.start) - 1
        if index < 0:
            return position
        edit = self.edits[index]
        if position == edit.start:
            return edit.new_start
        return edit.new_end + max(0, position - edit.end)

    def to_original_position(self, position: int) -> int:
        """The position in the original of a position in the redacted text."""
        index = bisect_right(self.edits, position, key=lambda edit: edit.new_start) - 1
        if index < 0:
            return position
        edit = self.edits[index]
        if position == edit.new_start:
            return edit.start
        return edit.end + max(0, position - edit.new_end)


def apply_redactions(text: str, spans: Sequence[Span], operator: RedactionOperator) -> RedactedText:
    """`text` with every span replaced; raises `RedactionFailed` unless the spans are sorted, disjoint and in range."""
    _check_spans(text, spans)
    if len(spans) == 0 and not operator.lookalikes(text):
        return RedactedText(text)
    pieces: list[str] = []
    edits: list[Edit] = []
    done = length = 0
    for span in _add_lookalikes(text, spans, operator):
        shown = operator.hide(span.label, text[span.start : span.end])
        if span.label == LITERAL_LABEL and shown == text[span.start : span.end]:
            continue
        new_start = length + span.start - done
        edits.append(Edit(span.start, span.end, new_start, new_start + len(shown)))
        pieces += (text[done : span.start], shown)
        done, length = span.end, new_start + len(shown)
    return RedactedText("".join((*pieces, text[done:])), tuple(edits))


def scan_text(text: str, redactor: Redactor, *, lang: str = "") -> Sequence[Span]:
    """The spans of a text that must not be shown; raises `RedactionFailed` for any error of the redactor."""
    return _scan_or_fail(redactor, text, lang)


def redact_text(text: str, redactor: Redactor, operator: RedactionOperator, *, lang: str = "") -> RedactedText:
    """One text, scanned and redacted; raises `RedactionFailed` for any error of the redactor."""
    return apply_redactions(text, _scan_or_fail(redactor, text, lang), operator)


def redact_candidates(
    candidates: Iterable[Candidate], redactor: Redactor, operator: RedactionOperator, trace: Trace
) -> list[Candidate]:
    """Candidates with text, title, label and source redacted; one that cannot be scanned is dropped.

    Stored spans are applied where a candidate has them; everything else is scanned now, and equal short texts once. A
    candidate that is already redacted is returned unchanged. Drops and failures are recorded in `trace`.
    """
    clean = _CandidateRedactor(redactor, operator)
    kept: list[Candidate] = []
    for candidate in candidates:
        try:
            kept.append(candidate if candidate.redacted else clean(candidate))
        except RedactionFailed as failure:
            trace.drop(candidate, Reason.REDACTION_FAILED, note=str(failure))
            trace.add_degradation(f"redactor:{type(redactor).__name__}", str(failure))
    return kept


class _CandidateRedactor:
    """Redacts the candidates of one build; equal titles, labels and sources are scanned once."""

    def __init__(self, redactor: Redactor, operator: RedactionOperator) -> None:
        self._redactor = redactor
        self._operator = operator
        self._seen: dict[tuple[str, str], str] = {}

    def __call__(self, candidate: Candidate) -> Candidate:
        spans = candidate.redactions
        if spans is None:
            spans = _scan_or_fail(self._redactor, candidate.text, candidate.lang)
        done = apply_redactions(candidate.text, spans, self._operator)
        title = self._title(candidate)
        return replace(
            _move_sentences(candidate, done) if done.edits else candidate,
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
        return apply_redactions(candidate.title, candidate.title_redactions, self._operator).text

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


def _scan_or_fail(redactor: Redactor, text: str, lang: str) -> Sequence[Span]:
    try:
        spans = tuple(redactor.scan(text, lang))
        _check_spans(text, spans)
    except Exception as failure:  # noqa: BLE001 - a plug-in may raise anything, and then the text must not be shown
        cause = type(failure).__name__
    else:
        return spans
    # Raised outside the `except` block, so that a message which quotes the text is not chained as the cause.
    raise RedactionFailed(f"{type(redactor).__name__} failed with {cause}")


def _check_spans(text: str, spans: Sequence[Span]) -> None:
    if len(spans) == 0:
        return
    inside = all(0 <= span.start < span.end <= len(text) for span in spans)
    apart = all(left.end <= right.start for left, right in pairwise(spans))
    if not inside or not apart:
        raise RedactionFailed("a redactor returned spans that are out of range, inverted, unsorted or overlapping")


def _add_lookalikes(text: str, spans: Sequence[Span], operator: RedactionOperator) -> Sequence[Span]:
    """The spans, and between them everything that looks like a replacement written by the operator."""
    forged = operator.lookalikes(text)
    if not forged:
        return spans
    starts = [span.start for span in spans]
    free = [item for item in forged if not _overlaps_neighbour(item, spans, bisect_right(starts, item.start))]
    return sorted((*spans, *free), key=lambda span: span.start)


def _overlaps_neighbour(item: Span, spans: Sequence[Span], index: int) -> bool:
    """Whether the span before `index` or the one at `index` overlaps `item`."""
    return (index > 0 and item.start < spans[index - 1].end) or (index < len(spans) and spans[index].start < item.end)


def _move_sentences(candidate: Candidate, done: RedactedText) -> Candidate:
    """The candidate with its sentences mapped to the redacted text; one inside a replaced span is dropped."""
    moved = [(done.to_redacted_position(start), done.to_redacted_position(end)) for start, end in candidate.sentences]
    kept = [at for at, (start, end) in enumerate(moved) if start < end]
    return replace(
        candidate,
        sentences=tuple(moved[at] for at in kept),
        origins=tuple(candidate.origins[at] for at in kept) if candidate.origins else (),
        weights=tuple(candidate.weights[at] for at in kept) if candidate.weights else (),
    )


_SCAN_CACHE_SIZE = 4_096


class RememberedScans:
    """A caching redactor: equal texts are scanned once.

    The cache holds hashes and spans, never text; the least recently used entry is evicted.
    """

    def __init__(self, redactor: Redactor, size: int = _SCAN_CACHE_SIZE) -> None:
        self._redactor = redactor
        self._size = size
        self._seen: dict[tuple[str, str, str], tuple[Span, ...]] = {}

    @property
    def rules(self) -> str:
        """The rules of the wrapped redactor."""
        return self._redactor.rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """The spans the redactor finds in this text, from the cache if it was scanned before."""
        key = (content_hash(text), lang, self._redactor.rules)
        found = self._seen.pop(key, None)
        if found is None:
            found = tuple(self._redactor.scan(text, lang))
        self._seen[key] = found  # re-inserted at the end: the first entry is the least recently used
        if len(self._seen) > self._size:
            self._seen.pop(next(iter(self._seen)))
        return found
