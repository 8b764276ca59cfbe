"""Documents in the demonstration: files read into pages, and one research question over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from contexture.builders.research.values import ResearchContext
    from contexture.engine import Contexture
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.load import Progress
    from contexture.types import Scope


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
class Researched:
    """A scene and the context that was built for it."""

    scene: ResearchScene
    built: ResearchContext


async def paged(
    engine: Contexture, folder: Path, loader: Scope, now: datetime, progress: Progress | None
) -> DocumentsReport:
    """Load the sample documents; those that are there already are left alone."""
    from contexture.ingestion.documents import Loading, document_files, load_documents
    from contexture.wiring.documents import PAGED_FILES, reading_workers

    leaves = document_files([folder], PAGED_FILES)
    async with reading_workers() as workers:
        return await load_documents(engine.pages, workers, leaves, Loading(scope=loader, now=now), progress=progress)


async def researched(engine: Contexture, scene: ResearchScene, scope: Scope, now: datetime) -> Researched:
    """The context of a scene."""
    built = await engine.build_research(
        scene.query, scene.num_results, scope=scope, now=now, max_tokens=scene.max_tokens
    )
    return Researched(scene=scene, built=built)


def documents_object(report: DocumentsReport, shown: Sequence[Researched]) -> dict[str, Any]:
    """The documents of the demonstration as JSON."""
    from contexture.service.shapes import report_object
    from contexture.service.wire.research import research_object

    scenes = [{"query": each.scene.query, **research_object(each.built)} for each in shown]
    return {"loaded": report_object(report), "scenes": scenes}


def print_research(out: Console, shown: Sequence[Researched], *, first: int) -> None:
    """A panel a scene, numbered from `first`."""
    from rich.text import Text

    from contexture.cli.tables import panel

    for number, each in enumerate(shown, start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.query}", style="italic"))
        title = f"context, {each.built.total_tokens} of {each.scene.max_tokens} tokens, {each.built.build_id}"
        out.print(panel(title, each.built.formatted_text))
