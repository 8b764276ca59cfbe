"""How redactors are combined, named and kept linear."""

from __future__ import annotations

import re
from itertools import pairwise
from re import _constants, _parser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contexture.adapters.redaction._credentials import ASSIGNMENT_RULES, CREDENTIAL_RULES, OWN_RULES
from contexture.adapters.redaction._documents import DOCUMENT_RULES
from contexture.adapters.redaction._personal_data import COMMON_RULES, EMAIL, PHONE_RULES, RUSSIAN_RULES, URL
from contexture.adapters.redaction._rules import HintFinder, Rule, RuleRedactor, merge_overlapping_spans
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
def test_hints_have_capitals_only_where_the_case_decides(rule: Rule) -> None:
    """A hint with a capital letter is looked up as it is, so a pattern that takes any case would be missed."""
    takes_any_case = rule.pattern.flags & re.IGNORECASE or rule.near is not None

    assert not takes_any_case or all(hint == hint.lower() for hint in rule.hints)


@pytest.mark.parametrize(
    "rule", [rule for rule in CREDENTIAL_RULES if rule.hints], ids=lambda rule: rule.pattern.pattern[:40]
)
@given(data=st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_a_text_that_a_pattern_matches_has_a_hint_of_it(rule: Rule, data: st.DataObject) -> None:
    """No rule is skipped for a text that it would find something in."""
    plain = re.compile(
        rule.pattern.pattern.replace("++", "+").replace("}+", "}").replace("(?>", "(?:"), rule.pattern.flags
    )
    text = data.draw(st.from_regex(plain))

    if rule.pattern.search(text):
        assert HintFinder(rule.hints).find(text)
        assert rule.quick is None or rule.quick.search(text)


@pytest.mark.parametrize(
    "text", ["192.0.2.7", "at 10.20.30.40, twice", "fe80::1", "2001:DB8::8A2E:370:7334", "::ffff:192.0.2.1"]
)
def test_the_quick_pattern_of_an_address_matches_every_address(text: str) -> None:
    """What is looked for first is part of every address."""
    assert all(rule.quick is None or rule.quick.search(text) for rule in COMMON_RULES if rule.pattern.search(text))


@given(
    hints=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=6, unique=True),
    text=st.text(max_size=40),
    data=st.data(),
)
def test_hints_are_found_wherever_they_stand(hints: list[str], text: str, data: st.DataObject) -> None:
    """As they are if they have capital letters, in any case otherwise; in the order in which they were given."""
    inserted = data.draw(st.sampled_from(["", *hints]))
    at = data.draw(st.integers(0, len(text)))
    whole = text[:at] + inserted + text[at:]
    expected = [n for n, hint in enumerate(hints) if hint in (whole if hint != hint.lower() else whole.lower())]

    assert expected == HintFinder(hints).find(whole)


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
