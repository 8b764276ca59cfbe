"""Articles from JSONL files, feed files and folders, and from the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from contexture.adapters.feeds.http import FeedparserParser
from contexture.cli.main import app
from contexture.ingestion.articles import (
    ArticleFileReader,
    ArticleWriter,
    SourcedArticle,
    article_to_row,
    load_articles,
    make_article_id,
    row_to_article,
)
from contexture.ingestion.files import LoadProblem
from contexture.retrieval.search import SearchOptions
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Scope
from support.news import article, news_over
from support.workbench import Parts, workbench

RSS = """<?xml version="1.0" encoding="UTF-8"?><rss version="2.0"><channel>
<title>Courier</title><link>https://www.courier.example/</link><language>en</language>
<item><guid>g-1</guid><title>Fish &amp;amp; chips</title><link>https://news.courier.example/1</link>
<description>&lt;p&gt;Prices &lt;b&gt;rose&lt;/b&gt;.&lt;/p&gt;&lt;script&gt;bad()&lt;/script&gt;</description>
<pubDate>Mon, 01 Jun 2026 10:00:00 GMT</pubDate></item>
<item><title>Без даты</title><link>https://news.courier.example/2</link>
<description>Цены выросли.</description></item>
</channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Post</title>
<entry><id>tag:post.example,2026:1</id><title type="html">A &lt;i&gt;storm&lt;/i&gt;</title>
<link href="https://post.example/storm"/><updated>2026-06-01T09:30:00+02:00</updated>
<summary>Short.</summary><content type="html">&lt;p&gt;A long report on the storm.&lt;/p&gt;</content></entry></feed>"""


@pytest.fixture
def reading():
    """Reads at noon, for everyone."""
    return ArticleFileReader(readers=(PUBLIC,), now=NOON, parser=FeedparserParser())


@pytest.fixture
async def news(new_folder):
    """A store over doubles."""
    parts = Parts(options=SearchOptions(floor=1.0))
    async with workbench(new_folder(), parts) as inner:
        yield news_over(inner, parts)


def told(items):
    """The articles among what was read."""
    return [item.article for item in items if isinstance(item, SourcedArticle)]


def problems(items):
    """The problems among what was read, with whether each is a warning."""
    return [(str(item), item.warning) for item in items if isinstance(item, LoadProblem)]


def run(*words):
    """What a command answers, with its exit code."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_rss_entries_become_articles(tmp_path, reading):
    """Markup and scripts are taken out, dates are read, the source is the domain of the entry's address."""
    (tmp_path / "feed.rss").write_text(RSS)
    first, second = told(reading.read_files([tmp_path / "feed.rss"]))

    assert (first.title, first.text, first.source) == ("Fish & chips", "Prices rose.", "news.courier.example")
    assert first.published == datetime(2026, 6, 1, 10, tzinfo=UTC)
    assert (second.title, second.published, second.url) == ("Без даты", None, "https://news.courier.example/2")
    assert first.article_id != second.article_id


def test_atom_entries_become_articles(reading):
    """The longest content counts, and times are brought to UTC."""
    (only,) = told(reading.read_feed(ATOM.encode(), name="feed"))

    assert (only.title, only.text, only.source) == ("A storm", "A long report on the storm.", "post.example")
    assert only.published == datetime(2026, 6, 1, 7, 30, tzinfo=UTC)


def test_a_malformed_feed_is_reported_and_the_rest_loads(reading):
    """Entries before the break are kept; the break is a warning."""
    items = list(reading.read_feed(RSS[: RSS.index("<description>Цены")].encode(), name="feed"))
    ((said, warning),) = problems(items)

    assert "Fish & chips" in [each.title for each in told(items)]
    assert (said.startswith("feed: malformed"), warning) == (True, True)


@pytest.mark.parametrize("data", [b"", b"not a feed", b"<html><body>hello</body></html>", b"\x00\xff\xfe"])
def test_what_is_no_feed_is_an_error(reading, data):
    """It gives no article and says so."""
    items = list(reading.read_feed(data, name="feed"))

    assert [("feed: not an RSS or Atom feed", False)] == problems(items)
    assert [] == told(items)


def test_an_entity_bomb_is_harmless(reading):
    """Entities that expand without end are not expanded."""
    bomb = (
        '<!DOCTYPE rss [<!ENTITY a "ha"><!ENTITY b "' + "&a;" * 50 + '"><!ENTITY c "' + "&b;" * 50 + '">'
        '<!ENTITY d "' + "&c;" * 50 + '">]>' + RSS.replace("Prices", "&d;")
    )

    assert all(len(each.text) < 10_000 for each in told(reading.read_feed(bomb.encode(), name="feed")))


def test_an_entity_never_reads_a_file(tmp_path, reading):
    """An entity that names a file stays empty or as it is."""
    (tmp_path / "secret.txt").write_text("swordfish")
    hostile = f'<!DOCTYPE rss [<!ENTITY x SYSTEM "file://{tmp_path}/secret.txt">]>' + RSS.replace("Prices", "&x;")

    assert not any("swordfish" in each.text for each in told(reading.read_feed(hostile.encode(), name="feed")))


def test_rows_say_what_they_are():
    """Both names of id and readers are known, ages count from now, and an address gives an id that stays."""
    row = {"title": "T", "text": "x", "url": "https://a.example/1", "age_hours": 1.5, "acl": ["group:crew"]}
    first, warnings = row_to_article(row, readers=(PUBLIC,), now=NOON)
    again, _ = row_to_article({**row, "title": "U"}, readers=(PUBLIC,), now=NOON)

    assert (first.published, first.readers, warnings) == (NOON - timedelta(hours=1.5), ("group:crew",), ())
    assert first.article_id == again.article_id
    assert row_to_article({"id": "a", "text": "x", "published": "2026-06-01"}, readers=(), now=NOON)[0].published == (
        datetime(2026, 6, 1, tzinfo=UTC)
    )


def test_made_ids_tell_private_copies_apart():
    """What everyone reads has the id it always had; other readers, and writers who are none of them, have their own."""
    anna, boris = (Scope(tenant="acme", user=user) for user in ("anna", "boris"))
    mine = make_article_id("https://a.example/1", ("user:anna",), anna)

    assert (
        "art-d817b80f9a5befb9163e"
        == make_article_id("https://a.example/1")
        == make_article_id("https://a.example/1", ("user:anna", PUBLIC), boris)
    )
    assert mine == make_article_id("https://a.example/1", ("user:anna", "user:anna"), anna)
    assert 4 == len(
        {
            mine,
            make_article_id("https://a.example/1", ("user:boris",), boris),
            make_article_id("https://a.example/1", ("user:anna",), boris),
            make_article_id("https://a.example/1"),
        }
    )


def test_entries_of_a_private_feed_are_apart_from_those_of_others():
    """Feeds are read for someone, as rows are."""
    anna, boris = (Scope(tenant="acme", user=user) for user in ("anna", "boris"))
    ids = [
        {each.article_id for each in told(_reading(f"user:{scope.user}", scope).read_feed(RSS.encode(), name="feed"))}
        for scope in (anna, boris)
    ]

    assert ids[0]
    assert ids[0].isdisjoint(ids[1])


def _reading(reader, scope):
    return ArticleFileReader(readers=(reader,), now=NOON, parser=FeedparserParser(), writer=scope)


def test_a_row_and_its_article_are_the_same():
    """What is sent to a service arrives there as it left."""
    given = article("a", source="b.example", readers=("group:crew", "user:anna"))

    assert (given, ()) == row_to_article(json.loads(json.dumps(article_to_row(given))), readers=(PUBLIC,), now=NOON)


@pytest.mark.parametrize("age", [-1, True, "3", 1e12])
def test_an_age_that_cannot_be_is_ignored_with_a_warning(age):
    """The article is loaded without a date."""
    found, (warning,) = row_to_article({"id": "a", "text": "x", "age_hours": age}, readers=(PUBLIC,), now=NOON)

    assert found.published is None
    assert "age_hours" in warning


def test_every_bad_row_is_reported_with_its_line_and_the_rest_is_read(tmp_path, reading):
    """Readers that cannot be read are an error, because guessing them could show the article to anyone."""
    rows = [
        '{"id": "good", "text": "x"}',
        "{",
        "[]",
        '{"id": 3, "text": "x"}',
        '{"id": "b", "text": "x", "readers": "anna"}',
        '{"id": "c", "text": "x", "date": "yesterday"}',
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(rows))
    items = list(reading.read_files([path]))

    assert ["good", "c"] == [each.article_id for each in told(items)]
    assert [(2, False), (3, False), (4, False), (5, False), (6, True)] == [
        (item.line, item.warning) for item in items if isinstance(item, LoadProblem)
    ]


def test_a_folder_is_read_by_kind(tmp_path, reading):
    """Feeds and JSONL are read, other files are passed over with a warning; a file that is named is looked into."""
    (tmp_path / "a.xml").write_text(ATOM)
    (tmp_path / "b.jsonl").write_text('{"id": "row", "text": "x"}\n')
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "download").write_text(ATOM)
    items = list(reading.read_files([tmp_path]))

    assert ["A storm", ""] == [each.title for each in told(items)]
    assert [True, True] == [warning for _, warning in problems(items)]
    assert ["A storm"] == [each.title for each in told(reading.read_files([tmp_path / "download"]))]


async def test_an_id_is_loaded_once_and_refused_articles_are_named(tmp_path, reading, news):
    """The first of two articles with one id is kept, an article that cannot be stored is reported, the rest loads."""
    rows = [{"id": "a", "text": "first"}, {"id": "a", "text": "second"}, {"id": "b"}, {"id": "c", "text": "third"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    writer = ArticleWriter(news, Scope.local(), NOON)
    report = await load_articles(writer, reading, paths=[path])

    assert (report.read, report.added, report.unchanged) == (4, 2, 0)
    assert ["rows.jsonl:2", "rows.jsonl:3"] == [f"{each.path}:{each.line}" for each in report.failed]
    assert "a `title` or a `text`" in report.failed[1].message
    assert ["first", "third"] == [each.text for each in await news.get(Scope.local(), ["a", "c"])]


def test_the_command_line_loads_articles_twice(tmp_path):
    """A second load finds everything unchanged; searching the collection finds the article."""
    (tmp_path / "feed.rss").write_text(RSS)
    home = ("--home", tmp_path / "home")
    first = run("ingest", "--as", "articles", tmp_path / "feed.rss", *home)
    second = run("ingest", "--as", "articles", tmp_path / "feed.rss", *home)
    found = run("search", "fish and chips", "--collection", "articles", *home)

    assert (first[0], first[1]["added"], first[1]["collapsed"]) == (0, 2, 0)
    assert (second[1]["added"], second[1]["unchanged"]) == (0, 2)
    assert found[1]["results"][0]["source"] == "news.courier.example"


def test_addresses_are_for_articles_only(tmp_path):
    """Documents are not fetched, and the message says what to add."""
    code, said = run("ingest", "https://a.example/feed", "--home", tmp_path)

    assert code == 2
    assert "--as articles" in said["error"]["user_message"]


def test_the_command_line_says_how_many_are_copies(tmp_path):
    """People read how many of the articles are copies of others."""
    rows = [{"id": name, "text": f"{article('x').text}", "age_hours": 1, "source": f"{name}.example"} for name in "ab"]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = CliRunner().invoke(
        app, ["ingest", "--as", "articles", str(tmp_path / "rows.jsonl"), "--home", str(tmp_path / "home")]
    )

    assert "2 added, 0 unchanged, 1 duplicates of others, 0 failed" in done.stdout
