"""Generated trees: a block store agrees with a plain model, and hidden blocks change no answer."""
# ruff: noqa: S101 - a conformance suite asserts

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contexture.blocks.records import block_to_record
from contexture.errors import RequestError
from contexture.testing.blocks_tree import settle_all
from contexture.testing.doubles import NOON
from contexture.testing.in_memory_blocks import InMemoryBlockStore
from contexture.types import Record, Scope
from contexture.workspace import (
    FOCUSED_SUMMARY_BLOCKS,
    SUMMARY_DEPTH,
    SUMMARY_LEAVES,
    ActivityKind,
    Block,
    BlockFacts,
    BlockLink,
    BlockStore,
    BlockType,
    LinkKind,
    PageSummary,
    StaleBlock,
    WritableBlocks,
)

_EXPECTED = (HealthCheck.function_scoped_fixture, HealthCheck.differing_executors, HealthCheck.too_slow)
_SIZE = 9
_TITLES = ("Plan", "Notes", "plan")
_ALL = "group:all"  # what the writer of every block belongs to, and nobody who asks
_READERS = (None, None, None, (_ALL, "public"), (_ALL, "user:anna"), (_ALL, "group:hr"), (_ALL,))
_KINDS = (BlockType.PAGE, BlockType.PARAGRAPH, BlockType.TODO, BlockType.DB, BlockType.DB_ROW)
_DATES = ("", "2026-01-01", "2026-01-02", "2027-01-01")


@dataclass(frozen=True, slots=True)
class WriteStep:
    """One write to a block; some kinds use a second block."""

    kind: str
    block: int
    other: int
    readers: tuple[str, ...] | None


@st.composite
def trees(draw: st.DrawFn, *, names: bool) -> list[Block]:
    """Blocks whose parents stand before them; they name each other by id and, with `names`, by title."""
    size = draw(st.integers(1, _SIZE))
    return [draw(_blocks(number, names=names)) for number in range(size)]


@st.composite
def _blocks(draw: st.DrawFn, number: int, *, names: bool) -> Block:
    above = draw(st.none() | st.just(number - 1) | st.integers(0, number - 1)) if number else None  # chains are telling
    kind = draw(st.sampled_from(_KINDS))
    named = draw(st.lists(st.integers(0, _SIZE - 1), max_size=2))
    words = [f"(({_id(each)}))" for each in named]
    if names:
        words += [f"[[{draw(st.sampled_from(_TITLES))}]]"] if kind is BlockType.PARAGRAPH else []
    titled = names and kind in (BlockType.PAGE, BlockType.DB, BlockType.DB_ROW)
    due = draw(st.sampled_from(_DATES))
    return Block(
        id=_id(number),
        type=kind,
        text=draw(st.sampled_from(_TITLES)) if titled else f"text {number} {' '.join(words)}",
        parent=None if above is None else _id(above),
        order=float(draw(st.integers(0, 2))),
        properties={"due": due, "done": draw(st.booleans())} if due else {},
        readers=draw(st.sampled_from(_READERS)),
        modified=NOON - timedelta(hours=draw(st.integers(0, 2))),
    )


@st.composite
def page_trees(draw: st.DrawFn) -> list[Block]:
    """Trees whose roots are pages; most blocks inherit their readers."""
    blocks = draw(trees(names=False).filter(lambda found: len(found) > _SIZE // 2))
    own = draw(st.sets(st.sampled_from([block.id for block in blocks]), max_size=1))
    return [
        replace(
            block,
            type=block.type if block.parent else BlockType.PAGE,
            readers=block.readers if block.id in own else None,
        )
        for block in blocks
    ]


def write_steps(least: int = 0) -> st.SearchStrategy[list[WriteStep]]:
    """Sequences of writes, some of which a store refuses."""
    place = st.integers(0, _SIZE - 1)
    kinds = st.sampled_from(("put", "both", "all", "move", "top", "delete", "restore"))
    return st.lists(st.builds(WriteStep, kinds, place, place, st.sampled_from(_READERS)), min_size=least, max_size=8)


class GeneratedTreeTests:
    """Generated trees and generated sequences of writes."""

    @given(blocks=trees(names=True))
    @settings(max_examples=60, deadline=None, suppress_health_check=_EXPECTED)
    async def test_hidden_blocks_leave_no_trace(self, store: WritableBlocks, blocks: list[Block]) -> None:
        """Every answer is the same with hidden blocks present and absent."""
        anna, writer = _reader_and_writer(uuid4().hex)
        await store.put(writer, blocks, now=NOON)
        everything = await _read_everything(store, anna)
        seen = await store.get(anna, [block.id for block in blocks])
        alone, elsewhere = _reader_and_writer(uuid4().hex)
        copies = [replace(block, readers=block.acl, author="", version=0) for block in seen]
        await store.put(elsewhere, copies, now=NOON)

        assert everything == await _read_everything(store, alone)

    @given(blocks=trees(names=False), steps=write_steps())
    @settings(max_examples=60, deadline=None, suppress_health_check=_EXPECTED)
    async def test_a_store_answers_as_its_model(
        self, store: WritableBlocks, blocks: list[Block], steps: list[WriteStep]
    ) -> None:
        """After moves, deletions, restores and other readers, reads and search records are those of the tree itself."""
        anna, writer = _reader_and_writer(uuid4().hex)
        await store.put(writer, blocks, now=NOON)
        model, indexed = _TreeModel(blocks), dict[str, Record]()
        for step in steps:
            _update_index_records(indexed, await settle_all(store, writer))
            await _apply_step(store, writer, model, step)
        _update_index_records(indexed, await settle_all(store, writer))
        memory = InMemoryBlockStore(model.live.values(), model.links(), tenant=writer.tenant)

        assert await _read_everything(memory, anna) == await _read_everything(store, anna)
        expected = {each.id: record for each in memory.stale() if (record := block_to_record(each)) is not None}
        assert {name: _comparable_record(each) for name, each in expected.items()} == {
            name: _comparable_record(each) for name, each in indexed.items()
        }

    @given(blocks=page_trees(), steps=write_steps(least=1))
    @settings(max_examples=60, deadline=None, suppress_health_check=_EXPECTED)
    async def test_a_stored_summary_matches_what_readers_may_read(
        self, store: WritableBlocks, blocks: list[Block], steps: list[WriteStep]
    ) -> None:
        """After any writes, a stored summary contains only what its readers may still read."""
        anna, writer = _reader_and_writer(uuid4().hex)
        await store.put(writer, blocks, now=NOON)
        model = _TreeModel(blocks)
        for at, step in enumerate(steps):
            if at % 2 == 0:
                await _settle_with_summaries(store)
            await _apply_step(store, writer, model, step)

        names = [_id(number) for number in range(_SIZE)]
        for scope in (anna, writer):
            pages = {each.id: each for each in await store.get(scope, names)}
            for name, kept in (await store.facts(scope, names)).items():
                below = await store.subtree(
                    scope, name, depth=SUMMARY_DEPTH, limit=FOCUSED_SUMMARY_BLOCKS, leaves=SUMMARY_LEAVES
                )
                assert kept.summary == _summarize(pages[name], below)


class _TreeModel:
    """The tree as a dictionary."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.live = {block.id: block for block in blocks}
        self.gone: list[dict[str, Block]] = []

    def below(self, name: str) -> dict[str, Block]:
        """A block and all below it."""
        found = {name: self.live[name]}
        for _ in self.live:
            found |= {each.id: each for each in self.live.values() if each.parent in found}
        return found

    def delete(self, name: str) -> None:
        """Delete a block with all below it."""
        taken = self.below(name)
        self.live = {each: block for each, block in self.live.items() if each not in taken}
        self.gone.append(taken)

    def restore(self, name: str) -> None:
        """Restore the deletion that a block belongs to."""
        taken = next(each for each in self.gone if name in each)
        self.gone.remove(taken)
        self.live |= taken

    def links(self) -> list[BlockLink]:
        """The links by id, each as often as a store returns it."""
        found = [
            BlockLink(source=block.id, target=word[2:-2], kind=LinkKind.REFERENCE)
            for block in self.live.values()
            for word in dict.fromkeys(block.text.split())
            if word.startswith("((")
        ]
        return [link for link in found if link.target in self.live]


async def _settle_with_summaries(store: WritableBlocks) -> None:
    """Settle everything that is stale, pages with a summary."""
    while found := await store.stale(limit=5):
        await store.settle([replace(each, facts=_summary_facts(each)) for each in found])


def _summary_facts(stale: StaleBlock) -> BlockFacts | None:
    if stale.block is None or stale.below is None:
        return None
    return BlockFacts(hash="", rules="", summary=_summarize(stale.block, stale.below))


def _summarize(page: Block, below: Sequence[Block]) -> PageSummary:
    """A summary that contains everything a summary could be made of."""
    text = " ".join(f"{each.id}={each.type}={each.text}" for each in (page, *below))
    return PageSummary(text=text, further="", encoding="", limit=0)


async def _apply_step(store: WritableBlocks, writer: Scope, model: _TreeModel, step: WriteStep) -> None:
    """Apply a step to the store and to the model; a step that the store refuses changes neither."""
    name, other = _id(step.block), _id(step.other)
    try:
        match step.kind:
            case "put" if name in model.live:
                changed = replace(model.live[name], text=f"new {step.other}", readers=step.readers)
                await store.put(writer, [changed], now=NOON)
                model.live[name] = changed
            case "both" | "all" if {name, other} <= model.live.keys():
                changed = replace(model.live[name], readers=step.readers)
                second = replace(model.live[other], text="also new", readers=None)
                rest = [] if step.kind == "both" else list(model.live.values())
                written = {each.id: each for each in [*rest, second, changed]}
                await store.put(writer, list(written.values())[::-1], now=NOON)
                model.live |= written
            case "move" | "top":
                parent = other if step.kind == "move" else None
                await store.move(writer, name, parent=parent, order=1.5, now=NOON)
                model.live[name] = replace(model.live[name], parent=parent, order=1.5)
            case "delete" if await store.delete(writer, [name], now=NOON):
                model.delete(name)
            case "restore" if await store.restore(writer, [name]):
                model.restore(name)
            case _:
                pass
    except RequestError:
        return


async def _read_everything(store: BlockStore, scope: Scope) -> list[Any]:
    """The answers of every read of the port on a small tree."""
    names = [_id(number) for number in range(_SIZE)]
    found: list[Any] = [_comparable_blocks(await store.get(scope, names))]
    chains = await store.ancestors(scope, names)
    found.append({name: _comparable_blocks(chain) for name, chain in chains.items()})
    for name in names:
        found.append(_comparable_blocks(await store.siblings(scope, name, before=2, after=1)))
        found.append(_comparable_blocks(await store.children(scope, name, limit=3)))
        found.append(_comparable_blocks(await store.subtree(scope, name, depth=3, limit=5)))
        found.append(list(await store.links(scope, [name], limit=3)))
        found.append([(each.source, each.target) for each in await store.backlinks(scope, [name], limit=3)])
    found.append(_comparable_blocks(await store.tasks(scope, due_before=NOON, limit=3)))
    found.append(_comparable_blocks(await store.tasks(scope, open_only=False, limit=3)))
    found.append([each.block_id for each in await store.recent(scope, ActivityKind.EDIT, since=NOON, limit=3)])
    return found


def _comparable_blocks(blocks: Sequence[Block]) -> list[tuple[Any, ...]]:
    """Blocks as tuples, without their own readers and their author."""
    return [(each.id, each.type, each.text, each.parent, each.order, dict(each.properties), sorted(each.acl))
            for each in blocks]  # fmt: skip


def _reader_and_writer(tenant: str) -> tuple[Scope, Scope]:
    """A user who may read some of the blocks, and the writer, who may read all."""
    writer = Scope(tenant=tenant, user="writer", groups=("all",))
    return Scope(tenant=tenant, user="anna", groups=("sales",)), writer


def _update_index_records(indexed: dict[str, Record], stale: Sequence[StaleBlock]) -> None:
    for each in stale:
        record = block_to_record(each)
        if record is None:
            indexed.pop(each.id, None)
        else:
            indexed[each.id] = record


def _comparable_record(record: Record) -> tuple[Any, ...]:
    payload = {name: value for name, value in record.payload.items() if name != "author"}
    return record.text, record.title, record.kind, sorted(set(record.acl)), payload


def _id(number: int) -> str:
    return f"b{number}"
