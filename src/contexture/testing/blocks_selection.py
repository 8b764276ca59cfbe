"""Queries about work: blocks by their cells, states and dates, values, and changes; part of `BlockStoreConformance`."""
# ruff: noqa: S101, SIM300, PLR2004 - a conformance suite asserts

from datetime import timedelta
from itertools import product

from msgspec.structs import replace

from contexture.testing.blocks_tree import PRIVATE, block_ids, make_block, make_page, other_user, settle_all
from contexture.testing.doubles import NOON
from contexture.testing.in_memory_blocks import InMemoryBlockStore
from contexture.types import Json, Scope
from contexture.workspace import (
    Activity,
    ActivityKind,
    Block,
    BlockQuery,
    BlockType,
    CellFilter,
    CellValue,
    ImportAccess,
    WritableBlocks,
)

_STATES, _OWNERS = ("Backlog", "in review", "Done", "backlog"), ("ada.byron@example.org", "Max", "anna")
_HOUR = timedelta(hours=1)


def make_rows() -> list[Block]:
    """Two databases of rows, todos and prose; every fifth block is private, every third has no due date."""
    blocks = [make_page("home"), make_block("jobs", "home", kind=BlockType.DB), make_block("people", kind=BlockType.DB)]
    for at in range(30):
        properties: dict[str, Json] = {"Status": _STATES[at % 4], "Owner": _OWNERS[at % 3], "Tags": [f"t{at % 2}", "x"]}
        if at % 3:
            properties["due"] = (NOON + timedelta(days=at - 15)).date().isoformat()
        kind, parent = ((BlockType.DB_ROW, "jobs"), (BlockType.TODO, "home"), (BlockType.DB_ROW, "people"))[at % 3]
        block = make_block(f"b{at}", parent, kind=kind, properties=properties, readers=None if at % 5 else PRIVATE)
        blocks.append(replace(block, modified=NOON - at * _HOUR, author="zoe"))
    blocks.append(replace(make_block("prose", "home"), modified=NOON))
    return blocks


QUERIES = (
    BlockQuery(),
    BlockQuery(done=False),
    BlockQuery(done=True, newest=True),
    BlockQuery(types=(BlockType.DB_ROW, BlockType.DB)),
    BlockQuery(databases=("jobs",), group_by=("status", "owner")),
    BlockQuery(databases=("jobs", "people", "never"), done=False, group_by=("status",)),
    BlockQuery(cells=(CellFilter(names=("status",), values=("backlog",)),), group_by=("status", "tags")),
    BlockQuery(cells=(CellFilter(values=("max", "anna")), CellFilter(names=("tags",), values=("t1",)))),
    BlockQuery(cells=(CellFilter(names=("due",), start="2026-05-20", end="2026-06-05"),)),
    BlockQuery(done=False, due_before=NOON, group_by=("owner",)),
    BlockQuery(done=False, due_from=NOON - timedelta(days=3), due_before=NOON + timedelta(days=9), utc_offset=7_200),
    BlockQuery(modified_from=NOON - 9 * _HOUR, modified_before=NOON - 2 * _HOUR, done=False),
    BlockQuery(cells=(CellFilter(values=("nobody",)),), group_by=("status",)),
)


class BlockSelectionTests:
    """Selections count and group what the scope may read, and nothing else."""

    async def test_a_selection_is_that_of_the_model(self, store: WritableBlocks, anna: Scope) -> None:
        """Blocks, order, totals and groups of every kind of query, for two users and two limits."""
        await store.put(anna, make_rows(), now=NOON)
        await settle_all(store, anna)
        every = await store.get(anna, [block.id for block in make_rows()])
        model = InMemoryBlockStore(every, tenant=anna.tenant)
        for query, scope, limit in product(QUERIES, (anna, other_user(anna)), (0, 50)):
            expected = await model.select(scope, query, limit=limit)
            found = await store.select(scope, query, limit=limit)

            assert block_ids(expected.blocks) == block_ids(found.blocks), query
            assert (expected.total, expected.groups) == (found.total, found.groups), query

    async def test_values_and_people_are_found(self, store: WritableBlocks, anna: Scope) -> None:
        """A value in any spelling of its case, a person by a part of the name, and none of a hidden block."""
        secret = make_block("s", kind=BlockType.TODO, readers=PRIVATE, properties={"Status": "Secret"})
        await store.put(anna, [*make_rows(), secret], now=NOON)
        await settle_all(store, anna)
        ada = CellValue(name="owner", value="ada.byron@example.org", is_person=True)
        words = ["secret", "in review", "byron", "never"]

        assert [CellValue(name="status", value="secret"), CellValue(name="status", value="in review"), ada] == list(
            await store.find_values(anna, words, limit=9)
        )
        assert [CellValue(name="status", value="in review"), ada] == list(
            await store.find_values(other_user(anna), words, limit=9)
        )

    async def test_a_selection_follows_writes(self, store: WritableBlocks, anna: Scope) -> None:
        """A block that is changed, deleted, restored or hidden is counted as it is now."""
        todo = make_block("t", kind=BlockType.TODO, properties={"status": "Open"})
        query = BlockQuery(cells=(CellFilter(values=("open",)),))
        counts: list[int] = []
        for write in (
            lambda: store.put(anna, [todo], now=NOON),
            lambda: store.delete(anna, ["t"], now=NOON),
            lambda: store.restore(anna, ["t"]),
            lambda: store.put(anna, [replace(todo, readers=PRIVATE)], now=NOON),
            lambda: store.put(anna, [replace(todo, properties={"status": "Done"})], now=NOON),
        ):
            await write()
            await settle_all(store, anna)
            counts.append((await store.select(other_user(anna), query, limit=9)).total)

        assert [1, 0, 1, 0, 0] == counts

    async def test_changes_are_those_of_readable_blocks(self, store: WritableBlocks, anna: Scope) -> None:
        """The latest of each block, with who made it; an import is nobody's, and hidden blocks are not counted."""
        boris = other_user(anna)
        old = [replace(make_block(name), modified=NOON - 9 * _HOUR) for name in ("a", "b")]
        old.append(make_block("c", readers=PRIVATE))
        await store.put(anna, old, now=NOON - 9 * _HOUR, importing=ImportAccess())
        await store.put(anna, [make_block("d", readers=PRIVATE)], now=NOON)
        await store.note(boris, [Activity(block_id="a", user="boris", deed=ActivityKind.EDIT, time=NOON - _HOUR)])
        feed = await store.changes(boris, since=NOON - 10 * _HOUR, until=NOON + _HOUR, limit=9)
        by_boris = await store.changes(anna, since=NOON - 10 * _HOUR, until=NOON, users=["boris"], limit=9)

        assert [("a", "boris"), ("b", "")] == [(each.block_id, each.user) for each in feed.changes]
        assert 2 == feed.total
        assert ["a"] == [each.block_id for each in by_boris.changes]
        assert 4 == (await store.changes(anna, since=NOON - 10 * _HOUR, until=NOON + _HOUR, limit=1)).total

    async def test_a_subtree_ends_at_its_leaves(self, store: WritableBlocks, anna: Scope) -> None:
        """Nothing below a page inside a page is read."""
        await store.put(
            anna, [make_page("p"), make_page("q", "p"), make_block("x", "q"), make_block("y", "p")], now=NOON
        )
        found = await store.subtree(anna, "p", depth=9, limit=9, leaves=(BlockType.PAGE,))

        assert ["q", "y"] == block_ids(found)
