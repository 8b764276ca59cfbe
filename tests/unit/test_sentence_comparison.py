"""Comparison of sentences: agreement, update, conflict or no relation, judged without a model."""
# ruff: noqa: E501 - pairs of sentences read best on one line

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contexture.answer.commands._sentence_comparison import ComparedSentence, compare_sentences, find_quantities

ARTICLES = Path(__file__).parents[1] / "support" / "articles"


def read_pairs(name):
    """The pairs of a file of `support/articles`."""
    return [json.loads(line) for line in (ARTICLES / name).read_text("utf-8").splitlines()]


PAIRS = read_pairs("sentence_pairs.jsonl")
LATER_PAIRS = read_pairs("sentence_pairs_later.jsonl")  # written after the rules, to see whether they hold in general
ENOUGH, ENOUGH_LATER = 54, 65


def time_of(day):
    """Midnight of a day."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def judge(pair):
    """The relation of a pair."""
    one = ComparedSentence(text=pair["one"], lang=pair["lang"], time=time_of(pair["one_date"]))
    other = ComparedSentence(text=pair["other"], lang=pair["lang"], time=time_of(pair["other_date"]))
    assert compare_sentences(one, other).relation == compare_sentences(other, one).relation
    return compare_sentences(one, other).relation


def test_hand_written_pairs_are_judged():
    """At least 54 of 60 pairs, half of them Russian, are judged as a reader would, the same in both directions."""
    wrong = [(pair["id"], judge(pair).value, pair["relation"]) for pair in PAIRS if judge(pair) != pair["relation"]]

    assert 60 == len(PAIRS)
    assert len(PAIRS) - len(wrong) >= ENOUGH, wrong


def test_pairs_written_later_are_judged():
    """At least 65 of 72 more pairs are judged right, and none as agreement that is not."""
    wrong = [
        (pair["id"], judge(pair).value, pair["relation"]) for pair in LATER_PAIRS if judge(pair) != pair["relation"]
    ]

    assert 72 == len(LATER_PAIRS)
    assert len(LATER_PAIRS) - len(wrong) >= ENOUGH_LATER, wrong
    assert not [each for each in wrong if each[1] == "agreement"]


# Long sentences share words without speaking of the same: a clause, an attribution, an earlier record, further people.
LONG_PAIRS = [
    (
        "Sunday was the first time the ferry carried 5,000 guests, but it's not a record with charters.",
        "For the first time ever, a single trip of the ferry carried 5,000 guests, according to the operator.",
        0,
        "agreement",
    ),
    (
        "Not every captain is eligible for the ferry grant.",
        "The mayor named three parts of the plan: a ferry grant of 20,000 euros for each captain, a pier and tolls.",
        6,
        "unrelated",
    ),
    (
        "No deaths were reported below the dam, Harlow County Sheriff's Office Chief Deputy Ann Reed said on Monday.",
        "Crews searched the valley all night, Harlow County Sheriff Chief Deputy Ann Reed said on Tuesday.",
        1,
        "unrelated",
    ),
    (
        "Police arrested 31 people at the harbour parade in Arlen.",
        "Police arrested at least two other people at the harbour parade in Arlen.",
        2,
        "unrelated",
    ),
    (
        "Полиция задержала 31 человека на параде в Арлене.",
        "Полиция задержала ещё двух человек на параде в Арлене.",
        2,
        "unrelated",
    ),
    (
        "And she became the youngest captain of the harbour ferry.",
        "That is the name of the youngest captain of the harbour ferry.",
        1,
        "unrelated",
    ),
    (
        "The average fare of a ferry in Norland hit 4.96 euros according to the most recent list of the operator.",
        "According to the operator, the port with the highest ferry fare was Arlen with an average of 6.43 euros.",
        1,
        "unrelated",
    ),
    (
        "A Norland court sentenced captain Mara Lindqvist to nine years after she was found guilty of smuggling.",
        "Captain Mara Lindqvist was sentenced to nine years by a judge in Norland, being convicted of a crime.",
        0,
        "agreement",
    ),
    (
        "В порту Вельмар остановились краны: на забастовку вышли около 1200 докеров.",
        "Администрация порта Вельмар утверждает, что в забастовке участвуют 900 человек.",
        0,
        "conflict",
    ),
    ("The ferry fare rose to a record on Friday.", "The ferry fare rose to a record on Monday.", 21, "unrelated"),
    (
        "Norland has 5,000 probable or confirmed measles cases.",
        "Norland now has 6,600 probable or confirmed measles cases.",
        7,
        "update",
    ),
]


@pytest.mark.parametrize(("one", "other", "days", "relation"), LONG_PAIRS)
def test_long_sentences_are_related_by_what_they_say(one, other, days, relation):
    """Words in common with a part of a long sentence are neither an agreement nor a conflict."""
    day, lang = time_of("2026-03-10"), "en" if one.isascii() else "ru"
    first = ComparedSentence(text=one, lang=lang, time=day)
    second = ComparedSentence(text=other, lang=lang, time=day + timedelta(days=days))

    assert relation == compare_sentences(first, second).relation == compare_sentences(second, first).relation


OTHER_PARTS = [
    ("Harbour revenue was 12 million dollars in the first quarter.", "Harbour revenue was 14 million dollars in the second quarter."),
    ("Exports of grain were 4 million tonnes in 2022.", "Exports of grain were 5 million tonnes in 2023."),
    ("The harbour handled 310 ships in April.", "The harbour handled 290 ships in May."),
    ("The northern pier is 300 metres long.", "The southern pier is 420 metres long."),
    ("The first phase of the port costs 12 million dollars.", "The second phase of the port costs 30 million dollars."),
    ("Порт обработал 310 судов в апреле.", "Порт обработал 290 судов в мае."),
    ("В 2022 году экспорт зерна составил 4 млн рублей.", "В 2023 году экспорт зерна составил 5 млн рублей."),
    ("Выручка порта за первый квартал составила 12 млн рублей.", "Выручка порта за второй квартал составила 15 млн рублей."),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), OTHER_PARTS)
def test_figures_of_other_periods_and_parts_are_no_updates(one, other):
    """Of another year, quarter, month, phase or side of a thing; without these words they are."""
    lang, day = "en" if one.isascii() else "ru", time_of("2026-03-10")
    first = ComparedSentence(text=one, lang=lang, time=day)
    second = ComparedSentence(text=other, lang=lang, time=day + timedelta(days=8))

    assert "unrelated" == compare_sentences(first, second).relation == compare_sentences(second, first).relation


def test_a_state_that_holds_now_has_a_newer_figure_in_a_later_month():
    """Unlike what happened during a month."""
    first = ComparedSentence(text="The bank's rate is 4 percent in May.", time=time_of("2026-05-10"))
    second = ComparedSentence(text="The bank's rate is 5 percent in June.", time=time_of("2026-06-10"))

    assert "update" == compare_sentences(first, second).relation


QUANTITIES = {
    "40,000 vans because of faulty workers": [(40000, 40000, "van")],
    "2,000 acres": [(2000, 2000, "acre")],
    "winds of 150-mph": [(150, 150, "mph")],
    "150 mph winds": [(150, 150, "mph")],
    "between 40 and 50 ships": [(40, 50, "ship")],
    "40-50 ships": [(40, 50, "ship")],
    "от 40 до 50 судов": [(40, 50, "ship")],
    "2 million households": [(2e6, 2e6, "home")],
    "2,000,000 households": [(2e6, 2e6, "home")],
    "$4.65 billion": [(4.65e9, 4.65e9, "dollar")],
    "1,8 млрд рублей": [(1.8e9, 1.8e9, "rouble")],
    "20 тысяч машин": [(2e4, 2e4, "car")],
    "Thirty-one people": [(31, 31, "people")],
    "40 метров в секунду": [(40, 40, "m/s")],
    "14%": [(14, 14, "%")],
    "14 процентов": [(14, 14, "%")],
    "in May 2026": [],
    "on June 12": [],
}


@pytest.mark.parametrize("text", QUANTITIES)
def test_units_ranges_and_spellings_are_normalised(text):
    """One quantity reads the same however it is written."""
    assert QUANTITIES[text] == [(each.low, each.high, each.unit) for each in find_quantities(text)]


def test_figures_of_one_news_cycle_conflict_whatever_the_calendar_says():
    """Two reports an hour apart conflict also across midnight; a day later a figure is an update."""
    eve = ComparedSentence(text="The flood killed 12 people in Arlen.", time=datetime(2026, 3, 10, 23, 30, tzinfo=UTC))
    text = "The flood killed 15 people in Arlen."

    relations = [
        compare_sentences(eve, ComparedSentence(text=text, time=eve.time + timedelta(hours=hours))).relation
        for hours in (1, 24)
    ]
    assert ["conflict", "update"] == relations


def test_figures_are_compared_across_languages():
    """Similar sentences in two languages conflict when their figures do, and agree when they do not."""
    english = ComparedSentence(text="The flood killed 12 people in Arlen.", lang="en", time=time_of("2026-03-10"))
    same = ComparedSentence(text="При наводнении в Арлене погибли 12 человек.", lang="ru", time=time_of("2026-03-10"))
    other = ComparedSentence(text="При наводнении в Арлене погибли 15 человек.", lang="ru", time=time_of("2026-03-10"))

    assert "agreement" == compare_sentences(english, same, 0.8).relation
    assert "conflict" == compare_sentences(english, other, 0.8).relation
    assert "unrelated" == compare_sentences(english, other, 0.2).relation
