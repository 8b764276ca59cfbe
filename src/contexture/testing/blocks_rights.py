"""Who may edit, manage, delete and purge blocks, as tests of a block store."""
# ruff: noqa: S101, SIM300, PLR2004 - a conformance suite asserts

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from contexture.errors import Conflict, NotFound, NotPermitted, RequestError
from contexture.testing.blocks_tree import make_block, make_page, other_user
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.workspace import Block, ImportAccess, WritableBlocks

_LATER = NOON + timedelta(days=1)
_ONLY_ANNA = ("user:anna",)


class BlockRightsTests:
    """Readers, editors and managers."""

    async def test_only_editors_change_a_block(self, store: WritableBlocks, anna: Scope) -> None:
        """Editors of an ancestor apply; other readers can neither write, add, move nor delete."""
        boris = other_user(anna)
        page = replace_struct(make_page("p"), editors=_ONLY_ANNA)
        await store.put(anna, [page, make_block("a", "p")], now=NOON)

        for write in (
            store.put(boris, [make_block("a", "p", text="mine")], now=NOON),
            store.put(boris, [make_block("b", "p")], now=NOON),
            store.move(boris, "a", parent=None, order=0.0, now=NOON),
            store.delete(boris, ["a"], now=NOON),
        ):
            with pytest.raises(NotPermitted, match="not edit it"):
                await write
        assert 2 == len(await store.delete(anna, ["p"], now=NOON))

    async def test_a_reader_who_may_edit_cannot_take_a_page_over(self, store: WritableBlocks, anna: Scope) -> None:
        """Only managers change readers, editors and managers, in whatever way."""
        boris = other_user(anna)
        await store.put(anna, [make_page("p"), make_page("q", readers=("user:anna", "user:boris"))], now=NOON)
        mine = ("user:boris",)

        for change in ({"readers": mine}, {"editors": mine}, {"managers": mine}):
            with pytest.raises(NotPermitted, match="manage block 'p'"):
                await store.put(boris, [replace_struct(make_page("p"), **change)], now=NOON)  # pyright: ignore[reportArgumentType] - one field each
        with pytest.raises(NotPermitted, match="manage block 'p'"):
            await store.move(boris, "p", parent="q", order=0.0, now=NOON)
        await store.put(boris, [make_page("q", text="Edited")], now=NOON)

        (page,) = await store.get(anna, ["q"])
        assert ("Edited", ("user:anna", "user:boris"), "anna") == (page.text, page.acl, page.creator)

    async def test_a_named_manager_manages_in_place_of_others(self, store: WritableBlocks, anna: Scope) -> None:
        """The creator of a page does not manage a block that names its managers, unless it is the creator's own."""
        boris = other_user(anna)
        await store.put(anna, [make_page("p")], now=NOON)
        await store.put(boris, [replace_struct(make_block("a", "p"), managers=("user:boris",))], now=NOON)
        await store.put(boris, [make_block("b", "p")], now=NOON)

        with pytest.raises(NotPermitted):
            await store.put(anna, [make_block("a", "p", readers=_ONLY_ANNA)], now=NOON)
        await store.put(anna, [make_block("b", "p", readers=_ONLY_ANNA)], now=NOON)
        assert ["a"] == [each.id for each in await store.get(boris, ["a", "b"])]

    async def test_only_managers_purge_and_erase(self, store: WritableBlocks, anna: Scope) -> None:
        """An editor deletes; what is gone for good is the manager's decision."""
        boris = other_user(anna)
        await store.put(anna, [make_page("p"), make_page("q")], now=NOON)
        await store.delete(boris, ["p"], now=NOON)

        assert (0, []) == (await store.purge(boris, before=_LATER), list(await store.trash(boris, before=_LATER)))
        with pytest.raises(NotPermitted, match="erase"):
            await store.erase(boris, ["q"])
        assert 1 == await store.restore(anna, ["p"])

    async def test_a_delete_leaves_what_its_author_may_not_see_or_edit(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """Such blocks move to the nearest remaining ancestor with the readers that they have, and return."""
        boris = other_user(anna)
        top = make_page("top", readers=("user:anna", "user:boris", "user:carol"))
        page = make_page("p", "top", readers=("user:anna", "user:boris"))
        locked = replace_struct(make_block("locked", "p"), editors=_ONLY_ANNA, managers=_ONLY_ANNA)
        hidden = make_block("hidden", "p", readers=_ONLY_ANNA)
        await store.put(boris, [top, page, make_block("a", "p")], now=NOON)
        await store.put(anna, [locked, hidden, make_block("below", "hidden")], now=NOON)
        ids = ["p", "a", "locked", "hidden", "below"]
        before = {each.id: (each.parent, each.acl) for each in await store.get(anna, ids)}

        assert 2 == len(await store.delete(boris, ["p"], now=NOON))
        assert {
            "locked": ("top", ("user:anna", "user:boris")),
            "hidden": ("top", _ONLY_ANNA),
            "below": ("hidden", _ONLY_ANNA),
        } == {each.id: (each.parent, each.acl) for each in await store.get(anna, ids)}
        assert 2 == await store.restore(boris, ["p"])
        assert before == {each.id: (each.parent, each.acl) for each in await store.get(anna, ids)}

    async def test_a_version_that_was_replaced_is_a_conflict(self, store: WritableBlocks, anna: Scope) -> None:
        """A block that is read, changed elsewhere and written back loses nothing."""
        await store.put(anna, [make_page("p")], now=NOON)
        (first,) = await store.get(anna, ["p"])
        await store.put(anna, [replace_struct(first, text="one")], now=NOON)

        with pytest.raises(Conflict, match="version 2, not version 1") as conflict:
            await store.put(anna, [replace_struct(first, text="other")], now=NOON)
        assert 2 == conflict.value.version
        with pytest.raises(NotFound):
            await store.put(other_user(anna), [make_block("b", "never")], now=NOON)

    async def test_an_import_changes_no_rights(self, store: WritableBlocks, anna: Scope) -> None:
        """It keeps editors and managers, and an importer who does not manage a block keeps its readers too."""
        boris = other_user(anna)
        page = replace_struct(make_page("p", readers=("user:anna", "user:boris")), managers=_ONLY_ANNA)
        await store.put(anna, [page], now=NOON)
        again = make_page("p", text="New", readers=("user:boris",))
        written = await store.put(boris, [again], now=NOON, importing=ImportAccess())

        (found,) = await store.get(anna, ["p"])
        assert ("New", _ONLY_ANNA, ("p",)) == (found.text, found.managers, written.kept_readers)

    async def test_a_block_below_a_hidden_one_is_written_back_in_its_place(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """Its reader does not see the parent, and writing what was read does not move it."""
        boris = other_user(anna)
        shared = replace_struct(make_block("s", "p"), readers=("user:anna", "user:boris"))
        await store.put(anna, [make_page("p", readers=_ONLY_ANNA), shared, make_block("below", "s")], now=NOON)

        (seen,) = await store.get(boris, ["s"])
        await store.put(boris, [replace_struct(seen, text="Edited by Boris")], now=NOON)

        (found,) = await store.get(anna, ["s"])
        assert (None, "p", "Edited by Boris") == (seen.parent, found.parent, found.text)
        assert ["s"] == [each.id for each in await store.roots(boris, limit=9)]

    async def test_versions_tell_who_wrote_what_and_when(self, store: WritableBlocks, anna: Scope) -> None:
        """A move is a version too; a version that a reader could not have read then stays hidden."""
        boris = other_user(anna)
        await store.put(anna, [make_page("p", text="Secret", readers=_ONLY_ANNA), make_page("q")], now=NOON)
        await store.put(anna, [replace_struct(make_page("p", text="Open"), readers=("public",))], now=_LATER)
        await store.move(boris, "p", parent=None, order=5.0, now=_LATER)

        found = await store.history(anna, "p", limit=9)
        assert [(3, "Open", "boris", _LATER), (2, "Open", "anna", _LATER), (1, "Secret", "anna", NOON)] == [
            (each.version, each.text, each.user, each.time) for each in found
        ]
        assert [3, 2] == [each.version for each in await store.history(boris, "p", limit=9)]
        assert [] == list(await store.history(replace(boris, tenant="other"), "p", limit=9))

    async def test_moves_and_deletions_may_name_a_version(self, store: WritableBlocks, anna: Scope) -> None:
        """Another version than the stored one is a conflict, and nothing is changed."""
        await store.put(anna, [make_page("p"), make_page("q")], now=NOON)
        for write in (
            store.move(anna, "p", parent="q", order=0.0, now=NOON, version=2),
            store.delete(anna, ["p"], now=NOON, versions={"p": 2}),
        ):
            with pytest.raises(Conflict, match="version 1, not version 2"):
                await write
        await store.move(anna, "p", parent="q", order=0.0, now=NOON, version=1)
        assert 1 == len(await store.delete(anna, ["p"], now=NOON, versions={"p": 2}))

    async def test_the_trash_lists_deletions(self, store: WritableBlocks, anna: Scope) -> None:
        """The latest first, with who and when, for those who may read the block, until it is restored or purged."""
        boris = other_user(anna)
        tree = [make_page("p"), make_block("b", "p"), make_page("mine", readers=_ONLY_ANNA)]
        await store.put(anna, tree, now=NOON)
        await store.delete(boris, ["p"], now=NOON)
        await store.delete(anna, ["mine"], now=_LATER)

        listed = [(each.block.id, each.user, each.time, each.count) for each in await store.deletions(anna, limit=9)]
        assert [("mine", "anna", _LATER, 1), ("p", "boris", NOON, 2)] == listed
        assert ["p"] == [each.block.id for each in await store.deletions(boris, limit=9)]
        assert ["p"] == [each.block.id for each in await store.deletions(anna, limit=1, offset=1)]
        await store.restore(anna, ["p"])
        assert ["mine"] == [each.block.id for each in await store.deletions(anna, limit=9)]

    @given(data=st.data())
    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
    )
    async def test_restored_trees_equal_deleted_ones(self, store: WritableBlocks, data: st.DataObject) -> None:
        """Whoever deletes blocks of a tree and restores them, last first, leaves the tree as it was."""
        tenant = uuid4().hex
        people = [Scope(tenant=tenant, user=name) for name in ("anna", "boris", "carol")]
        everyone = Scope(tenant=tenant, user="all", groups=("all",))
        await store.put(people[0], data.draw(_trees()), now=NOON)
        before = await _read_all(store, everyone)
        deleted: list[tuple[Scope, str]] = []
        for _ in range(data.draw(st.integers(1, 4))):
            who, name = data.draw(st.sampled_from(people)), data.draw(st.sampled_from(_IDS))
            try:
                gone = await store.delete(who, [name], now=NOON)
            except RequestError:
                continue
            deleted += [(who, name)] * bool(gone)
        for who, name in reversed(deleted):
            await store.restore(who, [name])

        assert before == await _read_all(store, everyone)

    @given(data=st.data())
    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
    )
    async def test_nobody_changes_or_removes_what_they_may_not(
        self, store: WritableBlocks, data: st.DataObject
    ) -> None:
        """Random writes of three people over a random tree change no block that its writer may not see or edit."""
        tenant = uuid4().hex
        people = [Scope(tenant=tenant, user=name) for name in ("anna", "boris", "carol")]
        everyone = Scope(tenant=tenant, user="all", groups=("all",))
        await store.put(people[0], data.draw(_trees()), now=NOON)
        for _ in range(data.draw(st.integers(1, 6))):
            who = data.draw(st.sampled_from(people))
            before = await _read_all(store, everyone)
            allowed = {name: _may_edit(before, name, who) for name in before}
            try:
                await _write(store, who, data)
            except RequestError:
                assert before == await _read_all(store, everyone)
                continue
            after = await _read_all(store, everyone)
            for name, block in before.items():
                if not allowed[name]:
                    # A deletion above it may move it; nothing else about it changes.
                    assert name in after
                    assert _content(block) == _content(after[name])


_IDS = [f"b{number}" for number in range(6)]
_PRINCIPALS = st.sampled_from(
    (None, ("user:anna", "group:all"), ("user:boris", "group:all"), ("user:anna", "user:carol", "group:all"))
)


@st.composite
def _trees(draw: st.DrawFn) -> list[Block]:
    blocks: list[Block] = []
    for number, name in enumerate(_IDS):
        parent = draw(st.sampled_from([None, *_IDS[:number]])) if number else None
        block = make_block(name, parent, readers=draw(_PRINCIPALS))
        blocks.append(replace_struct(block, editors=draw(_PRINCIPALS), managers=draw(_PRINCIPALS)))
    return blocks


async def _write(store: WritableBlocks, who: Scope, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(_IDS))
    match data.draw(st.sampled_from(("put", "import", "move", "delete", "restore", "purge"))):
        case "import":
            block = make_block(name, data.draw(st.sampled_from([None, *_IDS])), readers=data.draw(_PRINCIPALS))
            await store.put(who, [replace_struct(block, author="zoe")], now=NOON, importing=ImportAccess())
        case "put":
            parent = data.draw(st.sampled_from([None, *_IDS]))
            block = make_block(name, parent, text=f"by {who.user}", readers=data.draw(_PRINCIPALS))
            await store.put(who, [replace_struct(block, editors=data.draw(_PRINCIPALS))], now=NOON)
        case "move":
            await store.move(who, name, parent=data.draw(st.sampled_from([None, *_IDS])), order=2.0, now=NOON)
        case "delete":
            await store.delete(who, [name], now=NOON)
        case "restore":
            await store.restore(who, [name])
        case _:
            await store.purge(who, before=_LATER)


async def _read_all(store: WritableBlocks, everyone: Scope) -> dict[str, Block]:
    return {each.id: each for each in await store.get(everyone, _IDS)}


def _may_edit(blocks: dict[str, Block], name: str, who: Scope) -> bool:
    """The rule in plain words: a creator or manager up to the first named managers, or an editor, who may read it."""
    block, mine = blocks[name], set(who.principals)
    if mine.isdisjoint(block.acl):
        return False
    chain = [block]
    while (above := blocks.get(chain[-1].parent or "")) is not None:
        chain.append(above)
    for each in chain:
        if each.creator == who.user or (each.managers is not None and not mine.isdisjoint(each.managers)):
            return True
        if each.managers is not None:
            break
    editors = next((each.editors for each in chain if each.editors is not None), None)
    return editors is None or not mine.isdisjoint(editors)


def _content(block: Block) -> Any:
    return block.text, block.properties, block.acl, block.editors, block.managers, block.creator
