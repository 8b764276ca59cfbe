"""Which block is which after an import is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from contexture.ingestion.blocks._placement import spread_orders
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItem
from contexture.ingestion.blocks.history import ImportSnapshot
from contexture.ingestion.blocks.importer import ImportResult, import_blocks
from contexture.ingestion.files import LoadProblem
from contexture.workspace import Activity, Block, BlockType, ImportAccess, PutResult


@dataclass
class Notebook:
    """A workspace in a dictionary; parents must be there before, or come along."""

    blocks: dict[str, Block] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    deeds: list[Activity] = field(default_factory=list)

    async def put(self, blocks: Sequence[Block], _access: ImportAccess | None = None) -> PutResult:
        """Write blocks and remember which."""
        coming = {block.id for block in blocks}
        assert all(block.parent is None or block.parent in coming or block.parent in self.blocks for block in blocks)
        added = sum(block.id not in self.blocks for block in blocks)
        self.blocks.update({block.id: block for block in blocks})
        self.written.extend(block.id for block in blocks)
        return PutResult(added=added, changed=len(blocks) - added)

    async def delete(self, ids: Sequence[str]) -> int:
        """Forget blocks."""
        return sum(self.blocks.pop(name, None) is not None for name in ids)

    async def find_existing(self, names: Sequence[str]) -> set[str]:
        """Ids that are there."""
        return set(names) & set(self.blocks)

    async def record(self, activity: Sequence[Activity]) -> None:
        """Keep deeds."""
        self.deeds.extend(activity)

    def outline(self) -> list[tuple[int, str]]:
        """Depth and text of every block, in document order."""
        below: dict[str | None, list[Block]] = {}
        for block in self.blocks.values():
            below.setdefault(block.parent, []).append(block)
        found: list[tuple[int, str]] = []
        waiting = [(0, block) for block in sorted(below.get(None, []), key=lambda each: each.text, reverse=True)]
        while waiting:
            depth, block = waiting.pop()
            found.append((depth, block.text))
            inside = sorted(below.get(block.id, []), key=lambda each: (each.order, each.id), reverse=True)
            waiting.extend((depth + 1, child) for child in inside)
        return found


def bullet(text: str, *children: BlockDraft, known: str = "") -> BlockDraft:
    """A bulleted block."""
    return BlockDraft(type=BlockType.BULLETED, text=text, children=list(children), known=known)


def page(path: str, *children: BlockDraft) -> DraftDocument:
    """A page with blocks."""
    return DraftDocument(path=path, root=BlockDraft(type=BlockType.PAGE, text=path, children=list(children)))


async def imported(notes: Notebook, *found: ImportItem, before: ImportSnapshot | None = None) -> ImportResult:
    """Import documents once more."""
    notes.written.clear()
    return await import_blocks(notes, found, source="notes", before=before)


def shopping() -> DraftDocument:
    """A page of three items, one with two below it."""
    return page("shopping", bullet("bread"), bullet("vegetables", bullet("leek"), bullet("beetroot")), bullet("tea"))


async def test_the_same_again_writes_nothing() -> None:
    """An import that finds what the last one found writes and deletes nothing."""
    notes = Notebook()
    first = await imported(notes, shopping())
    second = await imported(notes, shopping(), before=first.remembered)

    assert notes.written == []
    assert (second.report.unchanged, second.report.deleted) == (6, 0)
    assert second.remembered == first.remembered


def read_by(*readers: str) -> DraftDocument:
    """A page of one block that these may read; everyone where nobody is named."""
    found = page("plan", bullet("tea"))
    return replace(found, root=replace(found.root, readers=readers or None))


async def test_what_everyone_may_read_is_named_as_ever() -> None:
    """Ids that others may have written down do not change from one version to the next."""
    for found in (read_by(), read_by("user:anna", "public")):
        notes = Notebook()
        await imported(notes, found)

        assert "blk-0f54de45d223354622329ae1" == next(iter(notes.blocks))


async def test_documents_for_other_readers_have_ids_of_their_own() -> None:
    """Readers are named in any order; who is named a page's reader later does not rename it."""
    notes = Notebook()
    first = await imported(notes, read_by("user:anna", "group:board"))
    await imported(notes, read_by("user:boris"))
    await imported(notes, read_by())
    apart = len(notes.blocks)
    await imported(notes, read_by("group:board", "user:anna"))
    await imported(notes, read_by("user:anna"), before=first.remembered)

    assert (6, 6) == (apart, len(notes.blocks))


async def test_one_edited_line_writes_one_block() -> None:
    """An edited block keeps its id, and what stands below it is not touched."""
    notes = Notebook()
    first = await imported(notes, shopping())
    edited = page("shopping", bullet("bread"), bullet("roots", bullet("leek"), bullet("beetroot")), bullet("tea"))
    second = await imported(notes, edited, before=first.remembered)

    assert ["roots"] == [notes.blocks[name].text for name in notes.written]
    assert (second.report.added, second.report.changed, second.report.deleted) == (0, 1, 0)


async def test_an_inserted_block_leaves_its_neighbours_alone() -> None:
    """A block put between two others is the only one that is written, and stands between them."""
    notes = Notebook()
    first = await imported(notes, shopping())
    more = shopping()
    more.root.children.insert(1, bullet("butter"))
    await imported(notes, more, before=first.remembered)

    assert ["butter"] == [notes.blocks[name].text for name in notes.written]
    assert [text for depth, text in notes.outline() if depth == 1] == ["bread", "butter", "vegetables", "tea"]


async def test_an_edit_beside_an_insertion_keeps_its_id() -> None:
    """Of a new block and an edited one in the same place, the one that reads alike is the edited one."""
    notes = Notebook()
    long = "the quarterly report goes to the printer on Monday"
    first = await imported(notes, page("plan", bullet(long)))
    was = next(name for name, block in notes.blocks.items() if block.text == long)
    await imported(notes, page("plan", bullet("call Olga"), bullet(f"{long} or Tuesday")), before=first.remembered)

    assert notes.blocks[was].text == f"{long} or Tuesday"


async def test_blocks_that_read_differently_are_not_one_edited_block() -> None:
    """Of two new blocks in the place of an old one, neither has its id when less than half of the text is shared."""
    notes = Notebook()
    first = await imported(notes, page("plan", bullet("the quarterly report goes to the printer on Monday")))
    was = next(name for name, block in notes.blocks.items() if block.text != "plan")
    second = await imported(
        notes, page("plan", bullet("call Olga about the roof"), bullet("water the ferns")), before=first.remembered
    )

    assert was not in notes.blocks
    assert (2, 1) == (second.report.added, second.report.deleted)


async def test_a_block_moved_below_another_keeps_its_id() -> None:
    """A block that says enough is known again below another parent, with what it holds."""
    notes = Notebook()
    moved = bullet("order the new brass fittings", bullet("from Lisbon"))
    first = await imported(notes, page("plan", bullet("workshop"), moved))
    ids = set(notes.blocks)
    second = await imported(notes, page("plan", bullet("workshop", moved)), before=first.remembered)

    assert set(notes.blocks) == ids
    assert second.report.deleted == 0
    assert notes.outline()[-2:] == [(2, "order the new brass fittings"), (3, "from Lisbon")]


async def test_a_moved_page_keeps_its_ids() -> None:
    """A page whose file was renamed is the same page."""
    notes = Notebook()
    first = await imported(notes, shopping())
    ids = set(notes.blocks)
    again = replace(shopping(), path="errands")
    second = await imported(notes, again, before=first.remembered)

    assert set(notes.blocks) == ids
    assert second.report.deleted == 0


async def test_a_removed_page_is_deleted_and_others_are_not() -> None:
    """What this import wrote before and no longer finds goes; what others wrote stays."""
    notes = Notebook()
    await notes.put([Block(id="mine", type=BlockType.PAGE, text="Mine")])
    first = await imported(notes, shopping(), page("other", bullet("keep")))
    second = await imported(notes, page("other", bullet("keep")), before=first.remembered)

    assert second.report.deleted == 6
    assert {"Mine", "other", "keep"} == {block.text for block in notes.blocks.values()}


async def test_a_page_that_cannot_be_read_is_not_deleted() -> None:
    """A file that fails this time keeps its blocks, and they are known again the next time."""
    notes = Notebook()
    first = await imported(notes, shopping())
    failing = await imported(notes, LoadProblem(path="shopping", message="cannot be read"), before=first.remembered)
    third = await imported(notes, shopping(), before=failing.remembered)

    assert failing.report.deleted == 0
    assert third.report.unchanged == 6


async def test_an_id_of_two_blocks_belongs_to_the_first() -> None:
    """A block id that stands twice is reported, and the second block gets an id of its own."""
    notes = Notebook()
    done = await imported(notes, page("a", bullet("one", known="same")), page("b", bullet("two", known="same")))

    assert notes.blocks["same"].text == "one"
    assert {"one", "two"} <= {block.text for block in notes.blocks.values()}
    assert [problem.path for problem in done.report.warnings] == ["b"]


async def test_a_block_with_an_id_moves_between_pages() -> None:
    """A block that the source names by an id is the same one on another page, and is not deleted there."""
    notes = Notebook()
    first = await imported(notes, page("a", bullet("one", known="own")), page("b"))
    await imported(notes, page("a"), page("b", bullet("one", known="own")), before=first.remembered)

    assert notes.blocks[notes.blocks["own"].parent or ""].text == "b"


async def test_a_document_below_nothing_is_put_at_the_top() -> None:
    """A page whose parent is nowhere is imported, and said to be."""
    notes = Notebook()
    done = await imported(notes, replace(shopping(), under="nowhere"))

    assert notes.outline()[0] == (0, "shopping")
    assert "nowhere" in str(done.report.warnings[0])


async def test_links_are_counted_and_the_open_ones_listed() -> None:
    """Every link is resolved, quoted in code, or listed with its place."""
    notes = Notebook()
    found = page("a", bullet("see [[B]] and [[Nobody]], not `[[code]]`, ((own-block))", known="own-block"))
    report = (await imported(notes, found, page("b"))).report

    assert (report.links, report.references, report.resolved, report.quoted) == (3, 1, 2, 1)
    assert [(each.path, each.name) for each in report.unresolved] == [("a", "Nobody")]


async def test_a_page_of_twenty_thousand_blocks() -> None:
    """A very long page of equal lines is imported, and one block put into it is the only one written."""
    notes = Notebook()
    first = await imported(notes, page("p", *(bullet("same") for _ in range(20_000))))
    more = page("p", *(bullet("same") for _ in range(20_000)))
    more.root.children.insert(100, bullet("put between"))
    second = await imported(notes, more, before=first.remembered)

    assert first.report.added == 20_001
    assert (second.report.added, second.report.changed, second.report.deleted) == (1, 0, 0)


async def test_a_page_three_thousand_levels_deep() -> None:
    """Depth is no obstacle, at the first import and at the next."""
    notes = Notebook()
    deep = bullet("bottom")
    for level in range(3_000):
        deep = bullet(f"level {level}", deep)
    first = await imported(notes, page("p", deep))
    second = await imported(notes, page("p", deep), before=first.remembered)

    assert (first.report.added, second.report.unchanged) == (3_002, 3_002)


TEXTS = st.sampled_from(["", "a", "b", "a longer line of text", "another long line of text", "same", "same"])
TREES = st.recursive(
    st.builds(bullet, TEXTS), lambda below: st.builds(lambda t, c: bullet(t, *c), TEXTS, st.lists(below, max_size=4))
)


@given(st.lists(TREES, max_size=5), st.lists(TREES, max_size=5))
async def test_any_edit_ends_in_what_the_source_says(old: list[BlockDraft], new: list[BlockDraft]) -> None:
    """However a page was changed, the workspace then reads as the page, and as a first import of it would."""
    notes, fresh = Notebook(), Notebook()
    first = await imported(notes, page("p", *old))
    second = await imported(notes, page("p", *new), before=first.remembered)
    await imported(fresh, page("p", *new))
    third = await imported(notes, page("p", *new), before=second.remembered)

    assert notes.outline() == fresh.outline()
    assert third.report.added + third.report.changed + third.report.deleted == 0


@given(st.lists(st.none() | st.floats(-1e6, 1e6, allow_nan=False), max_size=20))
def test_orders_always_rise(held: list[float | None]) -> None:
    """Whatever is held, the orders given rise strictly, one for each."""
    found = spread_orders(held)

    assert len(found) == len(held)
    assert all(low < high for low, high in pairwise(found))
