"""Research on the command line while a service holds the store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from contexture.cli.main import app
from contexture.config import Settings
from contexture.documents import Page
from contexture.engine import open_store, replay
from contexture.pages.values import Document
from contexture.testing.doubles import NOON

TEXT = "Solar power lowers bills by 30 percent. Mail anna@example.org about it."
QUESTION = ["How much does solar power lower bills?", "--now", NOON.isoformat()]


@pytest.fixture
def home(tmp_path):
    """The folder of a store with one page, which nobody holds yet."""
    page = Page(number=1, text=TEXT)
    document = Document(
        doc_id="sun", filename="sun.pdf", extension="pdf", source_path="sun.pdf", timestamp=NOON, pages=(page,)
    )

    async def fill():
        async with open_store(Settings(home=tmp_path / "home")) as engine:
            await engine.pages.add(engine.scope, document, now=NOON)

    asyncio.run(fill())
    return tmp_path / "home"


def run(home, *words, stdin=None):
    """What a command line prints."""
    done = CliRunner().invoke(app, [*map(str, words), "--home", str(home)], input=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_a_service_answers_in_the_same_bytes(home, tmp_path):
    """Built here and built there are equal, people see them, the capsule replays, and what they cite holds."""
    here = run(home, "build", "research", *QUESTION, "--json")
    shown = run(home, "build", "research", *QUESTION)
    capsule = tmp_path / "capsule.json"
    code = "from contexture.cli.main import app; app()"
    words = ["serve", "--home", str(home), "--port", "0", "--json"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["url"]
            there = run(home, "build", "research", *QUESTION, "--json", "--capsule", capsule)
            answer = run(home, "ask", "--research", *QUESTION, "--json")
            held = [json.loads(run(home, "cite", "verify", "-", "--json", stdin=text)) for text in (there, answer)]
        finally:
            process.terminate()
            process.wait()

    assert here == there
    assert "[Document 1: sun.pdf, Page 1]" in shown
    assert "1 sources in" in shown
    assert [True, True] == [each["holds"] for each in held]
    assert "30 percent" in json.loads(answer)["answer"]
    assert json.loads(there)["digest"] == replay(capsule.read_bytes())[0].digest
