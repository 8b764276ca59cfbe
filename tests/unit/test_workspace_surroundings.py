"""Lists and sections around the hits of a search: completed in order while there is room, under one header."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from contexture.builders.workspace.config import ContextConfig, WorkspaceRecipe
from contexture.builders.workspace.result import ContextPayload
from contexture.capsule import pack_capsule
from contexture.engine import replay
from contexture.ledger import Reason
from contexture.testing.blocks_tree import make_block, make_page
from contexture.types import Scope
from contexture.workspace import BlockType
from support.workspaces import WorkspaceBench, WorkspaceParts, workspace_bench

ANNA = Scope(tenant="local", user="anna")
BLOCKS = (
    make_page("manual", text="Manual"),
    make_block("start", "manual", order=1, kind=BlockType.HEADING, text="Start the machine"),
    make_block("switch", "start", order=1, kind=BlockType.BULLETED, text="Turn the red switch."),
    make_block("lamp", "switch", order=1, kind=BlockType.BULLETED, text="A green lamp is lit."),
    make_block("valve", "start", order=2, kind=BlockType.BULLETED, text="Open the inlet of the turbine."),
    make_block("code", "start", order=3, kind=BlockType.BULLETED, text="Enter 1234.", readers=("user:boris",)),
    make_block("wait", "start", order=4, kind=BlockType.BULLETED, text="Wait a minute."),
    make_block("lunch", "manual", order=2, kind=BlockType.HEADING, text="Lunch"),
    make_block("noon", "lunch", text="At noon."),
    *(make_block(f"part{at}", "lunch", order=at, text=f"Dish {at} has carrots.") for at in range(1, 30)),
)


@pytest.fixture
async def bench(new_folder: Callable[[], Path]) -> AsyncIterator[WorkspaceBench]:
    """A manual with a short section and a long one."""
    async with workspace_bench(new_folder()) as opened:
        await opened.load(BLOCKS)
        yield opened


async def ask(bench: WorkspaceBench, query: str, **more: Any) -> ContextPayload:
    """The context of a query by Anna."""
    return await bench.builder.build({"query": query, **more}, scope=ANNA)


def ids(payload: ContextPayload) -> list[str]:
    """The blocks of the search, in order."""
    found = payload.section("semantic")
    return [] if found is None else [item.block_id for item in found.items]


async def test_the_list_of_a_hit_is_completed(bench: WorkspaceBench) -> None:
    """The section of a hit stands there as a whole, once, without what the user may not read."""
    found = await ask(bench, "turbine inlet")

    assert ids(found) == ["start", "switch", "lamp", "valve", "wait"]
    assert (
        "### Related Content\n[Manual] [heading]\nStart the machine\n- Turn the red switch.\n  - A green lamp is lit.\n"
        "- Open the inlet of the turbine.\n- Wait a minute.\n\n###"
    ) in found.serialized
    assert bench.builder.validate(found).valid
    assert [each for each in found.degradations if each.source == "semantic"] == []


async def test_a_heading_brings_its_section(bench: WorkspaceBench) -> None:
    """A heading that is found is no item by itself, but its section is one."""
    assert ids(await ask(bench, "how to start the machine"))[:3] == ["start", "switch", "lamp"]


async def test_without_room_the_hit_stands_alone(bench: WorkspaceBench) -> None:
    """A section that does not fit is not begun, and its blocks are left out for want of room."""
    found = await ask(bench, "turbine inlet", tokenBudget={"total": 1_000, "caps": {"semantic": 30}})
    around = found.ledger.find("around:wait")

    assert ids(found) == ["valve"]
    assert around is not None
    assert around.reason is Reason.OVER_BUDGET


async def test_a_long_section_is_not_completed(bench: WorkspaceBench) -> None:
    """Of a section with very many blocks only what is below the hit is added."""
    assert "part29" not in ids(await ask(bench, "at noon"))


PAGES = (
    make_page("pumps", text="Pumps"),
    make_block("oil", "pumps", order=1, text="A pump needs oil twice a year."),
    make_block("belt", "pumps", order=2, text="A worn belt of a pump squeaks."),
    make_block("seal", "pumps", order=3, text="Seals are stored in the cellar.\nAsk Olga for the key."),
    make_block("box", "seal", kind=BlockType.BULLETED, text="The grey box holds the brass ones."),
    make_page("empty", text="Pump log"),
    make_page("trip", text="Trip to the pump fair"),
    make_block("sign", "trip", kind=BlockType.BULLETED, text="💬"),
)


async def test_a_page_that_is_found_comes_whole(bench: WorkspaceBench) -> None:
    """In order, under one header, while there is room."""
    await bench.load(PAGES)

    assert ids(await ask(bench, "Tell me about Pumps"))[:5] == ["pumps", "oil", "belt", "seal", "box"]


async def test_a_page_that_does_not_fit_is_shortened(bench: WorkspaceBench) -> None:
    """With a mark, and with the hits on it."""
    await bench.load([*PAGES, make_block("far", "pumps", order=9, text="Нет воды в насосе. " * 60)])
    found = await ask(bench, "Tell me about Pumps and their oil", tokenBudget={"total": 800, "caps": {"semantic": 250}})

    assert {"pumps", "oil", "belt", "far"} <= set(ids(found))
    assert "Нет воды в насосе. …" in found.serialized


async def test_empty_pages_and_signs_are_no_items(bench: WorkspaceBench) -> None:
    """Unless the question names the page: a title alone says nothing."""
    await bench.load(PAGES)

    assert not {"empty", "trip", "sign"} & set(ids(await ask(bench, "Does the pump need oil?")))
    assert "empty" in ids(await ask(bench, "Where is the pump log?"))


async def test_a_path_names_the_first_lines_of_the_blocks_above(bench: WorkspaceBench) -> None:
    """Not all of their text."""
    await bench.load(PAGES)
    found = await ask(bench, "brass", focus={"blockId": "box"})

    assert "(Pumps > Seals are stored in the cellar.)\n" in found.serialized


async def test_the_recipe_of_the_specification_completes_nothing(new_folder: Callable[[], Path]) -> None:
    """The recipe of the specification shows each hit by itself."""
    parts = WorkspaceParts(config=ContextConfig(recipe=WorkspaceRecipe.SEED))
    async with workspace_bench(new_folder(), parts) as bench:
        await bench.load(BLOCKS)

        assert ids(await ask(bench, "turbine inlet")) == ["valve"]


async def test_a_completed_list_is_replayed(bench: WorkspaceBench) -> None:
    """A capsule rebuilds the same bytes."""
    found = await ask(bench, "turbine inlet")

    assert replay(pack_capsule(found.capsule))


async def test_a_list_with_lines_that_are_alike_is_whole(bench: WorkspaceBench) -> None:
    """A list is not cut because two of its lines say the same: they are no copies of each other."""
    same = "Turn the tap of the boiler to the left until it clicks."
    await bench.load(
        [
            make_page("boiler", text="Boiler"),
            make_block("steps", "boiler", text="Every morning"),
            make_block("first", "steps", order=1, kind=BlockType.BULLETED, text=same),
            make_block("rest", "steps", order=2, kind=BlockType.BULLETED, text="Wait."),
            make_block("again", "steps", order=3, kind=BlockType.BULLETED, text=same),
        ]
    )
    found = await ask(bench, "tap of the boiler")

    assert ["steps", "first", "rest", "again"] == [id_ for id_ in ids(found) if id_ != "boiler"]
    assert replay(pack_capsule(found.capsule))


async def test_hits_that_are_mostly_label_make_room_for_text(bench: WorkspaceBench) -> None:
    """A focused page that does not fit is shown instead of hits of two words under a label."""
    title = "Minutes of the harbour council about everything that was said of lifting and loading"
    pages = [make_page(f"p{at}", text=f"{title} in the year {1900 + at}") for at in range(12)]
    hits = [make_block(f"hit{at}", f"p{at}", text=f"The crane {at} broke.") for at in range(12)]
    lines = [make_block(f"x{at}", "big", order=at, text=f"Line {at} tells of rope.") for at in range(200)]
    await bench.load([*pages, *hits, make_page("big", text="Cranes"), *lines])
    found = await ask(bench, "which crane broke?", focus={"pageId": "big"}, tokenBudget={"total": 1_000})
    count = bench.parts.counter.count
    inside = found.serialized.partition("## Current Context")[2].rpartition("---\n\nUser Query:")[0]
    texts = [item.content for part in found.sections if part.type != "system" for item in part.items]

    assert 0.75 <= sum(map(count, texts)) / count(inside)
    assert found.metadata.total_tokens > 800
    assert replay(pack_capsule(found.capsule))
