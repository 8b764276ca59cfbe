"""What the user worked on lately: blocks they edited, pages they looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from contexture.builders.workspace.desk import Desk
from contexture.builders.workspace.values import SectionType
from contexture.types import Candidate
from contexture.workspace import Block, BlockType, Deed

EDITED, VIEWED, STEP = 0.6, 0.5, 0.02
_PER_PAGE = 4  # views read for each page wanted, because several blocks of one page may have been viewed


async def collect_activity(desk: Desk) -> Sequence[Candidate]:
    """The user's newest edits, then the pages they viewed last; nobody else's."""
    config = desk.config.collectors.activity
    since = desk.now - timedelta(hours=config.max_age_hours)
    edits, views = await asyncio.gather(
        _blocks(desk, Deed.EDIT, since, config.recent_edit_count),
        _blocks(desk, Deed.VIEW, since, config.recent_view_count * _PER_PAGE),
    )
    pages = (await _pages(desk, views))[: config.recent_view_count]
    return [
        *desk.lay_falling(SectionType.ACTIVITY, edits, EDITED, STEP),
        *(
            candidate
            for candidate in desk.lay_falling(SectionType.ACTIVITY, pages, VIEWED, STEP)
            if candidate.key not in {block.id for block in edits}
        ),
    ]


async def _blocks(desk: Desk, deed: Deed, since: datetime, limit: int) -> Sequence[Block]:
    """The blocks of the newest deeds up to now, newest first."""
    if limit < 1:
        return ()
    deeds = await desk.store.recent(desk.scope, deed, since=since, limit=limit)
    ids = [each.block_id for each in deeds if each.time <= desk.now]
    return await desk.store.get(desk.scope, ids) if ids else ()


async def _pages(desk: Desk, viewed: Sequence[Block]) -> list[Block]:
    """The pages that blocks stand in, each once; a block on no page that may be read stands for itself."""
    if not viewed:
        return []
    above = await desk.store.ancestors(desk.scope, [block.id for block in viewed])
    pages: dict[str, Block] = {}
    for block in viewed:
        line = (block, *above.get(block.id, ()))
        page = next((each for each in line if each.type is BlockType.PAGE), block)
        pages.setdefault(page.id, page)
    return list(pages.values())
