"""The small parts of executing commands: dates, figures, questions, prices, and what a model may say."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import pytest

from contexture.answer.commands._article_sentences import ArticleSentence, ArticleSource, Evidence, ReadArticle
from contexture.answer.commands._sentence_ranking import SentenceRanker, covers_question, split_question
from contexture.answer.commands.answer import UNSUPPORTED_FIGURES
from contexture.answer.commands.events import TimelineEvent, extract_dated_sentences, find_date, find_links
from contexture.answer.commands.job import HEADINGS
from contexture.answer.commands.writer import (
    FREE_PRICE,
    PRICES,
    Price,
    SpendingBudget,
    check_statements,
    look_up_price,
    resolve_price,
)
from contexture.answer.grounding import Figure, extract_figures, find_differing_unit
from contexture.builders.command.request import DEFAULT_ROUTING
from contexture.config import Settings
from contexture.ledger import Trace
from contexture.text.terms import extract_terms
from contexture.types import Citation
from contexture.wiring._answering import command_writer

FRIDAY = date(2026, 5, 29)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("It was signed on 12 May 2025.", "2025-05-12"),
        ("It was signed on May 12, 2025.", "2025-05-12"),
        ("Подписано 12 мая 2025 года.", "2025-05-12"),
        ("Signed 2025-05-12 in Riga.", "2025-05-12"),
        ("Подписано 12.05.2025.", "2025-05-12"),
        ("On 30 December they met.", "2025-12-30"),
        ("They met yesterday.", "2026-05-28"),
        ("Они встретились вчера.", "2026-05-28"),
        ("They met on Monday.", "2026-05-25"),
        ("They will meet on Sunday.", "2026-05-31"),
        ("They met last Sunday.", "2026-05-24"),
        ("They met on Wednesday, May 13.", "2026-05-13"),
        ("Они встретились в среду, 13 мая.", "2026-05-13"),
        ("Встреча прошла в понедельник.", "2026-05-25"),
        ("On 31 February nothing happens.", None),
        ("May I ask?", None),
        ("They met.", None),
    ],
)
def test_dates_are_told_from_the_day_of_the_article(text, day):
    """A date is read in words, in figures, or relative to when the article was published."""
    assert (day and date.fromisoformat(day)) == find_date(text, FRIDAY)


@pytest.mark.parametrize(("whole_day", "day"), [(True, "2026-05-30"), (False, "2026-05-23")])
def test_a_publication_without_a_time_may_speak_of_the_next_day(whole_day, day):
    """A day without a time may be that of another time zone, and the sixth day before is hardly called by its name."""
    assert date.fromisoformat(day) == find_date("The bridge fell on Saturday.", FRIDAY, whole_day=whole_day)
    assert date(2026, 5, 23) == find_date("The bridge fell last Saturday.", FRIDAY, whole_day=whole_day)


def timeline(*told):
    """Events one day apart, each with these actors and this text."""
    return [
        TimelineEvent(id=f"e{at:02d}", date=f"2026-05-{at:02d}", text=text, lang="en", actors=actors, places=(),
                      sources=("post.example",), evidence=(at,))
        for at, (actors, text) in enumerate(told, start=1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "The council has extended the ferry pause through May 31, which helps the islands.",
        "The ferry pause will be extended one last time to May 31.",
        "Grants are paid if the form was sent by May 12, 2026.",
        "Приём заявок продлён до 15 июня 2026 года.",
        "Паром ходил с 3 мая по 5 июня.",
        "She spoke of the ferry on Monday.",
        "But it stopped on Monday.",
    ],
)
def test_a_deadline_and_a_sentence_about_somebody_unnamed_are_no_events(text):
    """A day until which something holds is not the day on which it happens, and a pronoun does not say to whom."""
    told = extract_dated_sentences(reading("a", "The ferry sailed.", text, "The port closed on Wednesday."))

    assert ["The ferry sailed.", "The port closed on Wednesday."] == [each.sentence.text for each in told]


FLOOD = ((), "Heavy rain flooded the power station of Norvik.")
LINKED = {
    "The town was dark after heavy rain flooded the power station.": "sequence",
    "Schools closed because of the flooded power station.": "cause",
    "The flooded power station led to a week without light.": "cause",
    "After a long night, the power station was still flooded, the mayor said.": None,
    "The mayor of Norvik spoke after the council met.": None,
}


@pytest.mark.parametrize("text", LINKED)
def test_events_are_linked_by_a_clause_that_speaks_of_the_first(text):
    """A word such as `after` links nothing unless what follows it, or causes the rest, is the other event."""
    found = find_links(timeline(FLOOD, ((), text)))

    assert [LINKED[text]] * bool(LINKED[text]) == [link.kind for link in found]


def test_a_newsroom_or_a_piece_of_a_name_links_no_events():
    """Two reports that quote their own newspaper, or share `Mar` of Mar Azul, are not linked by that."""
    assert not find_links(timeline((("Post", "Mar"), "Rain fell."), (("Post", "Mar"), "Ships sailed.")))
    assert ["same_actor"] == [
        link.kind for link in find_links(timeline((("NATO",), "Rain fell."), (("NATO",), "Ships sailed.")))
    ]


def test_an_actor_of_many_events_links_none():
    """The person whom the whole timeline is about distinguishes no two of its events."""
    told = [(("Mara Lindqvist",), f"Story {at}.") for at in range(3)]
    told += [(("Otto Lund",), "Rain fell."), (("Otto Lund",), "Ships sailed."), ((), "Fog came."), ((), "Wind rose.")]

    assert [("Otto Lund",)] == [link.via for link in find_links(timeline(*told))]


SATURDAY = date(2026, 6, 6)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("Депутаты собрались в понедельник.", "2026-06-01"),
        ("Депутаты соберутся в понедельник.", "2026-06-08"),
        ("Заседание состоится в понедельник.", "2026-06-08"),
        ("В воскресенье состоялся концерт.", "2026-05-31"),
        ("The council met on Monday.", "2026-06-01"),
        ("The council will meet on Monday.", "2026-06-08"),
        ("The council is scheduled to meet Sunday.", "2026-06-07"),
        ("The president announced Wednesday that taxes will rise.", "2026-06-03"),
        ("Последнее заседание прошло в прошлую пятницу.", "2026-06-05"),
        ("The next round is next Friday.", "2026-06-12"),
    ],
)
def test_a_weekday_is_resolved_by_tense(text, day):
    """In Saturday's article a weekday of the past lies before it and one of the future after it."""
    assert date.fromisoformat(day) == find_date(text, SATURDAY)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("About 1,200 dockers walked out.", (Figure(1200, "people"),)),
        ("Вышли около 1 200 докеров.", (Figure(1200, "people"),)),
        ("Losses of 2.5 million euros.", (Figure(2_500_000, "euro"),)),
        ("Убытки в 2,5 млн евро.", (Figure(2_500_000, "евр"),)),
        ("Freight rose 9 percent.", (Figure(9, "%"),)),
        ("It costs $12 billion.", (Figure(12_000_000_000, "dollar"),)),
        ("Three ships wait.", (Figure(3, "ship"),)),
        ("In 2026 it ended.", ()),
        ("It began on 12 May.", ()),
        ("Number 7.", ()),
    ],
)
def test_figures_are_what_is_counted(text, found):
    """Numbers are read with their scale and what they count; years, dates and bare numbers count nothing."""
    assert found == extract_figures(text)


@pytest.mark.parametrize(
    ("one", "other", "unit"),
    [
        ("12 ships are waiting", "15 ships wait", "ship"),
        ("1,200 dockers walked out", "900 workers stopped", "people"),
        ("12 ships are waiting", "12 ships wait", None),
        ("12 ships are waiting", "15 trucks wait", None),
    ],
)
def test_figures_differ_only_where_they_count_the_same(one, other, unit):
    """Different units cannot contradict each other."""
    assert unit == find_differing_unit(one, other)


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("port strike", ("port strike",)),
        ("How many ships wait and who leads Norvik?", ("How many ships wait", "who leads Norvik")),
        ("Кто бастует, и когда начались переговоры?", ("Кто бастует", "когда начались переговоры")),
        ("Tallinn vs Riga", ("Tallinn", "Riga")),
        ("?", ("?",)),
    ],
)
def test_questions_are_taken_apart(question, parts):
    """Each part asks for something of its own; a subject stays whole."""
    assert parts == split_question(question)


def test_a_purse_is_never_overdrawn():
    """An answer is only as long as what is left can pay for, and prompts are reckoned half as long again."""
    purse = SpendingBudget(1.0)
    assert purse.affordable_tokens(Price(100, 1_000), 1_000, 5_000) == 850
    purse.charge(Price(100, 1_000), 1_000, 850)

    assert purse.spent == pytest.approx(1.0)
    assert purse.affordable_tokens(Price(100, 1_000), 1, 100) == 0
    assert purse.affordable_tokens(Price(0, 0), 10_000, 100) == 100


def test_every_routed_model_has_a_price_and_an_unknown_one_is_free():
    """The budget cannot limit a model whose price nobody gave; a setting can price it."""
    assert {name for names in DEFAULT_ROUTING.values() for name in names} <= PRICES.keys()
    assert look_up_price("unheard-of") == FREE_PRICE


@pytest.mark.parametrize(
    ("adapter", "price"),
    [
        ("local", FREE_PRICE),
        ("extractive", FREE_PRICE),
        ("litellm:x", Price(1, 2)),
        ("litellm:y", FREE_PRICE),
        ("other:z", FREE_PRICE),
    ],
)
def test_the_model_behind_a_name_is_paid_for(adapter, price):
    """What runs here is free, a vendor's model has its listed price, and one that is not listed is free."""
    listed = {"litellm:x": (1.0, 2.0), "litellm:y": None}
    model = SimpleNamespace(price=listed[adapter]) if adapter in listed else object()

    assert price == resolve_price(adapter, model)


def test_prices_can_be_set(tmp_path):
    """What the settings say beats every list."""
    llms = {"gpt-5": "extractive", "mine": "extractive"}
    writer = command_writer(Settings(home=tmp_path, command_llms=llms, command_prices={"mine": (1, 2)}))

    assert (FREE_PRICE, Price(1, 2), PRICES["claude-4.5"]) == tuple(
        writer.prices[name] for name in (*llms, "claude-4.5")
    )


def test_both_languages_have_every_heading():
    """No section is without a heading in a language that can be asked for."""
    assert HEADINGS["en"].keys() == HEADINGS["ru"].keys()


def evidence(number: int, text: str) -> Evidence:
    """A piece of evidence."""
    citation = Citation(collection="articles", record_id="a", title="", start=0, end=len(text), hash="0" * 64)
    about = {"article_id": "a", "title": "", "url": "", "source": "", "date": "2026-05-29", "lang": "en"}
    return Evidence(number=number, text=text, citation=citation, **about)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Ships wait [1].", [("Ships wait.", (1,))]),
        ("Ships wait. [1] Talks failed [2].", [("Ships wait.", (1,)), ("Talks failed.", (2,))]),
        ("Ships wait [1, 2].", [("Ships wait.", (1, 2))]),
        ("Ships wait [1][9].", [("Ships wait.", (1,))]),
        ("- Ships wait [1]\n- Nothing else is known", [("Ships wait", (1,))]),
        ("Ships wait [9]. Trust me.", []),
        ("[1]", []),
    ],
)
def test_only_sentences_with_valid_evidence_stand(text, kept):
    """A reference that does not exist is no reference."""
    found = check_statements(text, {1: evidence(1, "ships"), 2: evidence(2, "talks")}, "en")

    assert kept == [(each.text, each.evidence) for each in found.statements]


def test_a_figure_that_the_evidence_does_not_show_is_marked():
    """Invented figures are pointed out, those of the evidence and its date are not."""
    found = check_statements(
        "12 ships wait [1]. 13 ships wait [1]. It was 29 May [1].", {1: evidence(1, "12 ships")}, "en"
    )

    assert [(), (UNSUPPORTED_FIGURES,), ()] == [each.marks for each in found.statements]


def reading(name, *told):
    """An article of these sentences, published on the day of the question."""
    source = ArticleSource(article_id=name, title="", url="", name="", date="2026-05-29", lang="en", hash="")
    sentences = (
        ArticleSentence(
            source=source, start=at, end=at + 1, text=text, terms=frozenset(extract_terms(text)), lead=not at
        )
        for at, text in enumerate(told)
    )
    return ReadArticle(source=source, sentences=tuple(sentences), score=1.0)


@pytest.mark.parametrize(
    ("question", "first"),
    [("How many ships wait outside Norvik?", "b"), ("Which ships wait outside Norvik?", "a")],
)
async def test_a_question_for_a_figure_is_answered_by_a_sentence_with_one(question, first):
    """Of two articles that speak of the same, the one that names a figure comes first, if one was asked for."""
    articles = [
        reading("a", "Many ships wait outside Norvik in the fog."),
        reading("b", "Some 40 ships wait outside Norvik in the fog."),
    ]
    ranker = SentenceRanker(compare=None, today=FRIDAY, trace=Trace())

    assert first == (await ranker.select(articles, question, 2))[0].source.article_id


async def test_the_article_with_the_best_sentence_comes_first():
    """Of two articles that a search found alike, the one whose sentence says more of what was asked is quoted first."""
    articles = [
        reading("a", "The harbour of Norvik was quiet on Friday."),
        reading("b", "Fog closed the harbour of Norvik to all ferries on Friday."),
    ]
    ranker = SentenceRanker(compare=None, today=FRIDAY, trace=Trace())

    assert "b" == (await ranker.select(articles, "Which harbour was closed to ferries by fog?", 2))[0].source.article_id


async def compare_by_list(similarities):
    """A comparison that returns the same similarities whatever it is given."""

    async def compare(text, lang, others, langs):
        del text, lang, langs
        return similarities[: len(others)]

    return compare


@pytest.mark.parametrize(
    ("question", "similarity", "answers"),
    [
        ("Когда закрыли гавань?", 0.7, False),  # close in meaning to any harbour
        ("Когда закрыли гавань?", 0.85, True),
        ("Что случилось в гавани Челябинска?", 0.7, False),  # another place
        ("Что случилось в гавани Норвика?", 0.55, True),
        ("Зачем Марта Кольцова приехала?", 0.45, True),  # all of two names
        ("Зачем Марта Громова приехала?", 0.45, False),
        ("Марта-Кольцова приехала?", 0.45, True),  # a hyphen joins names too
    ],
)
async def test_across_languages_a_name_or_a_high_similarity_decides(question, similarity, answers):
    """A question that no source answers is answered so, although words of two languages cannot be compared."""
    ranker = SentenceRanker(compare=await compare_by_list([similarity]), today=FRIDAY, trace=Trace())
    article = reading("a", "Fog closed the harbour of Norvik to Marta Koltsova and her crew.")

    assert answers == bool(await ranker.select([article], question, 2))


async def test_a_title_tells_what_a_sentence_in_other_words_speaks_of():
    """The headline has the words of the question, the story other ones."""
    ranker = SentenceRanker(compare=await compare_by_list([0.35]), today=FRIDAY, trace=Trace())
    article = reading("a", "Some 1,200 of them walked out.")
    titled = replace(article.source, title="Dockers strike in Norvik")
    sentences = tuple(replace(each, source=titled) for each in article.sentences)
    question = "How many dockers strike?"

    assert [] == await ranker.select([article], question, 2)
    found = await ranker.select([replace(article, source=titled, sentences=sentences)], question, 2)
    assert covers_question(found, question, titled=True)
