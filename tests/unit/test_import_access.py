"""Imports never widen access: readers set by hand survive, narrower ones are applied and reported."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from contexture import Contexture, Settings
from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.attachments import AttachmentImport
from contexture.ingestion.blocks.history import ImportHistory
from contexture.ingestion.blocks.import_source import ImportSource
from contexture.ingestion.blocks.importer import IMPORTS_FOLDER, ImportReport, WorkspaceWriter, run_import
from contexture.ingestion.blocks.readers_map import ReadersMap
from contexture.ingestion.files import FoundFile, LoadProblem
from contexture.ingestion.loader import LoadReport, load_records
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Record, Scope
from contexture.workspace import Block
from support.service import small_engine

ANNA = Scope(tenant="t", user="anna")
BORIS = Scope(tenant="t", user="boris")
MINE = ("user:anna",)
PAGE = "---\nstatus: {status}\n---\n# Plans\n\nThe merger is near.\n"


class Documents:
    """Loads files as documents by noting them; one called `broken.pdf` cannot be read."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, tuple[str, ...]]] = []

    async def load(
        self, files: Sequence[FoundFile], readers: tuple[str, ...]
    ) -> tuple[Mapping[str, str], Sequence[LoadProblem]]:
        """Ids are made of names, contents and readers."""
        good = [file for file in files if file.path.name != "broken.pdf"]
        self.loaded += [(file.name, readers) for file in good]
        problems = [LoadProblem(path=file.name, message="no PDF", warning=True) for file in files if file not in good]
        return {file.name: f"{file.path.read_text()} for {readers[0]}" for file in good}, problems


class Notes:
    """A folder of notes and the engine that they are imported into."""

    def __init__(self, ctx: Contexture, folder: Path) -> None:
        self.ctx = ctx
        self.folder = folder

    def write(self, text: str, name: str = "Plans.md") -> None:
        """Write a note."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def load(
        self,
        *,
        readers: tuple[str, ...] | None = None,
        readers_map: ReadersMap | None = None,
        again: bool = False,
        allow_empty: bool = False,
        loader: Documents | None = None,
    ) -> ImportReport:
        """Import the folder."""
        writer = WorkspaceWriter(workspace=self.ctx.workspace, blocks=self.ctx.blocks, scope=ANNA, now=NOON)
        return await run_import(
            writer,
            ImportSource(path=self.folder, now=NOON, readers=readers, readers_map=readers_map),
            tenant=ANNA.tenant,
            memory=ImportHistory(self.ctx.settings.home / IMPORTS_FOLDER),
            again=again,
            allow_empty=allow_empty,
            attachments=loader and AttachmentImport(writer=writer, loader=loader, suffixes=("pdf",)),
        )

    async def page(self, name: str = "Plans") -> Block:
        """The page of a note, as its owner sees it."""
        return (await self.ctx.workspace.find_pages(ANNA, [name]))[name]

    async def set_readers(self, *readers: str) -> None:
        """Set the readers of the page by hand."""
        await self.ctx.workspace.put(ANNA, [replace(await self.page(), readers=readers)], now=NOON)

    async def finds(self, scope: Scope, name: str) -> bool:
        """Whether a user finds a page by its name."""
        return bool(await self.ctx.workspace.find_pages(scope, [name]))

    async def sees_plans(self, scope: Scope) -> bool:
        """Whether a user can read or find the note."""
        found = await self.ctx.search("merger", collection="blocks", scope=scope)
        return bool(found.found or await self.ctx.workspace.find_pages(scope, ["Plans"]))


@pytest.fixture
async def notes(new_folder: Callable[[], Path]) -> AsyncIterator[Notes]:
    """A public note that is imported."""
    folder = new_folder()
    async with small_engine(Settings(home=folder / "store")) as ctx:
        found = Notes(ctx, folder / "notes")
        found.write(PAGE.format(status="draft"))
        await found.load()
        yield found


@pytest.mark.parametrize("again", [False, True])
async def test_an_edited_line_does_not_open_a_locked_page(notes: Notes, *, again: bool) -> None:
    """A page that was locked by hand stays locked when its source changes, and when everything is written again."""
    await notes.set_readers(*MINE)
    notes.write(PAGE.format(status="final"))
    report = await notes.load(again=again)

    assert "final" == (await notes.page()).properties["status"]
    assert MINE == (await notes.page()).readers
    assert (True, False) == (await notes.sees_plans(ANNA), await notes.sees_plans(BORIS))
    assert [] == report.warnings


async def test_a_new_paragraph_of_a_locked_page_is_locked(notes: Notes) -> None:
    """Blocks that an import adds inherit the readers that were set by hand."""
    await notes.set_readers(*MINE)
    notes.write(PAGE.format(status="draft") + "\nThe takeover of Globex follows.\n")
    await notes.load()

    assert not (await notes.ctx.search("takeover", collection="blocks", scope=BORIS)).found
    assert (await notes.ctx.search("takeover", collection="blocks", scope=ANNA)).found


async def test_an_import_for_everyone_does_not_open_a_locked_page(notes: Notes) -> None:
    """Even if the import names wider readers; it says that it kept the old ones."""
    await notes.set_readers(*MINE)
    report = await notes.load(readers=(PUBLIC,))

    assert not await notes.sees_plans(BORIS)
    assert ["keeps its readers"] == [w.message.partition(") ")[2].partition(",")[0] for w in report.warnings]


async def test_an_import_can_narrow_and_says_so(notes: Notes) -> None:
    """Narrower readers are applied and reported."""
    report = await notes.load(readers=MINE)

    assert (True, False) == (await notes.sees_plans(ANNA), await notes.sees_plans(BORIS))
    assert any("may be read by fewer people than before" in each.message for each in report.warnings)


async def test_readers_added_by_hand_survive_an_import_of_the_same_readers(notes: Notes) -> None:
    """An import that names the readers it named last time does not take back what was shared since."""
    await notes.load(readers=MINE)
    await notes.set_readers("user:anna", "user:boris")
    notes.write(PAGE.format(status="final"))
    await notes.load(readers=MINE)

    assert await notes.sees_plans(BORIS)


async def test_a_page_that_leaves_a_locked_one_stays_locked(notes: Notes) -> None:
    """Where a page stands in the source does not decide who may read it, once it is stored."""
    ctx = notes.ctx
    from contexture.workspace import BlockType, ImportAccess

    top = Block(id="top", type=BlockType.PAGE, text="Top", readers=MINE)
    below = Block(id="below", type=BlockType.PAGE, text="Below the merger", parent="top")
    await ctx.workspace.put(ANNA, [top, below], now=NOON)
    done = await ctx.workspace.put(ANNA, [replace(below, parent=None)], now=NOON, importing=ImportAccess())

    assert ("below",) == done.kept_readers
    assert not await ctx.blocks.get(BORIS, ["below"])


async def test_a_file_that_is_loaded_again_does_not_open_a_locked_record(new_folder: Callable[[], Path]) -> None:
    """A record that was locked by hand keeps its readers when its file changes, and the report says so."""
    folder = new_folder()
    path = folder / "pumps.jsonl"
    async with small_engine(Settings(home=folder / "store", tenant="t", user="anna")) as ctx:

        async def load(text: str, *readers: str) -> LoadReport:
            path.write_text(json.dumps({"id": "pump", "text": text}))
            return await load_records(ctx, [path], collection="documents", acl=readers)

        await load("The pump leaks", PUBLIC)
        await ctx.add([Record(id="pump", text="The pump leaks", acl=MINE)])
        report = await load("The pump leaks oil", PUBLIC)

        assert ["it keeps its readers"] == [each.message.partition(",")[0] for each in report.warnings]
        assert not (await ctx.search("pump", scope=BORIS)).found
        assert (await ctx.search("oil", scope=ANNA)).found
        assert (1, []) == ((await load("The pump leaks oil", PUBLIC)).unchanged, [])


async def test_a_file_that_is_loaded_again_can_narrow(new_folder: Callable[[], Path]) -> None:
    """Narrower readers are applied, and the report says so."""
    folder = new_folder()
    path = folder / "pumps.jsonl"
    path.write_text(json.dumps({"id": "pump", "text": "The pump leaks"}))
    async with small_engine(Settings(home=folder / "store", tenant="t", user="anna")) as ctx:
        await load_records(ctx, [path], collection="documents", acl=(PUBLIC,))
        report = await load_records(ctx, [path], collection="documents", acl=MINE)

        assert ["it may be read by fewer people than before"] == [each.message for each in report.warnings]
        assert not (await ctx.search("pump", scope=BORIS)).found


async def test_readers_of_one_folder(notes: Notes) -> None:
    """Readers by path hold for the pages of a folder; when the map is gone, nobody gains access."""
    notes.write("Salaries rise.", "HR/Pay.md")
    notes.write("Lunch is at noon.", "Lunch.md")

    await notes.load(readers_map=ReadersMap(readers={"hr": MINE}))
    assert [await notes.finds(BORIS, name) for name in ("Pay", "Lunch")] == [False, True]
    notes.write("Salaries fall.", "HR/Pay.md")
    await notes.load()

    assert [await notes.finds(BORIS, name) for name in ("Pay", "Lunch")] == [False, True]


async def test_an_empty_folder_deletes_nothing(notes: Notes) -> None:
    """A folder that is empty all at once is refused, and deletes its pages only when that is allowed."""
    (notes.folder / "Plans.md").unlink()

    with pytest.raises(InvalidRequest, match="add --allow-empty"):
        await notes.load()
    assert await notes.finds(ANNA, "Plans")
    report = await notes.load(allow_empty=True)

    assert (report.deleted, await notes.finds(ANNA, "Plans")) == (3, False)
    assert (await notes.load()).deleted == 0


async def test_a_due_that_is_no_date(notes: Notes) -> None:
    """It is no due date but a text, and the report says where it stands."""
    notes.write("- [ ] call [due:: some day]\n- [ ] write [due:: 2026-06-01]", "Lunch.md")
    report = await notes.load()
    page = (await notes.ctx.workspace.find_pages(ANNA, ["Lunch"]))["Lunch"]
    tasks = await notes.ctx.blocks.subtree(ANNA, page.id, depth=1, limit=9)

    assert [str(each) for each in report.warnings] == [
        "Lunch.md:1: `due` is 'some day', which is no date; it is kept as `due_text`"
    ]
    assert {task.text: task.properties.get("due", task.properties.get("due_text")) for task in tasks} == {
        "call": "some day",
        "write": "2026-06-01",
    }


async def test_linked_files_are_documents(notes: Notes) -> None:
    """Files are found by path and by name, loaded once, and linked from their block; a changed one has another id."""
    loader = Documents()
    notes.write("one", "files/a b.pdf")
    notes.write("x", "broken.pdf")
    notes.write("See ![[a b.pdf]], [it](../files/a%20b.pdf), [no](none.pdf) and [this](../broken.pdf).", "sub/Trip.md")
    report = await notes.load(loader=loader)
    (block,) = await notes.ctx.blocks.subtree(ANNA, (await notes.page("Trip")).id, depth=1, limit=9)

    assert (block.properties["attachments"], report.attachments) == (["one for public"], 1)
    assert [str(each) for each in report.warnings] == [
        "broken.pdf: files of kind '.pdf' are not imported as blocks",
        "broken.pdf: no PDF",
    ]
    assert report.unresolved == []
    again = await notes.load(loader=loader)
    assert (again.changed, (await notes.ctx.blocks.get(ANNA, [block.id]))[0].version) == (0, block.version)
    notes.write("two", "files/a b.pdf")
    await notes.load(loader=loader)

    assert (await notes.ctx.blocks.get(ANNA, [block.id]))[0].properties["attachments"] == ["two for public"]


async def test_a_file_of_a_locked_page_is_locked(notes: Notes) -> None:
    """A document has the readers of its block in the store, which may have been set by hand."""
    loader = Documents()
    await notes.set_readers(*MINE)
    notes.write("secret", "plans.pdf")
    notes.write(PAGE.format(status="draft") + "\n![[plans.pdf]]\n")
    await notes.load(loader=loader)

    assert loader.loaded == [("plans.pdf", MINE)]


async def test_files_outside_of_the_folder_are_not_loaded(notes: Notes) -> None:
    """Neither by a path that leaves it nor through a link in the file system."""
    loader = Documents()
    (notes.folder.parent / "out.pdf").write_text("secret")
    (notes.folder / "in.pdf").symlink_to(notes.folder.parent / "out.pdf")
    notes.write("[a](../out.pdf) ![[in.pdf]] [b](file:///etc/x.pdf)", "Trip.md")
    await notes.load(loader=loader)

    assert loader.loaded == []
