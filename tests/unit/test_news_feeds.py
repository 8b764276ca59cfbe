"""Feeds over HTTP, against a real server on this machine."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from contexture.adapters.feeds.http import MAX_REDIRECTS, FeedMarkFile, FeedparserParser, HttpFeedFetcher
from contexture.cli.main import app
from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable, StoreUnwritable
from contexture.feeds import FeedValidators
from contexture.ingestion.articles import ArticleFileReader, ArticleWriter, FeedSource, load_articles
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Scope
from support.news import news_over
from support.workbench import Parts, workbench

FEED = b"""<rss version="2.0"><channel><title>T</title>
<item><title>One</title><link>https://a.example/1</link><description>First report.</description></item>
<item><title>Two</title><link>https://a.example/2</link><description>Second report.</description></item>
</channel></rss>"""
ETAG = '"v1"'
DATE = "Mon, 01 Jun 2026 10:00:00 GMT"


class Handler(BaseHTTPRequestHandler):
    """Serves a feed in every way in which servers misbehave."""

    def do_GET(self):
        """Answer by path."""
        self.server.requests.append(dict(self.headers))
        getattr(self, f"serve_{self.path.strip('/').split('/', maxsplit=1)[0]}")()

    def serve_feed(self):
        """The feed with an ETag and a date; 304 to whoever has it."""
        known = self.headers.get("If-None-Match") == ETAG and self.headers.get("If-Modified-Since") == DATE
        self._send(304 if known else 200, b"" if known else FEED, {"ETag": ETAG, "Last-Modified": DATE})

    def serve_broken(self):
        """A feed that ends too soon, with an ETag."""
        self._send(200, FEED[: FEED.index(b"<item><title>Two")], {"ETag": ETAG})

    def serve_hop(self):
        """A redirection to the path with one hop fewer."""
        left = int(self.path.rsplit("/", 1)[1])
        self._send(302, b"", {"Location": f"/hop/{left - 1}" if left else "/feed"})

    def serve_file(self):
        """A redirection out of the web."""
        self._send(302, b"", {"Location": "file:///etc/passwd"})

    def serve_gone(self):
        """An error."""
        self._send(410, b"gone", {})

    def serve_zip(self):
        """Compressed although nobody asked for it."""
        self._send(200, b"\x1f\x8b", {"Content-Encoding": "gzip"})

    def serve_endless(self):
        """Bytes without an end, until the client leaves."""
        self.send_response(200)
        self.end_headers()
        try:
            while not self.server.done.is_set():
                self.wfile.write(b"<rss>" * 1_000)
        except OSError:
            pass

    def serve_silent(self):
        """Nothing, until the test is over."""
        self.server.done.wait(30)

    def log_message(self, *_):
        """Say nothing."""

    def _send(self, status, body, headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    """A server on a free port; `requests` are the headers it saw."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.requests, found.done = [], threading.Event()
    found.url = f"http://127.0.0.1:{found.server_port}"
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.done.set()
    found.shutdown()
    found.server_close()


@pytest.fixture
async def load(new_folder, server):
    """Loads feeds into a store over doubles, with a mark file of its own."""
    parts = Parts()
    async with workbench(new_folder(), parts) as inner:
        news, marks = news_over(inner, parts), FeedMarkFile(new_folder() / "deep" / "feeds.json")

        async def loaded(*paths, again=False):
            wire = FeedSource(
                fetcher=HttpFeedFetcher(timeout=60, max_bytes=10_000, allow_private=True), marks=marks, again=again
            )
            reading = ArticleFileReader(readers=(PUBLIC,), now=NOON, parser=FeedparserParser())
            urls = [server.url + path for path in paths]
            return await load_articles(ArticleWriter(news, Scope.local(), NOON), reading, urls=urls, wire=wire)

        yield loaded


async def test_a_feed_is_asked_for_only_if_it_has_changed(load, server):
    """The server's ETag and date are kept and shown to it; an unchanged feed is said to be so and not read."""
    first, second = await load("/feed"), await load("/feed")

    assert (first.added, second.read) == (2, 0)
    assert "If-None-Match" not in server.requests[0]
    assert (server.requests[1]["If-None-Match"], server.requests[1]["If-Modified-Since"]) == (ETAG, DATE)
    assert ["has not changed since it was loaded"] == [each.message for each in second.warnings]


async def test_a_feed_can_be_asked_for_again(load, server):
    """With `again` nothing is shown to the server, and what is stored is left alone."""
    await load("/feed")
    again = await load("/feed", again=True)

    assert (again.read, again.unchanged) == (2, 2)
    assert "If-None-Match" not in server.requests[1]


async def test_a_broken_feed_is_read_again_next_time(load, server):
    """Its mark is not kept, because a part of it is missing."""
    first = await load("/broken")
    await load("/broken")

    assert (first.added, len(first.warnings)) == (1, 1)
    assert "If-None-Match" not in server.requests[1]


async def test_redirections_are_followed_up_to_a_limit(load, server):
    """As many as the limit lead to the feed; one more is an error."""
    near, far = await load(f"/hop/{MAX_REDIRECTS - 1}"), await load(f"/hop/{MAX_REDIRECTS}")

    assert (near.added, far.added) == (2, 0)
    assert [f"redirects more than {MAX_REDIRECTS} times" in each.message for each in far.failed] == [True]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/gone", "410"),
        ("/file", "cannot be fetched"),
        ("/zip", "compressed"),
        ("/endless", "larger than 10000 bytes"),
    ],
)
async def test_what_cannot_be_fetched_is_reported_and_the_rest_loads(load, path, said):
    """Each feed is judged by itself."""
    report = await load(path, "/feed")

    assert report.added == 2
    assert [said in each.message for each in report.failed] == [True]


async def test_a_server_that_does_not_answer_is_given_up(server):
    """The time is for the whole answer."""
    with pytest.raises(SourceTimeout, match=r"within 0\.05 s"):
        await HttpFeedFetcher(timeout=0.05, allow_private=True).fetch(f"{server.url}/silent", FeedValidators())


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a.example/", "javascript:alert(1)", "http://a.example:port/"]
)
async def test_only_http_is_fetched(url):
    """Other schemes are refused before anything is opened."""
    with pytest.raises(InvalidRequest, match="only http and https"):
        await HttpFeedFetcher().fetch(url, FeedValidators())


async def test_a_server_that_is_not_there_is_unavailable():
    """A refused connection is a failure of the source."""
    with pytest.raises(SourceUnavailable, match="cannot be fetched"):
        await HttpFeedFetcher(timeout=60, allow_private=True).fetch("http://127.0.0.1:9/", FeedValidators())


def test_a_spoilt_mark_file_only_costs_a_read(tmp_path):
    """What cannot be read counts as empty, and is replaced."""
    path = tmp_path / "feeds.json"
    path.write_text("{")
    marks = FeedMarkFile(path)

    assert FeedValidators() == marks.get("a")
    marks.put("a", FeedValidators(etag="x"))
    marks.put("b", FeedValidators(modified="y"))
    assert (FeedValidators(etag="x"), FeedValidators(modified="y")) == (
        FeedMarkFile(path).get("a"),
        FeedMarkFile(path).get("b"),
    )
    assert ["feeds.json"] == [each.name for each in tmp_path.iterdir()]


def test_marks_that_cannot_be_written_are_an_error(tmp_path):
    """The folder is a file."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreUnwritable):
        FeedMarkFile(tmp_path / "file" / "feeds.json").put("a", FeedValidators())


def test_the_command_line_fetches_a_feed(server, tmp_path, monkeypatch):
    """`ingest --as articles URL` loads it, and the second time asks only for changes."""
    monkeypatch.setenv("CONTEXTURE_FEED_PRIVATE", "true")

    def ingest():
        words = ["ingest", "--as", "articles", f"{server.url}/feed", "--home", str(tmp_path), "--json"]
        return json.loads(CliRunner().invoke(app, words).stdout)

    first, second = ingest(), ingest()

    assert (first["added"], second["read"]) == (2, 0)
    assert "If-None-Match" in server.requests[1]


async def test_fetching_does_not_block_the_loop(server):
    """While one server is silent, another answer arrives."""
    slow = asyncio.create_task(
        HttpFeedFetcher(timeout=60, allow_private=True).fetch(f"{server.url}/silent", FeedValidators())
    )
    fetched = await HttpFeedFetcher(timeout=60, allow_private=True).fetch(f"{server.url}/feed", FeedValidators())
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)

    assert (fetched.data, fetched.mark) == (FEED, FeedValidators(etag=ETAG, modified=DATE))


PAGE = """<html><head><title>Ferries return</title><meta property="article:published_time" content="2026-03-12"></head>
<body><nav><a href="/">Home</a> <a href="/sport">Sport</a></nav><article><h1>Ferries return</h1>{body}</article>
<aside>Most read</aside><footer>Copyright Harbour Herald</footer></body></html>""".format(
    body="".join(
        f"<p>{at} ferries left the harbour of Nortka for the islands after the storm had passed.</p>"
        for at in range(2, 9)
    )
)


def test_a_web_page_is_read_as_an_article(tmp_path):
    """The main text is the article; navigation, asides and the footer are not."""
    extractor = pytest.importorskip("contexture.adapters.feeds.extractor").TrafilaturaExtractor()
    (tmp_path / "page.html").write_text(PAGE, "utf-8")
    reader = ArticleFileReader(readers=("public",), now=NOON, parser=FeedparserParser(), extractor=extractor)
    (found,) = reader.read_files([tmp_path / "page.html"])

    assert ("Ferries return", "2026-03-12") == (found.article.title, found.article.published.date().isoformat())
    assert "8 ferries left the harbour" in found.article.text
    assert not any(word in found.article.text for word in ("Sport", "Most read", "Copyright"))


def test_a_page_without_a_text_is_a_problem(tmp_path):
    """A page that holds no article is reported, not stored."""
    extractor = pytest.importorskip("contexture.adapters.feeds.extractor").TrafilaturaExtractor()
    (tmp_path / "page.html").write_text("<html><body></body></html>", "utf-8")
    reader = ArticleFileReader(readers=("public",), now=NOON, parser=FeedparserParser(), extractor=extractor)
    (problem,) = reader.read_files([tmp_path / "page.html"])

    assert "no article text was found" in problem.message
