"""`contexture ingest --as blocks`: options for tables, readers by path, a preview, and watching for changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contexture.cli._watch import watch_files
from contexture.cli.main import app
from contexture.errors import InvalidRequest

TASKS = "task_name,step,when,who\nPaint,Backlog,2026-06-01,Anna\nSaw,Completed,2026-06-02,Boris\n"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """A command line with a home; returns the exit code and everything it printed."""

    def invoke(*words: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["ingest", *map(str, words), "--home", str(tmp_path / "home")])
        return result.exit_code, result.output

    return invoke


def test_a_table_with_named_columns(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """A preview shows the roles and writes nothing, and the import does as the preview says."""
    table = tmp_path / "tasks.csv"
    table.write_text(TASKS)
    words = ("--as", "blocks", table, "--status", "step", "--due", "when", "--assignee", "who")

    code, shown = run(*words, "--preview")
    assert (code, (tmp_path / "home" / "truth.sqlite").exists()) == (0, False)
    assert "  row: Saw | status: Completed; when: 2026-06-02; assignee: Boris; due: 2026-06-02; done: True" in shown
    code, shown = run(*words, "--json")

    assert (code, json.loads(shown)["added"]) == (0, 3)
    assert run("--as", "blocks", table, "--due", "wen")[0] == 2


def test_readers_by_path(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """A readers map with a misspelled path writes nothing."""
    (tmp_path / "notes" / "hr").mkdir(parents=True)
    (tmp_path / "notes" / "hr" / "Pay.md").write_text("Salaries rise.")
    readers = tmp_path / "readers.json"
    readers.write_text('{"hr/Pey": ["user:anna"]}')
    code, shown = run("--as", "blocks", tmp_path / "notes", "--readers-map", readers)

    assert code == 2
    assert "'hr/Pey', but the source has no such page" in " ".join(shown.split())


@pytest.mark.parametrize("option", ["--readers-map=x", "--allow-empty", "--title=x", "--preview", "--source=x"])
def test_options_of_blocks(run: Callable[..., tuple[int, str]], tmp_path: Path, option: str) -> None:
    """Options that only blocks know are refused for other files instead of being ignored."""
    (tmp_path / "a.md").write_text("x")
    code, shown = run(tmp_path / "a.md", option)

    assert code == 2
    assert "applies to blocks only" in " ".join(shown.split())


def test_a_corrupt_archive_is_called_so(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """A zip file that was cut off is not said to be something else."""
    (tmp_path / "export.zip").write_bytes(b"PK\3\4cut off")

    assert "corrupt zip archive" in " ".join(run("--as", "blocks", tmp_path / "export.zip")[1].split())


def test_watching_loads_what_changed(tmp_path: Path) -> None:
    """A change is loaded once the files have settled, a failed load does not end it, and an interruption does."""
    note = tmp_path / "a.md"
    note.write_text("one")
    loads: list[str] = []

    def load() -> bool:
        loads.append(note.read_text())
        if len(loads) == 2:
            raise InvalidRequest("not now")
        return True

    def change() -> Iterator[None]:
        yield
        note.write_text("half")
        yield
        note.write_text("a whole line")
        yield
        yield
        note.write_text("the last line")
        yield
        yield

    steps = change()

    def wait() -> None:
        try:
            next(steps)
        except StopIteration:
            raise KeyboardInterrupt from None

    watch_files([tmp_path], load, wait=wait)

    assert loads == ["one", "a whole line", "the last line"]
