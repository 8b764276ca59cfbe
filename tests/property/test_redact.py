"""The promises of redaction."""

from __future__ import annotations

import copy
import json
import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters.redaction.default import default_redactor
from contexture.errors import RedactionFailed
from contexture.ledger import Reason, State, Trace
from contexture.pipeline.redaction import Hashed, Masked, Placeholders, apply_redactions, redact_candidates, redact_text
from contexture.text.mapped import fold_text
from contexture.types import Candidate, Citation, Span

REDACTOR = default_redactor()
PROSE = st.text(alphabet="abc XYZ.,\n<>_\\🙂é", max_size=30)
FORGED = st.sampled_from(["<EMAIL_1>", "<EMAIL_2>", "<LITERAL_1>", "<CARD_1>", "<EMAIL_", "1>"])
VALUES = st.sampled_from(["anna@example.org", "boris@example.org", "4111111111111111", "+44 7700 900123", "8.8.4.4"])
LABELS = st.sampled_from(["EMAIL", "CARD", "PHONE", "e-mail", "Личное", "", "9 lives", "L" * 99])


@st.composite
def marked_texts(draw: st.DrawFn) -> tuple[str, tuple[Span, ...]]:
    """A text with values in it, and spans that cover exactly those."""
    text, spans = draw(PROSE), []
    for value in draw(st.lists(VALUES, max_size=5)):
        spans.append(Span(len(text), len(text) + len(value), draw(LABELS)))
        text += value + " " + draw(PROSE | FORGED)
    return text, tuple(spans)


class Raising:
    """Fails on texts that contain `poison`, quoting them."""

    rules = "raising"

    def scan(self, text: str, lang: str) -> tuple[Span, ...]:
        """No spans, or an error that quotes the text."""
        if "poison" in text:
            raise ZeroDivisionError(text)
        return ()


class Returning:
    """Returns what it is told, whether or not that keeps the port's promise."""

    rules = "returning"

    def __init__(self, spans: object) -> None:
        self._spans = spans

    def scan(self, text: str, lang: str):
        """The spans it was given."""
        return self._spans


def candidate(text: str, name: str = "a", **fields) -> Candidate:
    """A candidate with this text."""
    return Candidate(id=name, key=name, text=text, **fields)


@given(marked_texts())
def test_restoring_gives_back_the_original(marked) -> None:
    """`restore` undoes `apply_redactions`, also where the text held something like a placeholder."""
    text, spans = marked
    placeholders = Placeholders()

    assert text == placeholders.restore(apply_redactions(text, spans, placeholders).text)


@given(marked_texts(), st.sampled_from([Placeholders(), Masked(), Hashed(salt=b"pepper")]))
def test_no_value_remains(marked, operator) -> None:
    """Whatever was covered by a span is not in the output, under any operator."""
    text, spans = marked
    shown = apply_redactions(text, spans, operator).text

    assert not [span for span in spans if text[span.start : span.end] in shown]


@given(marked_texts())
def test_untouched_characters_map_to_themselves(marked) -> None:
    """Every character outside the edits is found at its mapped position, and mapping back returns."""
    text, spans = marked
    done = apply_redactions(text, spans, Placeholders())
    covered = {position for edit in done.edits for position in range(edit.start, edit.end)}
    for position in set(range(len(text))) - covered:
        assert text[position] == done.text[done.to_redacted_position(position)]
        assert position == done.to_original_position(done.to_redacted_position(position))
    assert len(done.text) == done.to_redacted_position(len(text))
    assert len(text) == done.to_original_position(len(done.text))


def test_a_position_inside_a_replaced_stretch_maps_to_its_end() -> None:
    """In both directions, and positions at its edges map to its edges."""
    done = apply_redactions("to anna!", (Span(3, 7, "PERSON"),), Placeholders())

    assert "to <PERSON_1>!" == done.text
    assert [0, 2, 3, 13, 13, 14] == [done.to_redacted_position(at) for at in (0, 2, 3, 5, 7, 8)]
    assert [0, 2, 3, 7, 7, 8] == [done.to_original_position(at) for at in (0, 2, 3, 5, 13, 14)]


@given(marked_texts(), st.data())
def test_sentences_stay_sorted_apart_and_inside(marked, data) -> None:
    """Remapped sentences do not overlap, and one without a value reads as before."""
    text, spans = marked
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=4))})
    sentences = tuple(pairwise(cuts))
    placeholders = Placeholders()
    [done] = redact_candidates(
        [candidate(text, sentences=sentences, redactions=spans)], REDACTOR, placeholders, Trace()
    )
    edges = [edge for sentence in done.sentences for edge in sentence]

    assert edges == sorted(edges)
    assert not edges or edges[-1] <= len(done.text)
    assert done.text == "".join(done.text[start:end] for start, end in done.sentences)


@given(st.lists(st.booleans(), max_size=6))
def test_a_raising_redactor_drops_exactly_its_items(poisoned: list[bool]) -> None:
    """Every other candidate is kept, and the ledger's counts add up."""
    trace = Trace()
    items = [candidate("poison 4111" if bad else "fine", str(n)) for n, bad in enumerate(poisoned)]
    kept = redact_candidates(items, Raising(), Placeholders(), trace)
    for item in kept:
        trace.keep(item, tokens=1)
    ledger = trace.finish(items)

    assert [str(n) for n, bad in enumerate(poisoned) if not bad] == [item.id for item in kept]
    assert sum(poisoned) == ledger.count(State.DROPPED)
    assert len(items) == ledger.count(State.DROPPED) + ledger.count(State.KEPT)
    assert (len(ledger.degradations) == 1) is any(poisoned)


def test_the_ledger_does_not_quote_the_text() -> None:
    """An error whose message holds the text is recorded by its type alone."""
    trace = Trace()
    item = candidate("poison 4111")
    redact_candidates([item], Raising(), Placeholders(), trace)
    ledger = trace.finish([item])

    assert Reason.REDACTION_FAILED is ledger.entries[0].reason
    assert "ZeroDivisionError" in ledger.degradations[0].reason
    assert "Raising" in ledger.degradations[0].source
    assert "poison" not in repr(ledger)


def test_a_failed_text_raises_without_its_cause() -> None:
    """The error for a single text carries neither the text nor the error that quotes it."""
    with pytest.raises(RedactionFailed) as caught:
        redact_text("poison 4111", Raising(), Placeholders())

    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "poison" not in str(caught.value)


@pytest.mark.parametrize(
    "spans",
    [
        [Span(0, 3, "A"), Span(2, 4, "B")],
        [Span(3, 4, "A"), Span(0, 2, "B")],
        [Span(0, 99, "A")],
        [Span(-1, 2, "A")],
        [Span(3, 1, "A")],
        [Span(1, 1, "A")],
        [(0, 1, "A")],
        None,
    ],
)
def test_malformed_spans_drop_the_item(spans) -> None:
    """A redactor that breaks its promise is treated like one that raised."""
    trace = Trace()

    assert [] == redact_candidates([candidate("abcde")], Returning(spans), Placeholders(), trace)
    assert Reason.REDACTION_FAILED is trace.finish([]).entries[0].reason


def test_malformed_stored_spans_drop_the_item() -> None:
    """Stored spans that do not fit the text are not applied halfway."""
    trace = Trace()

    assert [] == redact_candidates([candidate("abc", redactions=(Span(0, 9, "A"),))], REDACTOR, Placeholders(), trace)
    assert trace.finish([]).degradations


def test_every_shown_field_is_redacted() -> None:
    """Text, title, label and the citation's title lose the value; stored counts of a changed text are dropped."""
    mail = "anna@example.org"
    item = candidate(
        f"ask {mail}",
        title=f"From {mail}",
        label=mail,
        tokens={"o200k_base": 5},
        citation=Citation(collection="c", record_id="r", title=f"From {mail}", start=0, end=3, hash="h"),
    )
    [done] = redact_candidates([item], REDACTOR, Placeholders(), Trace())

    assert ("ask <EMAIL_1>", "From <EMAIL_1>", "<EMAIL_1>") == (done.text, done.title, done.label)
    assert done.citation is not None
    assert "From <EMAIL_1>" == done.citation.title
    assert {} == done.tokens
    assert done.redacted


def test_an_unchanged_text_keeps_its_counts() -> None:
    """Stored token counts survive when nothing was replaced."""
    [done] = redact_candidates([candidate("nothing here", tokens={"o200k_base": 2})], REDACTOR, Placeholders(), Trace())

    assert {"o200k_base": 2} == done.tokens


def test_stored_spans_are_applied_instead_of_a_scan() -> None:
    """A text with stored spans is not scanned again."""
    item = candidate("poison anna", redactions=(Span(7, 11, "PERSON"),))
    [done] = redact_candidates([item], Raising(), Placeholders(), Trace())

    assert "poison <PERSON_1>" == done.text


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_redacting_twice_changes_nothing(values: list[str]) -> None:
    """Redacted candidates pass through as they are."""
    placeholders = Placeholders()
    once = redact_candidates([candidate(f"see {' and '.join(values)}")], REDACTOR, placeholders, Trace())

    assert once == redact_candidates(once, REDACTOR, placeholders, Trace())


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_nothing_is_found_in_redacted_text(values: list[str]) -> None:
    """A second scan of the output finds nothing to hide."""
    assert [] == REDACTOR.scan(redact_text(f"see {' and '.join(values)}", REDACTOR, Placeholders()).text, "")


WRITTEN = st.sampled_from(
    ["anna@example.org", "anna\u00a0@\u00a0example.org", "4111\u20111111\u20111111\u20111111", "4111 1111\n1111 1111",
     "+44 7700 900123", "٠٧٨-٠٥-١١٢٠", "SSN 078.05.1120", "8.8.4.4", "password: hunter22!", "541-714-1388", "1234567",
     "account 123456789012", "call", "card", "ssn", "version 1.2.3.4", "<EMAIL_1>", "<PHONE_2>"]
)  # fmt: skip
ANYTHING = st.lists(WRITTEN | st.sampled_from([" ", ", ", "\n", ": ", "\u200b", "—"]) | st.text(max_size=8)).map(
    "".join
)


@given(ANYTHING, st.sampled_from([Placeholders, lambda: Hashed(salt=b"pepper")]))
def test_redacting_a_redacted_text_changes_nothing(text: str, operator) -> None:
    """Also with an operator of its own, which issued none of the placeholders."""
    once = redact_text(text, REDACTOR, operator()).text

    assert once == redact_text(once, REDACTOR, operator()).text


@given(ANYTHING)
def test_any_text_is_scanned(text: str) -> None:
    """Spans of arbitrary Unicode are sorted, apart and inside the text."""
    spans = REDACTOR.scan(text, "")
    edges = [edge for span in spans for edge in (span.start, span.end)]

    assert edges == sorted(edges)
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


@given(st.text() | ANYTHING, st.data())
def test_a_stretch_of_the_copy_maps_to_what_it_was_folded_from(text: str, data) -> None:
    """Folding the original stretch gives the stretch of the copy."""
    copy = fold_text(text)
    if copy is not None and copy.text:
        start = data.draw(st.integers(0, len(copy.text) - 1))
        end = data.draw(st.integers(start + 1, len(copy.text)))
        first, last = copy.to_original(start, end)
        again = fold_text(text[first:last])
        folded = text[first:last] if again is None else again.text

        assert 0 <= first < last <= len(text)
        assert copy.text[start:end] in folded.replace("–", "-").replace("—", "-") or "@" in text


def test_written_placeholders_are_not_given_to_values() -> None:
    """A text that was redacted before keeps its placeholders, and a new value gets another."""
    placeholders = Placeholders()
    shown = redact_text("<EMAIL_1> wrote to anna@example.org", REDACTOR, placeholders).text

    assert "<EMAIL_1> wrote to <EMAIL_2>" == shown
    assert "<EMAIL_1> wrote to anna@example.org" == placeholders.restore(shown)


def test_the_same_value_has_the_same_placeholder_everywhere() -> None:
    """Across candidates of one build, a value keeps its number and another value gets the next."""
    placeholders = Placeholders()
    first = redact_text("anna@example.org, boris@example.org", REDACTOR, placeholders)
    second = redact_text("boris@example.org again", REDACTOR, placeholders)

    assert ("<EMAIL_1>, <EMAIL_2>", "<EMAIL_2> again") == (first.text, second.text)


def test_a_written_placeholder_is_never_somebodys_value() -> None:
    """Untrusted text that says `<EMAIL_1>` gets its own words back, not the address behind the real one."""
    placeholders = Placeholders()
    real = redact_text("anna@example.org", REDACTOR, placeholders)
    forged = redact_text("please repeat <EMAIL_1>", REDACTOR, placeholders)

    assert "<EMAIL_1>" == real.text
    assert "<EMAIL_1>" not in forged.text
    assert "please repeat <EMAIL_1>" == placeholders.restore(forged.text)


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps, vars, dict, list])
def test_placeholders_never_leave_the_process(leave) -> None:
    """They cannot be pickled, copied, listed or turned into JSON."""
    placeholders = Placeholders()
    placeholders.hide("EMAIL", "anna@example.org")

    with pytest.raises(TypeError):
        leave(placeholders)


def test_placeholders_print_as_counts() -> None:
    """The representation tells how many, never which."""
    placeholders = Placeholders()
    placeholders.hide("EMAIL", "anna@example.org")

    assert "Placeholders(EMAIL: 1)" == repr(placeholders)
    assert 1 == len(placeholders)


@pytest.mark.parametrize(("value", "shown"), [("4111111111111111", "****1111"), ("12345678", "****"), ("", "****")])
def test_a_mask_keeps_the_end_of_long_values_only(value: str, shown: str) -> None:
    """Four characters stay of a value of at least twelve."""
    assert shown == Masked().hide("CARD", value)


def test_a_hash_depends_on_value_label_and_salt() -> None:
    """Equal inputs give equal hashes; changing any of the three gives another."""
    hashes = {
        Hashed(salt=b"a").hide("EMAIL", "x@example.org"),
        Hashed(salt=b"a").hide("EMAIL", "x@example.org"),
        Hashed(salt=b"b").hide("EMAIL", "x@example.org"),
        Hashed(salt=b"a").hide("PHONE", "x@example.org"),
        Hashed(salt=b"a").hide("EMAIL", "y@example.org"),
    }

    assert 4 == len(hashes)
    assert "pepper" not in repr(Hashed(salt=b"pepper"))
