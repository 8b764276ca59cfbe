"""Articles from JSONL files and from feeds, each row and entry judged by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from contexture.errors import InvalidRequest
from contexture.feeds import Feed, FeedParser
from contexture.ingestion import jsonl
from contexture.ingestion.article_rows import article_from, entry_article
from contexture.ingestion.files import LARGEST
from contexture.ingestion.jsonl import LONGEST, lines, parse_row
from contexture.ingestion.problems import Problem
from contexture.ingestion.walk import Leaf, walk
from contexture.news.articles import Article
from contexture.types import Scope

FEEDS = frozenset({".xml", ".rss", ".atom", ".rdf"})
_SAMPLE = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """An article and the place it was read from."""

    article: Article
    path: str
    line: int = 0

    def problem(self, message: str, *, warning: bool = False) -> Problem:
        """Something that is wrong with this article."""
        return Problem(path=self.path, line=self.line, message=message, warning=warning)


Items: TypeAlias = Iterator[Told | Problem]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How articles are read: who may see those that do not say, when, through which parser, and for whom."""

    readers: tuple[str, ...]
    now: datetime
    parser: FeedParser
    writer: Scope | None = None

    def files(self, paths: Sequence[Path]) -> Items:
        """Articles and problems of files and folders, in the order of the paths and then by name."""
        for path in paths:
            for found in walk(path):
                if isinstance(found, Problem):
                    yield found
                else:
                    yield from self._file(found, named=found.path == path)

    def feed(self, data: bytes, *, name: str, url: str = "") -> Items:
        """The entries of a feed, numbered from 1; what is wrong with it is a problem, or a warning if it has some."""
        found = self.parser.parse(data, url=url)
        if found.problem:
            yield Problem(path=name, message=found.problem, warning=bool(found.entries))
        yield from self._entries(found, name, url)

    def row(self, line: bytes, *, name: str, number: int) -> Items:
        """The article of one line of JSON."""
        try:
            article, warnings = article_from(parse_row(line), readers=self.readers, now=self.now, writer=self.writer)
        except InvalidRequest as failure:
            yield Problem(path=name, line=number, message=str(failure))
            return
        found = Told(article=article, path=name, line=number)
        yield from (found.problem(message, warning=True) for message in warnings)
        yield found

    def _entries(self, feed: Feed, name: str, url: str) -> Items:
        for number, entry in enumerate(feed.entries, start=1):
            article = entry_article(entry, home=url or feed.url, readers=self.readers, writer=self.writer)
            yield Told(article=article, path=name, line=number)

    def _file(self, leaf: Leaf, *, named: bool) -> Items:
        suffix = leaf.path.suffix.lower()
        try:
            if suffix in jsonl.SUFFIXES or (named and suffix not in FEEDS and _begins(leaf.path) != b"<"):
                yield from self._rows(leaf)
            elif named or suffix in FEEDS:
                yield from self._feed_file(leaf)
            else:
                reason = f"files of kind {suffix or leaf.path.name!r} are not loaded as articles"
                yield Problem(path=leaf.name, message=reason, warning=True)
        except OSError as failure:
            yield Problem(path=leaf.name, message=f"cannot be read: {failure.strerror}")

    def _rows(self, leaf: Leaf) -> Items:
        with leaf.path.open("rb") as file:
            for number, line in lines(file, LONGEST):
                if line is None:
                    yield Problem(path=leaf.name, line=number, message="the line is too long to be read")
                else:
                    yield from self.row(line, name=leaf.name, number=number)

    def _feed_file(self, leaf: Leaf) -> Items:
        with leaf.path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            yield Problem(path=leaf.name, message=f"larger than {LARGEST} bytes")
        else:
            yield from self.feed(data, name=leaf.name)


def _begins(path: Path) -> bytes:
    """The first byte that is neither white space nor a byte order mark."""
    with path.open("rb") as file:
        return file.read(_SAMPLE).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
