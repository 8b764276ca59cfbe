"""Promises of workspace contexts: what is hidden changes nothing, and nothing is ever over budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contexture.builders.workspace.build import WorkspaceContextBuilder
from contexture.builders.workspace.result import ContextPayload
from contexture.capsule import pack_capsule
from contexture.engine import replay
from contexture.errors import BudgetTooSmall, NotFound
from contexture.ledger import Trace
from contexture.pipeline.fence import is_fenced
from contexture.retrieval.citations import verify_citations
from contexture.retrieval.search import HybridSearch, ResultCache, SearchOptions
from contexture.testing.doubles import NOON
from contexture.types import Record, Scope
from contexture.workspace import Activity, ActivityKind, Block, BlockLink, BlockType, LinkKind
from support.workbench import NAME, Parts, workbench
from support.workspaces import WorkspaceParts, workspace_bench

ROOT = Scope(tenant="local", user="root")
ANNA = Scope(tenant="local", user="anna", groups=("sales",))
READERS = (None, None, None, ("user:anna", "user:root"), ("group:sales", "user:root"), ("user:boris", "user:root"))
WORDS = ("pump", "valve", "launch", "task", "river", "насос", "overdue", "swordfish")
QUERIES = ("What tasks are overdue?", "pump valve", "Summarize this page", "насос", "Break this task into subtasks")
TYPES = (
    *(BlockType.PAGE, BlockType.TODO, BlockType.PARAGRAPH, BlockType.HEADING, BlockType.CODE),
    *(BlockType.DB, BlockType.DB_ROW, BlockType.DIVIDER),
)
SLOW = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

Made = tuple[list[Block], list[BlockLink], list[Activity]]


@st.composite
def workspaces(draw: st.DrawFn) -> Made:
    """A forest of up to fourteen blocks with readers of their own or inherited, links and deeds of two users."""
    count = draw(st.integers(3, 14))
    blocks = [draw(blocks_at(at)) for at in range(count)]
    names = st.sampled_from([block.id for block in blocks])
    link = st.builds(BlockLink, source=names, target=names, kind=st.sampled_from(list(LinkKind)))
    deed = st.builds(
        Activity,
        block_id=names,
        user=st.sampled_from(("anna", "boris")),
        deed=st.sampled_from(list(ActivityKind)),
        time=st.integers(1, 100).map(lambda hours: NOON - timedelta(hours=hours)),
    )
    return blocks, draw(st.lists(link, max_size=10)), draw(st.lists(deed, max_size=8))


@st.composite
def blocks_at(draw: st.DrawFn, at: int) -> Block:
    """One block, below one made before it or below none."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
    due = (NOON + timedelta(days=draw(st.integers(-5, 5)))).date().isoformat()
    return Block(
        id=f"b{at}",
        type=draw(st.sampled_from(TYPES)),
        text=" ".join(words),
        parent=f"b{draw(st.integers(0, at - 1))}" if at and draw(st.booleans()) else None,
        order=float(draw(st.integers(0, 3))),
        properties={"due": due, "done": draw(st.booleans())},
        readers=draw(st.sampled_from(READERS)) if at else None,
        author=draw(st.sampled_from(("anna", "boris"))),
        modified=NOON - timedelta(days=draw(st.integers(0, 40))),
    )


def requests() -> st.SearchStrategy[dict[str, Any]]:
    """Queries with and without a focus, of every type, within several budgets."""
    focus = st.sampled_from(({}, {"blockId": "b0"}, {"pageId": "b0"}, {"databaseId": "b0"}, {"blockId": "b1"}))
    return st.fixed_dictionaries(
        {
            "query": st.sampled_from(QUERIES),
            "focus": focus,
            "type": st.sampled_from(("assist", "chat", "search", "automate")),
            "tokenBudget": st.fixed_dictionaries(
                {"total": st.integers(150, 900), "activity": st.sampled_from((0, 300))}
            ),
            "conversationHistory": st.lists(
                st.builds(lambda text: {"role": "user", "content": text}, st.text(max_size=80)), max_size=4
            ),
        }
    )


def hidden(made: Made) -> set[str]:
    """The blocks that Anna may not read."""
    acls: dict[str, tuple[str, ...]] = {}
    for block in made[0]:
        acls[block.id] = block.readers or (acls[block.parent] if block.parent else ("public",))
    return {id_ for id_, acl in acls.items() if set(acl).isdisjoint(ANNA.principals)}


def without(made: Made, gone: set[str]) -> Made:
    """The workspace as if hidden blocks had never been; what hung below them says itself who reads it."""
    acls: dict[str, tuple[str, ...] | None] = {block.id: block.readers for block in made[0]}
    blocks = [block for block in made[0] if block.id not in gone]
    links = [link for link in made[1] if link.source not in gone and link.target not in gone]
    deeds = [deed for deed in made[2] if deed.block_id not in gone]
    assert all(acls[block.id] is not None for block in blocks if block.parent in gone)
    return blocks, links, deeds


async def built(builder: WorkspaceContextBuilder, asked: dict[str, Any]) -> ContextPayload | str:
    """The context, or what was said instead."""
    try:
        return await builder.build(asked, scope=ANNA)
    except (BudgetTooSmall, NotFound) as failure:
        return str(failure)


def bytes_of(found: ContextPayload | str) -> bytes:
    """Everything that a caller can see."""
    if isinstance(found, str):
        return found.encode()
    return pack_capsule(found.capsule) + msgspec.json.encode((found.sections, found.metadata, found.ledger.entries))


async def answers(
    folder: Path, made: Made, asked: list[dict[str, Any]], *, facts: bool = True
) -> tuple[list[bytes], object]:
    """What several requests give, each asked twice, and how often the cache answered."""
    async with workspace_bench(folder, WorkspaceParts(facts=facts)) as bench:
        builder = await bench.load(*made)
        found = [bytes_of(await built(builder, each)) for each in [*asked, *asked]]
        return found, bench.search.cache_stats()


@SLOW
@given(made=workspaces(), asked=st.lists(requests(), min_size=1, max_size=2))
def test_hidden_blocks_change_nothing(made: Made, asked: list[dict[str, Any]], new_folder: Callable[[], Path]) -> None:
    """With forbidden blocks, links and deeds or without them: the same bytes, counts and cache hits."""
    with_all = asyncio.run(answers(new_folder(), made, asked))
    with_own = asyncio.run(answers(new_folder(), without(made, hidden(made)), asked))

    assert with_all == with_own


@SLOW
@given(made=workspaces(), asked=st.lists(requests(), min_size=1, max_size=2))
def test_stored_facts_change_nothing_but_the_time(
    made: Made, asked: list[dict[str, Any]], new_folder: Callable[[], Path]
) -> None:
    """Redactions, counts and summaries computed at writing or in the build: the same bytes."""
    with_facts = asyncio.run(answers(new_folder(), made, asked))
    without_facts = asyncio.run(answers(new_folder(), made, asked, facts=False))

    assert with_facts == without_facts


@SLOW
@given(made=workspaces(), asked=requests())
def test_a_context_keeps_its_promises(made: Made, asked: dict[str, Any], new_folder: Callable[[], Path]) -> None:
    """Never over budget, fenced, redacted, replayable, each block once and judged, citations that resolve."""

    async def check() -> None:
        async with workspace_bench(new_folder()) as bench:
            builder = await bench.load(*made)
            found = await built(builder, asked)
            if isinstance(found, str):
                return
            assert builder.validate(found).errors == ()
            assert builder.estimate_tokens(found) == found.metadata.total_tokens <= asked["tokenBudget"]["total"]
            assert "swordfish" not in found.serialized
            assert all(is_fenced(item.content) for section in found.sections[1:] for item in section.items)
            capsule, ledger = replay(pack_capsule(found.capsule))
            assert (capsule.messages, ledger) == (found.messages, found.ledger)
            assert hidden(made).isdisjoint(citation.record_id for citation in found.citations)
            assert await verify_citations(bench.index, ANNA, found.citations) == []

    asyncio.run(check())


@SLOW
@given(
    writes=st.lists(
        st.tuples(
            st.integers(90, 130),
            st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_remembered_answers_show_what_was_written(
    writes: list[tuple[int, str, bool]], new_folder: Callable[[], Path]
) -> None:
    """Of a record just written, removed or hidden, memory says what a search without memory says."""

    async def check() -> None:
        options = SearchOptions(lag=0.05, pool=6, channel_k=6)
        async with workbench(new_folder(), Parts(cache=8, options=options)) as bench:
            fresh = HybridSearch(index=bench.index, encoders=Parts().encoders, options=options, cache=ResultCache(0))
            await bench.add(ROOT, [_record(at, _words(at), shown=True) for at in range(120)])
            for at, text, shown in writes:
                for query in ("pump valve", "насос"):
                    await _ids(bench.search, query)
                if text:
                    await bench.add(ROOT, [_record(at, text, shown=shown)])
                else:
                    await bench.index.delete(ROOT, NAME, [f"r{at}"])
                for query in ("pump valve", "насос"):
                    found = [f"r{at}" in await _ids(search, query) for search in (bench.search, fresh)]
                    assert found[0] == found[1]

    asyncio.run(check())


def _record(at: int, text: str, *, shown: bool) -> Record:
    return Record(id=f"r{at}", text=text, acl=("user:root", "public") if shown else ("user:root",))


def _words(at: int) -> str:
    """A text of the words, the later ones of which are rare."""
    return " ".join(word for nth, word in enumerate(WORDS[:6], start=1) if at % (nth * nth) == 0) or f"tide {at}"


async def _ids(search: HybridSearch, query: str) -> set[str]:
    found = await search.search(ANNA, NAME, query, trace=Trace())
    return {each.hit.record.id for each in found}


async def test_a_hidden_focus_is_an_unknown_one(new_folder: Callable[[], Path]) -> None:
    """Word for word."""
    secret = Block(id="secret", type=BlockType.PAGE, text="Salaries", readers=("user:boris",))
    async with workspace_bench(new_folder()) as bench:
        builder = await bench.load([secret])
        told: list[str] = []
        for name in ("secret", "nothin"):
            with pytest.raises(NotFound) as failure:
                await builder.build({"query": "hello", "focus": {"pageId": name}}, scope=ANNA)
            told.append(str(failure.value).replace(name, "it"))

    assert told[0] == told[1]


async def test_a_link_to_something_hidden_does_not_name_it(new_folder: Callable[[], Path]) -> None:
    """Neither by relation nor by link; a row whose database is hidden shows no cells."""
    schema = {"schema": {"Deal": "relation", "City": "text"}}
    blocks = [
        Block(id="db", type=BlockType.DB, text="Customers", properties=schema),
        Block(id="row", type=BlockType.DB_ROW, text="Acme", parent="db", properties={"Deal": ["x"], "City": "Oslo"}),
        Block(id="x", type=BlockType.DB_ROW, text="Hostile takeover", readers=("user:boris",)),
        Block(id="vault", type=BlockType.DB, text="Vault", properties=schema, readers=("user:boris",)),
        Block(
            id="lone",
            type=BlockType.DB_ROW,
            text="Lone",
            parent="vault",
            properties={"Deal": "Hostile takeover", "City": "Oslo"},
            readers=("public",),
        ),
    ]
    links = [
        BlockLink(source="row", target="x", kind=LinkKind.RELATION, name="Deal"),
        BlockLink(source="lone", target="x", kind=LinkKind.RELATION, name="Deal"),
    ]
    async with workspace_bench(new_folder()) as bench:
        builder = await bench.load(blocks, links)
        for name in ("row", "lone"):
            found = await builder.build({"query": "takeover deal", "focus": {"blockId": name}}, scope=ANNA)

            assert await verify_citations(bench.index, ANNA, found.citations) == []
            assert b"Hostile" not in bytes_of(found)
            assert b"Vault" not in bytes_of(found)
    assert ("City: Oslo" in found.serialized) is False
