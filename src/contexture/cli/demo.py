"""`contexture demo`: the sample corpus and news, three contexts, and why they look as they do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import contexture
from contexture.cli.common import Common, command
from contexture.cli.demo_commands import COMMAND_SCENES, Executed, commands_object, executed, print_commands
from contexture.cli.demo_documents import (
    RESEARCH_SCENES,
    Researched,
    documents_object,
    paged,
    print_research,
    researched,
)
from contexture.cli.demo_memories import remembered
from contexture.cli.demo_news import NEWS_SCENES, Headlines, headlines, news_object, print_news, published
from contexture.cli.demo_workspace import WORKSPACE_SCENES, Toured, print_tour, settled, tour_object, toured
from contexture.cli.output import console, emit
from contexture.cli.progress import watched
from contexture.errors import NotFound

if TYPE_CHECKING:
    from contexture.builders.query.build import QueryContext
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ingestion.blocks.load import ImportReport
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.load import Progress
    from contexture.ingestion.writer import LoadReport
    from contexture.types import Scope

TENANT = "demo"
GROUPS = {"demo": (), "anna": ("support",), "boris": ("finance",)}
"""The users of the sample corpus and the groups they are in."""

NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)
"""The clock of the demonstration, so that its builds have the same names every time."""

_ROWS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """One question of the demonstration."""

    heading: str
    query: str
    user: str
    max_tokens: int


SCENES = (
    Scene(
        heading="A question in English, asked by demo, who reads what is public",
        query="How do I reset a gauge after a power cut?",
        user="demo",
        max_tokens=300,
    ),
    Scene(
        heading="A question in Russian about English mail, asked by anna of support",
        query="Почему с карты клиента дважды списали деньги?",
        user="anna",
        max_tokens=350,
    ),
    Scene(
        heading="A budget that bites: what is worth its tokens stays",
        query="What should operators check before updating to release 2.4?",
        user="demo",
        max_tokens=260,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A scene with what was built for it, and the advice on one candidate that was left out."""

    scene: Scene
    built: QueryContext
    advice: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What was loaded and everything that is shown."""

    corpus: LoadReport
    news: LoadReport
    shown: list[Shown]
    headlines: list[Headlines]
    executed: list[Executed]
    workspace: ImportReport
    toured: list[Toured]
    documents: DocumentsReport
    researched: list[Researched]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


def demo(
    common: Common,
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Go on to serve it on this machine; not with --json.")
    ] = True,
) -> None:
    """Show contexts, news and commands over the samples, then serve them.

    The corpus is loaded into a store of its own, below the one in use; a second run finds it there.
    """
    settings = settings_of(common.settings())
    with watched(as_json=common.as_json) as progress:
        played = asyncio.run(_play(settings, progress))
    if common.as_json:
        emit(_answer(settings, played))
        return
    _print(settings, played)
    if serve:
        from contexture.cli.serve import run

        run(settings, as_json=False, members=GROUPS)


def settings_of(base: Settings) -> Settings:
    """The settings of the demonstration: its own store, tenant and user."""
    from contexture.wiring import beside

    named = "truth" if base.in_qdrant else "store"
    place = {"home": base.home / "demo", named: beside(base.database, "demo")}
    return base.model_copy(update={**place, "tenant": TENANT, "user": "demo", "groups": ()})


def corpus() -> Path:
    """The sample corpus, in a clone and in an installed package alike."""
    return _sample("corpus")


def news() -> Path:
    """The sample news."""
    return _sample("news")


def documents() -> Path:
    """The sample documents."""
    return _sample("documents")


def memories() -> Path:
    """The sample memories."""
    return _sample("memories")


def workspace() -> Path:
    """The sample workspace."""
    return _sample("workspace")


def _sample(name: str) -> Path:
    found = Path(contexture.__file__).parent / "examples" / name
    if not found.is_dir():
        raise NotFound(f"the sample {name} is not at {str(found)!r}; reinstall contexture")
    return found


def scope(user: str) -> Scope:
    """One of the users of the sample corpus."""
    from contexture.types import Scope

    return Scope(tenant=TENANT, user=user, groups=GROUPS[user])


async def _play(settings: Settings, progress: Progress | None) -> Played:
    from contexture.engine import open_store

    async with open_store(settings) as engine:
        now = engine.clock.now()
        corpus_report = await _load_corpus(engine, progress)
        news_report = await published(engine, news(), _loader(), now)
        await remembered(engine, memories(), _loader(), scope, now)
        return Played(
            corpus=corpus_report,
            news=news_report,
            shown=[await _shown(engine, scene, settings.collection) for scene in SCENES],
            headlines=[await headlines(engine, scene, scope(scene.user), now) for scene in NEWS_SCENES],
            executed=[await executed(engine, scene, scope("demo"), now) for scene in COMMAND_SCENES],
            workspace=await settled(engine, workspace(), _loader(), scope, now),
            toured=[await toured(engine, scene, scope(scene.user), now) for scene in WORKSPACE_SCENES],
            documents=await paged(engine, documents(), _loader(), now, progress),
            researched=[await researched(engine, scene, scope("demo"), NOW) for scene in RESEARCH_SCENES],
        )


async def filled(engine: Contexture, progress: Progress | None = None) -> None:
    """Load the samples; what is there already is left alone, but for dates, which are those of now."""
    await _load_corpus(engine, progress)
    await published(engine, news(), _loader(), engine.clock.now())
    await settled(engine, workspace(), _loader(), scope, engine.clock.now())
    await paged(engine, documents(), _loader(), engine.clock.now(), progress)
    await remembered(engine, memories(), _loader(), scope, engine.clock.now())


async def _load_corpus(engine: Contexture, progress: Progress | None) -> LoadReport:
    from contexture.ingestion.load import load

    paths = sorted(corpus().iterdir())
    return await load(engine, paths, collection=engine.settings.collection, scope=_loader(), progress=progress)


def _loader() -> Scope:
    """Whoever loads must be able to read what is loaded, or could not replace it later."""
    from contexture.types import Scope

    return Scope(tenant=TENANT, user="loader", groups=tuple(group for groups in GROUPS.values() for group in groups))


async def _shown(engine: Contexture, scene: Scene, collection: str) -> Shown:
    from contexture.builders.query.request import QueryRequest
    from contexture.cli.explain import verdict
    from contexture.ledger import Reason

    request = QueryRequest(query=scene.query, collection=collection, max_tokens=scene.max_tokens)
    built = await engine.build(request, scope=scope(scene.user), now=NOW)
    dropped = next((entry.id for entry in built.ledger.entries if entry.reason is Reason.OVER_BUDGET), None)
    if dropped is None:
        return Shown(scene=scene, built=built, advice="")
    found = await engine.explain(built.context.build_id, dropped, scope=scope(scene.user))
    return Shown(scene=scene, built=built, advice=f"{dropped}: {verdict(found)}")


def _answer(settings: Settings, played: Played) -> dict[str, Any]:
    from contexture.service.shapes import built_object, report_object

    scenes = [{"query": each.scene.query, "user": each.scene.user, **built_object(each.built)} for each in played.shown]
    return {
        "home": settings.home,
        "loaded": report_object(played.corpus),
        "scenes": scenes,
        "news": news_object(played.news, played.headlines),
        "commands": commands_object(played.executed),
        "workspace": tour_object(played.workspace, played.toured, settings.model),
        "documents": documents_object(played.documents, played.researched),
    }


def _print(settings: Settings, played: Played) -> None:
    from rich.text import Text

    from contexture.cli.tables import ledger_view, panel

    out = console()
    report = played.corpus
    out.print(f"{report.read} sample records in {settings.home}: {report.added} added, {report.unchanged} unchanged")
    out.print(f"{played.news.read} articles, dated as of now; {played.news.collapsed} are copies of others")
    out.print(f"{played.workspace.pages} workspace pages with {played.workspace.blocks} blocks")
    out.print(f"{played.documents.read} documents as pages")
    for number, each in enumerate(played.shown, start=1):
        context = each.built.context
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.query}", style="italic"))
        title = f"context, {context.tokens} of {each.scene.max_tokens} tokens, {context.build_id}"
        out.print(panel(title, str(context.messages[1]["content"])))
        out.print(ledger_view(each.built.ledger, most=_ROWS))
        if each.advice:
            out.print(Text(each.advice, style="cyan"))
    print_news(out, played.headlines, first=len(played.shown) + 1)
    print_commands(out, played.executed, first=len(played.shown) + len(played.headlines) + 1)
    print_tour(out, played.toured, first=len(played.shown) + len(played.headlines) + len(played.executed) + 1)
    before = (played.shown, played.headlines, played.executed, played.toured)
    print_research(out, played.researched, first=sum(map(len, before)) + 1)
    out.print()
    out.print("Type next:")
    for line in _next(settings, played.shown[-1]):
        out.print(f"  {line}", soft_wrap=True)


def _next(settings: Settings, last: Shown) -> list[str]:
    door = f"contexture --home {settings.home}"
    return [
        f"{door} search 'storm' --tenant demo --user demo",
        f"{door} build query 'Who pays for spare pumps?' --tenant demo --user boris --group finance",
        f"{door} explain {last.built.context.build_id} --tenant demo --user demo",
        f"{door} search 'port strike' --collection articles --tenant demo --user demo",
        f"{door} ask '/events port strike window=1w' --tenant demo --user demo",
        f"{door} build workspace 'What did we decide about Drossel?' --page weekly --tenant demo --user anna",
        f"{door} ask --research 'Which decisions does the board need to take?' --tenant demo --user demo",
        "contexture ingest YOUR-FOLDER",
    ]
