"""How redactors are combined, named and kept linear."""

from __future__ import annotations

import re
from itertools import pairwise
from re import _constants, _parser

import pytest

from contexture.adapters.redaction._credentials import ASSIGNMENT_RULES, CREDENTIAL_RULES, OWN_RULES
from contexture.adapters.redaction._documents import DOCUMENT_RULES
from contexture.adapters.redaction._personal_data import COMMON_RULES, EMAIL, PHONE_RULES, RUSSIAN_RULES, URL
from contexture.adapters.redaction._rules import Rule, RuleRedactor, merge_overlapping_spans
from contexture.adapters.redaction.default import DEFAULT_ENTITIES, CompositeRedactor, NoopRedactor, default_redactor
from contexture.errors import InvalidRequest
from contexture.types import Span

WRITTEN = (*COMMON_RULES, URL, *PHONE_RULES, *RUSSIAN_RULES, *DOCUMENT_RULES, *OWN_RULES, *ASSIGNMENT_RULES)
HOSTILE = (
    "a@",
    "1-",
    "1 ",
    "1.",
    "a.",
    "!",
    "//",
    "sk-",
    "eyJ",
    "://a:",
    "password = ",
    "+1",
    "(1)",
    "GB49",
    "aws key '",
)


def unbounded(pattern: re.Pattern[str]) -> list[str]:
    """Repetitions without an upper bound that may be tried again with fewer turns."""
    found: list[str] = []

    def walk(parsed) -> None:
        for operator, argument in parsed:
            retried = operator in (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
            if retried and argument[1] is _constants.MAXREPEAT:
                found.append(f"{operator} {argument}")
            nested = argument if isinstance(argument, tuple | list) else (argument,)
            for part in nested:
                if isinstance(part, _parser.SubPattern):
                    walk(part)
                elif isinstance(part, list):
                    for item in part:
                        if isinstance(item, _parser.SubPattern):
                            walk(item)

    walk(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
    return found


@pytest.mark.parametrize("rule", WRITTEN, ids=lambda rule: f"{rule.label}-{rule.pattern.pattern[:24]}")
def test_no_pattern_can_backtrack_without_bound(rule: Rule) -> None:
    """Every repetition in our own patterns is bounded or possessive."""
    assert [] == unbounded(rule.pattern)


def test_the_check_itself_sees_an_unbounded_repetition() -> None:
    """A pattern that may backtrack over the whole text is recognised as one."""
    assert unbounded(re.compile(r"(?:a|(b+))c"))
    assert not unbounded(re.compile(r"(?:a|(b++))c"))


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_is_scanned_to_its_end(unit: str) -> None:
    """A long repetition of what patterns start with does not hang the scan, and spans keep the port's promise."""
    text = unit * (200_000 // len(unit))
    spans = default_redactor().scan(text, "")

    assert all(left.end <= right.start for left, right in pairwise(spans))


@pytest.mark.parametrize("rule", [rule for rule in (*WRITTEN, *CREDENTIAL_RULES) if rule.hints])
def test_hints_are_lower_case(rule: Rule) -> None:
    """Hints are looked up in folded text, where an upper-case one would never be found."""
    assert all(hint == hint.lower() for hint in rule.hints)


def test_overlapping_spans_become_one_that_covers_both() -> None:
    """The longest names the stretch, and nothing that was covered is shown."""
    overlapping = [Span(4, 9, "SHORT"), Span(0, 6, "LONG"), Span(12, 15, "APART")]

    assert [Span(0, 9, "LONG"), Span(12, 15, "APART")] == merge_overlapping_spans(overlapping)


def test_neighbours_stay_apart() -> None:
    """Spans that touch without overlapping keep their own labels."""
    assert [Span(0, 3, "A"), Span(3, 5, "B")] == merge_overlapping_spans([Span(3, 5, "B"), Span(0, 3, "A")])


def test_a_composite_finds_what_its_parts_find() -> None:
    """Two redactors together find what each finds alone."""
    text = "anna@example.org https://example.org"
    both = CompositeRedactor([RuleRedactor([EMAIL]), RuleRedactor([URL])])

    assert ["EMAIL", "URL"] == [span.label for span in both.scan(text, "en")]


def test_the_name_of_the_rules_changes_with_the_rules() -> None:
    """Equal choices share a name; another choice has another, so stored spans are not trusted across."""
    names = {
        default_redactor().rules,
        default_redactor(secrets=False).rules,
        default_redactor(entities=("EMAIL",)).rules,
        NoopRedactor().rules,
    }

    assert 4 == len(names)
    assert default_redactor().rules == default_redactor().rules


def test_nothing_is_found_by_choice() -> None:
    """The no-op redactor leaves everything in place."""
    assert () == NoopRedactor().scan("anna@example.org", "en")


def test_only_the_chosen_entities_are_found() -> None:
    """Choosing e-mail leaves telephone numbers alone."""
    spans = default_redactor(entities=("EMAIL",), secrets=False).scan("anna@example.org, +44 7700 900123", "en")

    assert ["EMAIL"] == [span.label for span in spans]


@pytest.mark.parametrize(("entities", "says"), [(("SHOE_SIZE",), "SHOE_SIZE"), (("PERSON",), "ner")])
def test_an_entity_that_cannot_be_found_is_refused(entities: tuple[str, ...], says: str) -> None:
    """An unknown type, or one that needs the name models, is an error instead of a silent gap."""
    with pytest.raises(InvalidRequest, match=says):
        default_redactor(entities=entities)


def test_names_and_addresses_of_pages_are_off_by_default() -> None:
    """What needs a model, or is not personal, is switched on by choice."""
    assert {"PERSON", "LOCATION", "ADDRESS", "URL"}.isdisjoint(DEFAULT_ENTITIES)
