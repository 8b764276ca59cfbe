"""The contract of a block store as a test class: subclass it, provide a `store` fixture, inherit the tests.

One store may serve all tests, because every test writes as a tenant of its own. It is made with
`contexture.blocks.links.extract_links`.

class TestMyBlocks(BlockStoreConformance):
    @pytest.fixture
    def store(self):
        return MyBlocks(...)
"""
# ruff: noqa: S101, SIM300, PLR2004 - a conformance suite asserts

from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

import pytest
from msgspec.structs import replace

from contexture.errors import InvalidRequest, NotFound
from contexture.testing.blocks_generated import GeneratedTreeTests
from contexture.testing.blocks_rights import BlockRightsTests
from contexture.testing.blocks_selection import BlockSelectionTests
from contexture.testing.blocks_tree import (
    PRIVATE,
    BlockTreeTests,
    block_ids,
    make_block,
    make_page,
    other_user,
    settle_all,
)
from contexture.testing.doubles import NOON
from contexture.types import Json, Scope, Span
from contexture.workspace import (
    FOCUSED_SUMMARY_BLOCKS,
    BlockFacts,
    BlockLink,
    BlockType,
    LinkKind,
    PageSummary,
    PutResult,
    StaleBlock,
    WritableBlocks,
)

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
        """The facts of a block that was only moved need not be computed again."""
        await store.put(anna, [make_page("p"), make_page("q"), make_block("a", "p"), make_block("b", "a")], now=NOON)
        first = await settle_with_facts(store, anna)
        await store.move(anna, "a", parent="q", order=0, now=NOON)
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
        changes = (
            (lambda: store.put(anna, [make_block("c", "b", text="new")], now=NOON), {"q"}),
            (lambda: store.move(anna, "b", parent="q", order=0, now=NOON), set[str]()),
            (lambda: store.delete(anna, ["b"], now=NOON), {"p"}),
            (lambda: store.restore(anna, ["b"]), {"p"}),
            (lambda: store.put(anna, [make_block("d", "c")], now=NOON), {"p"}),
            (lambda: store.put(anna, [make_block("e", "d")], now=NOON), {"p", "q"}),  # deeper than a summary reads
        )
        for change, kept in changes:
            await change()
            assert kept == set(await store.facts(anna, ["p", "q"]))
            await settle_with_facts(store, anna)
            assert {"p", "q"} == set(await store.facts(anna, ["p", "q"]))

    async def test_a_rewritten_page_loses_its_facts_when_blocks_below_are_restored(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """The page is not part of the deletion that is undone, and its summary still covers the restored blocks."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [make_page("p")], now=NOON)
        await settle_with_facts(store, anna)
        await store.restore(anna, ["a"])

        assert {} == await store.facts(anna, ["p"])
        assert ["a"] == block_ids((await settle_with_facts(store, anna))["p"].below or ())

    async def test_facts_of_a_changed_block_are_not_stored(self, store: WritableBlocks, anna: Scope) -> None:
        """Facts are dropped if the block was written after it was returned as stale."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        given = [each for each in await store.stale(limit=1_000) if each.tenant == anna.tenant]
        await store.put(anna, [make_block("a", "p", readers=PRIVATE)], now=NOON)
        await store.settle([replace(each, facts=FACTS) for each in given])

        assert {} == await store.facts(anna, ["p", "a"])

    async def test_older_facts_do_not_replace_newer_ones(self, store: WritableBlocks, anna: Scope) -> None:
        """Even if the block is no longer stale, because another process has settled it."""
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


def make_link(source: str, target: str, kind: LinkKind = LinkKind.LINK, name: str = "") -> BlockLink:
    """A link between two blocks."""
    return BlockLink(source=source, target=target, kind=kind, name=name)


class BlockLinkTests:
    """Links are resolved to what the scope may read."""

    async def test_links_are_found_in_texts(self, store: WritableBlocks, anna: Scope) -> None:
        """A page by its name, whatever its case, or an alias; a block by its id; each once, in the text's order."""
        alias: dict[str, Json] = {"alias": "Roadmap, The Plan"}
        home = replace(make_page("h", text="Home Page"), properties=alias)
        text = "((b)) [[home  page]] [[roadmap|shown]] [t](block:b) ((b)) `[[Home Page]]`"
        await store.put(anna, [home, make_block("b"), make_block("a", text=text)], now=NOON)

        found = [make_link("a", "b", LinkKind.REFERENCE), make_link("a", "h"), make_link("a", "b")]
        assert found == list(await store.links(anna, ["a"], limit=9))
        assert found[:1] == list(await store.links(anna, ["a"], limit=1))
        assert ["h", "h"] == [
            each.id for each in (await store.find_pages(anna, ["THE PLAN", "Home page", "no"])).values()
        ]

    async def test_a_link_may_be_older_than_its_target(self, store: WritableBlocks, anna: Scope) -> None:
        """It leads nowhere until there is a block of that name, or id."""
        await store.put(anna, [make_block("a", text="[[Later]] ((late))")], now=NOON)
        before = list(await store.links(anna, ["a"], limit=9))
        await store.put(anna, [make_page("p", text="Later"), make_block("late")], now=NOON)

        assert ([], ["p", "late"]) == (before, [each.target for each in await store.links(anna, ["a"], limit=9)])
        assert ["a"] == [each.source for each in await store.backlinks(anna, ["late"], limit=9)]

    async def test_a_link_never_leads_to_a_hidden_block(self, store: WritableBlocks, anna: Scope) -> None:
        """Of two pages with one name each reader gets the first they may read; hidden blocks have no links."""
        pages = [make_page("a1", text="Plan", readers=PRIVATE), make_page("b2", text="Plan")]
        await store.put(
            anna, [*pages, make_block("x", text="[[Plan]]"), make_block("y", "a1", text="((b2))")], now=NOON
        )
        boris = other_user(anna)

        assert [make_link("x", "a1")] == list(await store.links(anna, ["x"], limit=9))
        assert [make_link("x", "b2")] == list(await store.links(boris, ["x"], limit=9))
        assert [make_link("y", "b2", LinkKind.REFERENCE)] == list(await store.backlinks(anna, ["b2"], limit=9))
        assert [make_link("x", "b2")] == list(await store.backlinks(boris, ["b2"], limit=9))
        assert [] == [*await store.links(boris, ["y"], limit=9), *await store.backlinks(boris, ["a1"], limit=9)]
        assert "b2" == (await store.find_pages(boris, ["plan"]))["plan"].id

    async def test_relations_follow_the_schema_of_the_database(self, store: WritableBlocks, anna: Scope) -> None:
        """Cells of a relation name rows by id or title and come first; columns that become relations are read anew."""
        plain = replace(make_page("d"), type=BlockType.DB, properties={"schema": {"Lead": "text"}})
        cells: dict[str, Json] = {"Lead": ["r2", "Second", "nobody"]}
        row = make_block("r1", "d", text="see [[Second]]", kind=BlockType.DB_ROW, properties=cells)
        other = [
            make_block(name, "d", text=title, kind=BlockType.DB_ROW)
            for name, title in (("r2", "First"), ("r3", "Second"))
        ]
        await store.put(anna, [row, *other, plain], now=NOON)
        before = list(await store.links(anna, ["r1"], limit=9))
        related: dict[str, Json] = {"schema": {"Lead": {"type": "relation"}}}
        renamed = replace(other[0], text="Renamed")
        await store.put(anna, [replace(plain, properties=related), renamed], now=NOON)

        leads = [make_link("r1", name, LinkKind.RELATION, "Lead") for name in ("r2", "r3")]
        assert [make_link("r1", "r3")] == before
        assert [*leads, make_link("r1", "r3")] == list(await store.links(anna, ["r1"], limit=9))
        await store.move(anna, "r1", parent=None, order=0, now=NOON)
        assert before == list(await store.links(anna, ["r1"], limit=9))

    async def test_links_are_ordered_by_kind_then_block(self, store: WritableBlocks, anna: Scope) -> None:
        """Links of several blocks are ordered by kind, then by block, then by text."""
        database = replace(make_page("d"), type=BlockType.DB, properties={"schema": {"To": "relation"}})
        row = make_block("r", "d", text="((d))", kind=BlockType.DB_ROW, properties={"To": "b"})
        await store.put(anna, [database, row, make_block("a", text="((r)) ((b))"), make_block("b")], now=NOON)

        found = await store.links(anna, ["a", "r"], limit=9)
        assert [("r", "b"), ("a", "r"), ("a", "b"), ("r", "d")] == [(each.source, each.target) for each in found]

    async def test_backlinks_come_newest_first(self, store: WritableBlocks, anna: Scope) -> None:
        """By when the source was last modified, ties by id; a limit keeps the newest."""
        sources = [
            replace(make_block(name, text=text), modified=NOON - timedelta(days=age))
            for name, text, age in (("old", "((p))", 3), ("b", "[[P]] ((p))", 1), ("a", "((q)) ((p))", 1))
        ]
        await store.put(anna, [make_page("p", text="P"), make_block("q"), *sources], now=NOON)

        found = await store.backlinks(anna, ["p", "q"], limit=9)
        assert [("a", "p"), ("a", "q"), ("b", "p"), ("b", "p"), ("old", "p")] == [
            (each.source, each.target) for each in found
        ]
        assert ["a", "a", "b"] == [each.source for each in await store.backlinks(anna, ["p", "q"], limit=3)]


async def list_stale(store: WritableBlocks, scope: Scope) -> Sequence[StaleBlock]:
    """The stale blocks of this tenant, left stale."""
    return [each for each in await store.stale(limit=1_000) if each.tenant == scope.tenant]


class BlockRemovalTests:
    """Deleted blocks are restored together, and the index is told of every change."""

    async def test_a_deleted_subtree_is_restored_whole(self, store: WritableBlocks, anna: Scope) -> None:
        """Blocks, order, readers and links are as before; blocks deleted earlier stay deleted."""
        tree = [
            make_page("p"),
            make_block("a", "p", text="((x)) [[P]]"),
            make_block("b", "a", readers=PRIVATE),
            make_block("gone", "a"),
        ]
        await store.put(anna, [make_page("q", text="P2"), *tree, make_block("x", text="((a))")], now=NOON)
        await store.delete(anna, ["gone"], now=NOON)
        before = await store.subtree(anna, "p", depth=9, limit=9)

        assert 3 == len(await store.delete(anna, ["p", "never", "p"], now=NOON))
        assert [] == [*await store.get(anna, ["p", "a", "b"]), *await store.backlinks(anna, ["x"], limit=9)]
        assert [] == [*await store.links(anna, ["x"], limit=9), *(await store.find_pages(anna, ["p"])).values()]
        assert (3, 0) == (await store.restore(anna, ["b"]), await store.restore(anna, ["p"]))
        assert before == await store.subtree(anna, "p", depth=9, limit=9)
        assert ["x", "p"] == [each.target for each in await store.links(anna, ["a"], limit=9)]
        assert ["x"] == [each.source for each in await store.backlinks(anna, ["a"], limit=9)]

    async def test_counts_leave_out_hidden_blocks(self, store: WritableBlocks, anna: Scope) -> None:
        """Hidden blocks are neither deleted nor counted; a restore brings them back to their place."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("s", "p", readers=PRIVATE)], now=NOON)
        boris = other_user(anna)

        assert 2 == len(await store.delete(boris, ["p"], now=NOON))
        assert [None] == [each.parent for each in await store.get(anna, ["s"])]
        assert 2 == await store.restore(boris, ["p"])
        assert ["p"] == [each.parent for each in await store.get(anna, ["s"])]

    async def test_nothing_is_written_below_a_deleted_block(self, store: WritableBlocks, anna: Scope) -> None:
        """A deleted block is unknown; a block below it that was deleted earlier cannot be restored it."""
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
        """A restored block has the readers that its parent has now."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["a"], now=NOON)
        await store.put(anna, [make_page("p", readers=PRIVATE)], now=NOON)
        await store.restore(anna, ["a"])

        assert ([], ["a"]) == (
            block_ids(await store.get(other_user(anna), ["a"])),
            block_ids(await store.get(anna, ["a"])),
        )

    async def test_a_deleted_block_may_be_written_again(self, store: WritableBlocks, anna: Scope) -> None:
        """It is a new block, without those that were below it."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        assert PutResult(added=1) == await store.put(anna, [make_page("p")], now=NOON)
        assert [] == list(await store.children(anna, "p", limit=9))
        assert 1 == await store.restore(anna, ["a"])
        assert ["a"] == block_ids(await store.children(anna, "p", limit=9))

    async def test_nothing_is_restored_below_a_rewritten_and_deleted_block(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """Its parent was deleted later than the block, and has to be restored first."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("b", "a")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [make_page("p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)

        for name in ("a", "b"):
            with pytest.raises(InvalidRequest, match=f"'{name}' cannot be restored"):
                await store.restore(anna, [name])
        assert [] == list(await store.get(anna, ["p", "a", "b"]))
        assert (1, 2) == (await store.restore(anna, ["p"]), await store.restore(anna, ["b"]))
        assert ["a", "b"] == block_ids(await store.subtree(anna, "p", depth=9, limit=9))

    async def test_new_readers_reach_deleted_blocks(self, store: WritableBlocks, anna: Scope) -> None:
        """Blocks restored below a page that was rewritten as private are private."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await store.delete(anna, ["p"], now=NOON)
        await store.put(anna, [make_page("p", readers=PRIVATE)], now=NOON)

        assert (0, 1) == (await store.restore(other_user(anna), ["a"]), await store.restore(anna, ["a"]))
        assert [] == list(await store.get(other_user(anna), ["a"]))

    async def test_a_purged_block_cannot_be_restored(self, store: WritableBlocks, anna: Scope) -> None:
        """A purge removes only what was deleted before the given time and what the caller manages."""
        await store.put(
            anna, [make_page("p", readers=PRIVATE), make_block("a", "p"), make_page("q"), make_page("r")], now=NOON
        )
        await store.delete(anna, ["a"], now=NOON)
        await store.delete(anna, ["p", "q"], now=NOON)
        await store.delete(anna, ["r"], now=NOON + timedelta(days=2))
        later = NOON + timedelta(days=1)

        assert (0, 3, 0) == tuple([await store.purge(who, before=later) for who in (other_user(anna), anna, anna)])
        assert (0, 1) == (await store.restore(anna, ["p", "a", "q"]), await store.restore(anna, ["r"]))
        assert PutResult(added=1) == await store.put(anna, [make_block("a")], now=later)

    async def test_every_change_makes_blocks_stale(self, store: WritableBlocks, anna: Scope) -> None:
        """New titles and readers make everything below stale; new texts their block and the page that summarizes it."""
        await store.put(anna, [make_page("p"), make_block("a", "p"), make_block("b", "a"), make_block("x")], now=NOON)
        first = await settle_all(store, anna)
        await store.put(anna, [make_block("a", "p", text="new")], now=NOON)
        second = await settle_all(store, anna)
        await store.put(anna, [make_page("p", text="Title")], now=NOON)
        third = await settle_all(store, anna)
        await store.delete(anna, ["a"], now=NOON)
        fourth = await settle_all(store, anna)

        changed = [{each.id for each in some} for some in (first, second, third, fourth)]
        assert [{"p", "a", "b", "x"}, {"a", "p"}, {"p", "a", "b"}, {"a", "b", "p"}] == changed
        assert [("b", ["a", "p"])] == [(each.id, block_ids(each.ancestors)) for each in third if each.id == "b"]
        assert {"a", "b"} == {each.id for each in fourth if each.block is None}

    async def test_stale_blocks_carry_old_and_new_readers(self, store: WritableBlocks, anna: Scope) -> None:
        """The index writer must reach a record that was written for other readers."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        await settle_all(store, anna)
        await store.put(anna, [make_page("p", readers=PRIVATE)], now=NOON)

        assert {"p": {"public", *PRIVATE}, "a": {"public", *PRIVATE}} == {
            each.id: set(each.readers) for each in await settle_all(store, anna)
        }
        assert [] == list(await settle_all(store, anna))

    async def test_a_block_changed_before_it_is_settled_stays_stale(self, store: WritableBlocks, anna: Scope) -> None:
        """It is returned in its current state, with all old and new readers, until that state is settled."""
        await store.put(anna, [make_block("a"), make_block("b")], now=NOON)
        given = await list_stale(store, anna)
        await store.put(anna, [make_block("a", text="new", readers=PRIVATE)], now=NOON)
        returned = await store.settle(given)

        assert [("a", "new", {"public", *PRIVATE})] == [
            (each.id, each.block.text if each.block else "", set(each.readers)) for each in returned
        ]
        assert ["a"] == [each.id for each in await list_stale(store, anna)]
        assert [] == [*await store.settle(returned), *await list_stale(store, anna)]

    async def test_a_block_settled_differently_elsewhere_is_stale_again(
        self, store: WritableBlocks, anna: Scope
    ) -> None:
        """A process that settles late may have written an outdated record to the index."""
        await store.put(anna, [make_block("a", readers=PRIVATE), make_block("b")], now=NOON)
        given = await list_stale(store, anna)
        await store.delete(anna, ["a"], now=NOON)
        await settle_all(store, anna)
        returned = await store.settle(given)
        again = await list_stale(store, anna)

        assert [("a", None, set(PRIVATE))] == [(each.id, each.block, set(each.readers)) for each in returned]
        assert list(returned) == list(again)
        assert [] == [*await store.settle(returned), *await list_stale(store, anna)]

    async def test_a_block_settled_twice_alike_is_settled(self, store: WritableBlocks, anna: Scope) -> None:
        """Two processes that settle the same state do not make the block stale again."""
        await store.put(anna, [make_page("p"), make_block("a", "p")], now=NOON)
        given = await list_stale(store, anna)
        await settle_all(store, anna)

        assert [] == [*await store.settle(given), *await list_stale(store, anna)]


class BlockStoreConformance(
    BlockTreeTests,
    BlockLinkTests,
    BlockRemovalTests,
    BlockFactsTests,
    BlockSelectionTests,
    BlockRightsTests,
    GeneratedTreeTests,
):
    """Everything a block store promises."""

    @pytest.fixture
    def anna(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))
