"""Notes imported while a service holds the store, and without one."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

from contexture.cli.main import app

ASKED = {"query": "What about the pump?", "tokenBudget": {"total": 700}}
NOW = "2026-11-20T12:00:00+00:00"


@contextmanager
def serving(home):
    """A service that holds this store."""
    code = "from contexture.cli.main import app; app()"
    words = ["serve", "--home", str(home), "--port", "0", "--json"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["url"]
            yield home
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


def built_by(home):
    """What `build workspace --json` prints for the request on standard input."""
    words = ["build", "workspace", "--json", "--now", NOW, "--home", str(home), "--user", "anna"]
    return CliRunner().invoke(app, words, input=json.dumps(ASKED)).stdout_bytes


def answered(home):
    """What the service that holds the store answers to the same request."""
    found = json.loads((home / "serve.json").read_text())
    headers = {"X-Contexture-User": "anna", "X-Contexture-Now": NOW, "Authorization": f"Bearer {found['token']}"}
    return httpx.post(f"{found['url']}/v1/context/workspace", json=ASKED, headers=headers).content


@pytest.mark.slow
def test_notes_go_through_the_door(tmp_path, notes):
    """What is read here is written there, once; builds have the same bytes; what is removed here goes there too."""
    with serving(tmp_path / "home") as home:
        first = run(home, "ingest", "--as", "blocks", notes, "--readers", "user:anna")
        again = run(home, "ingest", "--as", "blocks", notes, "--readers", "user:anna")
        built = json.loads(answered(home))
        (notes / "Pump.md").unlink()
        removed = run(home, "ingest", "--as", "blocks", notes, "--readers", "user:anna")
        over_http, through = answered(home), built_by(home)

    assert over_http + b"\n" == through == built_by(home)

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
