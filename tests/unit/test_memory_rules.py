"""What is remembered of a message, and which statement supersedes which: tables, in English and Russian."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from contexture.testing.doubles import NOON
from contexture.text import supersession
from contexture.text.questions import asks_about_past
from contexture.text.statements import find_subject_to_forget, select_statements
from contexture.text.supersession import DatedStatement, Supersession, find_superseded, is_outdated, is_superseded
from support.dialogue import CORRECTIONS, INDEPENDENT, MORE_CORRECTIONS


@pytest.mark.parametrize(
    "message",
    [
        "My boat is called Albatross.",
        "When I was young, I lived in Kyiv.",
        "Order 5512 has arrived.",
        "Plan B is cancelled.",
        "Will is my brother.",
        "How I love this city!",
        "no, I moved to Oslo",
        "Remember that my sister lives in Oslo",
        "Моя лодка называется Альбатрос.",
        "Когда я был маленьким, мы жили в Омске.",
        "Запомни: код 4411",
        "I prefer tea. My wife prefers coffee.",
    ],
)
def test_a_statement_is_remembered_as_it_was_said(message: str) -> None:
    """Whatever word it begins with."""
    assert message == select_statements(message)


@pytest.mark.parametrize(
    "message",
    [
        "When does the ferry leave?",
        "when does the ferry leave",
        "is my flight on time",
        "The ferry leaves at nine, doesn't it?",
        "I wonder when the ferry leaves",
        "Could you book a table",
        "Check if the flight is on time",
        "Please summarise the report",
        "Help me",
        "Thanks, that helps!",
        "Hi there!",
        "Когда отходит паром?",
        "когда отходит паром",
        "Скажи, где ключи",
        "Хочу узнать, когда отходит паром",
        "Спасибо, понял",
        "Remember this",
        "?!",
        "",
    ],
)
def test_questions_greetings_thanks_and_orders_are_not_remembered(message: str) -> None:
    """They would match later questions better than any answer does."""
    assert "" == select_statements(message)


@pytest.mark.parametrize(
    ("message", "statement"),
    [
        ("My dog is called Rex. What should I feed him?", "My dog is called Rex."),
        ("Hello! I moved to Bergen. Thanks!", "I moved to Bergen."),
        ("Я живу в Омске. Как доехать до вокзала?", "Я живу в Омске."),
    ],
)
def test_only_the_statements_of_a_message_are_remembered(message: str, statement: str) -> None:
    """The question beside them is not."""
    assert statement == select_statements(message)


@pytest.mark.parametrize(("older", "newer"), [*(row[:2] for row in CORRECTIONS), *MORE_CORRECTIONS])
def test_a_correction_supersedes(older: str, newer: str) -> None:
    """It says something else about the same subject and attribute."""
    assert is_superseded(older, newer)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("My train to Lyon leaves at 8:15.", "My train to Lyon leaves at 9:45."),
        ("The invoice is due on 3/5/2026.", "The invoice is due on 4/6/2026."),
        ("My son's teacher is Ms. Karlsen.", "My son's teacher is Mr. Lund."),
        ("I drive a Volvo.", "I sold the Volvo and drive a Skoda now."),
    ],
)
def test_a_time_a_date_and_a_name_with_a_title_are_one_value(older: str, newer: str) -> None:
    """And who gave something up has something else now."""
    assert is_superseded(older, newer)
    assert not is_superseded("My train to Nice leaves at 8:15.", "My train to Lyon leaves at 9:45.")


@pytest.mark.parametrize(("one", "other"), INDEPENDENT)
def test_statements_about_different_things_supersede_nothing(one: str, other: str) -> None:
    """Both are true."""
    assert not is_superseded(one, other)
    assert not is_superseded(other, one)


def test_a_statement_is_read_once_however_many_it_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four memories are two thousand pairs."""
    read: list[str] = []
    describe = supersession._describe

    def count(text: str, *, corrects: bool = False, first: bool = True) -> object:
        read.append(text)
        return describe(text, corrects=corrects, first=first)

    monkeypatch.setattr(supersession, "_describe", count)
    said = [
        DatedStatement(
            id=f"s{at}", text=f"My boat number {at} sails at nine.", time=NOON + timedelta(days=at), speaker=""
        )
        for at in range(64)
    ]

    find_superseded(said)

    assert 2 * len(said) >= len(read)  # each sentence and its clause


def test_the_newest_statement_supersedes_all_before_it() -> None:
    """Statements without a time and those of other speakers take no part."""
    texts = ("My flight is on Monday.", "My flight is on Tuesday.", "My flight is on Friday.")
    said = [
        DatedStatement(id=f"s{at}", text=text, time=NOON + timedelta(days=at), speaker="user")
        for at, text in enumerate(texts)
    ]
    foreign = DatedStatement(id="other", text="My flight is on Sunday.", time=NOON + timedelta(days=9), speaker="boris")
    undated = DatedStatement(id="undated", text="My flight is on Sunday.", time=None, speaker="user")

    found = find_superseded([foreign, *reversed(said), undated])

    assert {"s0": ("s2", True), "s1": ("s2", True)} == {id_: (each.by, each.whole) for id_, each in found.items()}


def test_of_a_long_message_only_the_corrected_sentence_is_superseded() -> None:
    """What it says beside that still holds; a sentence that says several things is outdated, not superseded."""
    told = "My sister Anna lives in Oslo. She has two cats."
    older = DatedStatement(id="old", text=told, time=NOON, speaker="user")
    newer = replace(older, id="new", text="By the way, Anna moved to Bergen.", time=NOON + timedelta(days=1))
    long = "I live in Oslo with my wife Ida, our twins and two cats."

    assert {"old": Supersession(by="new", sentences=((0, 29),), whole=False)} == find_superseded([older, newer])
    assert {} == find_superseded([older, replace(newer, supersedes=False)])
    assert is_outdated(long, "We moved to Bergen.")
    assert not is_superseded(long, "We moved to Bergen.")
    assert not is_outdated(long, "My sister moved to Bergen.")


@pytest.mark.parametrize("question", ["Where did I live before?", "What was my previous address?", "Где я жил раньше?"])
def test_a_question_about_the_past_is_recognised(question: str) -> None:
    """It wants what was superseded, too."""
    assert asks_about_past(question)


@pytest.mark.parametrize("question", ["Where do I live?", "Где я живу?", "How old is my daughter?"])
def test_a_question_about_the_present_wants_what_holds_now(question: str) -> None:
    """Superseded statements are left out."""
    assert not asks_about_past(question)


@pytest.mark.parametrize(
    ("message", "subject"),
    [
        ("Forget what I said about my old address.", "my old address"),
        ("please forget everything I told you about Anna", "Anna"),
        ("Delete all that I've mentioned about the van!", "the van"),
        ("Забудь всё, что я говорила про соседа.", "соседа"),
        ("Удали то, что я тебе рассказывал о работе", "работе"),
        ("Забудь, что я говорил о кошке", "кошке"),
        ("Забудь, пожалуйста, что я рассказывала про Анну!", "Анну"),
        ("Could you please forget what I told you about Anna?", "Anna"),
        ("Forget it.", ""),
        ("I forget what I said about my van.", ""),
        ("Do not forget what I said about my van?", ""),
        ("Delete the file about Anna.", ""),
    ],
)
def test_an_order_to_forget_names_its_subject(message: str, subject: str) -> None:
    """In both languages; whatever else is said about forgetting is no such order."""
    assert subject == find_subject_to_forget(message)
