"""`contexture ask`: what it prints and how it exits when not everything could be searched."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from contexture.cli import ask
from contexture.cli.main import app


def answered(*lost):
    """An answer over everything with these degradations."""
    return {
        "answer": "The pump leaks. [1]", "sources": [], "cited": [], "missing": [], "removed_markers": [],
        "unsupported": [], "extractive": True, "model": "extractive", "build_id": "ctx-1", "tokens": 9,
        "degradations": [{"source": source, "reason": reason} for source, reason in lost],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lost", "code"),
    [
        ([], 0),
        ([("news", "SourceTimeout: no answer within 10 s")], 3),
        ([("model:litellm:gpt-5", "SourceTimeout: no answer within 60 s")], 0),
        ([("memories", "the memory service is degraded: at most 3 memories are recalled")], 0),
    ],
)
def test_an_answer_that_lacks_a_source_in_time_is_printed_and_fails(monkeypatch, lost, code):
    """A script sees that the answer may be incomplete; a model that is slow has a fallback."""
    monkeypatch.setattr(ask, "answer_question", lambda *_: answered(*lost))

    for more in ([], ["--json"]):
        ended = CliRunner().invoke(app, ["ask", "which pump leaks?", *more])

        assert code == ended.exit_code
        assert "The pump leaks." in ended.stdout
