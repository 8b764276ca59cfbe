"""What a block store promises about links: where they lead is a matter of who asks; part of `BlockStoreConformance`."""
# ruff: noqa: S101, SIM300 - a conformance suite asserts

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace as altered

from contexture.testing.blocks_tree import PRIVATE, block, boris_of, page
from contexture.testing.doubles import NOON
from contexture.types import Json, Scope
from contexture.workspace import BlockLink, BlockType, LinkKind, WritableBlocks


def link(source: str, target: str, kind: LinkKind = LinkKind.LINK, name: str = "") -> BlockLink:
    """A link between two blocks."""
    return BlockLink(source=source, target=target, kind=kind, name=name)


class BlockLinks:
    """Links lead to what the scope may read."""

    async def test_texts_name_pages_and_blocks(self, store: WritableBlocks, anna: Scope) -> None:
        """A page by its name, whatever its case, or an alias; a block by its id; each once, in the text's order."""
        alias: dict[str, Json] = {"alias": "Roadmap, The Plan"}
        home = altered(page("h", text="Home Page"), properties=alias)
        text = "((b)) [[home  page]] [[roadmap|shown]] [t](block:b) ((b)) `[[Home Page]]`"
        await store.put(anna, [home, block("b"), block("a", text=text)], now=NOON)

        found = [link("a", "b", LinkKind.REFERENCE), link("a", "h"), link("a", "b")]
        assert found == list(await store.links(anna, ["a"], limit=9))
        assert found[:1] == list(await store.links(anna, ["a"], limit=1))
        assert ["h", "h"] == [
            each.id for each in (await store.find_pages(anna, ["THE PLAN", "Home page", "no"])).values()
        ]

    async def test_a_link_may_be_older_than_what_it_names(self, store: WritableBlocks, anna: Scope) -> None:
        """It leads nowhere until there is a block of that name, or id."""
        await store.put(anna, [block("a", text="[[Later]] ((late))")], now=NOON)
        before = list(await store.links(anna, ["a"], limit=9))
        await store.put(anna, [page("p", text="Later"), block("late")], now=NOON)

        assert ([], ["p", "late"]) == (before, [each.target for each in await store.links(anna, ["a"], limit=9)])
        assert ["a"] == [each.source for each in await store.backlinks(anna, ["late"], limit=9)]

    async def test_a_link_never_leads_to_what_is_hidden(self, store: WritableBlocks, anna: Scope) -> None:
        """Of two pages of one name each reader is led to the first that they may read; from hidden blocks to none."""
        pages = [page("a1", text="Plan", readers=PRIVATE), page("b2", text="Plan")]
        await store.put(anna, [*pages, block("x", text="[[Plan]]"), block("y", "a1", text="((b2))")], now=NOON)
        boris = boris_of(anna)

        assert [link("x", "a1")] == list(await store.links(anna, ["x"], limit=9))
        assert [link("x", "b2")] == list(await store.links(boris, ["x"], limit=9))
        assert [link("y", "b2", LinkKind.REFERENCE)] == list(await store.backlinks(anna, ["b2"], limit=9))
        assert [link("x", "b2")] == list(await store.backlinks(boris, ["b2"], limit=9))
        assert [] == [*await store.links(boris, ["y"], limit=9), *await store.backlinks(boris, ["a1"], limit=9)]
        assert "b2" == (await store.find_pages(boris, ["plan"]))["plan"].id

    async def test_rows_are_related_as_their_database_says(self, store: WritableBlocks, anna: Scope) -> None:
        """Cells of a relation name rows by id or title and come first; columns that become relations are read anew."""
        plain = altered(page("d"), type=BlockType.DB, properties={"schema": {"Lead": "text"}})
        cells: dict[str, Json] = {"Lead": ["r2", "Second", "nobody"]}
        row = block("r1", "d", text="see [[Second]]", kind=BlockType.DB_ROW, properties=cells)
        other = [
            block(name, "d", text=title, kind=BlockType.DB_ROW) for name, title in (("r2", "First"), ("r3", "Second"))
        ]
        await store.put(anna, [row, *other, plain], now=NOON)
        before = list(await store.links(anna, ["r1"], limit=9))
        related: dict[str, Json] = {"schema": {"Lead": {"type": "relation"}}}
        renamed = altered(other[0], text="Renamed")
        await store.put(anna, [altered(plain, properties=related), renamed], now=NOON)

        leads = [link("r1", name, LinkKind.RELATION, "Lead") for name in ("r2", "r3")]
        assert [link("r1", "r3")] == before
        assert [*leads, link("r1", "r3")] == list(await store.links(anna, ["r1"], limit=9))
        await store.move(anna, "r1", parent=None, order=0)
        assert before == list(await store.links(anna, ["r1"], limit=9))

    async def test_relations_come_first_then_the_order_asked_for(self, store: WritableBlocks, anna: Scope) -> None:
        """Links of several blocks are ordered by kind, then by block, then by text."""
        database = altered(page("d"), type=BlockType.DB, properties={"schema": {"To": "relation"}})
        row = block("r", "d", text="((d))", kind=BlockType.DB_ROW, properties={"To": "b"})
        await store.put(anna, [database, row, block("a", text="((r)) ((b))"), block("b")], now=NOON)

        found = await store.links(anna, ["a", "r"], limit=9)
        assert [("r", "b"), ("a", "r"), ("a", "b"), ("r", "d")] == [(each.source, each.target) for each in found]

    async def test_backlinks_come_newest_first(self, store: WritableBlocks, anna: Scope) -> None:
        """By when the source was last modified, ties by id; a limit keeps the newest."""
        sources = [
            altered(block(name, text=text), modified=NOON - timedelta(days=age))
            for name, text, age in (("old", "((p))", 3), ("b", "[[P]] ((p))", 1), ("a", "((q)) ((p))", 1))
        ]
        await store.put(anna, [page("p", text="P"), block("q"), *sources], now=NOON)

        found = await store.backlinks(anna, ["p", "q"], limit=9)
        assert [("a", "p"), ("a", "q"), ("b", "p"), ("b", "p"), ("old", "p")] == [
            (each.source, each.target) for each in found
        ]
        assert ["a", "a", "b"] == [each.source for each in await store.backlinks(anna, ["p", "q"], limit=3)]
