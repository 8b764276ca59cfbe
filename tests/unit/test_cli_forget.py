"""`contexture forget` and `contexture audit`, and commands that ask the policy without a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from contexture.cli.main import app
from contexture.conversation import Decision

WORD = "zebracorn-1"


def run(folder: Path, *words: str, code: int = 0) -> Any:
    """The output of a command, as JSON if it is asked for."""
    found = CliRunner().invoke(app, ["--home", str(folder / "store"), *words])
    assert code == found.exit_code, found.output
    return json.loads(found.stdout) if "--json" in words else found.output


@pytest.fixture
def store(new_folder) -> Path:
    """A folder with a store of two records, and a build of both."""
    folder = new_folder()
    rows = [{"id": WORD, "text": "The pump leaks"}, {"id": "other", "text": "The pump runs"}]
    (folder / "pumps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run(folder, "ingest", str(folder / "pumps.jsonl"))
    run(folder, "build", "query", "pump")
    return folder


def test_a_record_is_forgotten_and_audited(store):
    """Without --yes it is only shown; with it, the audit finds the id nowhere, not even in files of the index."""
    shown = run(store, "forget", "--record", WORD, "--json")
    assert shown["preview"]
    assert {"documents": 1, "builds": 1} == {each["place"]: each["count"] for each in shown["removed"]}
    assert not run(store, "audit", WORD, "--json", code=1)["clean"]

    done = run(store, "forget", "--record", WORD, "--yes", "--json")
    assert not done["preview"]
    assert not any("next start" in copy for copy in done["out_of_reach"])
    assert {"id": WORD, "clean": True, "found": [], "not_searched": []} == run(store, "audit", WORD, "--json")
    assert "nothing was found" in run(store, "forget", "--record", WORD, "--yes")
    assert "other" in run(store, "search", "pump")


@pytest.mark.parametrize("words", [[], ["--session", "s", "--trash"], ["--event", "e"]])
def test_a_wrong_request_is_refused(store, words):
    """Nothing, or two things to forget, and an event without its session."""
    run(store, "forget", *words, code=2)


def test_direct_commands_ask_the_policy(store, monkeypatch):
    """As the routes of the service do, with the same actions."""
    asked = []

    class Closed:
        async def decide(self, scope, action, resource):
            asked.append((action, dict(resource)))
            return Decision(allowed=False, reason="closed on Sundays")

    monkeypatch.setattr("contexture.wiring._services.policy", lambda _: Closed())
    for words in (
        ["search", "pump"],
        ["build", "query", "pump"],
        ["explain", "ctx-000000000000"],
        ["forget", "--record", WORD, "--yes"],
        ["ingest", str(store / "pumps.jsonl")],
    ):
        assert "closed on Sundays" in run(store, *words, code=2)

    assert ["search", "context.build", "builds.read", "forget", "ingest"] == [each[0] for each in asked]
    assert {"kind": "query", "collection": "documents"} == asked[1][1]
