"""State of one workspace build: request, scope, focus, intent, and the blocks that collectors have found."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contexture.builders.workspace._document import SUBPAGE_TYPES, CollectedDocument
from contexture.builders.workspace._intent import WorkspaceIntent
from contexture.builders.workspace.config import ContextConfig
from contexture.builders.workspace.request import ContextRequest
from contexture.builders.workspace.result import COLLECTED_SIGNAL, SectionType
from contexture.errors import NotFound
from contexture.ledger import Trace
from contexture.types import Candidate, Scope
from contexture.workspace import Block, BlockStore

BLOCKS_COLLECTION = "blocks"
SHARED_READ_LIMIT = 200
"""Least number of blocks that one read of a subtree fetches, so that collectors with lower limits can share it."""

MAX_LEVELS = 256
"""Levels of the tree that a document may have: as many as a store holds."""

PendingBlocks: TypeAlias = "asyncio.Future[Sequence[Block]]"
"""A read of blocks, running or finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FocusBlocks:
    """The loaded blocks of a request's focus; each is None where the request names none."""

    block: Block | None = None
    page: Block | None = None
    database: Block | None = None

    @property
    def nearest(self) -> Block | None:
        """The narrowest focus block, from which tree distances are measured."""
        return self.block or self.page or self.database


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedFact:
    """A computed statement: how many blocks match, which of them are candidates, and groups or lines below it."""

    label: str
    total: int
    keys: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildState:
    """State of one build.

    `blocks` are all blocks that collectors found, by id, `documents` those shown as one text, `surroundings` the
    lists and sections around hits, `facts` what was computed about them, `rules` the redaction rules.
    """

    store: BlockStore
    scope: Scope
    request: ContextRequest
    config: ContextConfig
    now: datetime
    intent: WorkspaceIntent
    question: str
    place: FocusBlocks
    trace: Trace
    rules: str = ""
    blocks: dict[str, Block] = field(default_factory=dict[str, Block])
    facts: list[CollectedFact] = field(default_factory=list[CollectedFact])
    documents: list[CollectedDocument] = field(default_factory=list[CollectedDocument])
    surroundings: list[CollectedDocument] = field(default_factory=list[CollectedDocument])
    reads: dict[tuple[str, int, int], PendingBlocks] = field(default_factory=dict[tuple[str, int, int], PendingBlocks])

    async def read_subtree(self, block_id: str, *, depth: int, limit: int) -> Sequence[Block]:
        """Up to `limit` blocks below one, in document order; concurrent collectors share one read."""
        most = max(limit, SHARED_READ_LIMIT)
        reading = self.reads.get((block_id, depth, most))
        if reading is None:
            reading = asyncio.ensure_future(self.store.subtree(self.scope, block_id, depth=depth, limit=most))
            self.reads[block_id, depth, most] = reading
        return (await asyncio.shield(reading))[:limit]  # a cancelled collector must not cancel the shared read

    async def read_document(self, block_id: str) -> Sequence[Block]:
        """The blocks below one in document order, without those of subpages; one more than fit shows that it is cut."""
        limit = self.config.collectors.focus.document_blocks + 1
        depth = MAX_LEVELS if self.request.hints.max_depth is None else self.request.hints.max_depth
        reading = self.reads.get((block_id, depth, limit))
        if reading is None:
            reading = asyncio.ensure_future(
                self.store.subtree(self.scope, block_id, depth=depth, limit=limit, leaves=SUBPAGE_TYPES)
            )
            self.reads[block_id, depth, limit] = reading
        return await asyncio.shield(reading)

    def add_candidate(self, section: SectionType, block: Block, relevance: float, *, source: str = "") -> Candidate:
        """Register a block and return it as a candidate of a section; its text is set by `hydrate`."""
        self.blocks.setdefault(block.id, block)
        return Candidate(
            id=f"{source or section}:{block.id}",
            key=block.id,
            text="",
            section=section,
            kind=str(block.type),
            time=block.modified,
            score=0.0,
            signals={COLLECTED_SIGNAL: min(max(relevance, 0.0), 1.0)},
        )

    def add_ranked_candidates(
        self, section: SectionType, blocks: Sequence[Block], first: float, step: float, *, source: str = ""
    ) -> list[Candidate]:
        """Blocks as candidates in order, each `step` less relevant than the one before."""
        return [self.add_candidate(section, block, first - step * at, source=source) for at, block in enumerate(blocks)]


async def load_focus(store: BlockStore, scope: Scope, request: ContextRequest) -> FocusBlocks:
    """The blocks of the focus; raises `NotFound` for one that does not exist or may not be read.

    A page or a database may also be named by its title or an alias.
    """
    focus = request.focus
    if focus is None or not focus.ids:
        return FocusBlocks()
    found = {block.id: block for block in await store.get(scope, focus.ids)}
    for id_ in focus.ids:
        if id_ not in found and id_ != focus.block_id:
            for block in await store.find_named(scope, id_, limit=1):
                found[id_] = block
        if id_ not in found:
            raise NotFound(f"there is no block {id_!r} to focus on")
    return FocusBlocks(
        block=found.get(focus.block_id or ""),
        page=found.get(focus.page_id or ""),
        database=found.get(focus.database_id or ""),
    )
