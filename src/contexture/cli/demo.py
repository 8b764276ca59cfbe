"""`contexture demo`: loads the sample corpus and news, builds contexts over them, and explains them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import contexture
from contexture.cli import _demo_samples as samples
from contexture.cli._common import Common, register_command
from contexture.cli._output import console, print_json, show_progress
from contexture.errors import NotFound

if TYPE_CHECKING:
    from contexture.builders.query.result import QueryContext
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ingestion.blocks.importer import ImportReport
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.loader import LoadReport, Progress
    from contexture.types import Scope

TENANT = "demo"
GROUPS = {"demo": (), "anna": ("support",), "boris": ("finance",)}
"""The users of the sample corpus and the groups they are in."""

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)
"""The fixed clock of the demonstration, so that its builds have the same ids every time."""

_LEDGER_ROWS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryScene:
    """One question of the demonstration."""

    heading: str
    query: str
    user: str
    max_tokens: int


QUERY_SCENES = (
    QueryScene(
        heading="A question in English by the user demo, who sees public records",
        query="How do I reset a gauge after a power cut?",
        user="demo",
        max_tokens=300,
    ),
    QueryScene(
        heading="A question in Russian about English mail, by anna of the group support",
        query="Почему с карты клиента дважды списали деньги?",
        user="anna",
        max_tokens=350,
    ),
    QueryScene(
        heading="A tight budget: the most useful passages are kept",
        query="What should operators check before updating to release 2.4?",
        user="demo",
        max_tokens=260,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuerySceneResult:
    """A scene with the context built for it, and the advice on one candidate that was left out."""

    scene: QueryScene
    built: QueryContext
    advice: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoRun:
    """What was loaded, and the results of all scenes."""

    corpus: LoadReport
    news: LoadReport
    shown: list[QuerySceneResult]
    headlines: list[samples.NewsSceneResult]
    executed: list[samples.CommandSceneResult]
    workspace: ImportReport
    toured: list[samples.WorkspaceSceneResult]
    documents: DocumentsReport
    researched: list[samples.ResearchSceneResult]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "demo")(demo)


def demo(
    common: Common,
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Serve the samples on this machine afterwards; not with --json.")
    ] = True,
) -> None:
    """Show contexts, news and commands over the samples, then serve them.

    The samples are loaded into a separate store inside the store's folder, and reused by the next run.
    """
    settings = demo_settings(common.settings())
    with show_progress(as_json=common.as_json) as progress:
        played = asyncio.run(_run_demo(settings, progress))
    if common.as_json:
        print_json(_demo_object(settings, played))
        return
    _print_demo(settings, played)
    if serve:
        from contexture.cli.serve import run_service

        run_service(settings, as_json=False, members=GROUPS)


def demo_settings(base: Settings) -> Settings:
    """Return the settings of the demonstration: its own store, tenant and user."""
    from contexture.wiring import sibling_store_address

    named = "truth" if base.in_qdrant else "store"
    place = {"home": base.home / "demo", named: sibling_store_address(base.database, "demo")}
    return base.model_copy(update={**place, "tenant": TENANT, "user": "demo", "groups": ()})


def corpus_folder() -> Path:
    """Return the folder of the sample corpus, in a clone or in an installed package."""
    return _sample_folder("corpus")


def news_folder() -> Path:
    """Return the folder of the sample news."""
    return _sample_folder("news")


def documents_folder() -> Path:
    """Return the folder of the sample documents."""
    return _sample_folder("documents")


def memories_folder() -> Path:
    """Return the folder of the sample memories."""
    return _sample_folder("memories")


def workspace_folder() -> Path:
    """Return the folder of the sample workspace."""
    return _sample_folder("workspace")


def _sample_folder(name: str) -> Path:
    found = Path(contexture.__file__).parent / "examples" / name
    if not found.is_dir():
        raise NotFound(f"the sample {name} is not at {str(found)!r}; reinstall contexture")
    return found


def demo_scope(user: str) -> Scope:
    """Return the scope of one of the users of the sample corpus."""
    from contexture.types import Scope

    return Scope(tenant=TENANT, user=user, groups=GROUPS[user])


async def _run_demo(settings: Settings, progress: Progress | None) -> DemoRun:
    from contexture.engine import open_store

    async with open_store(settings, embed_later=False) as engine:
        now = engine.clock.now()
        corpus_report = await _load_corpus(engine, progress)
        news_report = await samples.load_sample_news(engine, news_folder(), _loader_scope(), now)
        await samples.load_sample_memories(engine, memories_folder(), _loader_scope(), demo_scope, now)
        return DemoRun(
            corpus=corpus_report,
            news=news_report,
            shown=[await _run_query_scene(engine, scene, settings.collection) for scene in QUERY_SCENES],
            headlines=[
                await samples.run_news_scene(engine, scene, demo_scope(scene.user), now)
                for scene in samples.NEWS_SCENES
            ],
            executed=[
                await samples.run_command_scene(engine, scene, demo_scope("demo"), now)
                for scene in samples.COMMAND_SCENES
            ],
            workspace=await samples.load_sample_workspace(engine, workspace_folder(), _loader_scope(), demo_scope, now),
            toured=[
                await samples.run_workspace_scene(engine, scene, demo_scope(scene.user), now)
                for scene in samples.WORKSPACE_SCENES
            ],
            documents=await samples.load_sample_documents(engine, documents_folder(), _loader_scope(), now, progress),
            researched=[
                await samples.run_research_scene(engine, scene, demo_scope("demo"), NOW)
                for scene in samples.RESEARCH_SCENES
            ],
        )


async def load_samples(engine: Contexture, progress: Progress | None = None) -> None:
    """Load every sample; existing records are kept, but dates are set relative to now."""
    await _load_corpus(engine, progress)
    await samples.load_sample_news(engine, news_folder(), _loader_scope(), engine.clock.now())
    await samples.load_sample_workspace(engine, workspace_folder(), _loader_scope(), demo_scope, engine.clock.now())
    await samples.load_sample_documents(engine, documents_folder(), _loader_scope(), engine.clock.now(), progress)
    await samples.load_sample_memories(engine, memories_folder(), _loader_scope(), demo_scope, engine.clock.now())
    await engine.embed_rest()


async def _load_corpus(engine: Contexture, progress: Progress | None) -> LoadReport:
    from contexture.ingestion.loader import load_records

    paths = sorted(corpus_folder().iterdir())
    return await load_records(
        engine, paths, collection=engine.settings.collection, scope=_loader_scope(), progress=progress
    )


def _loader_scope() -> Scope:
    """Return a scope that can read everything it loads; otherwise it could not replace it later."""
    from contexture.types import Scope

    return Scope(tenant=TENANT, user="loader", groups=tuple(group for groups in GROUPS.values() for group in groups))


async def _run_query_scene(engine: Contexture, scene: QueryScene, collection: str) -> QuerySceneResult:
    from contexture.builders.query.request import QueryRequest
    from contexture.cli.explain import describe_outcome
    from contexture.ledger import Reason

    request = QueryRequest(query=scene.query, collection=collection, max_tokens=scene.max_tokens)
    built = await engine.build(request, scope=demo_scope(scene.user), now=NOW)
    dropped = next((entry.id for entry in built.ledger.entries if entry.reason is Reason.OVER_BUDGET), None)
    if dropped is None:
        return QuerySceneResult(scene=scene, built=built, advice="")
    found = await engine.explain(built.context.build_id, dropped, scope=demo_scope(scene.user))
    return QuerySceneResult(scene=scene, built=built, advice=f"{dropped}: {describe_outcome(found)}")


def _demo_object(settings: Settings, played: DemoRun) -> dict[str, Any]:
    from contexture.service.wire.builds import load_report_object

    scenes = [{"query": each.scene.query, "user": each.scene.user, **each.built.to_dict()} for each in played.shown]
    return {
        "home": settings.home,
        "loaded": load_report_object(played.corpus),
        "scenes": scenes,
        "news": samples.news_object(played.news, played.headlines),
        "commands": samples.commands_object(played.executed),
        "workspace": samples.workspace_scenes_object(played.workspace, played.toured),
        "documents": samples.documents_object(played.documents, played.researched),
    }


def _print_demo(settings: Settings, played: DemoRun) -> None:
    from rich.text import Text

    from contexture.cli._tables import ledger_view, panel

    out = console()
    report = played.corpus
    out.print(f"{report.read} sample records in {settings.home}: {report.added} added, {report.unchanged} unchanged")
    out.print(f"{played.news.read} articles, dated relative to now; {played.news.collapsed} are duplicates")
    out.print(f"{played.workspace.pages} workspace pages with {played.workspace.blocks} blocks")
    skipped = played.documents.failed
    out.print(f"{played.documents.read - len(skipped)} documents as pages")
    for reason in dict.fromkeys(problem.message for problem in skipped):
        out.print(f"{sum(problem.message == reason for problem in skipped)} documents were skipped: {reason}")
    for number, each in enumerate(played.shown, start=1):
        context = each.built.context
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.query}", style="italic"))
        title = f"context, {context.tokens} of {each.scene.max_tokens} tokens, {context.build_id}"
        out.print(panel(title, str(context.messages[1]["content"])))
        out.print(ledger_view(each.built.ledger, most=_LEDGER_ROWS))
        if each.advice:
            out.print(Text(each.advice, style="cyan"))
    samples.print_news(out, played.headlines, first=len(played.shown) + 1)
    samples.print_commands(out, played.executed, first=len(played.shown) + len(played.headlines) + 1)
    samples.print_workspace(
        out, played.toured, first=len(played.shown) + len(played.headlines) + len(played.executed) + 1
    )
    before = (played.shown, played.headlines, played.executed, played.toured)
    samples.print_research(out, played.researched, first=sum(map(len, before)) + 1)
    out.print()
    out.print("Try next:")
    for line in _next_commands(settings, played.shown[-1]):
        out.print(f"  {line}", soft_wrap=True)


def _next_commands(settings: Settings, last: QuerySceneResult) -> list[str]:
    command = f"contexture --home {settings.home}"
    return [
        f"{command} search 'storm' --tenant demo --user demo",
        f"{command} build query 'Who pays for spare pumps?' --tenant demo --user boris --group finance",
        f"{command} explain {last.built.context.build_id} --tenant demo --user demo",
        f"{command} search 'port strike' --collection articles --tenant demo --user demo",
        f"{command} ask '/events port strike window=1w' --tenant demo --user demo",
        f"{command} build workspace 'What did we decide about Drossel?' --page weekly --tenant demo --user anna",
        f"{command} ask --research 'Which decisions does the board need to take?' --tenant demo --user demo",
        "contexture ingest YOUR-FOLDER",
    ]
