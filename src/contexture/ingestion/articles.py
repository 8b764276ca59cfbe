"""Loads articles from files and feeds: in batches, as often as you like, and never all or nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from contexture.errors import ContextError, RedactionFailed, RequestError
from contexture.feeds import FeedFetcher, FeedMarks, Mark
from contexture.ingestion.article_files import Items, Reading, Told
from contexture.ingestion.load import Progress
from contexture.ingestion.problems import Problem
from contexture.ingestion.writer import LoadReport
from contexture.news.store import NewsStore
from contexture.types import Scope

_BATCH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """What brings feeds over HTTP; `again` asks for them whatever was loaded before, `name` tells stores apart."""

    fetcher: FeedFetcher
    marks: FeedMarks
    name: str = ""
    again: bool = False


async def load_articles(
    writer: ArticleIntake,
    reading: Reading,
    *,
    paths: Sequence[Path] = (),
    urls: Sequence[str] = (),
    wire: Wire | None = None,
    progress: Progress | None = None,
) -> LoadReport:
    """Every article below `paths` and in the feeds at `urls`; what fails is reported and the rest goes on.

    Loading the same again changes nothing. A feed is fetched only when `wire` is given, and asked for only if it
    has changed since it was last loaded whole.
    """
    total = 0 if progress is None else sum(isinstance(item, Told) for item in reading.files(paths))
    await writer.take(reading.files(paths), progress=progress, total=total)
    if wire is not None:
        for url in urls:
            await _load_url(writer, reading, url, wire)
    return writer.report


class ArticleIntake(ABC):
    """Keeps the report of one load, and passes on each article once, in batches."""

    def __init__(self) -> None:
        self.report = LoadReport()
        self._ids: dict[str, str] = {}

    @abstractmethod
    async def write(self, batch: Sequence[Told]) -> None:
        """Take a batch; what becomes of it is in the report."""

    async def take(self, items: Items, *, progress: Progress | None = None, total: int = 0) -> None:
        """Write what was read; of articles with one id the first."""
        for batch in _batches(self._distinct(items)):
            await self.write(batch)
            if progress is not None:
                progress("loading", self.report.read, total)

    def note(self, problem: Problem) -> None:
        """Report something that is wrong."""
        (self.report.warnings if problem.warning else self.report.failed).append(problem)

    def _distinct(self, items: Items) -> Iterator[Told]:
        for item in items:
            if isinstance(item, Problem):
                self.note(item)
                continue
            self.report.read += 1
            name, place = item.article.article_id, f"{item.path}:{item.line}"
            where = self._ids.setdefault(name, place)
            if where == place:
                yield item
            else:
                self.note(item.problem(f"id {name!r} was read before, at {where}; the first is kept"))


class ArticleWriter(ArticleIntake):
    """Writes articles to a news store as one scope, at one time."""

    def __init__(self, news: NewsStore, scope: Scope, now: datetime) -> None:
        super().__init__()
        self._news = news
        self._scope = scope
        self._now = now

    async def write(self, batch: Sequence[Told]) -> None:
        """Write a batch; a refused one is tried again one by one."""
        try:
            done = await self._news.add(self._scope, [each.article for each in batch], now=self._now)
            self.report.added += done.added
            self.report.collapsed += done.collapsed
            self.report.unchanged += done.unchanged
        except (RequestError, RedactionFailed) as refusal:
            if len(batch) == 1:
                self.note(batch[0].problem(str(refusal).removeprefix("articles[0]: ")))
            else:
                for each in batch:
                    await self.write([each])
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)


async def _load_url(writer: ArticleIntake, reading: Reading, url: str, wire: Wire) -> None:
    key = f"{wire.name} {url}"
    try:
        fetched = await wire.fetcher.fetch(url, Mark() if wire.again else wire.marks.get(key))
    except ContextError as failure:
        writer.note(Problem(path=url, message=str(failure)))
        return
    if fetched is None:
        writer.note(Problem(path=url, message="has not changed since it was loaded", warning=True))
        return
    before = _troubles(writer.report)
    await writer.take(reading.feed(fetched.data, name=url, url=fetched.url))
    if _troubles(writer.report) == before:  # else it must be read again
        wire.marks.put(key, fetched.mark)


def _troubles(report: LoadReport) -> int:
    return len(report.failed) + len(report.warnings)


def _batches(found: Iterable[Told]) -> Iterator[list[Told]]:
    batch: list[Told] = []
    for each in found:
        batch.append(each)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
