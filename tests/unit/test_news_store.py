"""The news store: what it asks the index, what it shows, and what becomes of copies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from contexture.errors import InvalidRequest
from contexture.ledger import Trace
from contexture.news.articles import MAX_TITLE_CHARS, Article, NewsQuestion
from contexture.retrieval.citations import verify_citations
from contexture.retrieval.search import SearchOptions
from contexture.testing.doubles import NOON, FailingEmbedder
from contexture.types import And, AnyOf, Range, Receipt, Scope
from support.memory_conformance import RecordingIndex
from support.news import STRIKE, article, news_over
from support.workbench import HIDDEN, Parts, workbench

ANNA = Scope(tenant="acme", user="anna", groups=("crew",))
BORIS = Scope(tenant="acme", user="boris")
WORDS_ONLY = Parts(options=SearchOptions(floor=1.0))
DEAF = Parts(english=FailingEmbedder(16, "hash-en"), options=SearchOptions(floor=1.0))
SHORT = STRIKE.replace(", and grain exports have stopped", "")


class Bench:
    """A news store over an index that notes what it is asked."""

    def __init__(self, inner, parts):
        self.index = RecordingIndex(inner.index)
        self.news = news_over(inner, parts, index=self.index)


@pytest.fixture
async def bench(new_folder):
    """A store over doubles that finds by words alone."""
    async with workbench(new_folder(), WORDS_ONLY) as inner:
        yield Bench(inner, WORDS_ONLY)


@pytest.fixture
def news(bench):
    """The store itself."""
    return bench.news


async def found(news, text="strike", *, scope=ANNA, k=10, rerank=True, **question):
    """What a question finds."""
    return await news.find(scope, NewsQuestion(text=text, **question), k=k, rerank=rerank, trace=Trace())


async def ids(news, text="strike", **options):
    """The ids of what a question finds."""
    return [each.article.article_id for each in await found(news, text, **options)]


async def test_window_language_and_sources_are_in_the_query_itself(bench):
    """The index is asked for the window, languages and domains; the window is rounded outwards to whole minutes."""
    since, before = NOON + timedelta(seconds=30), NOON + timedelta(hours=1, seconds=5)
    await found(bench.news, since=since, before=before, langs=("en", "ru"), sources=("www.B.example", "a.example"))
    ((scope, asked),) = bench.index.searches

    assert (scope, asked.collection) == (ANNA, "articles")
    assert asked.where == And(
        (
            AnyOf("lang", ("en", "ru")),
            AnyOf("domains", ("b.example", "a.example")),
            Range(field="time", gte=NOON, lt=NOON + timedelta(hours=1, minutes=1)),
        )
    )


async def test_the_window_is_half_open_to_the_second(news):
    """`since` belongs to the window and `before` does not, so that neighbouring windows share nothing."""
    moments = {"early": -1, "at": 0, "inside": 59, "end": 60}
    await news.add(
        ANNA,
        [
            Article(article_id=name, title="", text=f"strike {name}", published=NOON + timedelta(seconds=seconds))
            for name, seconds in moments.items()
        ],
        now=NOON,
    )

    assert ["at", "inside"] == sorted(await ids(news, since=NOON, before=NOON + timedelta(seconds=60)))


async def test_windows_reach_to_the_ends_of_the_calendar(news):
    """The first and the last moment are times like others."""
    ends = {"first": datetime.min.replace(tzinfo=UTC), "last": datetime.max.replace(tzinfo=UTC)}
    await news.add(ANNA, [replace(article(name), published=time) for name, time in ends.items()], now=NOON)

    assert ["first"] == await ids(news, since=ends["first"], before=ends["last"])
    assert ["last"] == await ids(news, since=NOON)


async def test_a_source_stands_for_its_subdomains(news):
    """A domain finds its subdomains; a subdomain does not find its domain, nor a domain its namesakes."""
    sources = {"plain": "b.example", "sub": "news.b.example", "namesake": "crab.example"}
    await news.add(
        ANNA,
        [article(name, f"strike {name} report", source=source) for name, source in sources.items()],
        now=NOON,
    )

    assert ["plain", "sub"] == sorted(await ids(news, sources=("WWW.B.example",)))
    assert ["sub"] == await ids(news, sources=("news.b.example",))
    assert [] == await ids(news, sources=("example",))


async def test_passages_are_grouped_to_articles_best_first(news):
    """An article with several matching passages is found once, with each of them and a citation that resolves."""
    long = " ".join(f"The strike entered day {day}, and the dockers of pier {day} stayed at home." for day in range(9))
    await news.add(ANNA, [article("long", long), article("short", "A strike of bakers ended.")], now=NOON)
    both = await found(news, "strike dockers")
    several = next(each for each in both if each.article.article_id == "long")

    assert ["long", "short"] == sorted(each.article.article_id for each in both)
    assert len(several.candidates) > 1
    scores = [candidate.score for candidate in several.candidates]
    assert scores == sorted(scores, reverse=True)
    assert several.score == scores[0]
    assert several.article.text == ""
    citations = [candidate.citation for candidate in several.candidates]
    assert [] == await verify_citations(news._index, ANNA, citations)


async def test_candidates_say_what_must_be_redacted(news):
    """What redaction found when an article was written comes with its passages."""
    await news.add(ANNA, [article("a", f"The strike has the password {HIDDEN} today.")], now=NOON)
    ((only,),) = [each.candidates for each in await found(news)]

    assert [HIDDEN] == [only.text[span.start : span.end] for span in only.redactions]


async def test_an_article_without_a_date_is_dated_by_its_loading_and_marked(news):
    """It is found in the window of its loading and says that nobody knows when it was published."""
    await news.add(ANNA, [article("undated", hours=None)], now=NOON)
    (only,) = await found(news, since=NOON - timedelta(hours=1), before=NOON + timedelta(hours=1))

    assert (only.article.published, only.dated_by_loading) == (NOON, True)


async def test_loading_again_changes_nothing(news):
    """Known articles are left alone; one without a date keeps the date of its first loading."""
    batch = [article("dated"), article("undated", "Another strike, of bakers.", hours=None)]
    first = await news.add(ANNA, batch, now=NOON)
    second = await news.add(ANNA, batch, now=NOON + timedelta(days=2))
    stored = await news.get(ANNA, ["undated"])

    assert ((first.added, first.unchanged), (second.added, second.unchanged)) == ((2, 0), (0, 2))
    assert stored[0].published == NOON


async def test_a_changed_article_replaces_the_old_one(news):
    """Of two articles with one id the last stands, also within one batch."""
    await news.add(ANNA, [article("a", "old strike"), article("a", "new strike")], now=NOON)
    done = await news.add(ANNA, [article("a", "newest strike")], now=NOON)

    assert done.added == 1
    assert ["newest strike"] == [each.text for each in await news.get(ANNA, ["a"])]


async def test_get_gives_whole_articles_in_the_order_asked_for(news):
    """Language and domain are filled in, unknown and hidden articles are left out."""
    await news.add(ANNA, [article("a", source="B.example"), article("mine", readers=("user:anna",))], now=NOON)
    both = await news.get(ANNA, ["mine", "nobody", "a"])

    assert ["mine", "a"] == [each.article_id for each in both]
    assert (both[1].text, both[1].lang, both[1].source, both[1].url) == (
        STRIKE,
        "en",
        "b.example",
        "https://www.B.example/a",
    )
    assert ["a"] == [each.article_id for each in await news.get(BORIS, ["mine", "a"])]


async def test_a_copy_is_shown_under_the_best_one(news):
    """The fullest copy is shown, the others are listed with source, address and id, and the report counts them."""
    done = await news.add(
        ANNA,
        [
            article("short", SHORT, source="a.example", hours=5),
            article("full", source="b.example", hours=3),
            article("late", source="c.example", hours=2),
        ],
        now=NOON,
    )
    (only,) = await found(news)

    assert only.article.article_id == "full"
    assert [
        ("c.example", "https://www.c.example/late", "late"),
        ("a.example", "https://www.a.example/short", "short"),
    ] == [(other.source, other.url, other.article_id) for other in only.article.also]
    assert (done.added, done.collapsed) == (3, 2)


async def test_removing_the_shown_copy_brings_back_the_next_best(news):
    """Every copy stays stored, so nothing is lost with the one that was shown."""
    await news.add(ANNA, [article("first", hours=3), article("second", hours=2), article("third", hours=1)], now=NOON)
    shown = []
    while remaining := await found(news):
        (only,) = remaining
        shown.append((only.article.article_id, [other.article_id for other in only.article.also]))
        assert (await news.remove(ANNA, [only.article.article_id])).count == 1

    assert [("first", ["second", "third"]), ("second", ["third"]), ("third", [])] == shown


async def test_only_what_was_removed_is_forgotten(new_folder):
    """To name an article is not to remove it: what others keep of one that stays is left alone."""
    told = []

    async def forget(scope, gone):
        if gone:
            told.append((scope.user, [record.id for record in gone]))
        return Receipt.of_deletion(NOON, {"builds": [f"of {record.id}" for record in gone]}, ())

    async with workbench(new_folder(), WORDS_ONLY) as inner:
        news = news_over(inner, WORDS_ONLY, on_removed=forget)
        await news.add(ANNA, [article("mine", readers=("user:anna",)), article("ours")], now=NOON)
        removed = [(await news.remove(scope, named)).removed for scope, named in REMOVALS]

    ours, mine = ({"articles": (name,), "builds": (f"of {name}",)} for name in ("ours", "mine"))
    assert [{}, ours, mine, {}] == removed
    assert [("boris", ["ours"]), ("anna", ["mine"])] == told


REMOVALS = (
    (BORIS, ["mine", "unknown"]),
    (BORIS, ["mine", "ours", "ours"]),
    (ANNA, ["mine", "ours"]),
    (ANNA, []),
)


async def test_a_question_chooses_among_the_copies_it_admits(news):
    """A copy that alone matches the source or the window is shown, not hidden behind one that does not."""
    await news.add(
        ANNA, [article("old", source="a.example", hours=30), article("new", source="b.example", hours=2)], now=NOON
    )

    assert ["old"] == await ids(news)
    assert ["new"] == await ids(news, sources=("b.example",))
    assert ["new"] == await ids(news, since=NOON - timedelta(hours=24))


async def test_a_copy_that_may_not_be_read_is_neither_shown_nor_listed(news):
    """Who may read fewer copies is told of fewer."""
    await news.add(ANNA, [article("secret", hours=9, readers=("user:anna",)), article("open", hours=2)], now=NOON)
    (hers,), (his,) = await found(news), await found(news, scope=BORIS)

    assert (hers.article.article_id, [other.article_id for other in hers.article.also]) == ("secret", ["open"])
    assert (his.article.article_id, his.article.also) == ("open", ())
    assert [] == await ids(news, scope=Scope(tenant="other", user="anna", groups=("crew",)))


async def test_many_copies_do_not_crowd_out_other_stories(new_folder):
    """When copies fill the first passages looked at, more are looked at."""
    copies = [article(f"copy-{number:02d}", source=f"s{number}.example") for number in range(40)]
    other = article("other", "After a week of talks about night work in the old town the strike of the bakers ended.")
    async with workbench(new_folder(), WORDS_ONLY) as inner:
        await news_over(inner, WORDS_ONLY).add(ANNA, [*copies, other], now=NOON)
        both = await found(news_over(inner, DEAF), "strike dockers", k=2)

    assert [("copy-00", 39), ("other", 0)] == [(each.article.article_id, len(each.article.also)) for each in both]


async def test_without_reranking_ranks_decide(news):
    """The order is that of reciprocal ranks, scores lie between 0 and 1 and are those of the ranks."""
    await news.add(
        ANNA,
        [article(f"a{number}", "strike " * number + f"report number {number} of the bakers") for number in (1, 2, 3)],
        now=NOON,
    )
    plain = await found(news, rerank=False)

    assert 3 == len(plain)
    assert [each.score for each in plain] == sorted((each.score for each in plain), reverse=True)
    assert all(0 < each.score <= 1 and each.candidates[0].signals["ranks"] == each.score for each in plain)


async def test_a_failing_embedder_degrades_the_search_and_is_named(new_folder):
    """Without vectors words still find, and the trace says what was lost."""
    async with workbench(new_folder(), WORDS_ONLY) as inner:
        await news_over(inner, WORDS_ONLY).add(ANNA, [article("a")], now=NOON)
        trace = Trace()
        only = await news_over(inner, DEAF).find(ANNA, NewsQuestion(text="strike"), k=3, rerank=True, trace=trace)

    assert ["a"] == [each.article.article_id for each in only]
    assert ["embedder"] == [lost.source for lost in trace.finish(()).degradations]


async def test_an_empty_question_finds_nothing(news):
    """There is nothing to match."""
    await news.add(ANNA, [article("a")], now=NOON)

    assert [] == await ids(news, " \n")


@pytest.mark.parametrize("k", [0, 101])
async def test_how_many_may_be_asked_for_is_bounded(news, k):
    """A number of articles out of range is refused."""
    with pytest.raises(InvalidRequest, match="between 1 and 100"):
        await found(news, k=k)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Article(article_id="", title="t", text="x"), "article_id"),
        (Article(article_id="\ud800", title="t", text="x"), "valid Unicode"),
        (Article(article_id="a", title=" ", text=""), "needs a `title` or a `text`"),
        (Article(article_id="a", title="t", text="x", readers=()), "nobody could read"),
        (Article(article_id="a", title="t", text="x", readers=("anna",)), "not 'anna'"),
        (Article(article_id="a", title="t", text="x", url="https://a.example/" + "x" * 5_000), "`url` has 5,018"),
        (Article(article_id="a", title="t", text="x", source="x" * 2_000), "`source` has 2,000"),
    ],
)
async def test_what_cannot_be_stored_is_refused_with_its_place(news, wrong, said):
    """Nothing of the batch is written."""
    with pytest.raises(InvalidRequest, match=r"articles\[1\]") as refusal:
        await news.add(ANNA, [article("good"), wrong], now=NOON)

    assert said in str(refusal.value)
    assert () == tuple(await news.get(ANNA, ["good"]))


async def test_a_title_alone_is_an_article(news):
    """Feeds that only give headlines can be searched."""
    await news.add(ANNA, [Article(article_id="a", title="Strike in the port", text="")], now=NOON)

    assert ["a"] == await ids(news)


async def test_a_title_without_end_is_cut(news):
    """Every passage carries the title, so an endless one is not kept; alone, it is kept as a text."""
    endless = "strike " * 20_000
    made = [Article(article_id="a", title=endless, text=STRIKE), Article(article_id="b", title=endless, text="")]
    await news.add(ANNA, made, now=NOON)
    first, second = await news.get(ANNA, ["a", "b"])

    assert len(first.title) <= MAX_TITLE_CHARS
    assert first.title.endswith("strike…")
    assert (STRIKE, endless) == (first.text, second.text)
    assert 2 == (await news.add(ANNA, made, now=NOON)).unchanged


async def test_an_address_that_is_no_page_is_left_out(news):
    """Whoever shows an answer makes links of addresses: scripts among them are not kept, nor taken for a source."""
    await news.add(ANNA, [Article(article_id="a", title="t", text="x", url="java\nscript:alert(1)")], now=NOON)
    (kept,) = await news.get(ANNA, ["a"])

    assert ("", "") == (kept.url, kept.source)
