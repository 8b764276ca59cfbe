"""What a block store promises about its tree: order, inheritance, permissions; part of `BlockStoreConformance`."""
# ruff: noqa: S101, SIM300 - a conformance suite asserts

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as altered

from contexture.errors import InvalidRequest, NotFound
from contexture.testing.doubles import NOON
from contexture.types import Json, Scope
from contexture.workspace import Activity, ActivityKind, Block, BlockType, BlockUsage, PutResult, WritableBlocks

PRIVATE = ("user:anna",)


def block(
    name: str,
    parent: str | None = None,
    *,
    text: str = "",
    kind: BlockType = BlockType.PARAGRAPH,
    order: float = 0.0,
    readers: tuple[str, ...] | None = None,
    properties: dict[str, Json] | None = None,
) -> Block:
    """A block that says its own name unless it is told to say something else."""
    return Block(
        id=name,
        type=kind,
        text=text or name,
        parent=parent,
        order=order,
        readers=readers,
        properties=properties or {},
    )


def page(name: str, parent: str | None = None, *, text: str = "", readers: tuple[str, ...] | None = None) -> Block:
    """A page of this title."""
    return block(name, parent, text=text, kind=BlockType.PAGE, readers=readers)


def ids(blocks: Sequence[Block]) -> list[str]:
    """The ids of blocks."""
    return [each.id for each in blocks]


def boris_of(anna: Scope) -> Scope:
    """Another user of the same tenant."""
    return replace(anna, user="boris", groups=())


class BlockTree:
    """A tree is read in its order, by those who may."""

    async def test_a_block_comes_back_as_it_was_written(self, store: WritableBlocks, anna: Scope) -> None:
        """Text, properties, order and readers are unchanged; author, times and effective readers are filled in."""
        deep: dict[str, Json] = {"n": 1, "list": [None, 1.5, True, "ё"], "empty": {}}
        given = block("a", text="Привет \U0001f600 \x00 [[x]]", order=-1.5, readers=("user:anna", "public"))
        await store.put(anna, [altered(given, properties=deep)], now=NOON)
        (found,) = await store.get(anna, ["a", "never", "a"])

        expected = altered(given, properties=deep, author="anna", created=NOON, modified=NOON)
        assert altered(expected, readers=("public", "user:anna"), acl=("public", "user:anna")) == found

    async def test_parents_may_come_behind_their_children(self, store: WritableBlocks, anna: Scope) -> None:
        """The order within one write does not matter."""
        done = await store.put(anna, [block("c", "b"), block("b", "a"), page("a")], now=NOON)

        assert (PutResult(added=3), ["b", "a"]) == (done, ids((await store.ancestors(anna, ["c"]))["c"]))

    async def test_writing_the_same_again_changes_nothing(self, store: WritableBlocks, anna: Scope) -> None:
        """A block counts as changed when it differs; another time of modification alone is no difference."""
        await store.put(anna, [page("a"), block("b", "a")], now=NOON)
        later = NOON + timedelta(days=1)
        again = [altered(page("a"), modified=later), block("b", "a", text="other")]

        assert PutResult(changed=1, unchanged=1) == await store.put(anna, again, now=later)
        assert [NOON, later] == [each.modified for each in await store.get(anna, ["a", "b"])]

    async def test_reads_follow_document_order(self, store: WritableBlocks, anna: Scope) -> None:
        """Siblings are ordered by `order`, ties by id; a subtree is walked depth first."""
        family = [block("z", "p", order=1), block("b", "p", order=1), block("a", "p", order=2), block("b1", "b")]
        await store.put(anna, [page("p"), *family], now=NOON)
        (first,) = await store.children(anna, "p", limit=1)

        assert ["b", "z", "a"] == ids(await store.children(anna, "p", limit=9))
        assert ["z"] == ids(await store.children(anna, "p", limit=1, after=first))
        assert ["b", "b1", "z", "a"] == ids(await store.subtree(anna, "p", depth=9, limit=9))
        assert ["b", "b1", "z"] == ids(await store.subtree(anna, "p", depth=9, limit=3))
        assert ["b", "z", "a"] == ids(await store.subtree(anna, "p", depth=1, limit=9))
        several = await store.subtrees(anna, {"p": 2, "b": 9, "nobody": 9}, depth=1)
        assert {"p": ["b", "z"], "b": ["b1"], "nobody": []} == {name: ids(below) for name, below in several.items()}
        assert ["b", "a"] == ids(await store.siblings(anna, "z", before=2, after=2))
        assert ["a"] == ids(await store.siblings(anna, "z", before=0, after=1))

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_limit_of_nothing_gives_nothing(self, store: WritableBlocks, anna: Scope, limit: int) -> None:
        """Zero and less are no blocks, not all of them."""
        todo = block("t", "p", text="do ((p))", kind=BlockType.TODO, properties={"due": "2026-01-01"})
        await store.put(anna, [page("p"), todo], now=NOON)

        assert [] == list(await store.children(anna, "p", limit=limit))
        assert [] == list(await store.subtree(anna, "p", depth=9, limit=limit))
        assert [] == list(await store.siblings(anna, "t", before=limit, after=limit))
        assert [] == list(await store.tasks(anna, limit=limit))
        assert [] == list(await store.recent(anna, ActivityKind.EDIT, since=NOON, limit=limit))
        assert [] == [*await store.links(anna, ["t"], limit=limit), *await store.backlinks(anna, ["p"], limit=limit)]

    async def test_unknown_ids_are_answered_with_nothing(self, store: WritableBlocks, anna: Scope) -> None:
        """No read raises, whatever id it is asked for."""
        for name in ("never", "", "\x00", "\ud800", "x" * 9_999):
            assert [] == list(await store.get(anna, [name]))
            assert {} == dict(await store.ancestors(anna, [name]))
            assert [] == list(await store.siblings(anna, name, before=2, after=2))
            assert [] == list(await store.children(anna, name, limit=5))
            assert [] == list(await store.subtree(anna, name, depth=3, limit=5))
            assert [] == [*await store.links(anna, [name], limit=5), *await store.backlinks(anna, [name], limit=5)]
            assert ({}, {}) == (dict(await store.touches(anna, [name])), dict(await store.find_pages(anna, [name])))

    async def test_an_orphan_is_refused_with_all_that_came_along(self, store: WritableBlocks, anna: Scope) -> None:
        """A parent that is nowhere, and one that is hidden, are answered alike, and nothing is written."""
        await store.put(anna, [page("secret", readers=PRIVATE)], now=NOON)
        for parent in ("never", "secret"):
            with pytest.raises(NotFound, match=f"no block '{parent}'"):
                await store.put(boris_of(anna), [page("p"), block("a", parent)], now=NOON)

        assert [] == list(await store.get(anna, ["p", "a"]))

    async def test_a_cycle_is_refused(self, store: WritableBlocks, anna: Scope) -> None:
        """Neither a write nor a move puts a block below itself, and the tree stays as it was."""
        await store.put(anna, [page("a"), block("b", "a"), block("c", "b")], now=NOON)
        with pytest.raises(InvalidRequest, match="below itself"):
            await store.put(anna, [block("x", "y"), block("y", "x")], now=NOON)
        with pytest.raises(InvalidRequest, match="below itself"):
            await store.put(anna, [altered(page("a"), parent="c")], now=NOON)
        with pytest.raises(InvalidRequest, match="below itself"):
            await store.move(anna, "a", parent="c", order=0)

        assert ["b", "a"] == ids((await store.ancestors(anna, ["c"]))["c"])
        assert [] == list(await store.get(anna, ["x", "y"]))

    async def test_a_tree_may_be_fifty_levels_deep(self, store: WritableBlocks, anna: Scope) -> None:
        """Ancestors and subtrees go all the way."""
        names = [f"n{level}" for level in range(50)]
        line = [block(name, None if not at else names[at - 1]) for at, name in enumerate(names)]
        await store.put(anna, line, now=NOON)

        assert names[-2::-1] == ids((await store.ancestors(anna, [names[-1]]))[names[-1]])
        assert names[1:] == ids(await store.subtree(anna, names[0], depth=99, limit=99))

    async def test_readers_are_inherited_until_a_block_says_its_own(self, store: WritableBlocks, anna: Scope) -> None:
        """What changes above follows below, up to the blocks that say who reads them."""
        tree = [page("p"), block("a", "p"), block("own", "a", readers=("public",)), block("below", "own")]
        await store.put(anna, tree, now=NOON)
        await store.put(anna, [page("p", readers=PRIVATE)], now=NOON)

        everyone = ["p", "a", "own", "below"]
        assert everyone == ids(await store.get(anna, everyone))
        assert ["own", "below"] == ids(await store.get(boris_of(anna), everyone))
        assert ["own"] == ids((await store.ancestors(boris_of(anna), ["below"]))["below"])
        assert [None] == [each.parent for each in await store.get(boris_of(anna), ["own"])]

    async def test_readers_reach_what_comes_along_below_an_unchanged_block(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """A page that becomes private, a block of it as it was, and a new one below that, in one write."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        await store.put(anna, [block("b", "a"), block("a", "p"), page("p", readers=PRIVATE)], now=NOON)

        assert [] == ids(await store.get(boris_of(anna), ["p", "a", "b"]))
        assert ["p", "a", "b"] == ids(await store.get(anna, ["p", "a", "b"]))

    async def test_readers_reach_what_comes_along_below_an_absent_block(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """The block in between is not part of the write, and passes on what it inherits by then."""
        await store.put(anna, [page("p"), block("a", "p")], now=NOON)
        await store.put(anna, [block("b", "a"), page("p", readers=PRIVATE)], now=NOON)

        assert [] == ids(await store.get(boris_of(anna), ["p", "a", "b"]))

    async def test_a_border_that_comes_along_holds(self, store: WritableBlocks, anna: Scope) -> None:
        """A page becomes private while a block of it says that it stays open: so do those below that block."""
        await store.put(anna, [page("p"), block("a", "p"), block("b", "a")], now=NOON)
        await store.put(anna, [page("p", readers=PRIVATE), block("a", "p", readers=("public",))], now=NOON)

        assert ["a", "b"] == ids(await store.get(boris_of(anna), ["p", "a", "b"]))

    async def test_a_move_takes_what_is_inherited_along(self, store: WritableBlocks, anna: Scope) -> None:
        """Below a private page a block is private, with all below it; at the top it is everyone's again."""
        await store.put(
            anna, [page("open"), page("shut", readers=PRIVATE), block("a", "open"), block("b", "a")], now=NOON
        )
        boris = boris_of(anna)
        await store.move(anna, "a", parent="shut", order=3)
        hidden = ids(await store.get(boris, ["a", "b"]))
        await store.move(anna, "a", parent=None, order=0)

        assert ([], ["a", "b"]) == (hidden, ids(await store.get(boris, ["a", "b"])))
        assert ["open"] == ids(await store.get(boris, ["open", "shut"]))

    async def test_what_is_hidden_is_not_written_either(self, store: WritableBlocks, anna: Scope) -> None:
        """Writes to a hidden block are answered as those to an unknown one, and change nothing."""
        await store.put(anna, [page("p"), page("s", readers=PRIVATE), block("a", "s")], now=NOON)
        boris = boris_of(anna)
        for name in ("a", "never"):
            with pytest.raises(NotFound, match=f"no block '{name}'"):
                await store.move(boris, name, parent="p", order=0)
            with pytest.raises(NotFound, match=f"no block '{name}'"):
                await store.move(boris, "p", parent=name, order=0)
            with pytest.raises(NotFound, match=f"no block '{name}'"):
                await store.view(boris, name, now=NOON)
            assert (0, 0) == (await store.delete(boris, [name], now=NOON), await store.restore(boris, [name]))
        with pytest.raises(NotFound, match="no block 'a'"):
            await store.put(boris, [block("a", text="mine")], now=NOON)

        assert ["s", "a"] == [each.text for each in await store.get(anna, ["s", "a"])]

    async def test_tenants_share_nothing(self, store: WritableBlocks, anna: Scope) -> None:
        """One id may be used by two tenants."""
        other = replace(anna, tenant=f"{anna.tenant}-other")
        await store.put(anna, [page("p", text="mine")], now=NOON)
        await store.put(other, [page("p", text="theirs")], now=NOON)

        assert ["mine", "theirs"] == [(await store.get(scope, ["p"]))[0].text for scope in (anna, other)]

    async def test_activity_is_counted_by_user(self, store: WritableBlocks, anna: Scope) -> None:
        """Writes are edits, at the time they say; views are noted; others' deeds are not mine."""
        boris, later = boris_of(anna), NOON + timedelta(hours=1)
        await store.put(anna, [page("p"), altered(block("a", "p"), modified=NOON - timedelta(days=9))], now=NOON)
        await store.put(boris, [block("a", "p", text="new")], now=later)
        await store.view(boris, "a", now=later)
        deeds = [Activity(block_id="a", user="boris", deed=ActivityKind.VIEW, time=NOON), Activity(
            block_id="p", user="boris", deed=ActivityKind.VIEW, time=NOON)]  # fmt: skip
        await store.note(anna, deeds)

        assert ["p"] == [each.block_id for each in await store.recent(anna, ActivityKind.EDIT, since=NOON, limit=5)]
        assert ["a", "p"] == [
            each.block_id for each in await store.recent(boris, ActivityKind.VIEW, since=NOON, limit=5)
        ]
        assert {"a": BlockUsage(edits=1, views=2, last=later), "p": BlockUsage(views=1, last=NOON)} == dict(
            await store.touches(boris, ["a", "p"])
        )
        assert BlockUsage(edits=1, last=NOON, author=True) == (await store.touches(anna, ["p"]))["p"]
        assert {} == dict(await store.touches(replace(anna, user="zoe"), ["a", "p"]))

    async def test_tasks_come_by_their_dates(self, store: WritableBlocks, anna: Scope) -> None:
        """Todos, cards and rows with a date, the earliest first; a date lasts until its day is over."""

        def task(name: str, due: str, kind: BlockType = BlockType.TODO, **more: Json) -> Block:
            return block(name, kind=kind, properties={"due": due, **more})

        today = NOON.date().isoformat()
        tasks = [
            task("late", "2026-01-03"),
            task("today", today, BlockType.DB_ROW),
            task("done", "2026-01-02", BlockType.KANBAN_CARD, status="Done"),
            task("vague", "soon"),
            task("prose", "2026-01-01", BlockType.PARAGRAPH),
            altered(task("hidden", "2026-01-01"), readers=PRIVATE),
        ]
        await store.put(anna, tasks, now=NOON)
        boris = boris_of(anna)

        assert ["late"] == ids(await store.tasks(boris, due_before=NOON, limit=9))
        assert ["late", "today"] == ids(await store.tasks(boris, limit=9))
        assert ["done", "late"] == ids(await store.tasks(boris, open_only=False, limit=2))
        assert ["hidden", "late"] == ids(await store.tasks(anna, limit=2))
