"""`contexture build command` as people type it."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from contexture.cli.main import app
from contexture.config import Settings
from contexture.engine import open_store
from contexture.testing.doubles import NOON
from support.commands import article

NEWS = [article(f"p{at}", f"The pump of harbour {at} leaks oil.", hours=10 * at + 1) for at in range(4)]


@pytest.fixture(scope="module")
def home(lasting_folder):
    """A store with four articles."""
    folder = lasting_folder()

    async def fill():
        async with open_store(Settings(home=folder)) as engine:
            await engine.news.add(engine.scope, NEWS, now=NOON)

    asyncio.run(fill())
    return str(folder)


def run(home, *words, stdin=None):
    """What a command line prints, and how it ends."""
    words = ["build", "command", *words, "--home", home, "--now", NOON.isoformat()]
    return CliRunner().invoke(app, words, input=stdin)


def test_a_typed_command_is_shown_to_people(home, tmp_path):
    """Documents, recovery and degradations are printed, and the capsule is written where it is wanted."""
    capsule = tmp_path / "capsule.json"
    shown = run(home, "/ask pump leaks 6h", "--lang", "en", "--capsule", str(capsule))

    assert 0 == shown.exit_code
    assert "/ask --depth=deep  window 3d, lang en, model gpt-5" in shown.stdout
    assert "recovery: expanded window to 12h (1 found)" in shown.stdout
    assert "degraded: articles: only 4 of at least 5 documents were found" in shown.stdout
    assert 0 == CliRunner().invoke(app, ["replay", str(capsule)]).exit_code


def test_a_typed_command_is_the_one_on_standard_input(home):
    """The line and the request give the same bytes."""
    raw = {"raw_command": "/ask pump leaks", "user_lang": "en"}

    assert (
        run(home, "/ask pump leaks", "--lang", "en", "--json").stdout
        == run(home, "--json", stdin=json.dumps(raw)).stdout
    )


def test_an_error_is_one_line_or_the_commands_own_object(home):
    """What cannot be understood ends with 2, on standard error or as JSON."""
    line, told = run(home, "/aks pump"), run(home, "/aks pump", "--json")

    assert [2, 2] == [line.exit_code, told.exit_code]
    assert "error: '/aks' is not a command; did you mean /ask?" in line.stderr
    assert json.loads(told.stdout)["meta"]["correlation_id"].startswith("ctx-error-")
