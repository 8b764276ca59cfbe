"""What was collected, made ready to be shown: where it stands, what it says, what it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from contexture.blocks.facts import holding
from contexture.blocks.records import words_of
from contexture.blocks.shown import shown
from contexture.blocks.summary import summary
from contexture.builders.workspace.desk import COLLECTION, Desk
from contexture.builders.workspace.score import scored
from contexture.builders.workspace.tree import Chains, joined, page_title, path
from contexture.builders.workspace.values import SectionType
from contexture.builders.workspace.variants import repeatable
from contexture.errors import SourceError
from contexture.ports import TokenCounter
from contexture.retrieval.prepare import mended
from contexture.text.simhash import simhash
from contexture.types import Candidate, Citation, content_hash
from contexture.workspace import (
    SUMMED,
    SUMMED_DEPTH,
    SUMMED_FURTHER,
    Block,
    BlockFacts,
    BlockType,
    PageSummary,
    plain_name,
)

T = TypeVar("T")

_RELATIONS = 500

Titles = Mapping[str, Mapping[str, str]]
"""By row, the titles of related rows that may be read, under their ids and under their own names."""


async def dressed(desk: Desk, found: Sequence[Candidate], counter: TokenCounter) -> list[Candidate]:
    """The candidates that hints do not rule out, with text, place and score."""
    ids = list(dict.fromkeys(candidate.key for candidate in found))
    near = [desk.place.nearest.id] if desk.place.nearest is not None else []
    chains, touches, titles, (facts, summaries) = await asyncio.gather(
        _tried(desk, "tree", desk.store.ancestors(desk.scope, [*ids, *near])),
        _tried(desk, "affinity", desk.store.touches(desk.scope, ids)),
        _tried(desk, "row titles", _titles(desk)),
        _known(desk, ids, counter),
    )
    allowed = [candidate for candidate in found if not _ruled_out(desk, candidate, chains or {})]
    told = {id_: _content(desk.blocks[id_], chains or {}, titles or {}, summaries or {}) for id_ in ids}
    known = {id_: holding(facts.get(id_), text, desk.rules) for id_, text in told.items()}
    wardrobe = _Wardrobe(chains or {})
    return [
        wardrobe.dressed(candidate, desk.blocks[candidate.key], told[candidate.key], known[candidate.key])
        for candidate in scored(desk, allowed, chains, touches or {})
    ]


async def _tried(desk: Desk, what: str, work: Awaitable[T]) -> T | None:
    """What a read gives; one that fails costs quality, not the context."""
    try:
        return await work
    except SourceError as failure:
        desk.trace.degraded(what, failure)
        return None


async def _known(
    desk: Desk, ids: Sequence[str], counter: TokenCounter
) -> tuple[Mapping[str, BlockFacts], Mapping[str, str] | None]:
    """What was computed about the blocks, and the summaries of pages."""
    facts: Mapping[str, BlockFacts] = {}
    with suppress(SourceError):  # without them nothing is lost but time
        facts = await desk.store.facts(desk.scope, ids)
    return facts, await _tried(desk, "summaries", _summaries(desk, facts, counter))


def _ruled_out(desk: Desk, candidate: Candidate, chains: Chains) -> bool:
    """Whether a hint excludes a block, or one above it, or its time; the focus is wanted whenever it was written."""
    hints, block = desk.request.hints, desk.blocks[candidate.key]
    if hints.exclude_blocks:
        line = {block.id, *(each.id for each in chains.get(block.id, ()))}
        if not line.isdisjoint(hints.exclude_blocks):
            return True
    times = hints.time_range
    if times is None or candidate.section == SectionType.FOCUS or block.modified is None:
        return False
    return (times.start is not None and block.modified < times.start) or (
        times.end is not None and block.modified > times.end
    )


class _Wardrobe:
    """Says of each block where it stands; blocks side by side stand in the same place."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._paths: dict[str, str] = {}

    def dressed(self, candidate: Candidate, block: Block, text: str, facts: BlockFacts | None) -> Candidate:
        """The candidate with what it says, where that stands, and what is known about it."""
        chain = self._chains.get(block.id, ())
        title = page_title(block, chain)
        source = _citation(block, chain, title)
        if source is None:
            text, facts = "", None
        return replace(
            candidate,
            text=text,
            title=title,
            label=self._path(chain),
            citation=source,
            redactions=None if facts is None else facts.redactions,
            tokens={} if facts is None else facts.tokens,
            simhash=_simhash(candidate, text, facts),
        )

    def _path(self, chain: Sequence[Block]) -> str:
        if not chain:
            return ""
        if chain[0].id not in self._paths:
            self._paths[chain[0].id] = joined(path(chain))
        return self._paths[chain[0].id]


def _simhash(candidate: Candidate, text: str, facts: BlockFacts | None) -> int:
    """The hash by which repetitions are found, of what may be one."""
    if not repeatable(candidate):
        return 0
    return simhash(text) if facts is None else facts.simhash


def _citation(block: Block, chain: Sequence[Block], title: str) -> Citation | None:
    """Of the block's search record; what has none, such as a divider, cannot be cited and so is not shown."""
    stored = mended(words_of(block, chain))
    if not stored:
        return None
    return Citation(
        collection=COLLECTION,
        record_id=block.id,
        title=title,
        start=0,
        end=len(stored),
        hash=content_hash(stored),
    )


def _content(block: Block, chains: Chains, titles: Titles, summaries: Mapping[str, str]) -> str:
    named = titles.get(block.id, {})
    return shown(
        block,
        chains.get(block.id, ()),
        resolve=lambda name: named.get(name) or named.get(plain_name(name)),
        summary=summaries.get(block.id, ""),
    )


async def _titles(desk: Desk) -> Titles:
    rows = [block.id for block in desk.blocks.values() if block.type is BlockType.DB_ROW]
    if not rows:
        return {}
    links = await desk.store.links(desk.scope, rows, limit=_RELATIONS)
    targets = list(dict.fromkeys(link.target for link in links))
    texts = {block.id: block.text for block in await desk.store.get(desk.scope, targets)} if targets else {}
    titles: dict[str, dict[str, str]] = {}
    for link in links:
        if (text := texts.get(link.target)) is not None:
            titles.setdefault(link.source, {}).update({link.target: text, plain_name(text): text})
    return titles


async def _summaries(desk: Desk, facts: Mapping[str, BlockFacts], counter: TokenCounter) -> Mapping[str, str]:
    """By page, the sentences of it that say most; a page in focus is read further than others."""
    pages = {block.id: block for block in desk.blocks.values() if block.type is BlockType.PAGE}
    near, limit = desk.place.page and desk.place.page.id, desk.config.truncation.summary_tokens
    kept = {id_: told for id_ in pages if (told := _kept(facts.get(id_), counter, limit)) is not None}
    told = {id_: each.further if id_ == near else each.text for id_, each in kept.items()}
    others = {id_: SUMMED_FURTHER if id_ == near else SUMMED for id_ in pages if id_ not in told}
    inside: Mapping[str, Sequence[Block]] = {}
    if others:
        inside = await desk.store.subtrees(desk.scope, others, depth=SUMMED_DEPTH)
    return told | {id_: summary(pages[id_], below, counter, limit) for id_, below in inside.items()}


def _kept(facts: BlockFacts | None, counter: TokenCounter, limit: int) -> PageSummary | None:
    """The summary that was written with a page, if it is as long as is asked for."""
    told = None if facts is None else facts.summary
    return told if told is not None and (told.encoding, told.limit) == (counter.encoding, limit) else None
