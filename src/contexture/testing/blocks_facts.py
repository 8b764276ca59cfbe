"""What a block store promises about the facts it keeps; part of `BlockStoreConformance`."""
# ruff: noqa: S101, SIM300 - a conformance suite asserts

from __future__ import annotations

from msgspec.structs import replace

from contexture.testing.blocks_tree import PRIVATE, block_ids, make_block, make_page, other_user
from contexture.testing.doubles import NOON
from contexture.types import Scope, Span
from contexture.workspace import FOCUSED_SUMMARY_BLOCKS, BlockFacts, PageSummary, StaleBlock, WritableBlocks

FACTS = BlockFacts(
    hash="abc",
    rules="words-1",
    redactions=(Span(0, 2, "WORD", 0.5),),
    tokens={"o200k_base": 3},
    summary=PageSummary(text="Pumps.", further="Pumps. Valves.", encoding="o200k_base", limit=160),
)


async def settle_with_facts(store: WritableBlocks, scope: Scope) -> dict[str, StaleBlock]:
    """Settle everything that is stale with `FACTS`; returns the stale blocks of this tenant by id."""
    found: dict[str, StaleBlock] = {}
    while some := await store.stale(limit=7):
        await store.settle([replace(each, facts=FACTS) for each in some])
        found |= {each.id: each for each in some if each.tenant == scope.tenant}
    return found


class BlockFactsTests:
    """Facts are stored until a write may have made them wrong."""

    async def test_facts_are_returned_to_readers_only(self, store: WritableBlocks, anna: Scope) -> None:
        """As they were given; unknown blocks and hidden ones have none."""
        await store.put(anna, [make_block("a"), make_block("b", readers=PRIVATE)], now=NOON)
        before = await store.facts(anna, ["a", "b"])
        await settle_with_facts(store, anna)

        assert {} == before
        assert {"a": FACTS, "b": FACTS} == await store.facts(anna, ["a", "never", "b"])
        assert {"a": FACTS} == await store.facts(other_user(anna), ["a", "b"])

    async def test_stale_blocks_carry_their_facts(self, store: WritableBlocks, anna: Scope) -> None:
        """So that whoever settles a block that was only moved need not compute them again."""
        await store.put(anna, [make_page("p"), make_page("q"), make_block("a", "p"), make_block("b", "a")], now=NOON)
        first = await settle_with_facts(store, anna)
        await store.move(anna, "a", parent="q", order=0)
        second = await settle_with_facts(store, anna)

        assert {None} == {each.facts for each in first.values()}
        assert FACTS == second["b"].facts

    async def test_a_page_loses_its_facts_when_blocks_below_change(self, store: WritableBlocks, anna: Scope) -> None:
        """New texts, moves in and out, deletions and restores below it: until it is settled again."""
        await store.put(
            anna,
            [make_page("p"), make_page("q"), make_block("a", "p"), make_block("b", "a"), make_block("c", "b")],
            now=NOON,
        )
        await settle_with_facts(store, anna)
        deeds = (
            (lambda: store.put(anna, [make_block("c", "b", text="new")], now=NOON), {"q"}),
            (lambda: store.move(anna, "b", parent="q", order=0), set[str]()),
            (lambda: store.delete(anna, ["b"], now=NOON), {"p"}),
            (lambda: store.restore(anna, ["b"]), {"p"}),
            (lambda: store.put(anna, [make_block("d", "c")], now=NOON), {"p"}),
            (lambda: store.put(anna, [make_block("e", "d")], now=NOON), {"p", "q"}),  # deeper than a summary reads
        )
        for do, kept in deeds:
            await do()
            assert kept == set(await store.facts(anna, ["p", "q"]))
            await settle_with_facts(store, anna)
            assert {"p", "q"} == set(await store.facts(anna, ["p", "q"]))

    async def test_a_rewritten_page_loses_its_facts_when_blocks_below_are_restored(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """It does not come back with the deletion, and still sums up what does."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [make_page("p")], now=NOON)
        await settle_with_facts(store, anna)
        await store.restore(anna, ["a"])

        assert {} == await store.facts(anna, ["p"])
        assert ["a"] == block_ids((await settle_with_facts(store, anna))["p"].below or ())

    async def test_facts_of_a_changed_block_are_not_stored(self, store: WritableBlocks, anna: Scope) -> None:
        """A write that comes between giving out and settling outdates them."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        given = [each for each in await store.stale(limit=1_000) if each.tenant == anna.tenant]
        await store.put(anna, [make_block("a", "p", readers=PRIVATE)], now=NOON)
        await store.settle([replace(each, facts=FACTS) for each in given])

        assert {} == await store.facts(anna, ["p", "a"])

    async def test_older_facts_do_not_replace_newer_ones(self, store: WritableBlocks, anna: Scope) -> None:
        """Also not where nothing waits any more, because another process has settled the change."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        given = [each for each in await store.stale(limit=1_000) if each.tenant == anna.tenant]
        await store.put(anna, [make_block("a", "p", readers=PRIVATE)], now=NOON)
        await settle_with_facts(store, anna)
        old = replace(FACTS, hash="old")
        await store.settle([replace(each, facts=old) for each in given])

        assert {"p": FACTS, "a": FACTS} == await store.facts(anna, ["p", "a"])

    async def test_a_stale_page_carries_the_blocks_to_summarize(self, store: WritableBlocks, anna: Scope) -> None:
        """The first blocks below it in document order; nothing where one of them has other readers than the page."""
        many = [make_block(f"k{at}", "p", order=at) for at in range(FOCUSED_SUMMARY_BLOCKS + 2)]
        mixed = [make_page("q"), make_block("x", "q"), make_block("y", "q", readers=PRIVATE)]
        await store.put(anna, [make_page("p"), *many, make_block("deep", "k0"), *mixed], now=NOON)
        found = await settle_with_facts(store, anna)

        first = ["k0", "deep", *(f"k{at}" for at in range(1, FOCUSED_SUMMARY_BLOCKS - 1))]
        assert first == block_ids(found["p"].below or ())
        assert (None, None) == (found["q"].below, found["k0"].below)
