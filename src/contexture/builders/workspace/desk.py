"""What one build works on: who asks, for what, from where; and the blocks that collectors have laid on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contexture.builders.workspace.config import ContextConfig
from contexture.builders.workspace.intent import Intent
from contexture.builders.workspace.request import ContextRequest
from contexture.builders.workspace.values import SectionType
from contexture.errors import NotFound
from contexture.ledger import Trace
from contexture.types import Candidate, Scope
from contexture.workspace import Block, BlockStore

COLLECTION = "blocks"
SHARED = 200
"""Blocks below the focus that are read in one go, for whoever wants to see some of them."""

COLLECTED = "collected"
"""The signal under which the ledger shows what a collector thought of a block."""

Reading: TypeAlias = "asyncio.Future[Sequence[Block]]"
"""Blocks that are being read, or were."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The blocks of a request's focus; each is None where the request names none."""

    block: Block | None = None
    page: Block | None = None
    database: Block | None = None

    @property
    def nearest(self) -> Block | None:
        """The narrowest of them, from which distances are measured."""
        return self.block or self.page or self.database


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """One build in the making; `blocks` are all that collectors have found, by id, `rules` those of redaction."""

    store: BlockStore
    scope: Scope
    request: ContextRequest
    config: ContextConfig
    now: datetime
    intent: Intent
    question: str
    place: Place
    trace: Trace
    rules: str = ""
    blocks: dict[str, Block] = field(default_factory=dict[str, Block])
    reads: dict[tuple[str, int, int], Reading] = field(default_factory=dict[tuple[str, int, int], Reading])

    async def inside(self, block_id: str, *, depth: int, limit: int) -> Sequence[Block]:
        """Up to `limit` blocks below one in document order; what several collectors want to see is read once."""
        most = max(limit, SHARED)
        reading = self.reads.get((block_id, depth, most))
        if reading is None:
            reading = asyncio.ensure_future(self.store.subtree(self.scope, block_id, depth=depth, limit=most))
            self.reads[block_id, depth, most] = reading
        return (await asyncio.shield(reading))[:limit]  # one that gives up does not end it for the others

    def lay(self, section: SectionType, block: Block, relevance: float, *, source: str = "") -> Candidate:
        """A block as a candidate of a section; its text comes once all is collected."""
        self.blocks.setdefault(block.id, block)
        return Candidate(
            id=f"{source or section}:{block.id}",
            key=block.id,
            text="",
            section=section,
            kind=str(block.type),
            time=block.modified,
            score=0.0,
            signals={COLLECTED: min(max(relevance, 0.0), 1.0)},
        )

    def lay_falling(self, section: SectionType, blocks: Sequence[Block], first: float, step: float) -> list[Candidate]:
        """Blocks in order, each a `step` less relevant than the one before."""
        return [self.lay(section, block, first - step * at) for at, block in enumerate(blocks)]


async def place_of(store: BlockStore, scope: Scope, request: ContextRequest) -> Place:
    """The blocks of the focus; one that does not exist, or that the scope may not read, is `NotFound`."""
    focus = request.focus
    if focus is None or not focus.ids:
        return Place()
    found = {block.id: block for block in await store.get(scope, focus.ids)}
    for id_ in focus.ids:
        if id_ not in found:
            raise NotFound(f"there is no block {id_!r} to focus on")
    return Place(
        block=found.get(focus.block_id or ""),
        page=found.get(focus.page_id or ""),
        database=found.get(focus.database_id or ""),
    )
