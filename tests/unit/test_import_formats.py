"""What an export or a table says beyond its text: relations, toggles, fields of tasks, canvases, roles of columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks._markdown import parse_markdown
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItem, walk_drafts
from contexture.ingestion.blocks.import_source import ImportSource
from contexture.ingestion.blocks.obsidian import strip_comments
from contexture.ingestion.blocks.preview import preview_source
from contexture.ingestion.blocks.readers_map import ReadersMap, read_readers_map
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.blocks.tables import TableColumns, parse_rows, read_table
from contexture.ingestion.files import LoadProblem
from contexture.workspace import Block, BlockType, is_done

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def hex_id(number: int) -> str:
    """The id of a page in the names of an export."""
    return f"{number:032x}"


def block_id(number: int) -> str:
    """The id of the block of such a page."""
    return str(UUID(hex_id(number)))


def write(root: Path, files: dict[str, str]) -> Path:
    """A folder with files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def read(path: Path, **given: object) -> list[ImportItem]:
    """Everything a source gives."""
    return list(ImportSource(path=path, now=NOW, **given).read())  # pyright: ignore[reportArgumentType]


def roots(found: list[ImportItem]) -> dict[str, BlockDraft]:
    """The roots of the documents by title."""
    return {each.root.text: each.root for each in found if isinstance(each, DraftDocument)}


def outline(drafts: list[BlockDraft]) -> list[tuple[str, str]]:
    """Type and text of every block."""
    root = BlockDraft(type=BlockType.PAGE, text="", children=drafts)
    return [(str(draft.type), draft.text) for draft, above in walk_drafts(root) if above is not None]


# --- Notion --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        f"Apollo (Projects%20{hex_id(1)}/Apollo%20{hex_id(2)}.md)",
        f"Apollo (https://www.notion.so/team/Apollo-{hex_id(2)}?pvs=21)",
        f"https://www.notion.so/{hex_id(2)}",
        f"https://www.notion.so/{block_id(2)}?pvs=4",
        f"../Projects%20{hex_id(1)}/Apollo%20{hex_id(2)}.md",
        f"Projects {hex_id(1)}/Apollo {hex_id(2)}.md",
    ],
)
def test_relations_are_read_in_every_form(tmp_path: Path, cell: str) -> None:
    """A relation names a page by path, by URL, with its title or without; one odd cell stays what it says."""
    found = roots(
        read(
            write(
                tmp_path,
                {
                    f"Projects {hex_id(1)}.csv": "Name,Lead\nApollo,Anna\nGemini,Boris\n",
                    f"Projects {hex_id(1)}/Apollo {hex_id(2)}.md": "# Apollo\n\nLead: Anna\n\nBody\n",
                    f"Tasks {hex_id(3)}.csv": f'Task,Project\nPlan,"{cell}"\nBuy,"{cell}"\nCall,some day\n',
                },
            )
        )
    )["Tasks"]

    assert found.properties["schema"] == {"Task": "title", "Project": "relation"}
    assert [row.properties["Project"] for row in found.children] == [[block_id(2)], [block_id(2)], ["some day"]]


def test_relations_by_title(tmp_path: Path) -> None:
    """Titles of the rows of a table are a relation, also with a comma in one; other words are none."""
    files = {
        f"Projects {hex_id(1)}.csv": 'Name,State\n"Apollo, Inc",open\nGemini,open\n',
        f"Tasks {hex_id(3)}.csv": 'Task,Project,Mood\nPlan,"Apollo, Inc, Gemini",good\nBuy,Gemini,bad\n',
    }
    found = roots(read(write(tmp_path, files)))["Tasks"]

    assert found.properties["schema"] == {"Task": "title", "Project": "relation", "Mood": "text"}
    assert found.children[0].properties["Project"] == ["Apollo, Inc", "Gemini"]


def test_several_people_in_a_cell(tmp_path: Path) -> None:
    """A cell with several people lists them, so that each is found; other texts keep their commas."""
    files = {f"Tasks {hex_id(3)}.csv": 'Task,Assignee,Note\nPlan,"Anna Smith, Boris","red, green"\n'}
    row = roots(read(write(tmp_path, files)))["Tasks"].children[0]

    assert row.properties == {"Assignee": ["Anna Smith", "Boris"], "Note": "red, green"}


def test_blocks_that_an_export_writes_as_html(tmp_path: Path) -> None:
    """Callouts, toggles, toggle headings and synced blocks keep their content and nesting; code stays code."""
    text = (
        "# Home\n\n<aside>\n💡 Mind the **gap**\n\nand the step\n</aside>\n\n<details>\n<summary>More</summary>\n\n"
        "inside\n\n<details>\n<summary>Deep</summary>\n\n- item\n\n</details>\n</details>\n\n"
        "## Steps\n\n    first step\n\n"
        '<synced_block url="https://www.notion.so/x#1">\nsynced\n</synced_block>\n\n```html\n<aside>\n```\n'
    )
    home = roots(read(write(tmp_path, {f"Home {hex_id(1)}.md": text})))["Home"]

    assert outline(home.children) == [
        ("callout", "💡 Mind the **gap**\n\nand the step"),
        ("toggle", "More"),
        ("paragraph", "inside"),
        ("toggle", "Deep"),
        ("bulleted", "item"),
        ("heading", "Steps"),
        ("paragraph", "first step"),
        ("paragraph", "synced"),
        ("code", "<aside>"),
    ]
    assert [draft.text for draft in home.children[1].children] == ["inside", "Deep"]


def test_subpages_stand_in_the_order_of_their_links(tmp_path: Path) -> None:
    """The page that is linked first comes first; one that is not linked comes last."""
    inside = f"Home {hex_id(1)}"
    folder = inside.replace(" ", "%20")
    links = f"[Zoo]({folder}/Zoo%20{hex_id(2)}.md)\n\n[Ant]({folder}/Ant%20{hex_id(3)}.md)"
    files = {f"{inside}.md": f"# Home\n\n{links}\n"}
    files |= {f"{inside}/{name} {hex_id(at)}.md": f"# {name}\n" for name, at in (("Ant", 3), ("Bee", 4), ("Zoo", 2))}
    found = [each for each in read(write(tmp_path, files)) if isinstance(each, DraftDocument) and each.under]

    assert [each.root.text for each in sorted(found, key=lambda each: each.rank or 0)] == ["Zoo", "Ant", "Bee"]


def test_links_to_other_sites_stay(tmp_path: Path) -> None:
    """Only a URL with the id of an exported page is a link to a block."""
    text = f"# Home\n\n[a](https://example.com/{hex_id(9)}) [b](https://www.notion.so/Home-{hex_id(1)}?pvs=4)\n"
    home = roots(read(write(tmp_path, {f"Home {hex_id(1)}.md": text})))["Home"]

    assert home.children[0].text == f"[a](https://example.com/{hex_id(9)}) [b](block:{block_id(1)})"


# --- Obsidian ------------------------------------------------------------------------------


def test_comments_are_left_out() -> None:
    """Comments go, inline and over lines, and the lines keep their numbers; code and single signs stay."""
    assert strip_comments("a %%b%% c\n%%\nsecret\n%%\nd") == "a  c\n\n\n\nd"
    assert strip_comments("`%%x%%` and 5%% off\n```\n%%y%%\n```") == "`%%x%%` and 5%% off\n```\n%%y%%\n```"


def test_fields_of_tasks() -> None:
    """Dates, priority, recurrence and fields in brackets become properties and leave the text."""
    text = "- [ ] Pay rent 🔁 every month ⏫ ➕ 2026-05-01 📅 2026-06-01 [owner:: Anna] (due:: [[2026-06-02]]) #home"
    task = parse_markdown(text)[0]

    assert task.text == "Pay rent #home"
    assert task.properties == {
        "status": "TODO",
        "done": False,
        "created": "2026-05-01",
        "due": "2026-06-02",
        "owner": "Anna",
        "repeat": "every month",
        "priority": "high",
    }


def test_fields_of_a_page(tmp_path: Path) -> None:
    """Dataview's fields describe the page and stay readable; those of tasks and in code do not."""
    text = "Status:: Active\n\nLed by [lead:: Anna].\n\n- [ ] call [due:: 2026-06-01]\n\n```\nKey:: code\n```\n"
    page = roots(read(write(tmp_path, {".obsidian/app.json": "{}", "Plan.md": text})))["Plan"]

    assert (page.properties, page.children[0].text) == ({"lead": "Anna", "Status": "Active"}, "Status:: Active")


def test_a_canvas_is_a_page(tmp_path: Path) -> None:
    """Cards stand in reading order below their group, files are links, and arrows are lines; junk is a problem."""
    card = {"width": 100, "height": 50}
    canvas = {
        "nodes": [
            {"id": "b", "type": "text", "text": "# Second\nmore", "x": 200, "y": 20, **card},
            {"id": "a", "type": "text", "text": "First", "x": 0, "y": 20, **card},
            {"id": "g", "type": "group", "label": "Ideas", "x": -10, "y": 0, "width": 400, "height": 200},
            {"id": "f", "type": "file", "file": "notes/Plan.md", "x": 0, "y": 500, **card},
            {"id": "l", "type": "link", "url": "https://example.org", "x": 0, "y": 600, **card},
        ],
        "edges": [{"id": "e", "fromNode": "a", "toNode": "b", "label": "then"}, {"fromNode": "a", "toNode": "gone"}],
    }
    files = {"Board.canvas": json.dumps(canvas), "notes/Plan.md": "x", "bad.canvas": "[1]", "empty.canvas": ""}
    found = read(write(tmp_path, {".obsidian/app.json": "{}", **files}))
    board = roots(found)["Board"]

    assert outline(board.children) == [
        ("heading", "Ideas"),
        ("paragraph", "First"),
        ("paragraph", "# Second\nmore"),
        ("paragraph", "[[Plan]]"),
        ("paragraph", "https://example.org"),
        ("bulleted", "First → Second (then)"),
    ]
    assert [each.path for each in found if isinstance(each, LoadProblem)] == ["bad.canvas"]
    assert roots(found)["empty"].children == []


# --- CSV -----------------------------------------------------------------------------------

TASKS = (
    "task_id,list_name,task_name,who,when\n1,Backlog,Paint,Anna,2026-06-01\n"
    "2,Backlog,Sand,Boris,soon\n3,Completed,Saw,Anna,2026-06-03\n"
)


def test_the_title_is_the_name_that_repeats_least() -> None:
    """`task_name` is the title and not `list_name`, and a list called `Completed` says what is done."""
    table = read_table(SourceFile(path="t.csv", text=TASKS)).root

    assert [row.text for row in table.children] == ["Paint", "Sand", "Saw"]
    assert [row.properties["done"] for row in table.children] == [False, False, True]


def test_columns_named_by_their_role() -> None:
    """A status and an assignee are called so, and a due date is one beside its column."""
    columns = TableColumns(title="who", status="list_name", due="when", assignee="task_name")
    row = read_table(SourceFile(path="t.csv", text=TASKS), columns=columns).root.children[0]

    assert row.text == "Anna"
    assert row.properties == {
        "task_id": 1, "status": "Backlog", "assignee": "Paint", "when": "2026-06-01", "due": "2026-06-01", "done": False
    }  # fmt: skip


def test_one_odd_cell_does_not_change_a_column() -> None:
    """A column of dates stays one when a cell says `soon`; a column of words is not one of dates."""
    table = read_table(SourceFile(path="t.csv", text=TASKS)).root
    words = read_table(SourceFile(path="t.csv", text="name,x\na,2026-06-01\nb,soon\nc,later\n")).root

    assert table.properties["schema"] == {
        "task_id": "number", "list_name": "text", "task_name": "title", "who": "text", "when": "date"
    }  # fmt: skip
    assert words.properties["schema"] == {"name": "title", "x": "text"}


def test_a_state_that_never_means_done_makes_no_tasks() -> None:
    """A column of states of a country does not say that rows are done or not."""
    row = read_table(SourceFile(path="t.csv", text="name,state\nAnna,CA\nBoris,NY\n")).root.children[0]

    assert "done" not in row.properties
    assert not is_done(Block(id="r", type=BlockType.DB_ROW, text="", properties=row.properties))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_columns_are_separated_as_spreadsheets_do(mark: str) -> None:
    """By semicolons where a comma is the decimal sign, or by tabs; signs within quotes do not count."""
    lines = [["Name", '"Due, or; not"', "Owner"], ["Paint", "2026-06-01", "Anna"]]
    rows = parse_rows("\n".join(mark.join(line) for line in lines))

    assert [{"Name": "Paint", "Due, or; not": "2026-06-01", "Owner": "Anna"}] == rows


def test_an_unknown_column_is_refused(tmp_path: Path) -> None:
    """A role names a column of at least one table of the source."""
    folder = write(tmp_path, {"tasks.csv": TASKS, "other.csv": "name\nx\n"})

    assert len(roots(read(folder, columns=TableColumns(due="when")))) == 2
    with pytest.raises(InvalidRequest, match="no table has a column 'deadline'; the columns are"):
        read(folder, columns=TableColumns(due="deadline"))


def test_a_preview(tmp_path: Path) -> None:
    """A preview shows what an import would write, and who may read it."""
    folder = write(tmp_path, {"tasks.csv": TASKS, "hr/Pay.md": "- [ ] raise", "bad.csv": '"'})
    found = preview_source(ImportSource(path=folder, now=NOW, readers_map=ReadersMap(readers={"hr": ("user:anna",)})))

    assert [each.path for each in found.problems] == ["bad.csv"]
    assert list(found.list_lines())[:2] == [
        "hr/Pay.md: page “Pay”, 1 blocks, readable by user:anna",
        "tasks.csv: db “tasks”, 3 rows",
    ]
    assert found.documents[1].to_json()["columns"] == {
        "task_id": "number", "list_name": "text", "task_name": "title", "who": "text", "when": "date"
    }  # fmt: skip


# --- readers by path -----------------------------------------------------------------------


def test_readers_by_path(tmp_path: Path) -> None:
    """The most specific path decides, in any case, with its extension or without; the rest has the usual readers."""
    folder = write(tmp_path, {"a.md": "x", "HR/Pay.md": "x", "HR/Jobs.md": "x", "HR/deep/Old.md": "x"})
    given = ReadersMap(readers={"hr": ("group:hr",), "HR/Pay.md": ("user:anna", "user:boris"), "hr/deep": ("public",)})
    found = roots(read(folder, readers=("group:all",), readers_map=given))

    assert {title: root.readers for title, root in found.items()} == {
        "a": ("group:all",),
        "Pay": ("user:anna", "user:boris"),
        "Jobs": ("group:hr",),
        "Old": ("public",),
    }


def test_readers_of_pages_of_an_export(tmp_path: Path) -> None:
    """The ids in the names of an export need not be written."""
    files = {f"Home {hex_id(1)}.md": "# Home\n", f"Home {hex_id(1)}/Pay {hex_id(2)}.md": "# Pay\n"}
    found = roots(read(write(tmp_path, files), readers_map=ReadersMap(readers={"Home/Pay": ("user:anna",)})))

    assert (found["Home"].readers, found["Pay"].readers) == (None, ("user:anna",))


def test_a_misspelled_path_is_refused(tmp_path: Path) -> None:
    """A path that no page has is refused, because the page that was meant would be public."""
    folder = write(tmp_path, {"HR/Pay.md": "x"})

    with pytest.raises(InvalidRequest, match="'HR/Pai'"):
        read(folder, readers_map=ReadersMap(readers={"HR": ("group:hr",), "HR/Pai": ("user:anna",)}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "an object"),
        ("{}", "an object"),
        ("hr: [anna]", "not 'anna'"),
        ("hr: []", "must be a list"),
        ("hr: {a: b}", "must be a list"),
        ("hr: user:a\nHR/: user:b", "twice"),
        ("a: b: c", "cannot be read"),
    ],
)
def test_a_map_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    """A map is refused with what is wrong in it."""
    path = tmp_path / "readers.yaml"
    path.write_text(text)

    with pytest.raises(InvalidRequest, match=message):
        read_readers_map(path)


def test_a_map_in_a_file(tmp_path: Path) -> None:
    """JSON and YAML are read; one principal needs no list."""
    path = tmp_path / "readers.json"
    path.write_text('{"hr": ["group:hr", "user:anna"], "all": "public"}')

    assert read_readers_map(path).readers == {"hr": ("group:hr", "user:anna"), "all": ("public",)}
