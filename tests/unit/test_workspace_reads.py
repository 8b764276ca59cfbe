"""What a workspace build reads and computes: the focus once, and nothing that was computed when blocks were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from contexture.blocks.records import FactsComputer
from contexture.builders.workspace.result import ContextPayload
from contexture.capsule import pack_capsule
from contexture.errors import SourceUnavailable
from contexture.testing.blocks_tree import make_block, make_page
from contexture.testing.doubles import WordRedactor
from contexture.testing.in_memory_blocks import InMemoryBlockStore
from contexture.types import Scope, Span
from contexture.workspace import Block, BlockFacts, BlockLink, BlockType, LinkKind
from support.workspaces import WorkspaceBench, WorkspaceParts, workspace_bench

ANNA = Scope(tenant="local", user="anna")
BLOCKS = (
    make_page("plan", text="Launch plan"),
    *(make_block(f"b{at}", "plan", order=at, text=f"Pump number {at} stands in hall {at}.") for at in range(12)),
    make_page("budget", text="Budget"),
    make_block("sum", "budget", text="The pumps cost nine thousand."),
)
LINKS = (BlockLink(source="b1", target="budget", kind=LinkKind.LINK),)
ASKED: dict[str, Any] = {"query": "what do the pumps cost", "focus": {"pageId": "plan"}}


class Noted(InMemoryBlockStore):
    """A store that notes which reads it is asked for; its facts may be out of reach."""

    def __init__(self, *, facts: Mapping[str, BlockFacts], down: bool = False) -> None:
        super().__init__(BLOCKS, LINKS, facts=facts)
        self.asked: Counter[str] = Counter()
        self._down = down

    async def subtree(
        self, scope: Scope, block_id: str, *, depth: int, limit: int, leaves: Sequence[BlockType] = ()
    ) -> Sequence[Block]:
        """Blocks below one."""
        self.asked[block_id] += 1
        return await super().subtree(scope, block_id, depth=depth, limit=limit, leaves=leaves)

    async def facts(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockFacts]:
        """Facts, or a failure."""
        if self._down:
            raise SourceUnavailable("facts are down")
        return await super().facts(scope, ids)


class Scanner(WordRedactor):
    """A redactor that notes what it scans."""

    scans: list[str] = []  # noqa: RUF012 - of the class, because the redactor is frozen

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """What the words are found at."""
        self.scans.append(text)
        return super().scan(text, lang)


@pytest.fixture
async def bench(new_folder: Callable[[], Path]) -> AsyncIterator[WorkspaceBench]:
    """Two pages, one of which links to the other."""
    Scanner.scans.clear()
    async with workspace_bench(new_folder(), WorkspaceParts(redactor=Scanner(("swordfish",)))) as opened:
        await opened.load(BLOCKS, LINKS)
        yield opened


def facts_of(bench: WorkspaceBench) -> dict[str, BlockFacts]:
    """What is computed about the blocks when they are written."""
    reader = FactsComputer(bench.parts.redactor, [bench.parts.counter])
    found = {each.id: reader.compute(each) for each in bench.blocks.stale()}
    return {id_: facts for id_, facts in found.items() if facts is not None}


async def built(bench: WorkspaceBench, store: InMemoryBlockStore) -> ContextPayload:
    """The context around the plan."""
    return await bench.builder_over(store).build(ASKED, scope=ANNA)


async def test_the_focus_is_read_once(bench: WorkspaceBench) -> None:
    """Collectors that look below the same page share what is read, and summaries are not read at all."""
    store = Noted(facts=facts_of(bench))
    found = await built(bench, store)

    assert {"plan": 1, "sum": 1} == store.asked  # what is below `sum` would complete the hit
    assert {"focus", "relations"} <= set(found.metadata.collectors_used)
    assert "The pumps cost nine thousand." in found.serialized


async def test_what_was_scanned_at_writing_is_not_scanned_again(bench: WorkspaceBench) -> None:
    """Only what first appears in the build is: titles, paths, the query, and the summary of the focus."""
    store = Noted(facts=facts_of(bench))
    Scanner.scans.clear()
    await built(bench, store)

    assert set(Scanner.scans).isdisjoint(each.text for each in BLOCKS if each.parent)
    assert "Budget" in Scanner.scans


async def test_without_facts_the_context_is_the_same(bench: WorkspaceBench) -> None:
    """Out of reach, missing, or of other rules: nothing is lost but time, so nothing is said."""
    facts = facts_of(bench)
    wrong = (Span(0, 1, "X"),)
    other = {id_: replace(each, rules="others", redactions=wrong) for id_, each in facts.items()}
    stores = [Noted(facts=facts), Noted(facts=facts, down=True), Noted(facts={}), Noted(facts=other)]
    found = [pack_capsule((await built(bench, store)).capsule) for store in stores]

    assert 1 == len(set(found))


async def test_a_section_costs_what_its_items_cost(bench: WorkspaceBench) -> None:
    """As the ledger has them, so that the two can be held against each other."""
    found = await built(bench, Noted(facts={}))
    shown = {entry.id.partition(":")[2]: entry.tokens for entry in found.ledger.entries if entry.form is not None}
    for section in found.sections[1:]:
        assert section.token_count == sum(shown[item.block_id] for item in section.items)
    assert found.section("focus") is not None
