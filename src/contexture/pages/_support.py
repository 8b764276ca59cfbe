"""Whether the pages that a search finds can answer a question: by their meaning, and by what the question names.

The figures of all reports have the same words, so that a question about a company or a year that no stored report
covers finds pages of others that mean nearly the same. Such pages are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contexture.pages._names import Subject, names_company
from contexture.pages._questions import QuestionFields
from contexture.retrieval.search import SEMANTIC, FoundPassage
from contexture.text.language import detect_language
from contexture.text.terms import extract_terms, is_cyrillic
from contexture.types import Record

MIN_SIMILARITY = 0.5
"""Calibrated: questions that the pages answer have .8 and more, others .4 and less."""

_MIN_FOREIGN_SIMILARITY = 0.45  # of a question in another language than English, whose pages may be English: .48, .38
_YEARS_BEFORE = 2  # a statement has the figures of two years before its own
_YEARS_AFTER = 1  # an outlook, and a fiscal year that ends in the next year
_STATED_YEARS = 5  # before and after: a page that has the year may be about it
_ALIAS_SHARE = 0.3  # of the found passages of a report: a name in so many of them means its company
_MIN_ALIAS_PASSAGES = 3
_MIN_WORD = 3
_HOW_MANY = re.compile(r"\bhow (?:many|much)\b", re.IGNORECASE)  # words that no page needs to have
_BETWEEN_WORDS = r"[\W_]{0,3}"


def is_supported(found: Sequence[FoundPassage], question: str) -> bool:
    """Whether a passage means what the question does, or has more than half of its terms."""
    similar = [each.signals[SEMANTIC] for each in found if SEMANTIC in each.signals]
    least = MIN_SIMILARITY if detect_language(question) == "en" else _MIN_FOREIGN_SIMILARITY
    if not similar or max(similar) >= least:
        return bool(found)
    terms = len(set(extract_terms(_HOW_MANY.sub(" ", question))))
    return any(each.hit.matched is None or 2 * each.hit.matched > terms for each in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportFilter:
    """Which pages of reports may answer a question; pages of other documents always may.

    `strangers` are the companies that the question asks about, if none of them has a report. They may be other names of
    a company that has one, which its first pages say; unless they do, no report can answer: see `close`.
    """

    asked: QuestionFields
    strangers: tuple[Subject, ...] = ()
    closed: bool = False

    def close(self, first_pages: Iterable[Record]) -> ReportFilter:
        """The filter once the first pages of the reports are known: closed if none of them has a stranger's name."""
        if not self.strangers or any(_mentions(each, page.text) for each in self.strangers for page in first_pages):
            return self
        return replace(self, closed=True)

    def allows(self, payload: Mapping[str, Any], text: str) -> bool:
        """Whether a page or passage may answer: its report is of a company and about a year that the question names."""
        return not _is_report(payload) or not (self.closed or not _covers_years(self.asked, payload, text))


def make_report_filter(asked: QuestionFields, found: Sequence[FoundPassage]) -> ReportFilter:
    """The filter for what a search found; it is closed if no report of a named company is about a named year."""
    reports = [each.hit for each in found if _is_report(each.hit.record.payload)]
    named = [each for each in reports if names_company(asked.subjects, asked.names, each.record.payload["company"])]
    if not named:
        return ReportFilter(asked=asked, strangers=_find_strangers(asked, found) if reports else ())
    answered = any(_covers_years(asked, each.record.payload, each.text) for each in named)
    return ReportFilter(asked=asked, closed=not answered)


def _is_report(payload: Mapping[str, Any]) -> bool:
    return bool(payload.get("company") and payload.get("form"))


def _covers_years(asked: QuestionFields, payload: Mapping[str, Any], text: str) -> bool:
    """Whether a text of a report may be about a year of the question, if it names years.

    Any text of a report with figures of that year may, a text with the year if the report is of a few years before or
    after, and otherwise one with the year and half of the other terms of the question.
    """
    own = payload.get("years") or ()
    if not asked.years or not own:
        return True
    return any(
        any(each - _YEARS_BEFORE <= year <= each + _YEARS_AFTER for each in own)
        or (str(year) in text and any(abs(year - each) <= _STATED_YEARS for each in own))
        or (str(year) in text and _shares_terms(asked, text, f"{year} FY{year}"))
        for year in asked.years
    )


def _find_strangers(asked: QuestionFields, found: Sequence[FoundPassage]) -> tuple[Subject, ...]:
    """The named companies that no found page is about; none if a page is about one of them."""
    subjects = [each for each in asked.subjects if not is_cyrillic(each.name)]  # a name may be Latin in the report
    strange = [each for each in subjects if _is_stranger(each, asked, found)]
    return tuple(strange) if len(strange) == len(subjects) else ()


def _is_stranger(subject: Subject, asked: QuestionFields, found: Sequence[FoundPassage]) -> bool:
    naming = [each for each in found if _mentions(subject, each.hit.text)]
    if not naming:
        return subject.acts or not all(_has_word(word, found) for word in subject.name.split())
    if not subject.acts or _is_alias(naming, found):
        return False
    return not any(_speaks_of(asked, each.hit.text, subject.name) for each in naming)


def _is_alias(naming: Sequence[FoundPassage], found: Sequence[FoundPassage]) -> bool:
    """Whether many found passages of one document have a name."""
    totals, named = (Counter(each.hit.record.source for each in some) for some in (found, naming))
    return any(count >= max(_MIN_ALIAS_PASSAGES, _ALIAS_SHARE * totals[source]) for source, count in named.items())


def _has_word(word: str, found: Sequence[FoundPassage]) -> bool:
    pattern = re.compile(rf"(?<!\w){re.escape(word)}", re.IGNORECASE)
    return len(word) < _MIN_WORD or any(pattern.search(each.hit.text) for each in found)


def _mentions(subject: Subject, text: str) -> bool:
    """Whether a text has a name, in its own spelling or in capitals, with any signs between its words."""
    words = re.findall(r"[^\W_]+", subject.name)
    spelled = (words, [word.upper() for word in words], [word.capitalize() for word in words])
    return any(re.search(r"(?<!\w)" + _BETWEEN_WORDS.join(form) + r"(?!\w)", text) for form in spelled)


def _speaks_of(asked: QuestionFields, text: str, but: str) -> bool:
    """Whether a text has half of the terms of a question besides those of `but`, or a word that a report uses."""
    return _shares_terms(asked, text, but) or not asked.related_terms.isdisjoint(extract_terms(text))


def _shares_terms(asked: QuestionFields, text: str, but: str) -> bool:
    terms = asked.content_terms - frozenset(extract_terms(but))
    return 2 * len(terms & frozenset(extract_terms(text))) >= len(terms)
