"""What a block store promises about links: where they lead is a matter of who asks; part of `BlockStoreConformance`."""
# ruff: noqa: S101, SIM300 - a conformance suite asserts

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace as altered

from contexture.testing.blocks_tree import PRIVATE, make_block, make_page, other_user
from contexture.testing.doubles import NOON
from contexture.types import Json, Scope
from contexture.workspace import BlockLink, BlockType, LinkKind, WritableBlocks


def make_link(source: str, target: str, kind: LinkKind = LinkKind.LINK, name: str = "") -> BlockLink:
    """A link between two blocks."""
    return BlockLink(source=source, target=target, kind=kind, name=name)


class BlockLinkTests:
    """Links are resolved to what the scope may read."""

    async def test_links_are_found_in_texts(self, store: WritableBlocks, anna: Scope) -> None:
        """A page by its name, whatever its case, or an alias; a block by its id; each once, in the text's order."""
        alias: dict[str, Json] = {"alias": "Roadmap, The Plan"}
        home = altered(make_page("h", text="Home Page"), properties=alias)
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
        """Of two pages of one name each reader is led to the first that they may read; from hidden blocks to none."""
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
        plain = altered(make_page("d"), type=BlockType.DB, properties={"schema": {"Lead": "text"}})
        cells: dict[str, Json] = {"Lead": ["r2", "Second", "nobody"]}
        row = make_block("r1", "d", text="see [[Second]]", kind=BlockType.DB_ROW, properties=cells)
        other = [
            make_block(name, "d", text=title, kind=BlockType.DB_ROW)
            for name, title in (("r2", "First"), ("r3", "Second"))
        ]
        await store.put(anna, [row, *other, plain], now=NOON)
        before = list(await store.links(anna, ["r1"], limit=9))
        related: dict[str, Json] = {"schema": {"Lead": {"type": "relation"}}}
        renamed = altered(other[0], text="Renamed")
        await store.put(anna, [altered(plain, properties=related), renamed], now=NOON)

        leads = [make_link("r1", name, LinkKind.RELATION, "Lead") for name in ("r2", "r3")]
        assert [make_link("r1", "r3")] == before
        assert [*leads, make_link("r1", "r3")] == list(await store.links(anna, ["r1"], limit=9))
        await store.move(anna, "r1", parent=None, order=0)
        assert before == list(await store.links(anna, ["r1"], limit=9))

    async def test_links_are_ordered_by_kind_then_block(self, store: WritableBlocks, anna: Scope) -> None:
        """Links of several blocks are ordered by kind, then by block, then by text."""
        database = altered(make_page("d"), type=BlockType.DB, properties={"schema": {"To": "relation"}})
        row = make_block("r", "d", text="((d))", kind=BlockType.DB_ROW, properties={"To": "b"})
        await store.put(anna, [database, row, make_block("a", text="((r)) ((b))"), make_block("b")], now=NOON)

        found = await store.links(anna, ["a", "r"], limit=9)
        assert [("r", "b"), ("a", "r"), ("a", "b"), ("r", "d")] == [(each.source, each.target) for each in found]

    async def test_backlinks_come_newest_first(self, store: WritableBlocks, anna: Scope) -> None:
        """By when the source was last modified, ties by id; a limit keeps the newest."""
        sources = [
            altered(make_block(name, text=text), modified=NOON - timedelta(days=age))
            for name, text, age in (("old", "((p))", 3), ("b", "[[P]] ((p))", 1), ("a", "((q)) ((p))", 1))
        ]
        await store.put(anna, [make_page("p", text="P"), make_block("q"), *sources], now=NOON)

        found = await store.backlinks(anna, ["p", "q"], limit=9)
        assert [("a", "p"), ("a", "q"), ("b", "p"), ("b", "p"), ("old", "p")] == [
            (each.source, each.target) for each in found
        ]
        assert ["a", "a", "b"] == [each.source for each in await store.backlinks(anna, ["p", "q"], limit=3)]
