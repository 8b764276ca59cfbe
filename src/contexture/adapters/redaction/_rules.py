"""Redaction rules as data, and `RuleRedactor`, which runs them.

A rule is a pattern with further conditions: a checksum, a word nearby. Patterns run in linear time: their repetitions
are bounded or possessive.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from contexture.types import Span


def merge_overlapping_spans(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans without overlaps that cover every character covered before.

    Overlapping spans are merged into one, labelled after the longest, then the highest score, then the first label.
    Dropping the others instead would reveal the part of them that the winner does not cover.
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


CONTEXT_CHARS_BEFORE = 48
CONTEXT_CHARS_AFTER = 16
LAST_GROUP = -1
SIX_DIGITS = re.compile(r"[0-9](?:[^\w\n]{0,3}[0-9]){5}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A pattern to redact, with its conditions.

    `accepts` validates the matched text. With `near`, the closest context word before the match must be one of `near`
    rather than of `unless`, or `behind` must match directly after it. Without `near`, no `unless` word may precede the
    match. `hints` are strings, one of which a text must contain for the pattern to match, in any case unless the hint
    has a capital letter; a rule without hints needs six digits close together. `quick` is a pattern that also matches
    wherever `pattern` does, and is found faster. `group` is the part of the match that is redacted; `LAST_GROUP` is the
    last group that matched.
    """

    label: str
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool] | None = None
    near: re.Pattern[str] | None = None
    behind: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    hints: tuple[str, ...] = ()
    quick: re.Pattern[str] | None = None
    group: int = 0
    score: float = 1.0

    def find(self, text: str) -> Iterator[Span]:
        """Yield a span for every accepted match."""
        for match in self.pattern.finditer(text):
            start, end = match.span(self.group if self.group != LAST_GROUP else match.lastindex or 0)
            if start < end and self._is_accepted(text, start, end):
                yield Span(start, end, self.label, self.score)

    @property
    def identity(self) -> str:
        """Text that changes when the rule is edited, for `fingerprint`."""
        named = self.accepts.__qualname__ if self.accepts else ""
        around = "|".join(words.pattern if words else "" for words in (self.near, self.behind, self.unless))
        return f"{self.label}|{self.pattern.pattern}|{self.pattern.flags}|{named}|{around}|{self.group}"

    def _is_accepted(self, text: str, start: int, end: int) -> bool:
        if self.accepts is None:
            return self._fits_context(text, start, end)
        if self.near is None:  # nothing or little to look up before, and a check that may be expensive
            return self._fits_context(text, start, end) and self.accepts(text[start:end])
        return self.accepts(text[start:end]) and self._fits_context(text, start, end)

    def _fits_context(self, text: str, start: int, end: int) -> bool:
        before = text[max(0, start - CONTEXT_CHARS_BEFORE) : start]
        refused = _last_match_start(self.unless, before)
        if self.near is None:
            return refused < 0
        if _last_match_start(self.near, before) > refused:
            return True
        return self.behind is not None and self.behind.match(text, end, end + CONTEXT_CHARS_AFTER) is not None


def _last_match_start(words: re.Pattern[str] | None, text: str) -> int:
    """Start of the last match of these words, or -1."""
    return max((match.start() for match in words.finditer(text)), default=-1) if words else -1


def fingerprint(parts: Iterable[str]) -> str:
    """Short hash of a set of rules, stable across processes and machines."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


class HintFinder:
    """Finds which of many short strings a text contains, faster than looking for one after the other.

    A string is looked for only if three of its pairs of bytes occur in the lower-case text.
    """

    def __init__(self, hints: Sequence[str]) -> None:
        self._hints = tuple((hint, hint != hint.lower()) for hint in hints)
        pairs = np.array([_rare_pairs(hint.lower().encode()) for hint in hints], np.intp).reshape(-1, 3)
        self._first, self._second, self._third = pairs.T.copy()

    def find(self, text: str) -> list[int]:
        """The numbers of the strings that the text contains: as they are if they have capital letters, or in any case.

        Their order is that of the strings.
        """
        folded = text.lower()
        data = folded.encode("utf-8", "surrogatepass")
        present = np.zeros(1 << 16, np.bool_)
        present[np.frombuffer(data, np.uint16, len(data) // 2)] = True
        if data:
            present[np.frombuffer(data, np.uint16, (len(data) - 1) // 2, offset=1)] = True
        present[np.frombuffer(data, np.uint8)] = True  # a string of one byte is a pair with zero
        likely = np.flatnonzero(present[self._first] & present[self._second] & present[self._third])
        return [at for at in likely.tolist() if self._contains(at, text, folded)]

    def _contains(self, at: int, text: str, folded: str) -> bool:
        hint, is_exact = self._hints[at]
        return hint in (text if is_exact else folded)


_COMMON_BYTES = b" etaoinsrhldcumfpgwybvkxjqz"


def _rare_pairs(hint: bytes) -> list[int]:
    """Three pairs of neighbouring bytes of a string, the rarest in English, as numbers; a short string repeats some."""
    if len(hint) == 1:
        return [hint[0]] * 3
    pairs = sorted({hint[at : at + 2] for at in range(len(hint) - 1)}, key=_commonness)
    numbers = [int(number) for pair in pairs[:3] for number in np.frombuffer(pair, np.uint16)]
    return (numbers * 3)[:3]


def _commonness(pair: bytes) -> tuple[int, bytes]:
    return sum(len(_COMMON_BYTES) - _COMMON_BYTES.find(byte) for byte in pair if byte in _COMMON_BYTES), pair


class RuleRedactor:
    """Redactor that applies a set of rules.

    RuleRedactor(COMMON_RULES).scan("write to anna@example.org", "en")   # [Span(9, 25, "EMAIL")]
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._numeric = tuple(rule for rule in rules if not rule.hints)
        hinted: dict[str, list[Rule]] = {}
        for rule in rules:
            for hint in rule.hints:
                hinted.setdefault(hint, []).append(rule)
        self._hinted = tuple(hinted.values())
        self._finder = HintFinder(tuple(hinted))
        self._rules = f"rules-{fingerprint(rule.identity for rule in rules)}"

    @property
    def rules(self) -> str:
        """Fingerprint that changes whenever a rule does."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap; rules do not depend on `lang`."""
        del lang
        return merge_overlapping_spans(span for rule in self._applicable_rules(text) for span in rule.find(text))

    def _applicable_rules(self, text: str) -> Iterable[Rule]:
        """Rules that can match this text, by their hints; for most titles and labels there are none."""
        due = {id(rule): rule for at in self._finder.find(text) for rule in self._hinted[at]}
        likely = (rule for rule in due.values() if rule.quick is None or rule.quick.search(text))
        return (*likely, *(self._numeric if SIX_DIGITS.search(text) else ()))
