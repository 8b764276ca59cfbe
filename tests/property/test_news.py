"""Promises of the news, on generated articles, markup and feeds."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from datetime import timedelta

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contexture.adapters.feeds.http import FeedparserParser
from contexture.ingestion._html_text import html_to_text
from contexture.ingestion.articles import article_to_row, row_to_article
from contexture.ledger import Trace
from contexture.news._fingerprint import is_copy, make_fingerprint, read_fingerprint
from contexture.news.articles import NewsQuestion, normalize_domain
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Scope
from support.news import STRIKE, article, news_over
from support.workbench import Parts, workbench

ANNA = Scope(tenant="acme", user="anna", groups=("crew",))
OTHERS = (Scope(tenant="acme", user="boris"), Scope(tenant="other", user="anna", groups=("crew",)))
STORIES = (
    STRIKE,
    STRIKE.replace("About", "Some"),
    STRIKE.replace("1,200", "900"),
    STRIKE.replace(", and grain exports have stopped", ""),
    "The strike of the bakers ended after a week of talks about night work in the old town of Vellmar.",
    "Забастовка докеров в порту Нортки продолжается третий день, стороны согласились на посредника.",
)
QUESTIONS = st.builds(
    NewsQuestion,
    text=st.sampled_from(["strike dockers", "port", "забастовка докеров", "latest news"]),
    since=st.sampled_from([None, NOON - timedelta(hours=24), NOON - timedelta(hours=6)]),
    langs=st.sampled_from([(), ("en",), ("ru",)]),
    sources=st.sampled_from([(), ("a.example",), ("b.example", "c.example")]),
)
SETTINGS = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEED = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>T</title>
<item><guid>1</guid><title>One &amp; two</title><description><![CDATA[<p>Text</p>]]></description>
<pubDate>Mon, 01 Jun 2026 10:00:00 GMT</pubDate></item></channel></rss>"""


@st.composite
def articles(draw, prefix="a", most=6):
    """A few articles, many of them copies of each other."""
    return [
        article(
            f"{prefix}{number}",
            draw(st.sampled_from(STORIES)),
            hours=draw(st.sampled_from([None, 1, 5, 20, 30, 100])),
            source=draw(st.sampled_from(["a.example", "news.b.example", "c.example"])),
        )
        for number in range(draw(st.integers(1, most)))
    ]


def after(new_folder, writes, question, gone=()):
    """What is found, as bytes, after some writes by scopes, and some removals."""

    async def run():
        parts = Parts()
        async with workbench(folder, parts) as inner:
            news = news_over(inner, parts)
            for scope, batch in writes:
                await news.add(scope, batch, now=NOON)
            await news.remove(ANNA, gone)
            return await news.find(ANNA, question, k=10, rerank=True, trace=Trace())

    folder = new_folder()
    try:
        return asyncio.run(run())
    finally:
        shutil.rmtree(folder)


def encoded(found):
    """Answers to be compared to the byte."""
    return msgspec.json.encode(found)


@SETTINGS
@given(given_articles=articles(), order=st.randoms(use_true_random=False), question=QUESTIONS, cut=st.integers(0, 6))
def test_the_order_of_arrival_changes_nothing(new_folder, given_articles, order, question, cut):
    """However articles are shuffled and cut into batches, the answer is the same to the byte."""
    shuffled = list(given_articles)
    order.shuffle(shuffled)
    once = after(new_folder, [(ANNA, given_articles)], question)
    twice = after(new_folder, [(ANNA, shuffled[:cut]), (ANNA, shuffled[cut:])], question)

    assert encoded(once) == encoded(twice)


@SETTINGS
@given(seen=articles(), hidden=articles(prefix="hidden"), other=st.sampled_from(OTHERS), question=QUESTIONS)
def test_what_is_hidden_changes_nothing(new_folder, seen, hidden, other, question):
    """Copies in another tenant or for other readers neither collapse, nor lead, nor move a score."""
    private = [replace(each, readers=(f"user:{other.user}",)) for each in hidden]
    writes = [(other, private), (ANNA, seen)] if other.tenant == ANNA.tenant else [(other, hidden), (ANNA, seen)]

    assert encoded(after(new_folder, [(ANNA, seen)], question)) == encoded(after(new_folder, writes, question))


@SETTINGS
@given(given_articles=articles(), question=QUESTIONS, data=st.data())
def test_removing_is_as_if_it_had_never_been(new_folder, given_articles, question, data):
    """After a removal the answer is that of a store which never held the article."""
    gone = data.draw(st.sampled_from([each.article_id for each in given_articles]))
    left = [each for each in given_articles if each.article_id != gone]
    removed = after(new_folder, [(ANNA, given_articles)], question, gone=[gone])

    assert encoded(removed) == encoded(after(new_folder, [(ANNA, left)], question))


@SETTINGS
@given(given_articles=articles(), question=QUESTIONS)
def test_every_article_is_shown_or_listed_at_most_once(new_folder, given_articles, question):
    """Stories do not overlap, are in order, and hold only what the question admits."""
    found = after(new_folder, [(ANNA, given_articles)], question)
    named = [each.article.article_id for each in found] + [
        other.article_id for each in found for other in each.article.also
    ]

    assert len(named) == len(set(named))
    assert [each.article.article_id for each in found] == [
        each.article.article_id for each in sorted(found, key=lambda one: (-one.score, one.article.article_id))
    ]
    for each in found:
        assert question.since is None or each.article.published >= question.since
        assert not question.langs or each.article.lang in question.langs


@given(text=st.text(max_size=300), number=st.integers(1, 999))
def test_a_number_of_its_own_keeps_a_story_apart(text, number):
    """Two texts that each have a number which the other lacks are never copies; the relation has no direction."""
    base = text + " The dockers of the port said on that day that they would wait until "
    one, other = (
        read_fingerprint({"print": make_fingerprint(base + f"{number + shift} o'clock.")}) for shift in (0, 1_000)
    )

    assert not is_copy(one, other) or str(number) in text or str(number + 1_000) in text
    assert is_copy(one, other) == is_copy(other, one)


@given(text=st.text(max_size=200))
def test_a_domain_is_its_own_domain(text):
    """Normalising twice is normalising once."""
    assert normalize_domain(normalize_domain(text)) == normalize_domain(text)


@given(
    parts=st.lists(
        st.sampled_from(
            ["<p>", "</p>", "<b", ">", "&amp;", "&#x41;", "&#9", "<!--", "-->", "слово ", "a<b ", "\n", "<![", "<?"]
        )
        | st.text(alphabet="<>!?/&#;='\"-[]ax9 ", max_size=12)
    )
)
def test_no_markup_breaks_the_reader(parts):
    """Whatever the tags look like, a hidden script stays hidden and the words before it are there."""
    text = html_to_text("before " + "<script>secret()</script>" + "".join(parts))

    assert text.startswith("before")
    assert "secret" not in text


@settings(max_examples=200)
@given(at=st.integers(0, len(FEED)), cut=st.integers(0, 40), piece=st.binary(max_size=12))
def test_no_bytes_break_the_feed_parser(at, cut, piece):
    """A feed with any piece replaced gives entries or a problem, and never raises."""
    feed = FeedparserParser().parse(FEED[:at] + piece + FEED[at + cut :])

    assert feed.entries or feed.problem or b"<item" not in FEED[:at] + piece + FEED[at + cut :]


@given(given_articles=articles())
def test_rows_say_all_there_is(given_articles):
    """An article sent as a row is the same article, but for an empty list of readers."""
    for each in given_articles:
        row = msgspec.json.decode(msgspec.json.encode(article_to_row(each)))
        assert row_to_article(row, readers=(PUBLIC,), now=NOON) == (each, ())
