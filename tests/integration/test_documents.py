"""Documents from the command line: loaded once, found, resumed after a kill, whole or not there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import contexture
from contexture.cli.main import app
from contexture.config import Settings
from contexture.ledger import Trace

pytestmark = pytest.mark.integration

SAMPLES = Path(__file__).parents[2] / "examples" / "documents"


def run(*words: object) -> dict:
    """The JSON that a command prints."""
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


async def test_a_folder_of_documents_is_loaded_once(tmp_path):
    """Each file is loaded with its pages and pictures; a second run adds nothing, and pages are found."""
    place = tmp_path / "in"
    place.mkdir()
    for name in ("figures-2025.pdf", "board-briefing.pptx"):
        (place / name).write_bytes((SAMPLES / name).read_bytes())
    (place / "note.md").write_text("# Notes\n\nA record, unless pages are asked for.")
    home = tmp_path / "home"

    first = await asyncio.to_thread(run, "ingest", place, "--home", home)
    second = await asyncio.to_thread(run, "ingest", place, "--home", home)

    assert (3, 3, 6) == (first["read"], first["added"], first["pages"])
    assert (0, 3) == (second["added"], second["unchanged"])
    assert (home / "pages").is_dir()
    async with contexture.open(Settings(home=home)) as engine:
        [best, *_] = await engine.pages.find(engine.scope, "revenue of the third quarter", k=3, trace=Trace())
        [page] = await engine.pages.pages(engine.scope, [(best.doc_id, best.page)])
    assert "figures-2025.pdf" == best.filename
    assert f"/v1/pages/{best.doc_id}/{best.page}/thumb" == page.thumb_path


def test_an_interrupted_load_is_finished_by_repeating_it(tmp_path):
    """After a kill in the middle every document is whole or not there, and the next run loads the rest."""
    place = tmp_path / "in"
    place.mkdir()
    for at in range(3):
        (place / f"{at}.html").write_text(f"<h1>Gate {at}</h1>" + f"<p>Gate {at} is shut at night.</p>" * 10)
    home = tmp_path / "home"
    words = [Path(sys.executable).with_name("contexture"), "ingest", place, "--home", home, "--json"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    report = run("ingest", place, "--home", home)

    assert 3 == report["added"] + report["unchanged"]
    assert [] == report["failed"]
