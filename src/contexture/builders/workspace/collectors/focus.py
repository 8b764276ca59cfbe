"""Around the focus: the block with its parents, siblings and children, the page with what stands in it, the rows."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.builders.workspace.desk import Desk
from contexture.builders.workspace.values import SectionType
from contexture.pipeline.extract import sentence_scores
from contexture.types import Candidate
from contexture.workspace import Block, BlockType

WHOLE = 1.0
ANCESTOR, ANCESTOR_STEP = 0.9, 0.1
CHILD, SIBLING, NEAR_STEP = 0.85, 0.8, 0.05
ON_PAGE, ON_PAGE_STEP = 0.85, 0.01
ROW, ROW_STEP = 0.85, 0.02


async def collect_focus(desk: Desk) -> Sequence[Candidate]:
    """Candidates around every block of the focus."""
    place = desk.place
    found: list[Candidate] = []
    if place.block is not None:
        found += await _around(desk, place.block)
    if place.page is not None:
        found += await _on_page(desk, place.page)
    if place.database is not None:
        found += await _in_database(desk, place.database)
    return found


async def collect_included(desk: Desk, section: SectionType) -> Sequence[Candidate]:
    """The blocks that a hint asks for; one that is missing is a degradation, whatever the reason."""
    wanted = desk.request.hints.include_blocks
    found = await desk.store.get(desk.scope, wanted) if wanted else ()
    if len(found) < len(set(wanted)):
        known = {block.id for block in found}
        missing = ", ".join(repr(id_) for id_ in wanted if id_ not in known)
        desk.trace.degraded("includeBlocks", f"there is no block {missing}")
    return [desk.lay(section, block, WHOLE, source="include") for block in found]


async def _around(desk: Desk, block: Block) -> list[Candidate]:
    """The block, its nearest parents, its nearest siblings and its first children."""
    config, depth = desk.config.collectors.focus, desk.request.hints.max_depth
    above = (await desk.store.ancestors(desk.scope, [block.id])).get(block.id, ())
    count = config.sibling_count
    beside = await desk.store.siblings(desk.scope, block.id, before=count, after=count) if count else ()
    below = await _below(desk, block)
    return [
        desk.lay(SectionType.FOCUS, block, WHOLE),
        *_falling(desk, above[: config.ancestor_depth if depth is None else depth], ANCESTOR, ANCESTOR_STEP),
        *_falling(desk, beside, SIBLING, NEAR_STEP),
        *_falling(desk, below, CHILD, NEAR_STEP),
    ]


async def _below(desk: Desk, block: Block) -> Sequence[Block]:
    limit, depth = desk.config.collectors.focus.children_limit, desk.request.hints.max_depth
    if not limit or depth == 0:
        return ()
    if depth is None or depth == 1:
        return await desk.store.children(desk.scope, block.id, limit=limit)
    return await desk.store.subtree(desk.scope, block.id, depth=depth, limit=limit)


async def _on_page(desk: Desk, page: Block) -> list[Candidate]:
    """The page, which is shown by its summary, and what stands in it, in document order."""
    config, depth = desk.config.collectors.focus, desk.request.hints.max_depth
    levels = config.page_depth if depth is None else depth
    inside = await desk.inside(page.id, depth=levels, limit=config.page_blocks) if levels and config.page_blocks else ()
    return [desk.lay(SectionType.FOCUS, page, WHOLE), *_falling(desk, inside, ON_PAGE, ON_PAGE_STEP)]


async def _in_database(desk: Desk, database: Block) -> list[Candidate]:
    """The database, which is shown by its columns, and the rows that say most about the query."""
    config = desk.config.collectors.focus
    children = (
        await desk.store.children(desk.scope, database.id, limit=config.rows_considered)
        if config.rows_considered
        else ()
    )
    rows = [child for child in children if child.type is BlockType.DB_ROW]
    scores = sentence_scores([_words(row) for row in rows], desk.question)
    best = sorted(range(len(rows)), key=lambda at: (not desk.intent.dated(rows[at]), -scores[at], at))
    chosen = [rows[at] for at in best[: config.database_rows]]
    return [desk.lay(SectionType.FOCUS, database, WHOLE), *_falling(desk, chosen, ROW, ROW_STEP)]


def _words(row: Block) -> str:
    return "\n".join([row.text, *(f"{name} {value}" for name, value in row.properties.items())])


def _falling(desk: Desk, blocks: Sequence[Block], first: float, step: float) -> list[Candidate]:
    return desk.lay_falling(SectionType.FOCUS, blocks, first, step)
