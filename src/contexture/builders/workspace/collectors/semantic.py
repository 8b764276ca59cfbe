"""What the workspace says about the query, found by meaning and by words; and the tasks due when it asks."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.builders.workspace.collectors.rows import selected_rows
from contexture.builders.workspace.desk import COLLECTION, Desk
from contexture.builders.workspace.values import SectionType
from contexture.errors import UnknownCollection
from contexture.retrieval.search import BM25, SEMANTIC, Found, HybridSearch
from contexture.types import And, AnyOf, Candidate, Filter, Not, Range
from contexture.workspace import Block

DUE = 1.0
_READ = 20  # open tasks read for each one wanted: those due before the dates asked about come first


class SemanticCollector:
    """Searches the blocks that the scope may read; hints narrow the search itself."""

    def __init__(self, search: HybridSearch) -> None:
        self._search = search

    async def collect(self, desk: Desk) -> Sequence[Candidate]:
        """The best blocks for the query, the rows it selects, and the tasks whose dates it asks about."""
        found = await self._found(desk)
        blocks = {block.id: (block, found[block.id]) for block in await desk.store.get(desk.scope, list(found))}
        for row, relevance in await selected_rows(desk, self._search, filter_of(desk)):
            blocks[row.id] = (row, max(relevance, found.get(row.id, 0.0)))
        due = {block.id: (block, DUE) for block in await _due(desk)}
        return [desk.lay(SectionType.SEMANTIC, block, score) for block, score in {**due, **blocks, **due}.values()]

    async def _found(self, desk: Desk) -> dict[str, float]:
        """The best `top_k` blocks with their scores; a block of several passages counts by its best."""
        config = desk.config.collectors.semantic
        if config.top_k < 1:
            return {}
        try:
            found = await self._search.search(
                desk.scope,
                COLLECTION,
                question_of(desk),
                where=filter_of(desk),
                pool=2 * config.top_k,
                trace=desk.trace,
            )
        except UnknownCollection:  # the tenant has not written a block yet
            return {}
        best: dict[str, float] = {}
        for each in found:
            if _matches(each, config.min_threshold):
                best.setdefault(each.hit.record.id, each.score)
        return dict(list(best.items())[: config.top_k])


def question_of(desk: Desk) -> str:
    """What is searched for: the query, and what stands at the focus when the query points there."""
    near = desk.place.nearest
    return f"{desk.question}\n{near.text}" if near is not None and desk.intent.here else desk.question


def filter_of(desk: Desk) -> Filter | None:
    """The hints as a filter of the search."""
    hints = desk.request.hints
    parts: list[Filter] = []
    if hints.time_range is not None and (hints.time_range.start or hints.time_range.end):
        parts.append(Range(field="time", gte=hints.time_range.start, lte=hints.time_range.end))
    if hints.exclude_blocks:
        parts.append(Not(AnyOf("id", hints.exclude_blocks)))
    return And(tuple(parts)) if parts else None


async def _due(desk: Desk) -> list[Block]:
    """The open tasks due in the dates that the query asks about, the earliest first."""
    limit, span = desk.config.collectors.semantic.task_limit, desk.intent.span
    if span is None or not limit:
        return []
    open_tasks = await desk.store.tasks(desk.scope, due_before=span.latest, limit=_READ * limit)
    return [block for block in open_tasks if desk.intent.dated(block)][:limit]


def _matches(found: Found, threshold: float) -> bool:
    """Whether a passage shares a word with the query, or is as similar as is asked for."""
    return found.signals.get(BM25, 0.0) > 0 or found.signals.get(SEMANTIC, 0.0) >= threshold
