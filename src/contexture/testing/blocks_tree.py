"""Trees of blocks: order, inherited readers and permissions; part of `BlockStoreConformance`."""
# ruff: noqa: S101, SIM300 - a conformance suite asserts

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as replace_struct

from contexture.errors import InvalidRequest, NotFound
from contexture.testing.doubles import NOON
from contexture.types import Json, Scope
from contexture.workspace import (
    Activity,
    ActivityKind,
    Block,
    BlockType,
    BlockUsage,
    PutResult,
    StaleBlock,
    WritableBlocks,
)

PRIVATE = ("user:anna",)


def make_block(
    name: str,
    parent: str | None = None,
    *,
    text: str = "",
    kind: BlockType = BlockType.PARAGRAPH,
    order: float = 0.0,
    readers: tuple[str, ...] | None = None,
    properties: dict[str, Json] | None = None,
) -> Block:
    """A block; its text is its id unless another one is given."""
    return Block(
        id=name,
        type=kind,
        text=text or name,
        parent=parent,
        order=order,
        readers=readers,
        properties=properties or {},
    )


def make_page(name: str, parent: str | None = None, *, text: str = "", readers: tuple[str, ...] | None = None) -> Block:
    """A page with this title."""
    return make_block(name, parent, text=text, kind=BlockType.PAGE, readers=readers)


def block_ids(blocks: Sequence[Block]) -> list[str]:
    """The ids of blocks."""
    return [each.id for each in blocks]


def other_user(anna: Scope) -> Scope:
    """Another user of the same tenant."""
    return replace(anna, user="boris", groups=())


async def settle_all(store: WritableBlocks, scope: Scope) -> Sequence[StaleBlock]:
    """Settle everything that is stale; returns the stale blocks of this tenant."""
    found: list[StaleBlock] = []
    while some := await store.stale(limit=7):
        await store.settle(some)
        found += [each for each in some if each.tenant == scope.tenant]
    return found


class BlockTreeTests:
    """Trees keep their order, and readers are inherited along them."""

    async def test_a_block_comes_back_as_it_was_written(self, store: WritableBlocks, anna: Scope) -> None:
        """Text, properties, order and readers are unchanged; author, times and effective readers are filled in."""
        deep: dict[str, Json] = {"n": 1, "list": [None, 1.5, True, "ё"], "empty": {}}
        given = make_block("a", text="Привет \U0001f600 \x00 [[x]]", order=-1.5, readers=("user:anna", "public"))
        await store.put(anna, [replace_struct(given, properties=deep)], now=NOON)
        (found,) = await store.get(anna, ["a", "never", "a"])

        expected = replace_struct(
            given, properties=deep, author="anna", created=NOON, modified=NOON, creator="anna", version=1
        )
        assert replace_struct(expected, readers=("public", "user:anna"), acl=("public", "user:anna")) == found

    async def test_parents_may_come_behind_their_children(self, store: WritableBlocks, anna: Scope) -> None:
        """The order within one write does not matter."""
        done = await store.put(anna, [make_block("c", "b"), make_block("b", "a"), make_page("a")], now=NOON)

        assert (PutResult(added=3), ["b", "a"]) == (done, block_ids((await store.ancestors(anna, ["c"]))["c"]))

    async def test_writing_the_same_again_changes_nothing(self, store: WritableBlocks, anna: Scope) -> None:
        """A block counts as changed when it differs; another time of modification alone is no difference."""
        await store.put(anna, [make_page("a"), make_block("b", "a")], now=NOON)
        later = NOON + timedelta(days=1)
        again = [replace_struct(make_page("a"), modified=later), make_block("b", "a", text="other")]

        assert PutResult(changed=1, unchanged=1) == await store.put(anna, again, now=later)
        assert [NOON, later] == [each.modified for each in await store.get(anna, ["a", "b"])]

    async def test_reads_follow_document_order(self, store: WritableBlocks, anna: Scope) -> None:
        """Siblings are ordered by `order`, ties by id; a subtree is walked depth first."""
        family = [
            make_block("z", "p", order=1),
            make_block("b", "p", order=1),
            make_block("a", "p", order=2),
            make_block("b1", "b"),
        ]
        await store.put(anna, [make_page("p"), *family], now=NOON)
        (first,) = await store.children(anna, "p", limit=1)

        assert ["b", "z", "a"] == block_ids(await store.children(anna, "p", limit=9))
        assert ["z"] == block_ids(await store.children(anna, "p", limit=1, after=first))
        assert ["b", "b1", "z", "a"] == block_ids(await store.subtree(anna, "p", depth=9, limit=9))
        assert ["b", "b1", "z"] == block_ids(await store.subtree(anna, "p", depth=9, limit=3))
        assert ["b", "z", "a"] == block_ids(await store.subtree(anna, "p", depth=1, limit=9))
        several = await store.subtrees(anna, {"p": 2, "b": 9, "nobody": 9}, depth=1)
        assert {"p": ["b", "z"], "b": ["b1"], "nobody": []} == {
            name: block_ids(below) for name, below in several.items()
        }
        assert ["b", "a"] == block_ids(await store.siblings(anna, "z", before=2, after=2))
        assert ["a"] == block_ids(await store.siblings(anna, "z", before=0, after=1))

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_limit_of_zero_or_less_returns_nothing(
        self, store: WritableBlocks, anna: Scope, limit: int
    ) -> None:
        """A limit of zero or less returns no blocks, not all of them."""
        todo = make_block("t", "p", text="do ((p))", kind=BlockType.TODO, properties={"due": "2026-01-01"})
        await store.put(anna, [make_page("p"), todo], now=NOON)

        assert [] == list(await store.children(anna, "p", limit=limit))
        assert [] == list(await store.subtree(anna, "p", depth=9, limit=limit))
        assert [] == list(await store.siblings(anna, "t", before=limit, after=limit))
        assert [] == list(await store.tasks(anna, limit=limit))
        assert [] == list(await store.recent(anna, ActivityKind.EDIT, since=NOON, limit=limit))
        assert [] == [*await store.links(anna, ["t"], limit=limit), *await store.backlinks(anna, ["p"], limit=limit)]

    async def test_unknown_ids_return_nothing(self, store: WritableBlocks, anna: Scope) -> None:
        """No read raises, whatever id it is asked for."""
        for name in ("never", "", "\x00", "\ud800", "x" * 9_999):
            assert [] == list(await store.get(anna, [name]))
            assert {} == dict(await store.ancestors(anna, [name]))
            assert [] == list(await store.siblings(anna, name, before=2, after=2))
            assert [] == list(await store.children(anna, name, limit=5))
            assert [] == list(await store.subtree(anna, name, depth=3, limit=5))
            assert [] == [*await store.links(anna, [name], limit=5), *await store.backlinks(anna, [name], limit=5)]
            assert ({}, {}) == (dict(await store.touches(anna, [name])), dict(await store.find_pages(anna, [name])))

    async def test_an_orphan_refuses_the_whole_write(self, store: WritableBlocks, anna: Scope) -> None:
        """An unknown parent and a hidden one raise the same error, and nothing is written."""
        await store.put(anna, [make_page("secret", readers=PRIVATE)], now=NOON)
        for parent in ("never", "secret"):
            with pytest.raises(NotFound, match=f"no block '{parent}'"):
                await store.put(other_user(anna), [make_page("p"), make_block("a", parent)], now=NOON)

        assert [] == list(await store.get(anna, ["p", "a"]))

    async def test_a_cycle_is_refused(self, store: WritableBlocks, anna: Scope) -> None:
        """Neither a write nor a move puts a block below itself, and the tree stays as it was."""
        await store.put(anna, [make_page("a"), make_block("b", "a"), make_block("c", "b")], now=NOON)
        with pytest.raises(InvalidRequest, match="own descendant"):
            await store.put(anna, [make_block("x", "y"), make_block("y", "x")], now=NOON)
        with pytest.raises(InvalidRequest, match="own descendant"):
            await store.put(anna, [replace_struct(make_page("a"), parent="c")], now=NOON)
        with pytest.raises(InvalidRequest, match="own descendant"):
            await store.move(anna, "a", parent="c", order=0, now=NOON)

        assert ["b", "a"] == block_ids((await store.ancestors(anna, ["c"]))["c"])
        assert [] == list(await store.get(anna, ["x", "y"]))

    async def test_a_tree_may_be_fifty_levels_deep(self, store: WritableBlocks, anna: Scope) -> None:
        """Ancestors and subtrees go all the way."""
        names = [f"n{level}" for level in range(50)]
        line = [make_block(name, None if not at else names[at - 1]) for at, name in enumerate(names)]
        await store.put(anna, line, now=NOON)

        assert names[-2::-1] == block_ids((await store.ancestors(anna, [names[-1]]))[names[-1]])
        assert names[1:] == block_ids(await store.subtree(anna, names[0], depth=99, limit=99))

    async def test_readers_are_inherited_until_a_block_has_its_own(self, store: WritableBlocks, anna: Scope) -> None:
        """New readers of a block hold for all blocks below it, down to those with readers of their own."""
        tree = [
            make_page("p"),
            make_block("a", "p"),
            make_block("own", "a", readers=("public",)),
            make_block("below", "own"),
        ]
        await store.put(anna, tree, now=NOON)
        await store.put(anna, [make_page("p", readers=PRIVATE)], now=NOON)

        everyone = ["p", "a", "own", "below"]
        assert everyone == block_ids(await store.get(anna, everyone))
        assert ["own", "below"] == block_ids(await store.get(other_user(anna), everyone))
        assert ["own"] == block_ids((await store.ancestors(other_user(anna), ["below"]))["below"])
        assert [None] == [each.parent for each in await store.get(other_user(anna), ["own"])]

    async def test_new_readers_reach_blocks_below_an_unchanged_block_of_the_write(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """A page that becomes private, a block of it as it was, and a new one below that, in one write."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.put(anna, [make_block("b", "a"), make_block("a", "p"), make_page("p", readers=PRIVATE)], now=NOON)

        assert [] == block_ids(await store.get(other_user(anna), ["p", "a", "b"]))
        assert ["p", "a", "b"] == block_ids(await store.get(anna, ["p", "a", "b"]))

    async def test_new_readers_reach_blocks_below_a_block_outside_the_write(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """The block in between is not part of the write, and passes on what it inherits by then."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.put(anna, [make_block("b", "a"), make_page("p", readers=PRIVATE)], now=NOON)

        assert [] == block_ids(await store.get(other_user(anna), ["p", "a", "b"]))

    async def test_a_block_with_its_own_readers_in_the_write_keeps_them(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """In one write a page becomes private and a block below it public: the blocks below that one are public."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("b", "a")], now=NOON)
        await store.put(anna, [make_page("p", readers=PRIVATE), make_block("a", "p", readers=("public",))], now=NOON)

        assert ["a", "b"] == block_ids(await store.get(other_user(anna), ["p", "a", "b"]))

    async def test_a_move_changes_inherited_readers(self, store: WritableBlocks, anna: Scope) -> None:
        """Below a private page a block is private, with all below it; at the top it is public again."""
        await store.put(
            anna,
            [make_page("open"), make_page("shut", readers=PRIVATE), make_block("a", "open"), make_block("b", "a")],
            now=NOON,
        )
        boris = other_user(anna)
        await store.move(anna, "a", parent="shut", order=3, now=NOON)
        hidden = block_ids(await store.get(boris, ["a", "b"]))
        await store.move(anna, "a", parent=None, order=0, now=NOON)

        assert ([], ["a", "b"]) == (hidden, block_ids(await store.get(boris, ["a", "b"])))
        assert ["open"] == block_ids(await store.get(boris, ["open", "shut"]))

    async def test_a_hidden_block_cannot_be_written(self, store: WritableBlocks, anna: Scope) -> None:
        """Writes to a hidden block fail like those to an unknown one, and change nothing."""
        await store.put(anna, [make_page("p"), make_page("s", readers=PRIVATE), make_block("a", "s")], now=NOON)
        boris = other_user(anna)
        for name in ("a", "never"):
            with pytest.raises(NotFound, match=f"no block '{name}'"):
                await store.move(boris, name, parent="p", order=0, now=NOON)
            with pytest.raises(NotFound, match=f"no block '{name}'"):
                await store.move(boris, "p", parent=name, order=0, now=NOON)
            with pytest.raises(NotFound, match=f"no block '{name}'"):
                await store.view(boris, name, now=NOON)
            assert ([], 0) == ([*await store.delete(boris, [name], now=NOON)], await store.restore(boris, [name]))
        with pytest.raises(NotFound, match="no block 'a'"):
            await store.put(boris, [make_block("a", text="mine")], now=NOON)

        assert ["s", "a"] == [each.text for each in await store.get(anna, ["s", "a"])]

    async def test_tenants_share_nothing(self, store: WritableBlocks, anna: Scope) -> None:
        """One id may be used by two tenants."""
        other = replace(anna, tenant=f"{anna.tenant}-other")
        await store.put(anna, [make_page("p", text="mine")], now=NOON)
        await store.put(other, [make_page("p", text="theirs")], now=NOON)

        assert ["mine", "theirs"] == [(await store.get(scope, ["p"]))[0].text for scope in (anna, other)]

    async def test_activity_is_counted_by_user(self, store: WritableBlocks, anna: Scope) -> None:
        """Writes count as edits at their time, views as views; activity of other users is not counted."""
        boris, later = other_user(anna), NOON + timedelta(hours=1)
        await store.put(
            anna, [make_page("p"), replace_struct(make_block("a", "p"), modified=NOON - timedelta(days=9))], now=NOON
        )
        await store.put(boris, [make_block("a", "p", text="new")], now=later)
        await store.view(boris, "a", now=later)
        activities = [Activity(block_id="a", user="boris", deed=ActivityKind.VIEW, time=NOON), Activity(
            block_id="p", user="boris", deed=ActivityKind.VIEW, time=NOON)]  # fmt: skip
        await store.note(anna, activities)

        assert ["p"] == [each.block_id for each in await store.recent(anna, ActivityKind.EDIT, since=NOON, limit=5)]
        assert ["a", "p"] == [
            each.block_id for each in await store.recent(boris, ActivityKind.VIEW, since=NOON, limit=5)
        ]
        assert {"a": BlockUsage(edits=1, views=2, last=later), "p": BlockUsage(views=1, last=NOON)} == dict(
            await store.touches(boris, ["a", "p"])
        )
        assert BlockUsage(edits=1, last=NOON, author=True) == (await store.touches(anna, ["p"]))["p"]
        assert {} == dict(await store.touches(replace(anna, user="zoe"), ["a", "p"]))

    async def test_tasks_are_ordered_by_due_date(self, store: WritableBlocks, anna: Scope) -> None:
        """Todos, cards and rows with a date, the earliest first; a date lasts until its day is over."""

        def task(name: str, due: str, kind: BlockType = BlockType.TODO, **more: Json) -> Block:
            return make_block(name, kind=kind, properties={"due": due, **more})

        today = NOON.date().isoformat()
        tasks = [
            task("late", "2026-01-03"),
            task("today", today, BlockType.DB_ROW),
            task("done", "2026-01-02", BlockType.KANBAN_CARD, status="Done"),
            task("vague", "soon"),
            task("prose", "2026-01-01", BlockType.PARAGRAPH),
            replace_struct(task("hidden", "2026-01-01"), readers=PRIVATE),
        ]
        await store.put(anna, tasks, now=NOON)
        boris = other_user(anna)

        assert ["late"] == block_ids(await store.tasks(boris, due_before=NOON, limit=9))
        assert ["late", "today"] == block_ids(await store.tasks(boris, limit=9))
        assert ["done", "late"] == block_ids(await store.tasks(boris, open_only=False, limit=2))
        assert ["hidden", "late"] == block_ids(await store.tasks(anna, limit=2))
