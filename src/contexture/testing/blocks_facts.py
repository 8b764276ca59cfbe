"""What a block store promises about the facts it keeps; part of `BlockStoreConformance`."""
# ruff: noqa: S101, SIM300 - a conformance suite asserts

from __future__ import annotations

from msgspec.structs import replace

from contexture.testing.blocks_tree import PRIVATE, block, boris_of, ids, page
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


async def settled(store: WritableBlocks, scope: Scope) -> dict[str, StaleBlock]:
    """What waited for this tenant, by id; all of it is settled with the same facts."""
    found: dict[str, StaleBlock] = {}
    while some := await store.stale(limit=7):
        await store.settle([replace(each, facts=FACTS) for each in some])
        found |= {each.id: each for each in some if each.tenant == scope.tenant}
    return found


class BlockFactsKept:
    """Facts are kept until they may be wrong."""

    async def test_facts_are_kept_for_those_who_may_read(self, store: WritableBlocks, anna: Scope) -> None:
        """As they were given; unknown blocks and hidden ones have none."""
        await store.put(anna, [block("a"), block("b", readers=PRIVATE)], now=NOON)
        before = await store.facts(anna, ["a", "b"])
        await settled(store, anna)

        assert {} == before
        assert {"a": FACTS, "b": FACTS} == await store.facts(anna, ["a", "never", "b"])
        assert {"a": FACTS} == await store.facts(boris_of(anna), ["a", "b"])

    async def test_facts_are_given_out_with_what_waits(self, store: WritableBlocks, anna: Scope) -> None:
        """So that whoever settles a block that was only moved need not compute them again."""
        await store.put(anna, [page("p"), page("q"), block("a", "p"), block("b", "a")], now=NOON)
        first = await settled(store, anna)
        await store.move(anna, "a", parent="q", order=0)
        second = await settled(store, anna)

        assert {None} == {each.facts for each in first.values()}
        assert FACTS == second["b"].facts

    async def test_a_page_forgets_when_what_it_sums_up_changes(self, store: WritableBlocks, anna: Scope) -> None:
        """New texts, moves in and out, deletions and restores below it: until it is settled again."""
        await store.put(anna, [page("p"), page("q"), block("a", "p"), block("b", "a"), block("c", "b")], now=NOON)
        await settled(store, anna)
        deeds = (
            (lambda: store.put(anna, [block("c", "b", text="new")], now=NOON), {"q"}),
            (lambda: store.move(anna, "b", parent="q", order=0), set[str]()),
            (lambda: store.delete(anna, ["b"], now=NOON), {"p"}),
            (lambda: store.restore(anna, ["b"]), {"p"}),
            (lambda: store.put(anna, [block("d", "c")], now=NOON), {"p"}),
            (lambda: store.put(anna, [block("e", "d")], now=NOON), {"p", "q"}),  # deeper than a summary reads
        )
        for do, kept in deeds:
            await do()
            assert kept == set(await store.facts(anna, ["p", "q"]))
            await settled(store, anna)
            assert {"p", "q"} == set(await store.facts(anna, ["p", "q"]))

    async def test_a_page_that_was_written_again_forgets_when_what_was_below_it_comes_back(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """It does not come back with the deletion, and still sums up what does."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [page("p")], now=NOON)
        await settled(store, anna)
        await store.restore(anna, ["a"])

        assert {} == await store.facts(anna, ["p"])
        assert ["a"] == ids((await settled(store, anna))["p"].below or ())

    async def test_facts_about_what_has_changed_since_are_not_kept(self, store: WritableBlocks, anna: Scope) -> None:
        """A write that comes between giving out and settling outdates them."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        given = [each for each in await store.stale(limit=1_000) if each.tenant == anna.tenant]
        await store.put(anna, [block("a", "p", readers=PRIVATE)], now=NOON)
        await store.settle([replace(each, facts=FACTS) for each in given])

        assert {} == await store.facts(anna, ["p", "a"])

    async def test_older_facts_do_not_replace_newer_ones(self, store: WritableBlocks, anna: Scope) -> None:
        """Also not where nothing waits any more, because another process has settled the change."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        given = [each for each in await store.stale(limit=1_000) if each.tenant == anna.tenant]
        await store.put(anna, [block("a", "p", readers=PRIVATE)], now=NOON)
        await settled(store, anna)
        old = replace(FACTS, hash="old")
        await store.settle([replace(each, facts=old) for each in given])

        assert {"p": FACTS, "a": FACTS} == await store.facts(anna, ["p", "a"])

    async def test_a_page_is_given_out_with_what_it_sums_up(self, store: WritableBlocks, anna: Scope) -> None:
        """The first blocks below it in document order; nothing where one of them has other readers than the page."""
        many = [block(f"k{at}", "p", order=at) for at in range(FOCUSED_SUMMARY_BLOCKS + 2)]
        mixed = [page("q"), block("x", "q"), block("y", "q", readers=PRIVATE)]
        await store.put(anna, [page("p"), *many, block("deep", "k0"), *mixed], now=NOON)
        found = await settled(store, anna)

        first = ["k0", "deep", *(f"k{at}" for at in range(1, FOCUSED_SUMMARY_BLOCKS - 1))]
        assert first == ids(found["p"].below or ())
        assert (None, None) == (found["q"].below, found["k0"].below)
