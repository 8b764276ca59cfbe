"""What a block store promises about deletion, restoring and what searches are to be told; for the conformance suite."""
# ruff: noqa: S101, PLR2004, SIM300 - a conformance suite asserts

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from contexture.errors import InvalidRequest, NotFound
from contexture.testing.blocks_tree import PRIVATE, block_ids, make_block, make_page, other_user
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.workspace import PutResult, StaleBlock, WritableBlocks


async def settle_all(store: WritableBlocks, scope: Scope) -> Sequence[StaleBlock]:
    """Settle everything that is stale; returns the stale blocks of this tenant."""
    found: list[StaleBlock] = []
    while some := await store.stale(limit=7):
        await store.settle(some)
        found += [each for each in some if each.tenant == scope.tenant]
    return found


async def list_stale(store: WritableBlocks, scope: Scope) -> Sequence[StaleBlock]:
    """The stale blocks of this tenant, left stale."""
    return [each for each in await store.stale(limit=1_000) if each.tenant == scope.tenant]


class BlockRemovalTests:
    """Deleted blocks are restored together, and the index is told of every change."""

    async def test_a_deleted_subtree_is_restored_whole(self, store: WritableBlocks, anna: Scope) -> None:
        """Blocks, order, readers and links are as before; what was deleted earlier stays away."""
        tree = [
            make_page("p"),
            make_block("a", "p", text="((x)) [[P]]"),
            make_block("b", "a", readers=PRIVATE),
            make_block("gone", "a"),
        ]
        await store.put(anna, [make_page("q", text="P2"), *tree, make_block("x", text="((a))")], now=NOON)
        await store.delete(anna, ["gone"], now=NOON)
        before = await store.subtree(anna, "p", depth=9, limit=9)

        assert 3 == await store.delete(anna, ["p", "never", "p"], now=NOON)
        assert [] == [*await store.get(anna, ["p", "a", "b"]), *await store.backlinks(anna, ["x"], limit=9)]
        assert [] == [*await store.links(anna, ["x"], limit=9), *(await store.find_pages(anna, ["p"])).values()]
        assert (3, 0) == (await store.restore(anna, ["b"]), await store.restore(anna, ["p"]))
        assert before == await store.subtree(anna, "p", depth=9, limit=9)
        assert ["x", "p"] == [each.target for each in await store.links(anna, ["a"], limit=9)]
        assert ["x"] == [each.source for each in await store.backlinks(anna, ["a"], limit=9)]

    async def test_counts_leave_out_hidden_blocks(self, store: WritableBlocks, anna: Scope) -> None:
        """A deletion takes hidden blocks along, and its count does not tell."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("s", "p", readers=PRIVATE)], now=NOON)
        boris = other_user(anna)

        assert 2 == await store.delete(boris, ["p"], now=NOON)
        assert [] == list(await store.get(anna, ["s"]))
        assert 2 == await store.restore(boris, ["p"])
        assert ["s"] == block_ids(await store.get(anna, ["s"]))

    async def test_nothing_is_written_below_a_deleted_block(self, store: WritableBlocks, anna: Scope) -> None:
        """A deleted block is an unknown one; what went before it cannot come back before it."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("b", "p")], now=NOON)
        await store.delete(anna, ["a"], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        with pytest.raises(NotFound, match="no block 'p'"):
            await store.put(anna, [make_block("c", "p")], now=NOON)
        with pytest.raises(InvalidRequest, match="'a' cannot be restored"):
            await store.restore(anna, ["a"])
        assert 2 == await store.restore(anna, ["p"])
        assert 1 == await store.restore(anna, ["a"])

    async def test_restored_blocks_inherit_the_current_readers(self, store: WritableBlocks, anna: Scope) -> None:
        """A block comes back with the readers that its parent has now."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["a"], now=NOON)
        await store.put(anna, [make_page("p", readers=PRIVATE)], now=NOON)
        await store.restore(anna, ["a"])

        assert ([], ["a"]) == (
            block_ids(await store.get(other_user(anna), ["a"])),
            block_ids(await store.get(anna, ["a"])),
        )

    async def test_a_deleted_block_may_be_written_again(self, store: WritableBlocks, anna: Scope) -> None:
        """It is back alone, as something new."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        assert PutResult(added=1) == await store.put(anna, [make_page("p")], now=NOON)
        assert [] == list(await store.children(anna, "p", limit=9))
        assert 1 == await store.restore(anna, ["a"])
        assert ["a"] == block_ids(await store.children(anna, "p", limit=9))

    async def test_nothing_is_restored_below_a_rewritten_and_deleted_block(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """It went with an earlier deletion than the block it stands in, and waits for that one."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("b", "a")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [make_page("p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        for name in ("a", "b"):
            with pytest.raises(InvalidRequest, match=f"'{name}' cannot be restored before"):
                await store.restore(anna, [name])
        assert [] == list(await store.get(anna, ["p", "a", "b"]))
        assert (1, 2) == (await store.restore(anna, ["p"]), await store.restore(anna, ["b"]))
        assert ["a", "b"] == block_ids(await store.subtree(anna, "p", depth=9, limit=9))

    async def test_new_readers_reach_deleted_blocks(self, store: WritableBlocks, anna: Scope) -> None:
        """A page that is written again as a private one is so for what comes back below it, too."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [make_page("p", readers=PRIVATE)], now=NOON)

        assert (0, 1) == (await store.restore(other_user(anna), ["a"]), await store.restore(anna, ["a"]))
        assert [] == list(await store.get(other_user(anna), ["a"]))

    async def test_a_purged_block_cannot_be_restored(self, store: WritableBlocks, anna: Scope) -> None:
        """Only what was deleted before then, and only by those who may read it."""
        await store.put(
            anna, [make_page("p", readers=PRIVATE), make_block("a", "p"), make_page("q"), make_page("r")], now=NOON
        )
        await store.delete(anna, ["a"], now=NOON)
        await store.delete(anna, ["p", "q"], now=NOON)
        await store.delete(anna, ["r"], now=NOON + timedelta(days=2))
        later = NOON + timedelta(days=1)

        assert (1, 2, 0) == tuple([await store.purge(who, before=later) for who in (other_user(anna), anna, anna)])
        assert (0, 1) == (await store.restore(anna, ["p", "a", "q"]), await store.restore(anna, ["r"]))
        assert PutResult(added=1) == await store.put(anna, [make_block("a")], now=later)

    async def test_every_change_makes_blocks_stale(self, store: WritableBlocks, anna: Scope) -> None:
        """A new title or other readers outdate all below; a new text its block, and the page that may sum it up."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("b", "a"), make_block("x")], now=NOON)
        first = await settle_all(store, anna)
        await store.put(anna, [make_block("a", "p", text="new")], now=NOON)
        second = await settle_all(store, anna)
        await store.put(anna, [make_page("p", text="Title")], now=NOON)
        third = await settle_all(store, anna)
        await store.delete(anna, ["a"], now=NOON)
        fourth = await settle_all(store, anna)

        told = [{each.id for each in some} for some in (first, second, third, fourth)]
        assert [{"p", "a", "b", "x"}, {"a", "p"}, {"p", "a", "b"}, {"a", "b", "p"}] == told
        assert [("b", ["a", "p"])] == [(each.id, block_ids(each.ancestors)) for each in third if each.id == "b"]
        assert {"a", "b"} == {each.id for each in fourth if each.block is None}

    async def test_stale_blocks_carry_old_and_new_readers(self, store: WritableBlocks, anna: Scope) -> None:
        """Whoever keeps the index must reach a record that was written for others."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await settle_all(store, anna)
        await store.put(anna, [make_page("p", readers=PRIVATE)], now=NOON)

        assert {"p": {"public", *PRIVATE}, "a": {"public", *PRIVATE}} == {
            each.id: set(each.readers) for each in await settle_all(store, anna)
        }
        assert [] == list(await settle_all(store, anna))

    async def test_a_block_changed_before_it_is_settled_stays_stale(self, store: WritableBlocks, anna: Scope) -> None:
        """As it is now, with all who could read any of it; it waits until that is settled."""
        await store.put(anna, [make_block("a"), make_block("b")], now=NOON)
        given = await list_stale(store, anna)
        await store.put(anna, [make_block("a", text="new", readers=PRIVATE)], now=NOON)
        told = await store.settle(given)

        assert [("a", "new", {"public", *PRIVATE})] == [
            (each.id, each.block.text if each.block else "", set(each.readers)) for each in told
        ]
        assert ["a"] == [each.id for each in await list_stale(store, anna)]
        assert [] == [*await store.settle(told), *await list_stale(store, anna)]

    async def test_a_block_settled_differently_elsewhere_is_stale_again(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """Whoever settles late may have written late, and what it wrote is not true any more."""
        await store.put(anna, [make_block("a", readers=PRIVATE), make_block("b")], now=NOON)
        given = await list_stale(store, anna)
        await store.delete(anna, ["a"], now=NOON)
        await settle_all(store, anna)
        told = await store.settle(given)
        again = await list_stale(store, anna)

        assert [("a", None, set(PRIVATE))] == [(each.id, each.block, set(each.readers)) for each in told]
        assert list(told) == list(again)
        assert [] == [*await store.settle(told), *await list_stale(store, anna)]

    async def test_a_block_settled_twice_alike_is_settled(self, store: WritableBlocks, anna: Scope) -> None:
        """Two processes that were given the same do not keep each other busy."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        given = await list_stale(store, anna)
        await settle_all(store, anna)

        assert [] == [*await store.settle(given), *await list_stale(store, anna)]
