"""What a block store promises about deletion, restoring and what searches are to be told; for the conformance suite."""
# ruff: noqa: S101, PLR2004, SIM300 - a conformance suite asserts

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from contexture.errors import InvalidRequest, NotFound
from contexture.testing.blocks_tree import PRIVATE, block, boris_of, ids, page
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.workspace import PutResult, StaleBlock, WritableBlocks


async def drained(store: WritableBlocks, scope: Scope) -> Sequence[StaleBlock]:
    """What waits for this tenant; nothing waits any more."""
    found: list[StaleBlock] = []
    while some := await store.stale(limit=7):
        await store.settle(some)
        found += [each for each in some if each.tenant == scope.tenant]
    return found


async def waiting(store: WritableBlocks, scope: Scope) -> Sequence[StaleBlock]:
    """What waits for this tenant, and goes on waiting."""
    return [each for each in await store.stale(limit=1_000) if each.tenant == scope.tenant]


class BlockRemoval:
    """What goes together comes back together."""

    async def test_a_deleted_subtree_comes_back_whole(self, store: WritableBlocks, anna: Scope) -> None:
        """Blocks, order, readers and links are as before; what was deleted earlier stays away."""
        tree = [page("p"), block("a", "p", text="((x)) [[P]]"), block("b", "a", readers=PRIVATE), block("gone", "a")]
        await store.put(anna, [page("q", text="P2"), *tree, block("x", text="((a))")], now=NOON)
        await store.delete(anna, ["gone"], now=NOON)
        before = await store.subtree(anna, "p", depth=9, limit=9)

        assert 3 == await store.delete(anna, ["p", "never", "p"], now=NOON)
        assert [] == [*await store.get(anna, ["p", "a", "b"]), *await store.backlinks(anna, ["x"], limit=9)]
        assert [] == [*await store.links(anna, ["x"], limit=9), *(await store.find_pages(anna, ["p"])).values()]
        assert (3, 0) == (await store.restore(anna, ["b"]), await store.restore(anna, ["p"]))
        assert before == await store.subtree(anna, "p", depth=9, limit=9)
        assert ["x", "p"] == [each.target for each in await store.links(anna, ["a"], limit=9)]
        assert ["x"] == [each.source for each in await store.backlinks(anna, ["a"], limit=9)]

    async def test_counts_leave_out_what_is_hidden(self, store: WritableBlocks, anna: Scope) -> None:
        """A deletion takes hidden blocks along, and its count does not tell."""
        await store.put(anna, [page("p"), block("a", "p"), block("s", "p", readers=PRIVATE)], now=NOON)
        boris = boris_of(anna)

        assert 2 == await store.delete(boris, ["p"], now=NOON)
        assert [] == list(await store.get(anna, ["s"]))
        assert 2 == await store.restore(boris, ["p"])
        assert ["s"] == ids(await store.get(anna, ["s"]))

    async def test_nothing_is_written_below_what_is_gone(self, store: WritableBlocks, anna: Scope) -> None:
        """A deleted block is an unknown one; what went before it cannot come back before it."""
        await store.put(anna, [page("p"), block("a", "p"), block("b", "p")], now=NOON)
        await store.delete(anna, ["a"], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        with pytest.raises(NotFound, match="no block 'p'"):
            await store.put(anna, [block("c", "p")], now=NOON)
        with pytest.raises(InvalidRequest, match="'a' cannot be restored"):
            await store.restore(anna, ["a"])
        assert 2 == await store.restore(anna, ["p"])
        assert 1 == await store.restore(anna, ["a"])

    async def test_readers_that_change_meanwhile_are_inherited(self, store: WritableBlocks, anna: Scope) -> None:
        """A block comes back with the readers that its parent has now."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        await store.delete(anna, ["a"], now=NOON)
        await store.put(anna, [page("p", readers=PRIVATE)], now=NOON)
        await store.restore(anna, ["a"])

        assert ([], ["a"]) == (ids(await store.get(boris_of(anna), ["a"])), ids(await store.get(anna, ["a"])))

    async def test_a_deleted_block_may_be_written_again(self, store: WritableBlocks, anna: Scope) -> None:
        """It is back alone, as something new."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        assert PutResult(added=1) == await store.put(anna, [page("p")], now=NOON)
        assert [] == list(await store.children(anna, "p", limit=9))
        assert 1 == await store.restore(anna, ["a"])
        assert ["a"] == ids(await store.children(anna, "p", limit=9))

    async def test_nothing_comes_back_below_what_was_written_again_and_deleted(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """It went with an earlier deletion than the block it stands in, and waits for that one."""
        await store.put(anna, [page("p"), block("a", "p"), block("b", "a")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [page("p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        for name in ("a", "b"):
            with pytest.raises(InvalidRequest, match=f"'{name}' cannot be restored before"):
                await store.restore(anna, [name])
        assert [] == list(await store.get(anna, ["p", "a", "b"]))
        assert (1, 2) == (await store.restore(anna, ["p"]), await store.restore(anna, ["b"]))
        assert ["a", "b"] == ids(await store.subtree(anna, "p", depth=9, limit=9))

    async def test_readers_reach_what_is_gone(self, store: WritableBlocks, anna: Scope) -> None:
        """A page that is written again as a private one is so for what comes back below it, too."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [page("p", readers=PRIVATE)], now=NOON)

        assert (0, 1) == (await store.restore(boris_of(anna), ["a"]), await store.restore(anna, ["a"]))
        assert [] == list(await store.get(boris_of(anna), ["a"]))

    async def test_what_is_purged_is_gone_for_good(self, store: WritableBlocks, anna: Scope) -> None:
        """Only what was deleted before then, and only by those who may read it."""
        await store.put(anna, [page("p", readers=PRIVATE), block("a", "p"), page("q"), page("r")], now=NOON)
        await store.delete(anna, ["a"], now=NOON)
        await store.delete(anna, ["p", "q"], now=NOON)
        await store.delete(anna, ["r"], now=NOON + timedelta(days=2))
        later = NOON + timedelta(days=1)

        assert (1, 2, 0) == tuple([await store.purge(who, before=later) for who in (boris_of(anna), anna, anna)])
        assert (0, 1) == (await store.restore(anna, ["p", "a", "q"]), await store.restore(anna, ["r"]))
        assert PutResult(added=1) == await store.put(anna, [block("a")], now=later)

    async def test_searches_are_told_of_every_change(self, store: WritableBlocks, anna: Scope) -> None:
        """A new title or other readers outdate all below; a new text its block, and the page that may sum it up."""
        await store.put(anna, [page("p"), block("a", "p"), block("b", "a"), block("x")], now=NOON)
        first = await drained(store, anna)
        await store.put(anna, [block("a", "p", text="new")], now=NOON)
        second = await drained(store, anna)
        await store.put(anna, [page("p", text="Title")], now=NOON)
        third = await drained(store, anna)
        await store.delete(anna, ["a"], now=NOON)
        fourth = await drained(store, anna)

        told = [{each.id for each in some} for some in (first, second, third, fourth)]
        assert [{"p", "a", "b", "x"}, {"a", "p"}, {"p", "a", "b"}, {"a", "b", "p"}] == told
        assert [("b", ["a", "p"])] == [(each.id, ids(each.ancestors)) for each in third if each.id == "b"]
        assert {"a", "b"} == {each.id for each in fourth if each.block is None}

    async def test_readers_before_and_after_are_told(self, store: WritableBlocks, anna: Scope) -> None:
        """Whoever keeps the index must reach a record that was written for others."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        await drained(store, anna)
        await store.put(anna, [page("p", readers=PRIVATE)], now=NOON)

        assert {"p": {"public", *PRIVATE}, "a": {"public", *PRIVATE}} == {
            each.id: set(each.readers) for each in await drained(store, anna)
        }
        assert [] == list(await drained(store, anna))

    async def test_what_was_altered_before_it_was_settled_is_told(self, store: WritableBlocks, anna: Scope) -> None:
        """As it is now, with all who could read any of it; it waits until that is settled."""
        await store.put(anna, [block("a"), block("b")], now=NOON)
        given = await waiting(store, anna)
        await store.put(anna, [block("a", text="new", readers=PRIVATE)], now=NOON)
        told = await store.settle(given)

        assert [("a", "new", {"public", *PRIVATE})] == [
            (each.id, each.block.text if each.block else "", set(each.readers)) for each in told
        ]
        assert ["a"] == [each.id for each in await waiting(store, anna)]
        assert [] == [*await store.settle(told), *await waiting(store, anna)]

    async def test_what_another_settled_waits_again_where_it_differs(self, store: WritableBlocks, anna: Scope) -> None:
        """Whoever settles late may have written late, and what it wrote is not true any more."""
        await store.put(anna, [block("a", readers=PRIVATE), block("b")], now=NOON)
        given = await waiting(store, anna)
        await store.delete(anna, ["a"], now=NOON)
        await drained(store, anna)
        told = await store.settle(given)
        again = await waiting(store, anna)

        assert [("a", None, set(PRIVATE))] == [(each.id, each.block, set(each.readers)) for each in told]
        assert list(told) == list(again)
        assert [] == [*await store.settle(told), *await waiting(store, anna)]

    async def test_what_two_settle_alike_is_settled(self, store: WritableBlocks, anna: Scope) -> None:
        """Two processes that were given the same do not keep each other busy."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        given = await waiting(store, anna)
        await drained(store, anna)

        assert [] == [*await store.settle(given), *await waiting(store, anna)]
