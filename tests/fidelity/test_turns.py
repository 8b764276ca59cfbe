"""The turn builder's examples and tables, as its originals give them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contexture.adapters.prometheus import TurnMetrics
from contexture.adapters.redaction.default import NoopRedactor
from contexture.builders.turn._history import drop_incomplete_calls, find_history_cut
from contexture.builders.turn.build import TurnContextBuilder
from contexture.builders.turn.request import TurnRecipe
from contexture.builders.turn.summary import HistorySummarizer
from contexture.conversation import HealthState, Recalled
from contexture.errors import SourceUnavailable
from contexture.pipeline.fence import DATA_NOTICE
from contexture.testing.doubles import FixedClock, ScriptedMemory
from support.turns import KeptSummaries, TurnBench, chat, memories

NOW = datetime(2025, 12, 10, 12, tzinfo=UTC)
ENVELOPE = {
    "tenant_id": "tenant-123",
    "session_id": "session-456",
    "system_prompt": "You are a helpful assistant.",
    "user_message": "What is the capital of France?",
    "history": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi there!"},
    ],
}


def words(text: str) -> int:
    """The token counter of the recommended tests."""
    return len(text.split())


def bench(recalls=(), **parts) -> TurnBench:
    """A builder without redaction, as the originals run theirs."""
    return TurnBench(memory=ScriptedMemory(recalls=recalls), redactor=NoopRedactor(), clock=FixedClock(NOW), **parts)


def test_the_states_have_their_names():
    """The three states are called what other services call them."""
    assert {"NORMAL": "normal", "DEGRADED": "degraded", "DOWN": "down"} == {
        state.name: state.value for state in HealthState
    }


@pytest.mark.parametrize(
    ("state", "top_k"), [(HealthState.NORMAL, 8), (HealthState.DEGRADED, 3), (HealthState.DOWN, 0)]
)
async def test_retrieval_adapts_to_the_state(state, top_k):
    """Eight memories while well, three while degraded, none while down."""
    recalls = memories(*(f"memory number {at} about something of its own" for at in range(12)))

    built = await bench(recalls, state=state).builder().build_for_turn(ENVELOPE, max_prompt_tokens=4_096)

    assert top_k == len(built.debug["snippet_ids"])
    assert state.value == built.debug["somabrain_state"]


def test_the_defaults_are_the_documented_ones():
    """8, 3, 15 seconds, threshold one half, 4,096 tokens, namespace `wm`."""
    recipe = TurnRecipe()

    assert (8, 3, 15.0) == (recipe.top_k, recipe.top_k_degraded, recipe.degraded_seconds)
    assert (0.5, 4_096, "wm") == (recipe.threshold, recipe.max_tokens, recipe.namespace)


async def test_the_constructor_takes_the_documented_arguments():
    """Client, metrics, token counter, redactor, health provider and degradation callback, by name."""
    builder = TurnContextBuilder(
        memory=ScriptedMemory(recalls=memories("Paris is the capital of France.")),
        metrics=TurnMetrics(CollectorRegistry()),
        token_counter=words,
        redactor=NoopRedactor(),
        health_provider=lambda: HealthState.NORMAL,
        on_degraded=lambda _seconds: None,
        clock=FixedClock(NOW),
    )

    built = await builder.build_for_turn(ENVELOPE, max_prompt_tokens=4_096)

    assert {"system", "history", "snippets", "user"} == set(built.token_counts)
    assert (5, "tenant-123", "session-456") == (
        len(built.messages),
        built.debug["tenant_id"],
        built.debug["session_id"],
    )


async def test_the_message_structure():
    """System, history, the memory message under its heading, then the user's message."""
    found = [replace(each, label="source") for each in memories("Paris is the capital.", "France is in Europe.")]

    built = await bench(found).builder().build_for_turn(ENVELOPE)

    assert (
        {"role": "system", "content": f"You are a helpful assistant.\n\n{DATA_NOTICE}"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi there!"},
        {
            "role": "system",
            "name": "memory",
            "content": "Relevant memory:\n[1] (source)\nParis is the capital.\n[2] (source)\nFrance is in Europe.",
        },
        {"role": "user", "content": "What is the capital of France?"},
    ) == built.messages


async def test_without_memories_there_is_no_memory_message():
    """The block is left out when nothing was recalled."""
    built = await bench().builder().build_for_turn(ENVELOPE)

    assert ["system", "user", "assistant", "user"] == [message["role"] for message in built.messages]


async def test_debug_has_the_keys_of_both_originals():
    """Whatever read the debug of either builder reads ours."""
    built = await bench(memories("Paris.")).builder().build_for_turn({**ENVELOPE, "persona_id": "agent-1"})

    assert {"somabrain_state", "snippet_ids", "session_id", "tenant_id"} <= built.debug.keys()
    assert {"snippet_count", "snippet_tokens", "history_count", "total_tokens"} <= built.debug.keys()
    assert (1, 2, built.tokens) == (
        built.debug["snippet_count"],
        built.debug["history_count"],
        built.debug["total_tokens"],
    )


@pytest.mark.parametrize(
    ("base", "days", "recency", "final"),
    [(0.95, 1, 0.97, 0.96), (0.90, 60, 0.14, 0.67), (0.60, 2, 0.94, 0.70), (0.55, 90, 0.05, 0.40)],
    ids=["recent high relevance", "old high relevance", "recent low relevance", "old low relevance"],
)
async def test_snippets_carry_the_documented_scores(base, days, recency, final):
    """A snippet has its final score, its base score and its recency, as the table of examples says."""
    found = Recalled(id="m", text="Paris.", score=base, time=NOW - timedelta(days=days))

    built = await bench([found]).builder().build_for_turn(ENVELOPE)

    snippet = built.snippets[0]
    assert (base, recency, final) == (snippet.base_score, round(snippet.recency, 2), round(snippet.score, 2))


async def test_recent_memories_rank_above_old_ones():
    """Of two equally relevant memories the newer one comes first."""
    old = Recalled(id="old", text="Paris was it.", score=0.8, time=NOW - timedelta(days=40))
    new = Recalled(id="new", text="Lyon is not.", score=0.8, time=NOW)

    built = await bench([old, new]).builder().build_for_turn(ENVELOPE)

    assert ["new", "old"] == built.debug["snippet_ids"]


async def test_the_token_budget_example():
    """4,000 tokens, 1,200 of them snippets: messages 3 to 10 stay with 2,750, messages 2 and 1 go."""
    sizes = [180, 200, 250, 400, 350, 350, 350, 300, 350, 400]
    history = [{"role": "user", "content": " ".join(["word"] * size)} for size in sizes]
    recalls = memories(*(" ".join([f"m{at}"] * 145) for at in range(8)))

    built = (
        await bench(recalls, counter=words, recipe=TurnRecipe(history_step=0.0, near_duplicate=1.0))
        .builder()
        .build_for_turn({"user_message": "Deploy?", "history": history}, max_prompt_tokens=4_000)
    )

    assert (8, 8) == (built.debug["snippet_count"], built.debug["history_count"])
    assert 2_750 == built.token_counts["history"]
    assert tuple(history[2:]) == built.history


async def test_snippets_before_history():
    """Under a tight limit memories are kept and old history goes."""
    built = (
        await bench(memories("Paris is the capital of France."), counter=words)
        .builder()
        .build_for_turn({**ENVELOPE, "history": chat(10, words=10)}, max_prompt_tokens=80)
    )

    assert 1 == built.debug["snippet_count"]
    assert 20 > built.debug["history_count"] >= 2
    assert tuple(chat(10, words=10)[-built.debug["history_count"] :]) == built.history


async def test_a_failure_in_the_normal_state_opens_a_window_of_fifteen_seconds():
    """The callback hears 15 and the turn goes on without memory."""
    heard = []
    failing = TurnBench(memory=ScriptedMemory(failures=[SourceUnavailable("gone")]), on_degraded=heard.append)

    built = await failing.builder().build_for_turn(ENVELOPE)

    assert [15.0] == heard
    assert 4 == len(built.messages)


async def test_the_summary_payload():
    """What is trimmed is stored as `role: text | role: text` with the documented type, tags and metadata."""
    sink = KeptSummaries()
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}, *chat(1, 60)]
    builder = bench(counter=words, summaries=HistorySummarizer(sink), recipe=TurnRecipe(history_step=0.0)).builder()

    await builder.build_for_turn({**ENVELOPE, "history": history, "persona_id": "agent_0"}, max_prompt_tokens=147)
    await builder.settle()

    memory = sink.kept[0][1]
    assert "user: Hello | assistant: Hi there!" == memory.text
    assert ("session_summary", "session-456", "agent_0") == (memory.type, memory.session_id, memory.persona_id)
    assert ("session_summary", "auto", "context_builder") == memory.tags
    assert {"trimmed_from": 4, "trimmed_to": 2, "timestamp": NOW.isoformat()}.items() <= memory.metadata.items()


@given(st.lists(st.text(max_size=40), max_size=50), st.integers(0, 200))
def test_history_trimming_preserves_recent(texts, room):
    """Trimmed history is always the most recent messages."""
    history = [{"role": "user", "content": text} for text in texts]
    lines, _ = drop_incomplete_calls(enumerate(history))
    costs = [words(text) for text in texts]

    kept = lines[find_history_cut(lines, costs, room, 0) :]

    assert history[len(history) - len(kept) :] == [line.message for line in kept]
    assert sum(costs[len(costs) - len(kept) :]) <= room


def metric(name: str):
    """A metric of a fresh registry, with its samples after one observation of everything."""
    registry = CollectorRegistry()
    metrics = TurnMetrics(registry)
    timers = ("total", "salience", "ranking", "redaction", "tokenisation", "prompt")
    for timer in (*(getattr(metrics, f"time_{each}")() for each in timers), metrics.time_retrieval("normal")):
        with timer:
            pass
    metrics.record_tokens(before_budget=4, after_budget=3, after_redaction=2, prompt_tokens=1)
    metrics.record_use(snippets=3, utilization=0.5)
    metrics.inc_prompt()
    metrics.inc_snippets(stage="final", count=2)
    metrics.inc_degradation("SourceTimeout")
    return next(each for each in registry.collect() if each.name == name.removesuffix("_total"))


FINE = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    ("name", "labels", "buckets"),
    [
        ("thinking_total_seconds", (), (*FINE, 2.0, 5.0)),
        ("thinking_retrieval_seconds", ("state",), (*FINE, 2.0)),
        ("thinking_salience_seconds", (), FINE),
        ("thinking_ranking_seconds", (), FINE),
        ("thinking_redaction_seconds", (), FINE),
        ("thinking_tokenisation_seconds", (), FINE),
        ("thinking_prompt_seconds", (), FINE),
        ("context_builder_retrieval_seconds", (), (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)),
        ("context_builder_snippet_count", (), (0.0, 1.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0)),
        ("context_builder_token_utilization", (), (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)),
    ],
)
def test_histograms(name, labels, buckets):
    """Every histogram has the documented name, labels and buckets."""
    samples = metric(name).samples
    found = [sample for sample in samples if sample.name == f"{name}_bucket"]

    assert buckets == tuple(float(sample.labels["le"]) for sample in found)[:-1]
    assert set(labels) == found[0].labels.keys() - {"le"}
    assert 1.0 == next(sample.value for sample in samples if sample.name == f"{name}_count")


@pytest.mark.parametrize(
    ("name", "kind", "labels", "value"),
    [
        ("context_builder_prompt_total", "counter", {}, 1.0),
        ("context_builder_snippets_total", "counter", {"stage": "final"}, 2.0),
        ("context_builder_degradation_total", "counter", {"reason": "SourceTimeout"}, 1.0),
        ("context_tokens_before_budget", "gauge", {}, 4.0),
        ("context_tokens_after_budget", "gauge", {}, 3.0),
        ("context_tokens_after_redaction", "gauge", {}, 2.0),
        ("context_prompt_tokens", "gauge", {}, 1.0),
    ],
)
def test_counters_and_gauges(name, kind, labels, value):
    """Every counter and gauge has the documented name and labels."""
    found = metric(name)

    assert (kind, labels, value) == (found.type, found.samples[0].labels, found.samples[0].value)
