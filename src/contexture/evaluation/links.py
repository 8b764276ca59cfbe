"""Whether pages that are linked with a focused page score above those that are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from contexture.config import Settings
from contexture.engine import Contexture
from contexture.evaluation.bench import Progress, loaded, silent
from contexture.evaluation.metrics import mean
from contexture.ingestion.blocks.detect import Source
from contexture.ingestion.blocks.load import ImportReport, import_blocks
from contexture.ingestion.blocks.memory import Remembered
from contexture.ingestion.blocks.run import WorkspaceWriter

_LINKS = 10_000


async def evaluate(folder: Path, *, settings: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """The pairwise AUC, a mean over pages that have links: how often a linked page scores above one that is not.

    A page is linked when a block of either names the other. All links of a page are followed, however many, so that
    each partner is scored; a page that no collector finds scores 0, and a tie counts half.
    """
    show = progress or silent
    async with loaded((), every_link(settings), show) as engine:
        now = engine.clock.now()
        writer = WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=engine.scope, now=now)
        done = await import_blocks(writer, Source(path=folder, now=now).read(), source="links", progress=show)
        await engine.index.optimize()
        return await measured(engine, done.remembered, done.report, now, show)


def every_link(settings: Settings) -> Settings:
    """The settings, with as many relations as a page may have."""
    collectors = {"collectors": {"relations": {"max_items": _LINKS}}}
    return settings.model_copy(update={"workspace": collectors})


async def measured(
    engine: Contexture, imported: Remembered, report: ImportReport, now: datetime, show: Progress
) -> dict[str, Any]:
    """The measure over what is stored already."""
    pages = {kept.blocks[0].id: [block.id for block in kept.blocks] for kept in imported.documents.values()}
    linked = await _linked(engine, pages)
    found: list[float] = []
    for number, (page, partners) in enumerate(sorted(linked.items()), start=1):
        scores = await _scores(engine, page, pages, now)
        found.append(auc(scores, partners, set(pages) - partners - {page}))
        show("build", number, len(linked))
    return {
        "auc": mean(found),
        "pages": len(pages),
        "focused": len(found),
        "blocks": report.blocks,
        "links": report.links,
        "unresolved": len(report.unresolved),
    }


def auc(scores: Mapping[str, float], good: set[str], others: set[str]) -> float:
    """How often one of `good` scores above one of `others`; ties count half, and 1 where there are no pairs."""
    if not good or not others:
        return 1.0
    high, low = [scores.get(name, 0.0) for name in good], [scores.get(name, 0.0) for name in others]
    wins = sum((above > below) + 0.5 * (above == below) for above in high for below in low)
    return wins / (len(high) * len(low))


async def _linked(engine: Contexture, pages: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """By page, those that it names or that name it."""
    home = {block: page for page, blocks in pages.items() for block in blocks}
    found: dict[str, set[str]] = {}
    for page, blocks in pages.items():
        for link in await engine.blocks.links(engine.scope, blocks, limit=_LINKS):
            other = home.get(link.target)
            if other is not None and other != page:
                found.setdefault(page, set()).add(other)
                found.setdefault(other, set()).add(page)
    return found


async def _scores(engine: Contexture, page: str, pages: Mapping[str, Sequence[str]], now: datetime) -> dict[str, float]:
    """The best score of each page's blocks in a context that the page is the focus of."""
    home = {block: name for name, blocks in pages.items() for block in blocks}
    (focused,) = await engine.blocks.get(engine.scope, [page])
    request = {"query": focused.text, "focus": {"pageId": page}}
    built = await engine.workspaces.build(request, scope=engine.scope, now=now)
    best: dict[str, float] = {}
    for entry in built.ledger.entries:
        name = home.get(entry.id.partition(":")[2])  # behind the section
        if name is not None:
            best[name] = max(best.get(name, 0.0), entry.score)
    return best
