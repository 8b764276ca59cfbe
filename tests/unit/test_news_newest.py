"""Questions for any news: recognised by their words, and answered by the newest articles."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from contexture.config import Settings
from contexture.ledger import Trace
from contexture.news.articles import NewsQuestion, asks_for_latest
from contexture.news.store import RECENCY, narrow_to_recent
from contexture.testing.doubles import NOON, FailingEmbedder
from contexture.types import Scope
from support.commands import article
from support.news import STRIKE, news_over
from support.news import article as report
from support.service import small_engine
from support.workbench import Parts, workbench

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")


@pytest.mark.parametrize(
    "text",
    [
        "latest news",
        "What happened today?",
        "what's new",
        "NEWS",
        "show me the top headlines of this week",
        "последние новости",
        "Что случилось сегодня?",
        "что нового в мире",
        "главные новости дня",
    ],
)
def test_words_that_name_no_subject_ask_for_anything(text):
    """In both languages, however politely."""
    assert asks_for_latest(text)


@pytest.mark.parametrize(
    "text",
    [
        "US news",
        "news about Oslo",
        "latest pump",
        "what",
        "the",
        "",
        "новости о мире",
        "новости спорта",
        "who won today",
    ],
)
def test_one_word_that_says_something_is_searched_for(text):
    """A subject, or no mention of news at all, makes it a question like any other."""
    assert not asks_for_latest(text)


@pytest.fixture(scope="module")
def ages():
    """Hours by article: far more articles than one look at the store takes in, some of them at one moment."""
    draw = random.Random(7)
    return {f"n{at:03d}": draw.choice([draw.uniform(0, 9_000), 50.0, draw.uniform(0, 48)]) for at in range(300)}


QUESTIONS = (
    NewsQuestion(text="latest news"),
    NewsQuestion(text="latest news", since=NOON - timedelta(hours=30)),
    NewsQuestion(text="latest news", since=NOON - timedelta(days=90), before=NOON - timedelta(days=20)),
    NewsQuestion(text="latest news", before=NOON - timedelta(hours=50), sources=("b.example",)),
    NewsQuestion(text="latest news", since=NOON - timedelta(days=400), before=NOON + timedelta(days=1)),
    NewsQuestion(text="latest news", since=NOON - timedelta(days=400), before=NOON + timedelta(days=300)),
    NewsQuestion(text="latest news", langs=("ru",)),
)


def admits(question, published, source):
    """Whether an English article belongs to the answer."""
    inside = (question.since is None or published >= question.since) and (
        question.before is None or published < question.before
    )
    return inside and not question.langs and (not question.sources or source in question.sources)


async def test_the_newest_articles_come_first_whatever_is_hidden(new_folder, ages):
    """Exactly those that sorting all readable articles of the window by time would put first."""
    source = {name: "a.example" if at % 3 else "b.example" for at, name in enumerate(ages)}
    made = [article(name, f"Word {name}.", hours=hours, source=source[name]) for name, hours in ages.items()]
    hidden = [replace(each, article_id=f"h{each.article_id}", readers=("user:boris",)) for each in made[:150]]
    async with workbench(new_folder(), Parts()) as bench:
        news = news_over(bench, Parts())
        await news.add(ANNA, made, now=NOON)
        await news.add(BORIS, hidden, now=NOON)
        shown = [await news.find(ANNA, each, k=10, rerank=True, trace=Trace()) for each in QUESTIONS]

    for question, found in zip(QUESTIONS, shown, strict=True):
        fits = [(hours, name) for name, hours in ages.items()
                if admits(question, NOON - timedelta(hours=hours), source[name])]  # fmt: skip
        assert [name for _, name in sorted(fits)[:10]] == [each.article.article_id for each in found]
        assert all(passage.signals == {RECENCY: each.score} for each in found for passage in each.candidates)


@pytest.mark.parametrize(
    ("since", "before", "days"),
    [
        (timedelta(days=64), timedelta(), 2),
        (timedelta(days=320), timedelta(), 10),
        (None, timedelta(), 2),
        (timedelta(days=2), timedelta(), None),
        (timedelta(days=9), None, None),
        (None, NOON - datetime.min.replace(tzinfo=UTC), None),
    ],
)
def test_the_end_of_a_window_is_looked_at_first(since, before, days):
    """A long one is cut to its last part, a short or open one is left as it is, whatever the calendar allows."""
    ends = [None if back is None else NOON - back for back in (since, before)]
    part = narrow_to_recent(NewsQuestion(text="latest news", since=ends[0], before=ends[1]))

    assert days == (None if part is None else (part.before - part.since).days)


async def test_copies_are_one_article_among_the_newest(new_folder):
    """A story that many tell takes one place."""
    async with workbench(new_folder(), Parts()) as bench:
        news = news_over(bench, Parts())
        copies = [report(f"c{at}", STRIKE, hours=at) for at in range(4)]
        await news.add(ANNA, [*copies, report("old", "Bakers end their strike.", hours=60)], now=NOON)
        found = await news.find(ANNA, NewsQuestion(text="latest news"), k=2, rerank=False, trace=Trace())

    assert ["c3", "old"] == [each.article.article_id for each in found]
    assert ["c0", "c1", "c2"] == [other.article_id for other in found[0].article.also]


async def test_what_nobody_dated_comes_last(new_folder):
    """An article that is dated by its loading is not news for that; it fills up what the others leave."""
    async with workbench(new_folder(), Parts()) as bench:
        news = news_over(bench, Parts())
        dated = [report("a", "Bakers end their strike.", hours=30), report("b", STRIKE, hours=20)]
        loose = [report("z", "A museum is open on Sundays.", hours=None), report("y", STRIKE, hours=None)]
        await news.add(ANNA, [*dated, *loose], now=NOON)
        question = NewsQuestion(text="latest news")
        two, all_of_them = [
            [each.article.article_id for each in await news.find(ANNA, question, k=k, rerank=True, trace=Trace())]
            for k in (2, 9)
        ]

    assert (["b", "a"], ["b", "a", "z"]) == (two, all_of_them)


async def test_the_newest_need_no_embedder(new_folder):
    """Nothing is compared by its meaning, so nothing is lost when that cannot be done."""
    folder = new_folder()
    async with workbench(folder, Parts()) as bench:
        await news_over(bench, Parts()).add(ANNA, [report("a"), report("b", "Bakers end it.", hours=2)], now=NOON)
        deaf = Parts(english=FailingEmbedder(16, "hash-en"), foreign=FailingEmbedder(12, "hash-any"))
        trace = Trace()
        found = await news_over(bench, deaf).find(ANNA, NewsQuestion(text="news"), k=5, rerank=True, trace=trace)

    assert ["a", "b"] == [each.article.article_id for each in found]
    assert () == trace.finish(()).degradations


async def test_a_command_without_a_subject_lists_the_newest(new_folder):
    """`/ask` alone gives the latest articles of its window, newest first, and is answered by how they begin."""
    settings = Settings(home=new_folder(), command_experiments={"e": {"words": {"lexical": 0.9}}})
    async with small_engine(settings) as engine:
        made = [article(f"n{at}", f"Event {at} shakes town {at}.", hours=2 * at + 1) for at in range(20)]
        await engine.news.add(engine.scope, made, now=NOON)
        plain = await engine.build_command({"raw_command": "/ask"})
        weighed = await engine.build_command({"raw_command": "/ask", "ab_test": {"experiment": "e"}})
        answer = await engine.execute.run({"raw_command": "/ask что случилось сегодня?"}, scope=engine.scope)

    newest = [f"n{at}" for at in range(6)]
    assert newest == [each.article_id for each in plain.retrieval.docs]
    assert newest == [each.article_id for each in weighed.retrieval.docs]
    assert [f"Event {at} shakes town {at}." for at in range(6)] == [each.text for each in answer.statements]
    assert ((True,), 1) == (tuple(part.covered for part in answer.details.parts), len(answer.details.rounds))
