"""Documents loaded while a service holds the store."""

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


def run(home, *words, exit_code=0):
    """The JSON that a command of anna answers."""
    done = CliRunner().invoke(app, [*map(str, words), "--home", str(home), "--user", "anna", "--json"])
    assert done.exit_code == exit_code, done.output
    return json.loads(done.stdout)


@pytest.mark.slow
def test_files_go_through_the_door(service, tmp_path):
    """They are read by the service, reported at their places here, and searched there; records go with them."""
    place = tmp_path / "in"
    place.mkdir()
    (place / "gates.html").write_text("<h1>Gates</h1><p>The gates are shut at night.</p>")
    (place / "lying.pdf").write_text("no PDF at all")
    (place / "rows.jsonl").write_text('{"id": "r1", "text": "A record about cranes."}\n')
    first = run(service, "ingest", place, exit_code=1)
    second = run(service, "ingest", place, exit_code=1)
    found = run(service, "search", "gates shut", "--collection", "pages")["results"]

    assert (3, 2, 1) == (first["read"], first["added"], first["pages"])
    assert ["in/lying.pdf"] == [each["path"] for each in first["failed"]]
    assert ["in/gates.html", "in/lying.pdf"] == [each["path"] for each in first["files"]]
    assert (0, 2) == (second["added"], second["unchanged"])
    assert [f"{first['files'][0]['doc_id']}:1"] == [each["citation"]["record_id"] for each in found]
