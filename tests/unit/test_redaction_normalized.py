"""Values in unusual characters, with other separators or across a line end are found as in plain text."""

from __future__ import annotations

from pathlib import Path

import pytest

from contexture.adapters.redaction._personal_data import EMAIL, SSN
from contexture.adapters.redaction._rules import RuleRedactor
from contexture.adapters.redaction.default import NormalizedRedactor, default_redactor
from contexture.evaluation.redaction import evaluate_folder, replace_separators
from contexture.text.mapped import MappedText, fold_text

REDACTOR = default_redactor()
FULL_WIDTH = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}
ARABIC = {ord("0") + digit: 0x0660 + digit for digit in range(10)}
LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"

NUMBERS = [
    ("CARD", "{}", "4111 1111 1111 1111"),
    ("IBAN", "{}", "GB82 WEST 1234 5698 7654 32"),
    ("SSN", "SSN {}", "078-05-1120"),
    ("PHONE", "{}", "+44 7700 900123"),
    ("PHONE", "call {}", "541-714-1388"),
    ("RU_PASSPORT", "паспорт {}", "45 09 123456"),
    ("SNILS", "{}", "112-233-445 95"),
]
SEPARATORS = ["\u00a0", "\u2007", "\u2009", "\u202f", "\u3000", "\u2010", "\u2011", "\u2013", "\u2212", "."]
SPLIT = [
    ("CARD", "4111 1111\n1111 1111"),
    ("CARD", "4111 1111 1111\r\n    1111"),
    ("CARD", "4111-1111-\n1111-1111"),
    ("IBAN", "GB82 WEST\n1234 5698 7654 32"),
    ("SSN", "078-05-\n1120"),
    ("SSN", "078-05\n-1120"),
    ("PHONE", "+44 7700\n900123"),
    ("PHONE", "541-714-\n1388"),
    ("EMAIL", "anna@\nexample.org"),
    ("EMAIL", "anna\n@example.org"),
    ("EMAIL", "anna@example.\norg"),
    ("EMAIL", "anna@example\u2028.org"),
]
WRITTEN_OTHERWISE = [
    ("EMAIL", "anna\u2011smith@example.org"),
    ("EMAIL", "an\u00adna@exam\u200bple.org"),
    ("EMAIL", "anna\u00a0@\u00a0example.org"),
    ("EMAIL", "ａｎｎａ＠ｅｘａｍｐｌｅ．ｏｒｇ"),
    ("EMAIL", "anna@example。org"),
    ("CARD", "4111\u200b1111\u20601111\ufeff1111"),
    ("CARD", "𝟒𝟏𝟏𝟏 𝟏𝟏𝟏𝟏 𝟏𝟏𝟏𝟏 𝟏𝟏𝟏𝟏"),
    ("CARD", "4111 - 1111 - 1111 - 1111"),
    ("CARD", "4̶1̶1̶1̶111111111111"),
    ("IP", "８.８.８.８"),
    ("SECRET", "ghp\u200b_" + LETTERS + "abcd"),
]
LEFT_ALONE = [
    "29 000\u201324 000 years ago",
    "in 1941\u20131945 and 2019\u20112021",
    "page 10\u00a0of 250\u00a0000\u00a0000",
    "10² m and 541¹ and ½",
    "see anna's notes.\nsmith went home",
    "\n".join(f"{number} {number * 7919}" for number in range(100_000, 100_040)),
    "total 4111 1111\n\n1111 1111",
]


def find(text: str) -> list[tuple[str, str]]:
    """The labels and texts that are found."""
    return [(span.label, text[span.start : span.end]) for span in REDACTOR.scan(text, "")]


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
@pytest.mark.parametrize(("label", "template", "number"), NUMBERS)
def test_numbers_with_unusual_separators_are_found(label: str, template: str, number: str, separator: str) -> None:
    """No-break and wide spaces, other dashes, and dots, everywhere or mixed with the usual ones."""
    plain = next(char for char in number if not char.isalnum() and char != "+")
    for written in (number.replace(" ", separator).replace("-", separator), number.replace(plain, separator, 1)):
        if label == "SNILS" or written.count(".") < 4:
            assert [(label, written)] == find(template.format(written))


@pytest.mark.parametrize("digits", [FULL_WIDTH, ARABIC], ids=["full width", "Arabic"])
@pytest.mark.parametrize(("label", "template", "number"), NUMBERS)
def test_digits_of_other_scripts_are_digits(label: str, template: str, number: str, digits: dict[int, int]) -> None:
    """The whole number is hidden."""
    written = number.translate(digits)

    assert [(label, written)] == find(template.format(written))


@pytest.mark.parametrize(("label", "written"), [*SPLIT, *WRITTEN_OTHERWISE])
def test_a_value_written_otherwise_is_found_whole(label: str, written: str) -> None:
    """The span begins and ends where the value does, in the middle of a sentence."""
    assert [(label, written)] == find(f"It says {written} there")


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_other_text_is_left_alone(text: str) -> None:
    """Ranges of years, amounts, footnotes, sentences that end, and columns of numbers."""
    assert [] == find(text)


def test_a_complete_value_is_not_continued_on_the_next_line() -> None:
    """Only the value itself is hidden, whatever the next line begins with."""
    text = "write to anna@example.org.\nor call +44 7700 900123\n12 apples"

    assert [("EMAIL", "anna@example.org"), ("PHONE", "+44 7700 900123")] == find(text)


@pytest.mark.parametrize(
    "text",
    [
        "account@example.org 541-714-1388",
        "8.8.8.8:5417141388 and 8.8.4.4, 1234567",
        "+44 7700 900123, 1234567 apples",
        "call us or write to a.very.long.address@an.example.organisation.org, 1234567",
        "see <PHONE_1> 1234567 and <CARD:5a1e0c77b2d4>",
    ],
)
def test_what_was_hidden_does_not_speak_for_what_was_not(text: str) -> None:
    """Neither the words of a hidden value, nor the name of a placeholder, nor the room it saves reveal or hide more."""
    shown = text
    for span in reversed(REDACTOR.scan(text, "")):
        shown = f"{shown[: span.start]}<{span.label}_1>{shown[span.end :]}"

    assert [] == find(shown)


def test_the_name_of_the_rules_says_that_texts_are_normalised() -> None:
    """Spans that the same rules found without it are not taken for these."""
    rules = RuleRedactor([EMAIL])

    assert rules.rules != NormalizedRedactor(rules).rules
    assert NormalizedRedactor(rules).rules != NormalizedRedactor(RuleRedactor([SSN])).rules


def test_plain_text_is_not_copied() -> None:
    """Nor is text whose only unusual characters are quotation marks and dashes between words."""
    assert fold_text("plain") is None
    assert fold_text("Текст — с «кавычками» и тире") is None
    assert fold_text("🙂 and 💥") is None


def test_offsets_map_back_around_removed_and_longer_characters() -> None:
    """What was removed at an edge stays outside; what became longer is inside as a whole."""
    copy = MappedText("a\u200bb⑩c", [(1, 2, ""), (3, 4, "10")])

    assert "ab10c" == copy.text
    assert [(0, 1), (2, 3), (3, 4), (3, 4), (4, 5)] == [copy.to_original(at, at + 1) for at in range(5)]
    assert [(0, 3), (2, 4), (0, 5)] == [copy.to_original(0, 2), copy.to_original(1, 3), copy.to_original(0, 5)]


def test_separators_are_replaced_as_the_seed_says() -> None:
    """Every second one inside the spans of patterns; dots of addresses and all other text stay."""
    rows = [{"text": "541-714-1388 a-b x@y.org", "spans": [[0, 12, "PHONE_NUMBER"], [17, 24, "EMAIL_ADDRESS"]]}]
    once, again, other = (next(replace_separators(rows, seed))["text"] for seed in (1, 1, 2))

    assert once == again != other
    assert once[12:] == " a-b x@y.org"
    assert 1 == sum(char != plain for char, plain in zip(once, rows[0]["text"], strict=True))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_recall_holds_with_unusual_separators(eval_data: Path, seed: int) -> None:
    """At least 98 of 100 values with a pattern are found when every second separator is unusual."""
    measured = evaluate_folder(eval_data / "presidio-research", REDACTOR, seed=seed)["pii"]["labels"]
    patterns = [counts for label, counts in measured.items() if label not in ("PERSON", "LOCATION", "ADDRESS")]

    assert sum(each["found"] for each in patterns) >= 0.98 * sum(each["gold"] for each in patterns)
