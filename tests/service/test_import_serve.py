"""Notes imported while a service holds the store, and without one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from contexture.cli.main import app


@pytest.fixture
def service(tmp_path):
    """The folder of a store that a service holds."""
    code = "from contexture.cli.main import app; app()"
    words = ["serve", "--home", str(tmp_path / "home"), "--port", "0", "--json"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["url"]
            yield tmp_path / "home"
        finally:
            process.terminate()
            process.wait()


def run(home, *words):
    """The JSON that a command of anna answers."""
    done = CliRunner().invoke(app, [*map(str, words), "--home", str(home), "--user", "anna", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def notes(tmp_path):
    """A folder of two notes and a picture."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "Pump.md").write_text("The pump leaks, see [[Valve]] and [[Nobody]].\n\n- [ ] mend it 📅 2026-11-20")
    (folder / "Valve.md").write_text("A valve for the pump.")
    (folder / "pump.png").write_bytes(b"\x89PNG")
    return folder


def test_notes_go_through_the_door(service, notes):
    """What is read here is written there, once; what is removed here goes there too."""
    first = run(service, "ingest", "--as", "blocks", notes, "--readers", "user:anna")
    again = run(service, "ingest", "--as", "blocks", notes, "--readers", "user:anna")
    built = run(service, "build", "workspace", "What about the pump?")
    (notes / "Pump.md").unlink()
    removed = run(service, "ingest", "--as", "blocks", notes, "--readers", "user:anna")

    assert (first["pages"], first["blocks"], first["added"], first["resolved"]) == (2, 3, 5, 1)
    assert [each["name"] for each in first["unresolved"]] == ["Nobody"]
    assert [each["path"] for each in first["warnings"]] == ["pump.png"]
    assert (again["added"], again["changed"], again["unchanged"]) == (0, 0, 5)
    assert "The pump leaks" in built["serialized"]
    assert removed["deleted"] == 3


def test_the_report_for_people(notes, tmp_path):
    """Without a service the store is opened here; problems go to standard error, counts to standard output."""
    done = CliRunner().invoke(app, ["ingest", "--as", "blocks", str(notes), "--home", str(tmp_path / "home")])

    assert done.exit_code == 0, done.output
    assert "2 pages, 3 blocks" in done.stdout
    assert "unresolved: Pump.md:1: Nobody" in done.stderr
    assert "pump.png" in done.stderr


def test_a_source_that_is_not_there(tmp_path):
    """A path that does not exist is refused in one line."""
    done = CliRunner().invoke(app, ["ingest", "--as", "blocks", str(tmp_path / "none"), "--home", str(tmp_path / "h")])

    assert done.exit_code == 2
    assert "there is no file or folder" in done.stderr
