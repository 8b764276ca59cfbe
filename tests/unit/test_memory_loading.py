"""Files loaded as memories, from the command line and for evaluation."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from contexture.cli.ingest import MemorySender
from contexture.cli.main import app
from contexture.conversation import Memory, MemoryKind
from contexture.engine import open_store
from contexture.errors import SourceUnavailable
from contexture.ingestion.memories import load_memories, record_to_memory
from contexture.testing.doubles import NOON, ScriptedMemory
from contexture.types import PUBLIC, Record, Scope
from support.memory_conformance import asking

ROWS = [
    {"id": "a", "text": "Anna drinks jasmine tea", "session_id": "s-1", "tags": ["taste"], "created_at": "2026-01-01"},
    {"id": "b", "text": "Boris keeps bees", "kind": "semantic", "importance": 0.9, "acl": ["public"], "mood": "calm"},
]


def written(folder, rows=ROWS):
    """A JSONL file of rows."""
    path = folder / "memories.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def run(*words):
    """The JSON that a command answers."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


async def test_rows_become_memories(tmp_path):
    """Fields of a memory are known by name, readers are those of the row, and the rest is metadata."""
    memory = ScriptedMemory()
    report = await load_memories(memory, Scope.local(), [written(tmp_path)], namespace="notes")
    first, second = memory.remembered

    assert (report.read, report.added, report.failed) == (2, 2, [])
    assert (first.id, first.session_id, first.tags, first.readers, first.namespace) == (
        "a",
        "s-1",
        ("taste",),
        (),
        "notes",
    )
    assert first.time is not None
    assert first.time.isoformat() == "2026-01-01T00:00:00+00:00"
    assert (second.kind, second.importance, second.readers) == (MemoryKind.SEMANTIC, 0.9, (PUBLIC,))
    assert second.metadata["mood"] == "calm"


async def test_a_row_that_is_refused_keeps_no_other_out(tmp_path):
    """Each row is judged by itself, and the report names the line."""
    rows = [ROWS[0], {"id": "x", "text": "odd", "importance": "very"}, ROWS[1]]
    memory = ScriptedMemory()
    report = await load_memories(memory, Scope.local(), [written(tmp_path, rows)])

    assert ["a", "b"] == [each.id for each in memory.remembered]
    assert [2] == [problem.line for problem in report.failed]


async def test_a_service_in_trouble_is_reported_for_every_row(tmp_path):
    """Nothing is tried one by one when the service is gone."""
    memory = ScriptedMemory(failures=[SourceUnavailable("gone")])
    report = await load_memories(memory, Scope.local(), [written(tmp_path)])

    assert memory.calls == 1
    assert ["gone", "gone"] == [problem.message for problem in report.failed]


def test_a_record_keeps_what_it_knows():
    """Title, source and place in a session are metadata of the memory."""
    record = Record(id="m", text="tea", acl=(PUBLIC,), title="T", source="log", session="s", position=3, time=NOON)
    found = record_to_memory(record)

    assert (found.session_id, found.time, found.readers) == ("s", NOON, (PUBLIC,))
    assert found.metadata == {"title": "T", "source": "log", "position": 3}


@pytest.mark.integration
async def test_ingest_as_memories_fills_the_memory_service(tmp_path):
    """What the command loads, the service recalls, privately unless the row says otherwise."""
    home = tmp_path / "home"
    report = await asyncio.to_thread(run, "ingest", "--as", "memories", written(tmp_path), "--home", home)
    assert report["added"] == 2

    async with open_store(home) as engine:
        (found,) = await engine.memory.recall(engine.scope, asking("who drinks tea?", top_k=1))
        assert found.id == "a"
        stranger = Scope(tenant="local", user="boris")
        assert ["b"] == [each.id for each in await engine.memory.recall(stranger, asking("bees and tea"))]


@pytest.mark.integration
def test_eval_budget_builds_turns_over_memories(tmp_path):
    """The corpus is remembered, each question is a turn, and what is shown is measured."""
    corpus = [{"id": row["id"], "text": row["text"]} for row in ROWS]
    asked = [{"id": "1", "text": "Who keeps bees?", "gold": ["b"]}, {"id": "2", "text": "Who?", "gold": []}]
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = run("eval", "budget", tmp_path, "--as", "memories", "--tokens", "400", "--home", tmp_path / "home")

    assert found["400"].items() >= {"gold_hit": 1.0, "gold_text": 1.0, "queries": 1}.items()
    assert found["400"]["tokens"] <= 400


async def test_memories_go_through_the_door_of_a_running_service():
    """The command line sends a batch as other clients do."""
    sent = []

    class Service:
        """Notes what it is asked."""

        def request(self, method, path, body):
            """Say that all went well."""
            sent.append((method, path, body))
            return {"ok": True, "ids": ["m"]}

    ids = await MemorySender(Service()).remember(Scope.local(), [Memory(text="tea", id="m")])

    assert list(ids) == ["m"]
    assert sent[0][:2] == ("POST", "/v1/ingest/memories")
    assert sent[0][2].keys() == {"memories"}  # who asks is said by the door alone
    assert sent[0][2]["memories"][0]["text"] == "tea"
