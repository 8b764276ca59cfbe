"""Articles loaded while a service holds the store."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from contexture.cli.main import app
from support.news import STRIKE

ROWS = [
    {"id": "a", "title": "Strike", "text": STRIKE, "source": "a.example", "age_hours": 2},
    {"id": "b", "title": "Walkout", "text": STRIKE, "source": "b.example", "age_hours": 1},
    {"id": "mine", "text": "A strike of bakers.", "readers": ["user:anna"]},
    {"id": "wrong", "text": "x", "readers": ["anna"]},
]


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
def test_articles_go_through_the_door(service, tmp_path):
    """Dates are reckoned here, readers are kept, and what the service refuses is named at its line in the file."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    report = run(service, "ingest", "--as", "articles", path, exit_code=1)
    found = run(service, "search", "strike", "--collection", "articles")["results"]

    assert (report["read"], report["added"], report["collapsed"]) == (4, 3, 1)
    assert [("rows.jsonl", 4)] == [(each["path"], each["line"]) for each in report["failed"]]
    assert {"a", "b", "mine"} == {each["citation"]["record_id"] for each in found}
