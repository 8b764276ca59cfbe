"""Contexts of a workspace, as a caller waits for them: a focus on a page, all four collectors on."""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from benchmarks.corpus import SCOPE, questions, records, warm_up
from benchmarks.store import MODEL, Clean, Models, Pay, opened, searcher
from benchmarks.timing import Numbers, Progress, Times, each, summary
from msgspec.structs import replace

from contexture.adapters.blocks.sqlite import SqliteBlocks
from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.token_counters import counter_for
from contexture.blocks.links import extract_links
from contexture.blocks.workspace import Workspace
from contexture.builders.workspace.build import WorkspaceContextBuilder
from contexture.builders.workspace.result import ContextPayload
from contexture.ingestion.blocks.bulk import BulkWriter
from contexture.retrieval.prepare import Preparer
from contexture.service.server import SWITCH_SECONDS
from contexture.testing.doubles import NOON, FixedClock
from contexture.types import Record
from contexture.workspace import Block, BlockType

TOKENS = 4_000
PAGE = 40
"""Blocks of a page, itself included."""

_NAMES = {Pay.NOTHING: "workspace", Pay.SHIPPED: "workspace_embedding_shipped"}
_SEEDS = {Pay.NOTHING: 82, Pay.SHIPPED: 84}
_KINDS = (BlockType.PARAGRAPH, BlockType.BULLETED, BlockType.TODO, BlockType.PARAGRAPH, BlockType.CODE)
_READERS = (None, None, None, ("user:u1",), ("group:none",))
_WORDS = 24
_WRITING_SEED, _TURNS = 86, 5
_APART = 10**6  # numbers for the blocks of one turn


async def workspaces(folder: Path, models: Models, size: int, asked: int, progress: Progress) -> Numbers:
    """Builds over `size` blocks: unseen questions, each with another page in focus."""
    index = await opened(folder, models)
    store = SqliteBlocks(folder / "blocks.db", extract_links)
    workspace = Workspace(store=store, index=index, preparer=_preparer(models))
    await _filled(workspace, size, progress)
    await index.optimize()
    numbers: Numbers = {}
    for pay, name in _NAMES.items():
        builder = WorkspaceContextBuilder(
            store=store,
            search=searcher(index, models.encoders(pay)),
            token_counter=counter_for(MODEL),
            redactor=default_redactor(),
            clock=FixedClock(),
            model=MODEL,
        )
        built, times = await _built(builder, questions(asked, seed=_SEEDS[pay]), size)
        numbers |= summary(name, times)
        if pay is Pay.NOTHING:
            numbers["workspace_blocks_mean"] = statistics.mean(one.metadata.blocks_included for one in built)
            numbers["workspace_within_budget_share"] = statistics.mean(
                one.metadata.total_tokens <= TOKENS for one in built
            )
            for phase in built[0].timings:
                numbers[f"workspace_phase_{phase}_p50_ms"] = 1_000 * statistics.median(
                    one.timings[phase] for one in built
                )
            numbers |= await _measure_while_writing(builder, workspace, asked, size)
    store.close()
    await index.close()
    return numbers


async def _measure_while_writing(
    builder: WorkspaceContextBuilder, workspace: Workspace, asked: int, size: int
) -> Numbers:
    """Builds while new blocks are written all the time, and how much longer half of them take.

    Builds with and without writing take turns, so that other work on the machine slows both, and threads take turns as
    often as those of the service do.
    """
    alone: list[float] = []
    beside: list[float] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        for turn in range(_TURNS):
            texts = questions(max(1, asked // _TURNS), seed=_WRITING_SEED + turn)
            _, times = await _built(builder, texts, size)
            alone += times.wall
            writing = asyncio.create_task(_write_always(workspace, size + turn * _APART))
            _, times = await _built(builder, texts, size)
            beside += times.wall
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    finally:
        sys.setswitchinterval(before)
    numbers = summary("workspace_while_writing", Times(beside))
    return {**numbers, "workspace_while_writing_ratio": statistics.median(beside) / statistics.median(alone)}


async def _write_always(workspace: Workspace, first: int) -> None:
    """Bulk writes of new blocks, numbered from `first`, one after another as ingest jobs are."""
    at = first
    for block in records(_APART):
        given = [replace(_block(at + place, owned.record), parent=None) for place, owned in enumerate(block)]
        await BulkWriter(workspace, SCOPE, now=NOON).write_all(given)
        at += len(block)


def _preparer(models: Models) -> Preparer:
    counters = [counter_for(MODEL)]
    return Preparer(encoders=models.encoders(), counters=counters, redactor=Clean(default_redactor().rules))


async def _filled(workspace: Workspace, size: int, progress: Progress) -> None:
    done = 0
    for block in records(size):
        given = [_block(done + at, owned.record) for at, owned in enumerate(block)]
        await workspace.put(SCOPE, given, now=NOON)
        done += len(block)
        progress(f"write {size:,} blocks", done, size)


def _block(at: int, record: Record) -> Block:
    """Every fortieth is a page; a heading and what stands below it follow, one in ten links to another page."""
    page, place = at - at % PAGE, at % PAGE
    text = " ".join(record.text.split()[:_WORDS])
    common = {"modified": NOON - timedelta(hours=at % 900), "author": SCOPE.user if at % 7 == 0 else "other"}
    if not place:
        return Block(id=f"b{at}", type=BlockType.PAGE, text=f"{record.title} {at}", **common)
    if place % 13 == 1:
        return Block(id=f"b{at}", type=BlockType.HEADING, text=record.title, parent=f"b{page}", order=place, **common)
    linked = f" [see](block:b{(at * 7_919) % max(PAGE, page) // PAGE * PAGE})" if place % 10 == 5 else ""
    kind = _KINDS[at % len(_KINDS)]
    due = {"due": (NOON + timedelta(days=at % 60 - 20)).date().isoformat()} if kind is BlockType.TODO else {}
    parent = f"b{page + place - place % 13 + 1}" if place % 13 > 1 and place > 1 else f"b{page}"
    return Block(id=f"b{at}", type=kind, text=text + linked, parent=parent, order=place, properties=dict(due), **common)


async def _built(make: WorkspaceContextBuilder, texts: Sequence[str], size: int) -> tuple[list[ContextPayload], Times]:
    built: list[ContextPayload] = []
    pages = iter(range(10**9))

    async def ask(text: str) -> None:
        page = (next(pages) * 104_729) % max(1, size // PAGE) * PAGE
        built.append(
            await make.build(
                {"query": text, "focus": {"pageId": f"b{page}"}, "tokenBudget": {"total": TOKENS}},
                scope=SCOPE,
                now=NOON + timedelta(hours=1),
            )
        )

    await each(warm_up(len(texts)), ask)
    built.clear()
    times = await each(texts, ask)
    return built, times
