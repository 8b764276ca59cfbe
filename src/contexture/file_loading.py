"""`FileLoader` loads files and folders of any kind into the stores of one engine."""

from collections.abc import Collection as Some
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from contexture import wiring
from contexture.answer.permissions import require_permission
from contexture.config import Settings
from contexture.errors import InvalidRequest
from contexture.ingestion.articles import ArticleFileReader, ArticleWriter, load_articles
from contexture.ingestion.documents import DocumentsReport, LoadOptions, document_files, load_documents, merge_reports
from contexture.ingestion.files import FoundFile, LoadProblem
from contexture.ingestion.loader import (
    DEFAULT_FIELDS,
    OPTIMIZE_THRESHOLD,
    LoadReport,
    LoadTarget,
    Progress,
    load_records,
)
from contexture.ingestion.memories import load_memories
from contexture.news.articles import ARTICLES
from contexture.news.store import NewsStore
from contexture.pages.records import PAGES
from contexture.pages.store import PageStore
from contexture.ports import Clock, MemoryService, Policy
from contexture.retrieval.backfill import VectorBackfill
from contexture.types import PUBLIC, FieldType, Scope

FileKind: TypeAlias = Literal["documents", "articles", "memories"]
"""The content of files where it does not follow from their type."""


class LoadableEngine(LoadTarget, Protocol):
    """The stores of `contexture.Contexture` that files are loaded into."""

    settings: Settings
    policy: Policy
    memory: MemoryService
    pages: PageStore
    backfill: VectorBackfill | None

    @property
    def news(self) -> NewsStore:
        """The store of articles."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLoader:
    """Loads files and folders for a scope.

    Records, pages and articles of large loads are found by words at once, and by their vectors when `load` returns.
    `fields` are payload fields of records that filters may use. With `again`, what has not changed is written as well.
    """

    engine: LoadableEngine
    scope: Scope
    again: bool = False
    fields: Mapping[str, FieldType] = field(default_factory=lambda: DEFAULT_FIELDS)
    progress: Progress | None = None

    async def load(
        self,
        paths: Sequence[Path],
        *,
        kind: str | None = None,
        readers: Sequence[str] | None = None,
        urls: Sequence[str] = (),
    ) -> LoadReport:
        """Load everything at and below `paths`, and for articles the feeds at `urls`, after asking the policy.

        Raises `InvalidRequest` if no path exists or the kind cannot be loaded; a missing path among others is reported.
        """
        if paths and not any(path.exists() for path in paths):
            raise InvalidRequest(f"there is no file or folder {str(paths[0])!r}")
        if isinstance(readers, str):
            raise InvalidRequest(f"readers must be a list of principals such as 'user:anna', not {readers!r}")
        principals = None if readers is None else tuple(readers)
        match kind:
            case "articles":
                return await self._load_articles(paths, urls, principals or (PUBLIC,))
            case "memories":
                return await self._load_memories(paths, principals or ())
            case None | "documents":
                return await self._load_documents(paths, principals or (PUBLIC,), all_pages=kind is not None)
            case _:
                raise InvalidRequest(
                    f"kind {str(kind)!r} is not one of documents, articles and memories; "
                    "for blocks use contexture ingest --as blocks"
                )

    async def _load_documents(self, paths: Sequence[Path], readers: tuple[str, ...], *, all_pages: bool) -> LoadReport:
        engine, settings = self.engine, self.engine.settings
        await self._require_permission(settings.collection, len(paths))
        endings: Some[str] = page_extensions(everything=all_pages)
        page_files = document_files(paths, endings)
        self._defer_vectors()
        report = await load_records(
            engine,
            paths,
            collection=settings.collection,
            acl=readers,
            scope=self.scope,
            fields=self.fields,
            again=self.again,
            progress=self.progress,
            skip=endings,
        )
        if page_files:
            report = merge_reports(await self.load_pages(page_files, readers), report)
        await self._embed_rest()
        return report

    async def load_pages(self, files: Sequence[FoundFile], readers: tuple[str, ...]) -> DocumentsReport:
        """Read files in separate processes, and write their pages, after asking the policy."""
        engine = self.engine
        await self._require_permission(PAGES.name, len(files))
        options = LoadOptions(scope=self.scope, now=engine.clock.now(), readers=readers, again=self.again)
        async with wiring.reading_workers() as workers:
            report = await load_documents(engine.pages, workers, files, options, progress=self.progress)
        if report.pages >= OPTIMIZE_THRESHOLD:
            await engine.index.optimize()
        return report

    async def _load_articles(self, paths: Sequence[Path], urls: Sequence[str], readers: tuple[str, ...]) -> LoadReport:
        engine, now = self.engine, self.engine.clock.now()
        await self._require_permission(ARTICLES.name, len(paths) + len(urls))
        self._defer_vectors()
        report = await load_articles(
            ArticleWriter(engine.news, self.scope, now),
            ArticleFileReader(
                readers=readers,
                now=now,
                parser=wiring.feed_parser(),
                extractor=wiring.page_extractor(),
                writer=self.scope,
            ),
            paths=paths,
            urls=urls,
            wire=wiring.feed_source(engine.settings, again=self.again),
            progress=self.progress,
        )
        if report.added >= OPTIMIZE_THRESHOLD:
            await engine.index.optimize()
        await self._embed_rest()
        return report

    async def _load_memories(self, paths: Sequence[Path], readers: tuple[str, ...]) -> LoadReport:
        settings = self.engine.settings
        return await load_memories(
            self.engine.memory,
            self.scope,
            paths,
            readers=readers,
            namespace=settings.memory_namespace,
            universe=settings.memory_universe,
            progress=self.progress,
        )

    def _defer_vectors(self) -> None:
        if self.engine.backfill is not None:
            self.engine.backfill.defer()

    async def _embed_rest(self) -> None:
        if self.engine.backfill is not None:
            await self.engine.backfill.finish(self.progress and partial(self.progress, "embedding passages"))

    async def _require_permission(self, collection: str, count: int) -> None:
        await require_permission(self.engine.policy, self.scope, "ingest", {"collection": collection, "records": count})


def page_extensions(*, everything: bool) -> Some[str]:
    """Return the extensions of files loaded as pages: all supported ones, or those that cannot be records."""
    return wiring.PAGE_FILES if everything else wiring.DEFAULT_PAGE_FILES


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachedFiles:
    """Loads files that blocks link to as documents of pages."""

    loader: FileLoader

    async def load(
        self, files: Sequence[FoundFile], readers: tuple[str, ...]
    ) -> tuple[Mapping[str, str], Sequence[LoadProblem]]:
        """Load files for these readers; returns the ids of their documents by name, and problems as warnings."""
        report = await self.loader.load_pages(files, readers)
        ids = {each.path: each.doc_id for each in report.files if each.doc_id and each.status != "failed"}
        return ids, [*report.warnings, *(replace(each, warning=True) for each in report.failed)]
