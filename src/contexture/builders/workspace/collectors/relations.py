"""What the focus is tied to: related rows, what it links to, and what links to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from contexture.builders.workspace.desk import SHARED, Desk
from contexture.builders.workspace.values import SectionType
from contexture.types import Candidate
from contexture.workspace import LinkKind

RELATED = 0.75
LINKED = 0.7
BACKLINKED = 0.65
_PER_HOP = 4  # links read for each item wanted, because many lead to the same block


async def collect_relations(desk: Desk) -> Sequence[Candidate]:
    """Blocks up to `max_depth` links away, the most relevant first; each hop keeps a share of the relevance."""
    config = desk.config.collectors.relations
    start = await _starting(desk)
    seen, frontier, share = dict.fromkeys(start, 0.0), start, 1.0
    found: dict[str, float] = {}
    for _ in range(config.max_depth if start else 0):
        tied = await _tied(desk, frontier, config.max_items * _PER_HOP)
        new = {id_: share * relevance for id_, relevance in tied.items() if id_ not in seen}
        seen |= new
        found |= new
        if len(found) >= config.max_items or not new:
            break
        frontier, share = list(new), share * config.hop_share
    best = sorted(found, key=lambda id_: -found[id_])[: config.max_items]
    blocks = await desk.store.get(desk.scope, best) if best else ()
    return [desk.lay(SectionType.RELATIONS, block, found[block.id]) for block in blocks]


async def _starting(desk: Desk) -> list[str]:
    """The blocks whose links are followed: those of the focus, and what stands in a focused page."""
    place = desk.place
    ids = [block.id for block in (place.block, place.page, place.database) if block is not None]
    for whole in (place.page, place.database):
        if whole is not None:
            depth = desk.config.collectors.focus.page_depth
            inside = await desk.inside(whole.id, depth=depth, limit=SHARED)
            ids += [block.id for block in inside]
    return list(dict.fromkeys(ids))


async def _tied(desk: Desk, ids: Sequence[str], limit: int) -> dict[str, float]:
    """By id, how relevant what these name, or what names them, is."""
    found: dict[str, float] = {}
    named, naming = await asyncio.gather(
        desk.store.links(desk.scope, ids, limit=limit), desk.store.backlinks(desk.scope, ids, limit=limit)
    )
    for link in named:
        relevance = RELATED if link.kind is LinkKind.RELATION else LINKED
        found[link.target] = max(found.get(link.target, 0.0), relevance)
    for link in naming:
        relevance = RELATED if link.kind is LinkKind.RELATION else BACKLINKED
        found[link.source] = max(found.get(link.source, 0.0), relevance)
    return found
