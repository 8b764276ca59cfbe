"""Rules as data, and the redactor that runs them.

A rule is a pattern plus what must also hold: a checksum, a word nearby. Patterns are linear in the length of the text:
their repetitions are bounded or possessive, so that hostile input costs no more than ordinary input.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from contexture.adapters.redaction.spans import settle
from contexture.types import Span

BEFORE = 48
AFTER = 16
LAST = -1
SIX_DIGITS = re.compile(r"[0-9](?:[^\w\n]{0,3}[0-9]){5}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One kind of thing to find.

    `accepts` has the last word on the matched text. With `near`, the word that stands closest before the match must
    be one of those rather than one of `unless`; `behind` may speak for it from right behind instead. `hints` are
    pieces of lower-case text without one of which the pattern cannot match; a rule without them needs six digits
    close together. `group` is the part of the match that is hidden; LAST is the last one that took part.
    """

    label: str
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool] | None = None
    near: re.Pattern[str] | None = None
    behind: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    hints: tuple[str, ...] = ()
    group: int = 0
    score: float = 1.0

    def find(self, text: str) -> Iterator[Span]:
        """Every place where the rule holds."""
        for match in self.pattern.finditer(text):
            start, end = match.span(self.group if self.group != LAST else match.lastindex or 0)
            if start < end and self._holds(text, start, end):
                yield Span(start, end, self.label, self.score)

    @property
    def identity(self) -> str:
        """What distinguishes this rule from an edited one."""
        named = self.accepts.__qualname__ if self.accepts else ""
        around = "|".join(words.pattern if words else "" for words in (self.near, self.behind, self.unless))
        return f"{self.label}|{self.pattern.pattern}|{self.pattern.flags}|{named}|{around}|{self.group}"

    def _holds(self, text: str, start: int, end: int) -> bool:
        return self._fits_context(text, start, end) and (self.accepts is None or self.accepts(text[start:end]))

    def _fits_context(self, text: str, start: int, end: int) -> bool:
        before = text[max(0, start - BEFORE) : start]
        refused = _last(self.unless, before)
        if self.near is None:
            return refused < 0
        if _last(self.near, before) > refused:
            return True
        return self.behind is not None and self.behind.match(text, end, end + AFTER) is not None


def _last(words: re.Pattern[str] | None, text: str) -> int:
    """Where the last of these words starts, or -1."""
    return max((match.start() for match in words.finditer(text)), default=-1) if words else -1


def fingerprint(parts: Iterable[str]) -> str:
    """A short stable name for a set of rules, equal wherever the same rules run."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


class RuleRedactor:
    """Finds what any of its rules finds.

    RuleRedactor(COMMON).scan("write to anna@example.org", "en")   # [Span(9, 25, "EMAIL")]
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._numeric = tuple(rule for rule in rules if not rule.hints)
        self._hinted: dict[str, list[Rule]] = {}
        for rule in rules:
            for hint in rule.hints:
                self._hinted.setdefault(hint, []).append(rule)
        self._rules = f"rules-{fingerprint(rule.identity for rule in rules)}"

    @property
    def rules(self) -> str:
        """Changes whenever a rule does."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap; the rules look at scripts and words, not at `lang`."""
        del lang
        return settle(span for rule in self._due(text) for span in rule.find(text))

    def _due(self, text: str) -> Iterable[Rule]:
        """The rules that can match at all: most titles and labels leave none."""
        folded = text.lower()
        due = {id(rule): rule for hint, rules in self._hinted.items() if hint in folded for rule in rules}
        return (*due.values(), *(self._numeric if SIX_DIGITS.search(text) else ()))
