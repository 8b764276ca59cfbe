"""What the default redactor reaches on the public samples."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from contexture.adapters.redaction._personal_data import EMAIL
from contexture.adapters.redaction._rules import RuleRedactor
from contexture.adapters.redaction.default import default_redactor
from contexture.errors import NotFound
from contexture.evaluation.redaction import evaluate_folder, evaluate_pii, evaluate_secrets


@pytest.mark.parametrize("label", ["EMAIL", "CARD", "PHONE", "IBAN", "IP", "SSN"])
def test_personal_data_is_found_and_little_else(eval_data: Path, label: str) -> None:
    """At least 95 of 100 are found, and at least 95 of 100 finds are right."""
    measured = evaluate_folder(eval_data / "presidio-research", default_redactor())["pii"]["labels"][label]

    assert measured["recall"] >= 0.95
    assert measured["precision"] >= 0.95


def test_credentials_are_found_and_few_others(eval_data: Path) -> None:
    """At least 95 of 100 are found, at most 6 of 100 other strings are flagged."""
    measured = evaluate_folder(eval_data / "secrets-samples", default_redactor())["secrets"]

    assert measured["recall"] >= 0.95
    assert measured["false_positive_rate"] <= 0.06


def test_half_of_a_span_decides() -> None:
    """A gold span counts as found from half of its characters on, and so does a prediction as right."""
    text = "mail anna@example.org"
    redactor = RuleRedactor([EMAIL])

    def recall(start: int, end: int) -> tuple[float, float]:
        measured = evaluate_pii([{"text": text, "spans": [[start, end, "EMAIL_ADDRESS"]]}], redactor)
        return measured["labels"]["EMAIL"]["recall"], measured["labels"]["EMAIL"]["precision"]

    assert (1.0, 1.0) == recall(5, 21)
    assert (1.0, 1.0) == recall(0, 21)
    assert (1.0, 0.0) == recall(5, 10)
    assert (0.0, 0.0) == recall(0, 6)


def test_a_label_that_is_never_found_is_reported() -> None:
    """A blind redactor shows up as recall 0, not as a missing line."""
    measured = evaluate_pii([{"text": "+1 202 555 0100", "spans": [[0, 15, "PHONE_NUMBER"]]}], RuleRedactor([EMAIL]))

    assert {"gold": 1, "found": 0, "recall": 0.0, "predicted": 0, "precision": None} == measured["labels"]["PHONE"]


def test_flags_are_counted_against_the_samples() -> None:
    """Recall and the false positive rate come from the four kinds of verdict."""
    samples = [("AKIA" + "Z" * 16, True), ("nothing", True), ("fine", False), ("SK" + "a" * 32, False)]
    rows = [{"payload_b64": base64.b64encode(text.encode()), "should_flag": flag} for text, flag in samples]
    measured = evaluate_secrets(rows, default_redactor())

    assert {"positives": 2, "recall": 0.5, "negatives": 2, "false_positive_rate": 0.5} == measured


def test_a_folder_without_samples_is_refused(tmp_path: Path) -> None:
    """A wrong folder is an error that names it."""
    with pytest.raises(NotFound, match="neither"):
        evaluate_folder(tmp_path, default_redactor())
