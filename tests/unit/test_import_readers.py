"""What readers make of Logseq, Obsidian, Notion, CSV and JSON."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks._markdown import parse_markdown
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItem, walk_drafts
from contexture.ingestion.blocks.import_source import NOTION, OBSIDIAN, ImportSource, find_importer
from contexture.ingestion.blocks.logseq import journal_title, parse_page, title_from_stem
from contexture.ingestion.blocks.obsidian import split_frontmatter
from contexture.ingestion.blocks.sources import MAX_FILE_BYTES, ArchiveLimits, SourceFile, decode_file, open_archive
from contexture.ingestion.blocks.tables import TableColumns, read_table
from contexture.ingestion.files import LoadProblem
from contexture.workspace import Activity, BlockType

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HEX = "0123456789abcdef0123456789abcdef"


def shown(root: BlockDraft) -> list[tuple[int, str, str]]:
    """Depth, type and text of what stands below a root."""
    depths = {id(root): 0}
    found: list[tuple[int, str, str]] = []
    for draft, above in walk_drafts(root):
        if above is not None:
            depths[id(draft)] = depths[id(above)] + 1
            found.append((depths[id(draft)], str(draft.type), draft.text))
    return found


def logseq(text: str, path: str = "pages/a.md") -> BlockDraft:
    """The page that a Logseq file holds."""
    return parse_page(SourceFile(path=path, text=text)).root


def below(text: str) -> list[tuple[int, str, str]]:
    """What stands in a Markdown text."""
    return shown(BlockDraft(type=BlockType.PAGE, text="", children=parse_markdown(text)))


def written(root: Path, files: dict[str, str | bytes]) -> Path:
    """A folder with files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def read(path: Path, **given: object) -> list[ImportItem]:
    """Everything a source gives."""
    return list(ImportSource(path=path, now=NOW, **given).read())  # pyright: ignore[reportArgumentType]


def documents(found: list[ImportItem]) -> dict[str, DraftDocument]:
    """Documents by path."""
    return {each.path: each for each in found if isinstance(each, DraftDocument)}


def problems(found: list[ImportItem], *, warnings: bool = False) -> dict[str, str]:
    """Problems by path."""
    return {each.path: each.message for each in found if isinstance(each, LoadProblem) and each.warning == warnings}


# --- Logseq --------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", ["\t", "  ", "    "])
def test_indentation_makes_the_tree(indent: str) -> None:
    """Tabs and spaces both nest, and what is indented below a bullet belongs to it."""
    text = f"- one\n{indent}- two\n{indent}  more of two\n{indent}{indent}- three\n- four"

    assert shown(logseq(text)) == [
        (1, "bulleted", "one"),
        (2, "bulleted", "two\nmore of two"),
        (3, "bulleted", "three"),
        (1, "bulleted", "four"),
    ]


def test_bullets_in_code_are_code() -> None:
    """A fence keeps the lines in it, and an unclosed one does not swallow the page."""
    fenced = logseq("- ```yaml\n  - not a block\n  ```\n- next")
    unclosed = logseq("- text ```\n- ```js\n- next")

    assert shown(fenced) == [(1, "code", "- not a block"), (1, "bulleted", "next")]
    assert fenced.children[0].properties == {"language": "yaml"}
    assert [text for _, _, text in shown(unclosed)] == ["text ```", "```js", "next"]


@pytest.mark.parametrize(
    ("line", "text", "properties"),
    [
        ("TODO [#A] call", "call", {"status": "TODO", "done": False, "priority": "A"}),
        ("DOING call", "call", {"status": "DOING", "done": False}),
        ("DONE call", "call", {"status": "DONE", "done": True}),
        ("CANCELED call", "call", {"status": "CANCELED", "done": True}),
        (
            "TODO call\n  DEADLINE: <2026-11-20 Fri>",
            "call",
            {"status": "TODO", "done": False, "due": "2026-11-20"},
        ),
        (
            "LATER call\n  SCHEDULED: <2026-11-20 Fri 09:30 .+1d>",
            "call",
            {"status": "LATER", "done": False, "due": "2026-11-20T09:30", "scheduled": "2026-11-20T09:30"},
        ),
    ],
)
def test_markers_make_tasks(line: str, text: str, properties: dict[str, object]) -> None:
    """Markers, priorities and timestamps become a task's state and due date."""
    draft = logseq(f"- {line}").children[0]

    assert (draft.type, draft.text, draft.properties) == (BlockType.TODO, text, properties)


def test_a_word_that_begins_like_a_marker_is_a_word() -> None:
    """`TODOs` begins no task."""
    assert logseq("- TODOs are listed here").children[0].type is BlockType.BULLETED


def test_properties_of_pages_and_blocks() -> None:
    """Page properties leave the text; a block's id leaves it, and its other properties stay readable."""
    root = logseq(
        "type:: [[Feature]]\ntags:: one, two words\nalias:: Other\n\n- text\n  id:: abc-12345678\n  owner:: [[Anna]]"
    )

    assert root.properties == {"type": "[[Feature]]", "tags": "#one, [[two words]]", "alias": "Other"}
    assert (root.children[0].known, root.children[0].text) == ("abc-12345678", "text\nowner:: [[Anna]]")


def test_kinds_of_blocks() -> None:
    """Headings, quotes, callouts, pictures, embeds and tables are told apart."""
    text = (
        "- ## Plan\n- > said\n- #+BEGIN_TIP\n  careful\n  #+END_TIP\n"
        "- ![a](b.png)\n- {{embed [[X]]}}\n- |a|b|\n  |-|-|\n- {{query (todo now)}}"
    )
    assert [kind for _, kind, _ in shown(logseq(text))] == [
        "heading",
        "quote",
        "callout",
        "image",
        "embed",
        "table",
        "bulleted",
    ]


def test_names_of_files() -> None:
    """Namespaces are parted by `/`, whichever way the file name spells it, and journals are named by their day."""
    assert (title_from_stem("a___b"), title_from_stem("a%2Fb"), title_from_stem("50%")) == ("a/b", "a/b", "50%")
    assert journal_title(datetime(2020, 5, 12, tzinfo=UTC)) == "May 12th, 2020"
    journal = logseq("- x", path="journals/2020_05_03.md")
    assert (journal.text, journal.properties["alias"]) == ("May 3rd, 2020", "2020-05-03")


def test_org_outlines() -> None:
    """Stars nest, drawers become properties, and what stands below a heading belongs to it."""
    root = logseq(
        "#+TITLE: Log\n* one\n:PROPERTIES:\n:id: aaaa-bbbb\n:END:\nbody\n** TODO two\n*** three", path="pages/log.org"
    )

    assert root.text == "Log"
    assert shown(root) == [(1, "bulleted", "one\nbody"), (2, "todo", "two"), (3, "bulleted", "three")]
    assert root.children[0].known == "aaaa-bbbb"


# --- Markdown and Obsidian -----------------------------------------------------------------


def test_headings_hold_what_follows_them() -> None:
    """A block stands below the nearest heading before it, a heading below the nearest higher one."""
    assert below("intro\n\n# A\n\ntext\n\n## B\n\n- x\n  - y\n\n# C") == [
        (1, "paragraph", "intro"),
        (1, "heading", "A"),
        (2, "paragraph", "text"),
        (2, "heading", "B"),
        (3, "bulleted", "x"),
        (4, "bulleted", "y"),
        (1, "heading", "C"),
    ]


def test_markdown_kinds() -> None:
    """Callouts, code, tables, numbers, embeds and rules are told apart."""
    text = "> [!Note] Mind\n> the gap\n\n```py\nx = 1\n```\n\n|a|\n|-|\n|1|\n\n1. one\n\n![[other]]\n\n---\n\n> quoted"

    assert below(text) == [
        (1, "callout", "Mind\nthe gap"),
        (1, "code", "x = 1"),
        (1, "table", "|a|\n|-|\n|1|"),
        (1, "numbered", "one"),
        (1, "embed", "![[other]]"),
        (1, "divider", ""),
        (1, "quote", "quoted"),
    ]


@pytest.mark.parametrize(
    ("line", "properties"),
    [
        ("- [ ] pay 📅 2026-11-20", {"status": "TODO", "done": False, "due": "2026-11-20"}),
        ("- [x] pay [due:: 2026-11-20]", {"status": "DONE", "done": True, "due": "2026-11-20"}),
        ("- [ ] pay (due:: [[2026-11-20]])", {"status": "TODO", "done": False, "due": "2026-11-20"}),
        ("- [/] pay", {"status": "DOING", "done": False}),
    ],
)
def test_boxes_make_tasks(line: str, properties: dict[str, object]) -> None:
    """Check boxes and dates become a task's state and due date."""
    (draft,) = parse_markdown(line)

    assert (draft.type, draft.text, draft.properties) == (BlockType.TODO, "pay", properties)


def test_block_names_are_kept() -> None:
    """`^name` leaves the text, at the end of a block or alone below it."""
    first, second = parse_markdown("one ^abc\n\n> two\n\n^def")

    assert (first.text, first.properties["anchor"], second.properties["anchor"]) == ("one", "abc", "def")


def test_a_vault(tmp_path: Path) -> None:
    """Frontmatter becomes properties, file links page links, and a board's tasks cards of their column."""
    vault = written(
        tmp_path,
        {
            ".obsidian/app.json": "{}",
            "work/Plan.md": "---\naliases: [Roadmap]\ntags: [a, b]\ncreated: 2026-01-02\nrank: 3\n---\n"
            "see [it](../My%20Note.md#x)",
            "My Note.md": "---\nkanban-plugin: board\n---\n## Doing\n- [ ] card",
            "bad.md": "---\n: [\n---\ntext",
        },
    )
    found = read(vault)
    plan = documents(found)["work/Plan.md"].root

    assert find_importer(vault) is OBSIDIAN
    assert plan.properties == {
        "rank": 3,
        "created": "2026-01-02",
        "folder": "work",
        "aliases": ["Roadmap", "work/Plan"],
        "tags": "#a, #b",
    }
    assert (plan.created, plan.children[0].text) == (datetime(2026, 1, 2, tzinfo=UTC), "see [[My Note#x|it]]")
    card = documents(found)["My Note.md"].root.children[0].children[0]
    assert (card.type, card.properties["status"]) == (BlockType.KANBAN_CARD, "Doing")
    assert "not valid YAML" in problems(found, warnings=True)["bad.md"]
    assert len(documents(found)["bad.md"].root.children) > 0


def test_frontmatter_that_is_text_stays() -> None:
    """A rule at the top of a text is no frontmatter."""
    assert split_frontmatter("---\njust words\n---\nx")[1] == "---\njust words\n---\nx"
    assert split_frontmatter("no rule")[0] == {}


def test_fifty_levels_of_a_list_are_kept() -> None:
    """A deep list loses nothing."""
    text = "\n".join(f"{'  ' * depth}- level {depth}" for depth in range(50))

    assert [depth for depth, _, _ in below(text)] == list(range(1, 51))


# --- Notion --------------------------------------------------------------------------------


def notion_files() -> dict[str, str]:
    """A page with a subpage, and two databases whose rows name each other."""
    home, sub, tasks, row, people, ann = (f"{digit}{HEX[1:]}" for digit in "123456")
    table = f"Name,Owner,Due\nWrite,Ann (../People%20{people}/Ann%20{ann}.md),2026-11-20\n"
    inside = f"Home%20{home}"
    return {
        f"Home {home}.md": f"# Home\n\nsee [Sub]({inside}/Sub%20{sub}.md) and [Tasks]({inside}/Tasks%20{tasks}.csv)",
        f"Home {home}/Sub {sub}.md": "# Sub\n\ntext",
        f"Home {home}/Tasks {tasks}.csv": table,
        f"Home {home}/Tasks {tasks}_all.csv": f"{table}Rest,,\n",
        f"Home {home}/Tasks {tasks}/Write {row}.md": "# Write\n\nOwner: Ann\nDue: November 20, 2026\n\n- [ ] draft",
        f"People {people}.csv": "Name,Role\nAnn,Editor\n",
        f"People {people}/Ann {ann}.md": "# Ann\n\nRole: Editor\n\nLikes tea.",
    }


@pytest.mark.parametrize("packed", [False, True])
def test_a_notion_export(tmp_path: Path, *, packed: bool) -> None:
    """Pages nest by folders, rows take in their pages, and links and relations name blocks by Notion's own ids."""
    folder = written(tmp_path / "export", notion_files())
    path = folder
    if packed:
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in notion_files().items():
                archive.writestr(name, text)
    found = {document.root.text: document for document in documents(read(path)).values()}
    home, sub, tasks, row, _, ann = (str(UUID(f"{digit}{HEX[1:]}")) for digit in "123456")

    assert find_importer(path) is NOTION
    assert set(found) == {"Home", "Sub", "Tasks", "People"}
    assert (found["Sub"].under, found["Tasks"].under, found["Home"].under) == (home, home, None)
    assert found["Home"].root.children[0].text == f"see [Sub](block:{sub}) and [Tasks](block:{tasks})"
    first, second = found["Tasks"].root.children
    assert (first.known, first.properties, second.text) == (row, {"Due": "2026-11-20", "Owner": [ann]}, "Rest")
    assert [child.text for child in first.children] == ["draft"]
    assert found["Tasks"].root.properties["schema"] == {"Name": "title", "Owner": "relation", "Due": "date"}


def test_an_archive_that_lies(tmp_path: Path) -> None:
    """Names that climb out and files that swell are reported, and the rest is read."""
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../out.md", "x")
        archive.writestr("/abs.md", "x")
        archive.writestr("bomb.md", b"a" * 5_000_000)
        archive.writestr("good.md", "fine")
        archive.writestr("picture.png", b"\x89PNG")
        archive.writestr("binary.md", b"a\0b")
    opened = open_archive(path, frozenset({".md"}), ArchiveLimits(unpacked=100_000))

    assert [file.path for file in opened.files] == ["good.md"]
    assert {problem.path for problem in opened.problems if not problem.warning} == {
        "../out.md",
        "/abs.md",
        "bomb.md",
        "binary.md",
    }
    assert not (tmp_path.parent / "out.md").exists()


def test_a_broken_archive(tmp_path: Path) -> None:
    """A file that is no archive is refused in one sentence."""
    path = tmp_path / "broken.zip"
    path.write_bytes(b"PK but no archive")

    with pytest.raises(InvalidRequest, match="corrupt zip archive"):
        find_importer(path)
    with pytest.raises(InvalidRequest, match="corrupt zip archive"):
        open_archive(path, frozenset({".md"}))


# --- tables --------------------------------------------------------------------------------


def test_a_table_is_a_database() -> None:
    """Columns become properties of the type that all their cells have, and an id column makes rows known again."""
    text = (
        "task_id,task_name,due_date,hours,open,list\n007,Write,2026-11-20,3,true,Backlog\n008,Rest,,1,false,Completed\n"
    )
    columns = TableColumns(due="due_date", done=("list", ("Completed",)))
    root = read_table(SourceFile(path="tasks.csv", text=text), columns=columns).root

    assert root.properties["schema"] == {
        "task_id": "text",
        "task_name": "title",
        "due_date": "date",
        "hours": "number",
        "open": "checkbox",
        "list": "text",
    }
    first, second = root.children
    assert (first.text, first.key) == ("Write", "007")
    assert first.properties == {
        "task_id": "007",
        "due_date": "2026-11-20",
        "hours": 3,
        "open": True,
        "list": "Backlog",
        "due": "2026-11-20",
        "done": False,
    }
    assert second.properties["done"] is True


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ("November 3, 2026", "2026-11-03"),
        ("November 3, 2026 2:05 PM (UTC)", "2026-11-03T14:05"),
        ("November 3, 2026 14:05", "2026-11-03T14:05"),
        ("November 3, 2026 → November 5, 2026", "2026-11-03/2026-11-05"),
        ("2026/11/03", "2026-11-03"),
        ("November 31, 2026", None),
        ("3, 2026", None),
        ("a → b → c", None),
        ("", None),
    ],
)
def test_dates_that_notion_spells(told: str, read: str | None) -> None:
    """A column of such dates is one of dates, in ISO form."""
    root = read_table(SourceFile(path="t.csv", text=f'Name,Due\nPump,"{told}"\n')).root

    assert root.children[0].properties.get("Due") == (read or told or None)
    assert root.properties["schema"] == {"Name": "title", "Due": "date" if read else "text"}


@pytest.mark.parametrize("text", ["", "a,b\n", "a,a,\n1,2,3\n", "a\n1,2,3\n", "a,b\n1\n"])
def test_odd_tables(text: str) -> None:
    """Tables without rows, with repeated or missing names and with ragged lines are read."""
    root = read_table(SourceFile(path="t.csv", text=text)).root

    assert len(root.children) == max(0, text.count("\n") - 1)


# --- JSON ----------------------------------------------------------------------------------


def tree(tmp_path: Path, text: str) -> list[ImportItem]:
    """What a JSON file gives."""
    (tmp_path / "w.json").write_text(text)
    return read(tmp_path / "w.json")


def test_nested_and_flat_trees_are_the_same(tmp_path: Path) -> None:
    """Children may stand inside their parent or name it, in any order."""
    nested = tree(
        tmp_path, '[{"id":"p","type":"page","text":"P","children":[{"id":"a","text":"A"},{"id":"b","text":"B"}]}]'
    )
    flat = tree(
        tmp_path,
        '{"blocks":[{"id":"b","text":"B","parent":"p","order":1},{"id":"a","text":"A","parent":"p","order":0},{"id":"p","type":"page","text":"P"}]}',
    )

    (one,), (other,) = documents(nested).values(), documents(flat).values()
    assert shown(one.root) == shown(other.root) == [(1, "paragraph", "A"), (1, "paragraph", "B")]


def test_offsets_count_from_now(tmp_path: Path) -> None:
    """Days and hours become dates when the file is read."""
    found = tree(
        tmp_path,
        '{"blocks":[{"id":"t","type":"todo","text":"T","due_days":-3,"in_days":{"Renewal":2},"modified_hours":5,"created_days":1}],"activity":[{"block":"t","user":"anna","deed":"view","hours_ago":2}]}',
    )
    (document,) = documents(found).values()
    (deed,) = [each for each in found if isinstance(each, Activity)]

    assert document.root.properties == {"due": "2026-05-29", "Renewal": "2026-06-03"}
    assert document.root.modified == datetime(2026, 6, 1, 7, tzinfo=UTC)
    assert (deed.user, deed.time) == ("anna", datetime(2026, 6, 1, 10, tzinfo=UTC))


def test_cycles_orphans_and_bad_blocks(tmp_path: Path) -> None:
    """A cycle is cut, an orphan says where it wants to be, and what a bad block held goes to its parent."""
    found = tree(
        tmp_path,
        '[{"id":"a","text":"A","parent":"b"},{"id":"b","text":"B","parent":"a"},{"id":"o","text":"O","parent":"gone"},'
        '{"id":"p","text":"P","children":[{"id":"x","type":"nonsense","children":[{"id":"y","text":"Y"}]}]},{"id":"p","text":"again"}]',
    )
    trees = {document.root.text: document for document in documents(found).values()}

    assert {text: document.under for text, document in trees.items()} == {"O": "gone", "P": None, "A": None}
    assert [text for _, _, text in shown(trees["A"].root)] == ["B"]
    assert [text for _, _, text in shown(trees["P"].root)] == ["Y"]
    assert len(problems(found)) == 2
    assert "its own descendant" in problems(found, warnings=True)["w.json"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "3", '{"blocks":3}', "[3]", '[{"text":3}]', '[{"txt":"a"}]'),
        *('[{"readers":"all"}]', '[{"due_days":"x"}]', '[{"modified":"soon"}]', '[{"order":1e400}]'),
    ],
)
def test_bad_json_is_a_problem(tmp_path: Path, text: str) -> None:
    """What cannot be read is said in one line, and nothing is raised."""
    found = tree(tmp_path, text)

    assert len(problems(found)) == 1
    assert documents(found) == {}


@pytest.mark.parametrize(
    ("text", "named"), [('[{"due_days":"x"}]', "due_days"), ('[{"in_days":{"R":"x"}}]', "in_days.R")]
)
def test_a_bad_offset_is_named_as_it_was_written(tmp_path: Path, text: str, named: str) -> None:
    """Not as the property that it would have made."""
    (told,) = problems(tree(tmp_path, text)).values()

    assert f"field {named!r} must be a number" in told


# --- folders -------------------------------------------------------------------------------


def test_odd_files_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """Binary, broken and foreign files and links out of the folder are named; the others are read."""
    outside = written(tmp_path / "outside", {"secret.md": "no"})
    folder = written(
        tmp_path / "in", {"a.md": "- a", "b.md": b"a\0b", "c.md": b"\xff\xfe\xfa", "d.png": b"\x89PNG", "t.csv": '"a'}
    )
    (folder / "link.md").symlink_to(outside / "secret.md")
    found = read(folder)

    assert set(documents(found)) == {"a.md"}
    assert set(problems(found)) == {"b.md", "c.md", "t.csv", "in/link.md"}
    assert set(problems(found, warnings=True)) == {"d.png"}


def test_a_huge_file_is_reported() -> None:
    """A file beyond the limit is a problem, not a page."""
    found = decode_file("huge.md", b"a" * (MAX_FILE_BYTES + 1), None)

    assert isinstance(found, LoadProblem)
    assert "larger than" in found.message


def test_readers_are_given_to_roots(tmp_path: Path) -> None:
    """Who may read is said once, at the root."""
    (document,) = documents(read(written(tmp_path, {"a.md": "- a"}), readers=("user:anna",))).values()

    assert (document.root.readers, document.root.children[0].readers) == (("user:anna",), None)
