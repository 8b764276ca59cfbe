"""Imports into a real workspace: what is stored, linked, changed and deleted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from contexture import Contexture, Settings
from contexture.cli._demo_samples import load_sample_workspace
from contexture.cli.demo import GROUPS, TENANT, demo_scope, workspace_folder
from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.history import ImportHistory
from contexture.ingestion.blocks.import_source import ImportSource
from contexture.ingestion.blocks.importer import (
    IMPORTS_FOLDER,
    ImportReport,
    WorkspaceWriter,
    import_blocks,
    run_import,
)
from contexture.ingestion.blocks.logseq import LIST_ITEM
from contexture.types import Scope
from contexture.workspace import Activity, ActivityKind, Block, BlockType, ImportAccess, LinkKind, PutResult
from support.service import small_engine

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LOADER = Scope(tenant=TENANT, user="loader", groups=("support", "finance"))


class Nowhere:
    """Takes blocks and keeps what they say."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def put(self, blocks: Sequence[Block], _access: ImportAccess | None = None) -> PutResult:
        """Keep texts and properties."""
        self.said.extend(f"{block.text} {dict(block.properties)}" for block in blocks)
        return PutResult(added=len(blocks))

    async def delete(self, ids: Sequence[str]) -> int:
        """Nothing is there."""
        return len(ids)

    async def find_existing(self, names: Sequence[str]) -> set[str]:
        """Nothing is there."""
        return set()

    async def record(self, activity: Sequence[Activity]) -> None:
        """Nothing is noted."""


def words(texts: Iterable[str]) -> Counter[str]:
    """How often each word of some length is said."""
    return Counter(word for text in texts for word in re.findall(r"[^\W\d_]{6,}", text))


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine over small embedders, as the users of the samples know it."""
    async with small_engine(Settings(home=new_folder(), tenant=TENANT, user="demo")) as found:
        yield found


async def brought(engine: Contexture, path: Path, **given: object) -> ImportReport:
    """Import a path once more."""
    writer = WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=engine.scope, now=NOW)
    memory = ImportHistory(engine.settings.home / IMPORTS_FOLDER)
    return await run_import(writer, ImportSource(path=path, now=NOW), tenant=TENANT, memory=memory, **given)  # pyright: ignore[reportArgumentType]


async def page(engine: Contexture, name: str) -> Block:
    """The page of a name."""
    return (await engine.workspace.find_pages(engine.scope, [name]))[name]


async def test_a_graph_is_stored_and_linked(engine: Contexture, new_folder: Callable[[], Path]) -> None:
    """Pages, blocks, links by name and block references of a Logseq graph are there to be read."""
    graph = new_folder()
    (graph / "logseq").mkdir()
    (graph / "pages").mkdir()
    (graph / "pages/Plan.md").write_text("- see [[Pump]] and ((66666666-1111))\n\t- TODO call")
    (graph / "pages/Pump.md").write_text("type:: [[Plan]]\n\n- it leaks\n  id:: 66666666-1111")
    report = await brought(engine, graph)
    plan, pump = await page(engine, "Plan"), await page(engine, "Pump")
    below = await engine.blocks.subtree(engine.scope, plan.id, depth=5, limit=10)
    links = await engine.blocks.links(engine.scope, [below[0].id, pump.id], limit=10)

    assert (report.pages, report.added, report.resolved, report.unresolved) == (2, 5, 3, [])
    assert [(block.type, block.text) for block in below][1] == (BlockType.TODO, "call")
    assert {(link.kind, link.target) for link in links} == {
        (LinkKind.LINK, pump.id),
        (LinkKind.REFERENCE, "66666666-1111"),
        (LinkKind.LINK, plan.id),
    }


async def test_importing_again_follows_the_folder(engine: Contexture, new_folder: Callable[[], Path]) -> None:
    """Nothing is written for nothing; an edit is one change; a renamed page keeps its id; a removed one goes."""
    notes = new_folder()
    (notes / "a.md").write_text("- one\n- two\n- three\n")
    (notes / "b.md").write_text("- four of many\n- five of many\n")
    await brought(engine, notes)
    was = await page(engine, "b")
    same = await brought(engine, notes)
    (notes / "a.md").write_text("- one\n- two, edited\n- three\n")
    (notes / "b.md").rename(notes / "c.md")
    edited = await brought(engine, notes)
    (notes / "a.md").unlink()
    removed = await brought(engine, notes)

    assert (same.added, same.changed, same.unchanged, same.deleted) == (0, 0, 7, 0)
    assert (edited.added, edited.changed, edited.deleted) == (0, 2, 0)
    assert (await page(engine, "c")).id == was.id
    assert removed.deleted == 4
    assert not await engine.workspace.find_pages(engine.scope, ["a"])


async def test_two_folders_of_one_name_are_told_apart(engine: Contexture, new_folder: Callable[[], Path]) -> None:
    """The second is refused, unless it is given another name; then both stay."""
    first, second = (new_folder() / "notes" for _ in range(2))
    for folder in (first, second):
        folder.mkdir()
        (folder / f"{folder.parent.name}.md").write_text("- text")
    await brought(engine, first)
    with pytest.raises(InvalidRequest, match="--source"):
        await brought(engine, second)
    done = await brought(engine, second, name="others")

    assert (done.added, done.deleted) == (2, 0)
    assert await page(engine, first.parent.name)


async def test_two_users_import_files_of_one_name_for_themselves(
    engine: Contexture, new_folder: Callable[[], Path]
) -> None:
    """Neither learns of the other's; each of them, and one whose memory is lost, writes nothing twice."""

    async def bring(user: str, text: str) -> ImportReport:
        folder = new_folder()
        (folder / "Salaries.md").write_text(f"- the salary of {user}\n- {text}")
        who = Scope(tenant=TENANT, user=user)
        writer = WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=who, now=NOW)
        source = ImportSource(path=folder, now=NOW, readers=(f"user:{user}",))
        return await run_import(writer, source, tenant=TENANT, memory=ImportHistory(new_folder()), name="vault")

    first = [await bring(user, "rises") for user in ("anna", "boris")]
    second = [await bring(user, "rises") for user in ("anna", "boris")]
    found = [
        await engine.workspace.find_pages(Scope(tenant=TENANT, user=user), ["Salaries"]) for user in ("anna", "boris")
    ]

    assert [(3, [])] * 2 == [(report.added, report.failed) for report in first]
    assert [(0, 0, 3)] * 2 == [(report.added, report.changed, report.unchanged) for report in second]
    assert [("user:anna",), ("user:boris",)] == [each["Salaries"].readers for each in found]


async def test_a_refused_page_does_not_stop_the_others(engine: Contexture, new_folder: Callable[[], Path]) -> None:
    """A block that the store will not take is reported with its file, and the other files are imported."""
    notes = new_folder()
    (notes / "good.json").write_text('[{"id": "g", "type": "page", "text": "Good"}]')
    (notes / "bad.json").write_text('[{"id": "b", "type": "page", "text": "Bad", "readers": ["everyone"]}]')
    report = await brought(engine, notes)

    assert [problem.path for problem in report.failed] == ["bad.json#b"]
    assert (await page(engine, "Good")).id == "g"


async def test_the_sample_workspace(engine: Contexture) -> None:
    """The sample loads whole, twice as once, and each user reads what is theirs."""
    first = await load_sample_workspace(engine, workspace_folder(), LOADER, demo_scope, NOW)
    second = await load_sample_workspace(engine, workspace_folder(), LOADER, demo_scope, NOW)
    names = ["Northquay", "Finance", "People and pay", "Anna's notes", "Boris's notes", "Notes of the demo user"]
    seen = {user: set(await engine.workspace.find_pages(demo_scope(user), names)) for user in GROUPS}
    projects = await engine.blocks.children(demo_scope("demo"), "projects", limit=20)
    related = await engine.blocks.links(demo_scope("demo"), [row.id for row in projects], limit=50)
    edits = await engine.blocks.recent(
        demo_scope("anna"), ActivityKind.EDIT, since=datetime(2026, 5, 1, tzinfo=UTC), limit=50
    )

    assert first.pages + first.blocks >= 300
    assert (first.failed, len(first.unresolved), first.links + first.references - first.resolved) == ([], 0, 0)
    assert (second.added, second.changed) == (0, 0)
    assert seen == {
        "demo": {"Northquay", "Notes of the demo user"},
        "anna": {"Northquay", "People and pay", "Anna's notes"},
        "boris": {"Northquay", "Finance", "Boris's notes"},
    }
    assert {LinkKind.RELATION} <= {link.kind for link in related}
    assert {"task-certificate", "support", "duty-ru"} <= {deed.block_id for deed in edits}


async def test_the_sample_has_tasks_of_every_kind(engine: Contexture) -> None:
    """There are overdue, coming and done tasks, and they are so on any day."""
    for now in (NOW, datetime(2031, 2, 3, 4, tzinfo=UTC)):
        await load_sample_workspace(engine, workspace_folder(), LOADER, demo_scope, now)
        overdue = await engine.blocks.tasks(demo_scope("demo"), due_before=now, limit=100)
        every = await engine.blocks.tasks(demo_scope("demo"), open_only=False, limit=200)

        assert 10 <= len(overdue) < len(every) - 20
        assert all(not block.properties.get("done") for block in overdue)


async def test_the_logseq_documentation_is_complete(eval_data: Path) -> None:
    """Every page, list item and link of the files is in the blocks, and each open link is listed."""
    folder = eval_data / "logseq-docs"
    found = [each for each in ImportSource(path=folder, now=NOW).read() if not hasattr(each, "warning")]
    files = [path for path in folder.rglob("*") if path.suffix in {".md", ".org"}]
    bullets = sum(len(LIST_ITEM.findall(path.read_text())) for path in files)
    notes = Nowhere()
    report = (await import_blocks(notes, found, source="docs")).report

    assert (report.pages, report.bullets, report.links) == (335, 6_224, 2_373)
    assert (len(files), bullets) == (335, 6_224)
    assert report.blocks >= 6_224
    assert report.failed == []
    assert report.resolved + report.quoted + len(report.unresolved) == report.links + report.references
    assert report.resolved >= 1_150
    lost = words(path.read_text() for path in files) - words(notes.said)
    assert {word for word, count in lost.items() if count > 5} <= {"PROPERTIES", "WARNING", "created", "updated"}
