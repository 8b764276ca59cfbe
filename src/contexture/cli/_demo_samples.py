"""The samples of `contexture demo`: for each kind, how it is loaded, its scenes, and how they are printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from contexture.builders.research.result import ResearchContext
    from contexture.builders.workspace.result import ContextPayload
    from contexture.conversation import Memory
    from contexture.engine import Contexture
    from contexture.ingestion.blocks.importer import ImportReport
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.loader import LoadReport, Progress
    from contexture.news.articles import FoundArticle
    from contexture.types import Scope


_MAX_ARTICLES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class NewsScene:
    """One search of the demonstration."""

    heading: str
    text: str
    hours: int
    user: str
    langs: tuple[str, ...] = ()


NEWS_SCENES = (
    NewsScene(
        heading="News of three days in English: copies of a story are merged, conflicting reports are not",
        text="dockers strike in the port",
        hours=72,
        user="demo",
        langs=("en",),
    ),
    NewsScene(
        heading="News of one day in any language, for anna, who also sees the briefings of support",
        text="Как забастовка докеров влияет на подписчиков?",
        hours=24,
        user="anna",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewsSceneResult:
    """A scene, the articles found for it, and the time of the search."""

    scene: NewsScene
    found: tuple[FoundArticle, ...]
    now: datetime


async def load_sample_news(engine: Contexture, folder: Path, loader: Scope, now: datetime) -> LoadReport:
    """Load the sample news, dated as of `now`."""
    from contexture import wiring
    from contexture.ingestion.articles import ArticleFileReader, ArticleWriter, load_articles
    from contexture.types import PUBLIC

    reading = ArticleFileReader(readers=(PUBLIC,), now=now, parser=wiring.feed_parser())
    return await load_articles(ArticleWriter(engine.news, loader, now), reading, paths=[folder])


async def run_news_scene(engine: Contexture, scene: NewsScene, scope: Scope, now: datetime) -> NewsSceneResult:
    """Run the search of a scene as its user."""
    from contexture.ledger import Trace
    from contexture.news.articles import NewsQuestion

    question = NewsQuestion(text=scene.text, since=now - timedelta(hours=scene.hours), langs=scene.langs)
    found = await engine.news.find(scope, question, k=_MAX_ARTICLES, rerank=True, trace=Trace())
    return NewsSceneResult(scene=scene, found=tuple(found), now=now)


def news_object(report: LoadReport, shown: Sequence[NewsSceneResult]) -> dict[str, Any]:
    """Return the news of the demonstration as JSON."""
    from contexture.service.wire.ingest import articles_report_object

    scenes = [
        {
            "query": each.scene.text,
            "user": each.scene.user,
            "hours": each.scene.hours,
            "articles": [_article_object(found) for found in each.found],
        }
        for each in shown
    ]
    return {"loaded": articles_report_object(report), "scenes": scenes}


def print_news(out: Console, shown: Sequence[NewsSceneResult], *, first: int) -> None:
    """Print one table per scene, numbered from `first`."""
    from rich.text import Text

    from contexture.cli._output import replace_control_chars
    from contexture.cli._tables import table

    for number, each in enumerate(shown, start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.text}", style="italic"))
        rows = table("score", "age", "source", "title", "also in", right=("score", "age"))
        for found in each.found:
            also = ", ".join(other.source for other in found.article.also)
            shown_as = (found.article.source, found.article.title, also)
            rows.add_row(
                f"{found.score:.3f}",
                _format_age(found, each.now),
                *(Text(replace_control_chars(part)) for part in shown_as),
            )
        out.print(rows)


def _article_object(found: FoundArticle) -> dict[str, Any]:
    article = found.article
    return {
        "article_id": article.article_id,
        "title": article.title,
        "source": article.source,
        "url": article.url,
        "lang": article.lang,
        "score": found.score,
        "also": article.also,
    }


def _format_age(found: FoundArticle, now: datetime) -> str:
    hours = (now - (found.article.published or now)).total_seconds() / 3600
    return "?" if found.dated_by_loading else f"{hours:.0f} h"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandScene:
    """One command of the demonstration."""

    heading: str
    line: str


COMMAND_SCENES = (
    CommandScene(
        heading="A question with two parts, answered with evidence",
        line='/ask "How many dockers are on strike, and what does the port say?" window=1w',
    ),
    CommandScene(
        heading="Where the sources disagree, in Russian",
        line='/synthesize тема="забастовка докеров" window=1w',
    ),
    CommandScene(heading="A timeline of events", line='/events topic="port strike in Northquay" window=1w'),
    CommandScene(heading="Who is connected with whom", line='/graph query="Ilse Marrow" window=2w hops=2'),
    CommandScene(heading="A topic to remember", line='/memory store "dockers strike"'),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandSceneResult:
    """A scene and its answer, as the service would send it."""

    scene: CommandScene
    answer: dict[str, Any]


async def run_command_scene(engine: Contexture, scene: CommandScene, scope: Scope, now: datetime) -> CommandSceneResult:
    """Execute the command of a scene."""
    found = await engine.execute.run({"raw_command": scene.line}, scope=scope, now=now)
    return CommandSceneResult(scene=scene, answer=found.to_dict())


def commands_object(shown: Sequence[CommandSceneResult]) -> list[dict[str, Any]]:
    """Return the commands and their answers as JSON objects, without the contexts they were executed in."""
    return [
        {"line": each.scene.line, **{name: value for name, value in each.answer.items() if name != "context"}}
        for each in shown
    ]


def print_commands(out: Console, shown: Sequence[CommandSceneResult], *, first: int) -> None:
    """Print the commands, numbered from `first`."""
    from rich.text import Text

    from contexture.cli.ask import render_command_answer

    for number, each in enumerate(shown, start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        for part in render_command_answer(each.answer):
            out.print(part)


_SUMMED_COUNTS = ("pages", "blocks", "added", "changed", "unchanged", "deleted", "links", "references", "resolved")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceScene:
    """One request of the demonstration."""

    heading: str
    query: str
    user: str
    page: str = ""
    block: str = ""
    total: int = 900

    @property
    def request(self) -> dict[str, Any]:
        """The request in its JSON form."""
        focus = {name: value for name, value in (("pageId", self.page), ("blockId", self.block)) if value}
        return {"query": self.query, **({"focus": focus} if focus else {}), "tokenBudget": {"total": self.total}}


WORKSPACE_SCENES = (
    WorkspaceScene(
        heading="The workspace of a company, for the user demo", query="What tasks are overdue?", user="demo"
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceSceneResult:
    """A scene and the context built for it."""

    scene: WorkspaceScene
    built: ContextPayload


async def load_sample_workspace(
    engine: Contexture, folder: Path, loader: Scope, member: Callable[[str], Scope], now: datetime
) -> ImportReport:
    """Load the sample: `company.json` as the loader, and each other file as the user it is named after."""
    from contexture.ingestion.blocks.importer import ImportReport

    whole = ImportReport()
    for path in _sample_files(folder):
        scope = loader if path.stem == "company" else member(path.stem)
        report = await _import_file(engine, path, scope, now)
        for name in _SUMMED_COUNTS:
            setattr(whole, name, getattr(whole, name) + getattr(report, name))
        whole.failed.extend(report.failed)
    return whole


def _sample_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


async def _import_file(engine: Contexture, path: Path, scope: Scope, now: datetime) -> ImportReport:
    from contexture.ingestion.blocks.history import ImportHistory
    from contexture.ingestion.blocks.import_source import ImportSource
    from contexture.ingestion.blocks.importer import IMPORTS_FOLDER, WorkspaceWriter, run_import

    return await run_import(
        WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=scope, now=now),
        ImportSource(path=path, now=now),
        tenant=scope.tenant,
        memory=ImportHistory(engine.settings.home / IMPORTS_FOLDER),
    )


async def run_workspace_scene(
    engine: Contexture, scene: WorkspaceScene, scope: Scope, now: datetime
) -> WorkspaceSceneResult:
    """Build the context of a scene as its user."""
    return WorkspaceSceneResult(scene=scene, built=await engine.build_workspace(scene.request, scope=scope, now=now))


def workspace_scenes_object(report: ImportReport, shown: Sequence[WorkspaceSceneResult]) -> dict[str, Any]:
    """Return the workspace of the demonstration as JSON."""
    from contexture.cli.blocks import import_report_object

    scenes = [{"query": each.scene.query, "user": each.scene.user, **each.built.to_dict()} for each in shown]
    return {"loaded": import_report_object(report), "scenes": scenes}


def print_workspace(out: Console, shown: Sequence[WorkspaceSceneResult], *, first: int) -> None:
    """Print one panel per scene, numbered from `first`."""
    from rich.text import Text

    from contexture.cli._tables import panel

    for number, each in enumerate(shown, start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.query}", style="italic"))
        tokens = f"{each.built.metadata.total_tokens} of {each.scene.total} tokens"
        out.print(panel(f"context, {tokens}, {each.built.build_id}", each.built.serialized))


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchScene:
    """One research question of the demonstration."""

    heading: str
    query: str
    num_results: int
    max_tokens: int


RESEARCH_SCENES = (
    ResearchScene(
        heading="Research over PDF, Word and PowerPoint files: numbered sources, page by page",
        query="What did the tidal pilot cost, and when are the turbines paid back?",
        num_results=3,
        max_tokens=500,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchSceneResult:
    """A scene and the context built for it."""

    scene: ResearchScene
    built: ResearchContext


async def load_sample_documents(
    engine: Contexture, folder: Path, loader: Scope, now: datetime, progress: Progress | None
) -> DocumentsReport:
    """Load the sample documents; those already stored are skipped."""
    from contexture.ingestion.documents import LoadOptions, document_files, load_documents
    from contexture.wiring.content import DEFAULT_PAGE_FILES, reading_workers

    leaves = document_files([folder], DEFAULT_PAGE_FILES)
    async with reading_workers() as workers:
        return await load_documents(
            engine.pages, workers, leaves, LoadOptions(scope=loader, now=now), progress=progress
        )


async def run_research_scene(
    engine: Contexture, scene: ResearchScene, scope: Scope, now: datetime
) -> ResearchSceneResult:
    """Build the context of a scene."""
    built = await engine.build_research(
        scene.query, scene.num_results, scope=scope, now=now, max_tokens=scene.max_tokens
    )
    return ResearchSceneResult(scene=scene, built=built)


def documents_object(report: DocumentsReport, shown: Sequence[ResearchSceneResult]) -> dict[str, Any]:
    """Return the documents of the demonstration as JSON."""
    from contexture.service.wire.builds import load_report_object

    scenes = [{"query": each.scene.query, **each.built.to_dict()} for each in shown]
    return {"loaded": load_report_object(report), "scenes": scenes}


def print_research(out: Console, shown: Sequence[ResearchSceneResult], *, first: int) -> None:
    """Print a panel per scene, numbered from `first`."""
    from rich.text import Text

    from contexture.cli._tables import panel

    for number, each in enumerate((each for each in shown if each.built.sources), start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.query}", style="italic"))
        title = f"context, {each.built.total_tokens} of {each.scene.max_tokens} tokens, {each.built.build_id}"
        out.print(panel(title, each.built.formatted_text))


_USER_PREFIX = "user:"


async def load_sample_memories(
    engine: Contexture, folder: Path, loader: Scope, member: Callable[[str], Scope], now: datetime
) -> int:
    """Load the sample memories, dated as of `now`; returns how many.

    A user's own memories are loaded as that user, the others as the loader.
    """
    settings = engine.settings
    place = {"namespace": settings.memory_namespace, "universe": settings.memory_universe}
    by_owner: dict[str, list[Memory]] = {}
    for row in _read_rows(folder):
        by_owner.setdefault(_row_owner(row), []).append(_parse_memory(row, place, now))
    for owner, memories in by_owner.items():
        await engine.memory.remember(member(owner) if owner else loader, memories)
    return sum(map(len, by_owner.values()))


def _read_rows(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def _row_owner(row: Mapping[str, Any]) -> str:
    """Return the user if the memory is private, otherwise an empty string."""
    return next((each.removeprefix(_USER_PREFIX) for each in row["readers"] if each.startswith(_USER_PREFIX)), "")


def _parse_memory(row: Mapping[str, Any], place: Mapping[str, str], now: datetime) -> Memory:
    from contexture.memory_payloads import memory_from_json

    said = {name: value for name, value in row.items() if name != "age_hours"}
    return memory_from_json({**said, "timestamp": (now - timedelta(hours=row["age_hours"])).isoformat()}, **place)
