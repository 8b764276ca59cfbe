"""The flow of a turn and the examples around it, as the builder's originals give them."""

from __future__ import annotations

import pytest

from contexture.adapters.memory_client import MemoryClient
from contexture.adapters.prometheus import TurnMetrics
from contexture.adapters.redaction.default import NoopRedactor
from contexture.conversation import HealthState
from contexture.errors import SourceUnavailable
from contexture.testing.doubles import FixedClock, ScriptedMemory
from contexture.types import Scope
from support.turns import TurnBench, memories

TURN = {
    "tenant_id": "acme-corp",
    "session_id": "sess-123",
    "persona_id": "agent-1",
    "user_message": "How do I deploy to production?",
    "history": [
        {"role": "user", "content": "Tell me about CI/CD"},
        {"role": "assistant", "content": "CI/CD stands for..."},
    ],
}
FOUND = memories(
    "Production deployment uses GitHub Actions.", "Configure secrets in Vault before a deploy.", score=0.92
)
BEFORE, AFTER = ["salience", "retrieval"], ["redaction", "ranking", "tokenisation", "prompt", "total"]


@pytest.mark.parametrize(
    ("state", "failure", "phases"),
    [
        (HealthState.NORMAL, None, BEFORE + AFTER),
        (HealthState.DEGRADED, None, BEFORE + AFTER),
        (HealthState.NORMAL, SourceUnavailable("gone"), ["retrieval", *AFTER]),
        (HealthState.DOWN, None, AFTER),
    ],
    ids=["normal", "degraded", "retrieval failed", "down"],
)
async def test_the_phases_of_each_way_through(state, failure, phases):
    """Retrieval and salience, then the rest; without memories the budget comes next, and while down nobody is asked."""
    memory = ScriptedMemory(recalls=FOUND, failures=[failure])
    built = await TurnBench(memory=memory, state=state).builder().build_for_turn(TURN)

    assert phases == list(built.timings)
    assert memory.calls == (state is not HealthState.DOWN)


async def test_the_integration_example():
    """An agent's turn gives snippets with text and score, the history that fits, and the numbers in `debug`."""
    memory = ScriptedMemory(recalls=FOUND)
    bench = TurnBench(memory=memory, redactor=NoopRedactor())
    built = await bench.builder().build_for_turn(TURN, max_prompt_tokens=4_000)

    assert [each.text for each in FOUND] == [snippet.text for snippet in built.snippets]
    assert all(0 < snippet.score <= 1 for snippet in built.snippets)
    assert TURN["history"] == list(built.history)
    assert (2, built.tokens) == (built.debug["snippet_count"], built.debug["total_tokens"])
    assert built.tokens <= 4_000
    (asked,) = memory.asked
    assert ("sess-123", "agent-1", TURN["user_message"], 8, 0.5) == (
        asked.session_id, asked.persona_id, asked.query, asked.top_k, asked.threshold,
    )  # fmt: skip


def test_the_client_and_the_metrics_have_the_documented_calls():
    """The class diagram names three calls of the client, and what the metrics record."""
    client = MemoryClient(ScriptedMemory(), Scope.local(), FixedClock())
    timers = ("total", "retrieval", "salience", "ranking", "redaction", "tokenisation", "prompt")
    recorded = ("record_tokens", "inc_prompt", "inc_snippets")

    assert all(callable(getattr(client, name)) for name in ("context_evaluate", "remember_batch", "recall"))
    assert all(callable(getattr(TurnMetrics, name)) for name in (*(f"time_{each}" for each in timers), *recorded))
