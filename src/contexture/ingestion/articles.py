"""Loads news articles from JSONL files and RSS or Atom feeds, in batches; repeatable, with partial success."""

from __future__ import annotations

import hashlib
import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import msgspec
from msgspec import Meta
from typing_extensions import TypedDict

from contexture import feeds
from contexture.errors import ContextError, InvalidRequest, RedactionFailed, RequestError, StoreDamaged, StoreUnwritable
from contexture.ingestion import records
from contexture.ingestion._html_text import html_to_text
from contexture.ingestion.files import FoundFile, LoadProblem, walk_files
from contexture.ingestion.loader import LoadReport, Progress
from contexture.ingestion.records import MAX_FILE_BYTES, MAX_LINE_BYTES, iter_lines, parse_row, parse_time
from contexture.news.articles import Article, normalize_domain, safe_web_url
from contexture.news.store import NewsStore
from contexture.pages.values import outsider_key
from contexture.retrieval.compute_thread import iterate_in_thread
from contexture.types import PUBLIC, Scope

_BATCH_SIZE = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedSource:
    """Fetches feeds over HTTP.

    `again` ignores the stored feed validators of earlier loads; `name` separates the validators of several stores.
    """

    fetcher: feeds.FeedFetcher
    marks: feeds.FeedValidatorStore
    name: str = ""
    again: bool = False


async def load_articles(
    writer: ArticleIntake,
    reading: ArticleFileReader,
    *,
    paths: Sequence[Path] = (),
    urls: Sequence[str] = (),
    wire: FeedSource | None = None,
    progress: Progress | None = None,
) -> LoadReport:
    """Load every article below `paths` and in the feeds at `urls`; failures are reported and the rest is loaded.

    Loading the same articles again changes nothing. Feeds are fetched only if `wire` is given, with a conditional
    request: a feed that has not changed since it was last loaded completely is not sent again.
    """
    total = 0 if progress is None else sum(isinstance(item, SourcedArticle) for item in reading.read_files(paths))
    await writer.write_all(reading.read_files(paths), progress=progress, total=total)
    if wire is not None:
        for url in urls:
            await _load_feed(writer, reading, url, wire)
    return writer.report


class ArticleIntake(ABC):
    """Base of article writers: keeps the report of one load, and passes on each article once, in batches."""

    def __init__(self) -> None:
        self.report = LoadReport()
        self._ids: dict[str, str] = {}

    @abstractmethod
    async def write(self, batch: Sequence[SourcedArticle]) -> None:
        """Write a batch; the outcome is added to the report."""

    async def write_all(self, items: ArticleItems, *, progress: Progress | None = None, total: int = 0) -> None:
        """Write all articles; if several have one id, only the first is written."""
        async for batch in iterate_in_thread(_batch_articles(self._drop_duplicates(items))):
            await self.write(batch)
            if progress is not None:
                progress("loading", self.report.read, total)

    def add_problem(self, problem: LoadProblem) -> None:
        """Add a problem to the report."""
        (self.report.warnings if problem.warning else self.report.failed).append(problem)

    def _drop_duplicates(self, items: ArticleItems) -> Iterator[SourcedArticle]:
        for item in items:
            if isinstance(item, LoadProblem):
                self.add_problem(item)
                continue
            self.report.read += 1
            name, place = item.article.article_id, f"{item.path}:{item.line}"
            where = self._ids.setdefault(name, place)
            if where == place:
                yield item
            else:
                self.add_problem(item.problem(f"id {name!r} was read before, at {where}; the first is kept"))


class ArticleWriter(ArticleIntake):
    """Writes articles to a news store on behalf of one scope, with one timestamp."""

    def __init__(self, news: NewsStore, scope: Scope, now: datetime) -> None:
        super().__init__()
        self._news = news
        self._scope = scope
        self._now = now

    async def write(self, batch: Sequence[SourcedArticle]) -> None:
        """Write a batch; if it is refused, its articles are retried one by one."""
        try:
            done = await self._news.add(self._scope, [each.article for each in batch], now=self._now)
            self.report.added += done.added
            self.report.collapsed += done.collapsed
            self.report.unchanged += done.unchanged
        except (RequestError, RedactionFailed) as refusal:
            if len(batch) == 1:
                self.add_problem(batch[0].problem(str(refusal).removeprefix("articles[0]: ")))
            else:
                for each in batch:
                    await self.write([each])
        except (StoreDamaged, StoreUnwritable):  # nothing more can be stored
            raise
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)


async def _load_feed(writer: ArticleIntake, reading: ArticleFileReader, url: str, wire: FeedSource) -> None:
    key = f"{wire.name} {url}"
    try:
        fetched = await wire.fetcher.fetch(url, feeds.FeedValidators() if wire.again else wire.marks.get(key))
    except ContextError as failure:
        writer.add_problem(LoadProblem(path=url, message=str(failure)))
        return
    if fetched is None:
        writer.add_problem(LoadProblem(path=url, message="has not changed since it was loaded", warning=True))
        return
    before = _count_problems(writer.report)
    await writer.write_all(reading.read_feed(fetched.data, name=url, url=fetched.url))
    if _count_problems(writer.report) == before:  # otherwise the feed must be read again
        wire.marks.put(key, fetched.mark)


def _count_problems(report: LoadReport) -> int:
    return len(report.failed) + len(report.warnings)


def _batch_articles(found: Iterable[SourcedArticle]) -> Iterator[list[SourcedArticle]]:
    batch: list[SourcedArticle] = []
    for each in found:
        batch.append(each)
        if len(batch) >= _BATCH_SIZE:
            yield batch
            batch = []
    if batch:
        yield batch


FEED_SUFFIXES = frozenset({".xml", ".rss", ".atom", ".rdf"})
PAGE_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
_SNIFF_BYTES = 512
_MIN_FULL_TEXT_CHARS = 1_000  # a shorter body of a feed entry is a summary


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcedArticle:
    """An article, and the file and line it was read from."""

    article: Article
    path: str
    line: int = 0

    def problem(self, message: str, *, warning: bool = False) -> LoadProblem:
        """Build a problem that refers to this article."""
        return LoadProblem(path=self.path, line=self.line, message=message, warning=warning)


ArticleItems: TypeAlias = Iterator[SourcedArticle | LoadProblem]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleFileReader:
    """Reads articles from files and feeds.

    `readers` applies to articles that name none, `now` resolves relative ages, and `writer` is the scope that loads.
    `extractor` finds the text of HTML pages and of feeds with full text; without it pages are not read.
    """

    readers: tuple[str, ...]
    now: datetime
    parser: feeds.FeedParser
    extractor: feeds.PageExtractor | None = None
    writer: Scope | None = None

    def read_files(self, paths: Sequence[Path]) -> ArticleItems:
        """Yield articles and problems of files and folders, in the order of the paths and then by name."""
        for path in paths:
            for found in walk_files(path):
                if isinstance(found, LoadProblem):
                    yield found
                else:
                    yield from self._read_file(found, named=found.path == path)

    def read_feed(self, data: bytes, *, name: str, url: str = "") -> ArticleItems:
        """Yield the entries of a feed, numbered from 1; a fault is a problem, or a warning if there are entries."""
        found = self.parser.parse(data, url=url)
        if found.problem:
            yield LoadProblem(path=name, message=found.problem, warning=bool(found.entries))
        yield from self._read_entries(found, name, url)

    def read_row(self, line: bytes, *, name: str, number: int) -> ArticleItems:
        """Yield the article on one line of JSON."""
        try:
            article, warnings = row_to_article(parse_row(line), readers=self.readers, now=self.now, writer=self.writer)
        except InvalidRequest as failure:
            yield LoadProblem(path=name, line=number, message=str(failure))
            return
        found = SourcedArticle(article=article, path=name, line=number)
        yield from (found.problem(message, warning=True) for message in warnings)
        yield found

    def _read_entries(self, feed: feeds.Feed, name: str, url: str) -> ArticleItems:
        for number, entry in enumerate(feed.entries, start=1):
            body = self._extract_body(entry)
            article = entry_to_article(body, home=url or feed.url, readers=self.readers, writer=self.writer)
            yield SourcedArticle(article=article, path=name, line=number)

    def _extract_body(self, entry: feeds.FeedEntry) -> feeds.FeedEntry:
        """The entry with the main text of its body, if that is a whole article in HTML."""
        if self.extractor is None or len(entry.body) < _MIN_FULL_TEXT_CHARS or "<p" not in entry.body.lower():
            return entry
        found = self.extractor.extract(f"<html><body><article>{entry.body}</article></body></html>")
        return entry if found is None else replace(entry, body=html.escape(found.text, quote=False))

    def _read_page(self, leaf: FoundFile) -> ArticleItems:
        """Yield the article of an HTML page; one without a main text is a problem."""
        with leaf.path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        page = self.extractor.extract(data.decode("utf-8", "replace")) if self.extractor else None
        if len(data) > MAX_FILE_BYTES:
            yield LoadProblem(path=leaf.name, message=f"larger than {MAX_FILE_BYTES} bytes")
        elif page is None:
            missing = "" if self.extractor else '; install it with pip install "contexture-ai[web]"'
            yield LoadProblem(path=leaf.name, message=f"no article text was found in the page{missing}")
        else:
            url = safe_web_url(page.url)
            article = Article(
                article_id=make_article_id(url or f"{page.title}\n{page.text}", self.readers, self.writer),
                title=page.title,
                text=page.text,
                url=url,
                published=page.published,
                readers=self.readers,
            )
            yield SourcedArticle(article=article, path=leaf.name)

    def _read_file(self, leaf: FoundFile, *, named: bool) -> ArticleItems:
        suffix = leaf.path.suffix.lower()
        try:
            if suffix in PAGE_SUFFIXES:
                yield from self._read_page(leaf)
            elif suffix in records.JSONL_SUFFIXES or (
                named and suffix not in FEED_SUFFIXES and _first_byte(leaf.path) != b"<"
            ):
                yield from self._read_rows(leaf)
            elif named or suffix in FEED_SUFFIXES:
                yield from self._read_feed_file(leaf)
            else:
                reason = f"files of kind {suffix or leaf.path.name!r} are not loaded as articles"
                yield LoadProblem(path=leaf.name, message=reason, warning=True)
        except OSError as failure:
            yield LoadProblem(path=leaf.name, message=f"cannot be read: {failure.strerror}")

    def _read_rows(self, leaf: FoundFile) -> ArticleItems:
        with leaf.path.open("rb") as file:
            for number, line in iter_lines(file, MAX_LINE_BYTES):
                if line is None:
                    yield LoadProblem(path=leaf.name, line=number, message="the line is too long to be read")
                else:
                    yield from self.read_row(line, name=leaf.name, number=number)

    def _read_feed_file(self, leaf: FoundFile) -> ArticleItems:
        with leaf.path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            yield LoadProblem(path=leaf.name, message=f"larger than {MAX_FILE_BYTES} bytes")
        else:
            yield from self.read_feed(data, name=leaf.name)


def _first_byte(path: Path) -> bytes:
    """Return the first byte that is neither white space nor part of a byte order mark."""
    with path.open("rb") as file:
        return file.read(_SNIFF_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


ID_FIELDS = ("article_id", "id")
PUBLISHED_FIELDS = ("published", "published_at", "date", "time", "timestamp", "created_at")
READER_FIELDS = ("readers", "acl")
AGE_FIELD = "age_hours"

_PublishedField: TypeAlias = Annotated[
    str, Meta(description="When it was published, as an ISO date or time; the first of these names that can be read.")
]
_ReadersField: TypeAlias = Annotated[
    list[str], Meta(description="Principals that may read it, such as `user:anna`; the first of these names counts.")
]


class ArticleRow(TypedDict, total=False):
    """An article as a row of a JSONL file; it needs a title or a text."""

    article_id: Annotated[str, Meta(description="Its id; derived from its URL or text if left out.")]
    id: Annotated[str, Meta(description="Alias of `article_id`.")]
    title: Annotated[str, Meta(description="Its title.")]
    text: Annotated[str, Meta(description="Its text.")]
    url: Annotated[str, Meta(description="Its address.")]
    source: Annotated[str, Meta(description="Domain of its publisher.")]
    lang: Annotated[str, Meta(description="Its language, such as `en`; detected if left out.")]
    published: _PublishedField
    published_at: _PublishedField
    date: _PublishedField
    time: _PublishedField
    timestamp: _PublishedField
    created_at: _PublishedField
    age_hours: Annotated[float, Meta(description="Hours since it was published, instead of a date.")]
    readers: _ReadersField
    acl: _ReadersField


ARTICLE_FIELDS = frozenset(ArticleRow.__annotations__)
"""Fields that a row may use to describe an article."""

_MAX_AGE_HOURS = 24 * 365 * 1_000  # hours


def row_to_article(
    row: Mapping[str, Any], *, readers: tuple[str, ...], now: datetime, writer: Scope | None = None
) -> tuple[Article, tuple[str, ...]]:
    """Convert a row to an article, and return warnings for fields that were ignored.

    `age_hours` sets the date relative to `now`, for samples that are always recent. A time that cannot be parsed is
    ignored. Readers that cannot be parsed raise `InvalidRequest`, because guessing them could show the article to
    anyone. The id of a row without one is derived from its URL, or else from its text; see `make_article_id`.
    """
    title, text, url = (_optional_text(row, name) for name in ("title", "text", "url"))
    published, warnings = _parse_published(row, now)
    admitted = _parse_readers(row, readers)
    article = Article(
        article_id=next((found for name in ID_FIELDS if (found := _optional_text(row, name))), "")
        or make_article_id(url or f"{title}\n{text}", admitted, writer),
        title=title,
        text=text,
        url=url,
        source=_optional_text(row, "source"),
        published=published,
        lang=_optional_text(row, "lang"),
        readers=admitted,
    )
    return article, warnings


def article_to_row(article: Article) -> dict[str, Any]:
    """Return a row that `row_to_article` converts back to this article."""
    found = msgspec.to_builtins(article)
    return {name: value for name, value in found.items() if value and name not in ("also", "boilerplate")}


def entry_to_article(
    entry: feeds.FeedEntry, *, home: str, readers: tuple[str, ...], writer: Scope | None = None
) -> Article:
    """Convert an entry of the feed at `home` to an article: markup removed, identified by its guid or URL."""
    title, text, url = html_to_text(entry.title), html_to_text(entry.body), safe_web_url(entry.url)
    source = normalize_domain(url) or normalize_domain(home)
    return Article(
        article_id=make_article_id(f"{source}\n{entry.guid or entry.url or title + text}", readers, writer),
        title=title,
        text=text,
        url=url,
        source=source,
        published=entry.published,
        readers=readers,
    )


def make_article_id(known_by: str, readers: Sequence[str] = (PUBLIC,), writer: Scope | None = None) -> str:
    """Return a stable id derived from `known_by`; for articles that are not public, it also depends on the readers."""
    whose = () if PUBLIC in readers else (*sorted(set(readers)), *outsider_key(readers, writer))
    identity = "\0".join((known_by, *whose))
    return f"art-{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}"


def _optional_text(row: Mapping[str, Any], name: str) -> str:
    found = row.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidRequest(f"field {name!r} must be a string, not {found!r:.60}")
    return found


def _parse_readers(row: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    name = next((name for name in READER_FIELDS if row.get(name) is not None), None)
    if name is None:
        return default
    found = row[name]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in cast("list[object]", found)):
        raise InvalidRequest(f"field {name!r} must be a list of principals such as 'user:anna', not {found!r:.60}")
    return tuple(cast("list[str]", found))


def _parse_published(row: Mapping[str, Any], now: datetime) -> tuple[datetime | None, tuple[str, ...]]:
    warnings: list[str] = []
    for name in PUBLISHED_FIELDS:
        if row.get(name) in (None, ""):
            continue
        try:
            return parse_time(row[name]), tuple(warnings)
        except InvalidRequest as failure:
            warnings.append(f"field {name!r} is ignored: {failure}")
    age = row.get(AGE_FIELD)
    if age is None:
        return None, tuple(warnings)
    if isinstance(age, bool) or not isinstance(age, int | float) or not 0 <= age <= _MAX_AGE_HOURS:
        return None, (*warnings, f"field {AGE_FIELD!r} is ignored: {age!r:.60} is not a number of hours")
    return now - timedelta(hours=age), tuple(warnings)
