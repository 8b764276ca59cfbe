"""What was collected, made ready to be shown: where it stands, what it says, what it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from contexture.blocks.columns import schema_of
from contexture.blocks.records import words_of
from contexture.blocks.render import markdown
from contexture.blocks.summary import summary
from contexture.builders.workspace.desk import COLLECTION, Desk
from contexture.builders.workspace.score import scored
from contexture.builders.workspace.tree import Chains, joined, page_title, path
from contexture.builders.workspace.values import SectionType
from contexture.errors import SourceError
from contexture.ports import TokenCounter
from contexture.retrieval.prepare import mended
from contexture.types import Candidate, Citation, Json, content_hash
from contexture.workspace import Block, BlockType, plain_name

T = TypeVar("T")

_RELATIONS = 500
_SUMMARY_DEPTH = 3
_FOCUS_BLOCKS, _PAGE_BLOCKS = 20, 8  # of a page that a summary is made of; what is asked about is read further

Titles = Mapping[str, Mapping[str, str]]
"""By row, the titles of related rows that may be read, under their ids and under their own names."""


async def dressed(desk: Desk, found: Sequence[Candidate], counter: TokenCounter) -> list[Candidate]:
    """The candidates that hints do not rule out, with text, place and score."""
    ids = list(dict.fromkeys(candidate.key for candidate in found))
    near = [desk.place.nearest.id] if desk.place.nearest is not None else []
    chains, touches, titles, summaries = await asyncio.gather(
        _tried(desk, "tree", desk.store.ancestors(desk.scope, [*ids, *near])),
        _tried(desk, "affinity", desk.store.touches(desk.scope, ids)),
        _tried(desk, "row titles", _titles(desk)),
        _tried(desk, "summaries", _summaries(desk, counter)),
    )
    allowed = [candidate for candidate in found if not _ruled_out(desk, candidate, chains or {})]
    told = {id_: _content(desk.blocks[id_], chains or {}, titles or {}, summaries or {}) for id_ in ids}
    return [
        _dressed(candidate, desk.blocks[candidate.key], told[candidate.key], chains or {})
        for candidate in scored(desk, allowed, chains, touches or {})
    ]


async def _tried(desk: Desk, what: str, work: Awaitable[T]) -> T | None:
    """What a read gives; one that fails costs quality, not the context."""
    try:
        return await work
    except SourceError as failure:
        desk.trace.degraded(what, failure)
        return None


def _ruled_out(desk: Desk, candidate: Candidate, chains: Chains) -> bool:
    """Whether a hint excludes a block, or one above it, or its time; the focus is wanted whenever it was written."""
    hints, block = desk.request.hints, desk.blocks[candidate.key]
    line = {block.id, *(each.id for each in chains.get(block.id, ()))}
    if not line.isdisjoint(hints.exclude_blocks):
        return True
    times = hints.time_range
    if times is None or candidate.section == SectionType.FOCUS or block.modified is None:
        return False
    return (times.start is not None and block.modified < times.start) or (
        times.end is not None and block.modified > times.end
    )


def _dressed(candidate: Candidate, block: Block, text: str, chains: Chains) -> Candidate:
    chain = chains.get(block.id, ())
    title = page_title(block, chain)
    source = _citation(block, chain, title)
    said = "" if source is None else text
    return replace(candidate, text=said, title=title, label=joined(path(chain)), citation=source)


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
    """What a block says: a page its summary, a database its columns, a row its cells, all others themselves."""
    match block.type:
        case BlockType.PAGE:
            said = summaries.get(block.id, "") or block.text
        case BlockType.DB:
            said = "\n".join([block.text, *_columns(schema_of(block))])
        case BlockType.HEADING:
            said = block.text
        case BlockType.DB_ROW:
            said = _row(block, chains.get(block.id, ()), titles.get(block.id, {}))
        case _:
            said = markdown(block)
    return mended(said)


def _row(row: Block, chain: Sequence[Block], titles: Mapping[str, str]) -> str:
    """A row with its cells; where its database cannot be read, a cell may name what cannot be read either."""
    if not chain or chain[0].type is not BlockType.DB:
        return markdown(replace(row, properties={}))
    return markdown(
        row, schema=schema_of(chain[0]), resolve=lambda name: titles.get(name) or titles.get(plain_name(name))
    )


def _columns(schema: Mapping[str, Json]) -> list[str]:
    kinds = {name: kind.get("type") if isinstance(kind, dict) else kind for name, kind in schema.items()}
    return [f"{name}: {kind}" for name, kind in kinds.items() if isinstance(kind, str)]


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


async def _summaries(desk: Desk, counter: TokenCounter) -> Mapping[str, str]:
    """By page, the sentences of it that say most."""
    pages = [block for block in desk.blocks.values() if block.type is BlockType.PAGE]
    if not pages:
        return {}
    near = desk.place.page.id if desk.place.page is not None else None
    limits = {page.id: _FOCUS_BLOCKS if page.id == near else _PAGE_BLOCKS for page in pages}
    inside = await desk.store.subtrees(desk.scope, limits, depth=_SUMMARY_DEPTH)
    limit = desk.config.truncation.summary_tokens
    return {page.id: summary(page, inside[page.id], counter, limit) for page in pages}
