"""The workspace of the demonstration: loaded as of now by those who may read it, and one context for each scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from contexture.builders.workspace.values import ContextPayload
    from contexture.engine import Contexture
    from contexture.ingestion.blocks.load import ImportReport
    from contexture.types import Scope


_SUMMED = ("pages", "blocks", "added", "changed", "unchanged", "deleted", "links", "references", "resolved")


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
        """The request as it goes over the wire."""
        focus = {name: value for name, value in (("pageId", self.page), ("blockId", self.block)) if value}
        return {"query": self.query, **({"focus": focus} if focus else {}), "tokenBudget": {"total": self.total}}


WORKSPACE_SCENES = (
    WorkspaceScene(heading="The workspace of a company, asked by demo", query="What tasks are overdue?", user="demo"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Toured:
    """A scene and what was built for it."""

    scene: WorkspaceScene
    built: ContextPayload


async def settled(
    engine: Contexture, folder: Path, loader: Scope, member: Callable[[str], Scope], now: datetime
) -> ImportReport:
    """Load the sample: `company.json` as the loader, and each other file as the user it is named after."""
    from contexture.ingestion.blocks.load import ImportReport

    whole = ImportReport()
    for path in _files(folder):
        scope = loader if path.stem == "company" else member(path.stem)
        report = await _loaded(engine, path, scope, now)
        for name in _SUMMED:
            setattr(whole, name, getattr(whole, name) + getattr(report, name))
        whole.failed.extend(report.failed)
    return whole


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


async def _loaded(engine: Contexture, path: Path, scope: Scope, now: datetime) -> ImportReport:
    from contexture.ingestion.blocks.detect import Source
    from contexture.ingestion.blocks.memory import ImportMemory
    from contexture.ingestion.blocks.run import FOLDER, WorkspaceWriter, run_import

    return await run_import(
        WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=scope, now=now),
        Source(path=path, now=now),
        tenant=scope.tenant,
        memory=ImportMemory(engine.settings.home / FOLDER),
    )


async def toured(engine: Contexture, scene: WorkspaceScene, scope: Scope, now: datetime) -> Toured:
    """What the user of a scene is given."""
    return Toured(scene=scene, built=await engine.build_workspace(scene.request, scope=scope, now=now))


def tour_object(report: ImportReport, shown: Sequence[Toured], model: str) -> dict[str, Any]:
    """The workspace of the demonstration as JSON, counted as `model` counts."""
    from contexture.adapters.tokens.models import counter_for
    from contexture.cli.blocks import report_object
    from contexture.service.wire.workspace import workspace_object

    counter = counter_for(model)
    scenes = [
        {"query": each.scene.query, "user": each.scene.user, **workspace_object(each.built, counter)} for each in shown
    ]
    return {"loaded": report_object(report), "scenes": scenes}


def print_tour(out: Console, shown: Sequence[Toured], *, first: int) -> None:
    """One panel a scene, numbered from `first`."""
    from rich.text import Text

    from contexture.cli.tables import panel

    for number, each in enumerate(shown, start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        out.print(Text(f"   {each.scene.query}", style="italic"))
        tokens = f"{each.built.metadata.total_tokens} of {each.scene.total} tokens"
        out.print(panel(f"context, {tokens}, {each.built.build_id}", each.built.serialized))
