"""Summaries of trimmed history: what is stored, once, off the request's path."""

from __future__ import annotations

import asyncio

import pytest

from contexture.builders.turn.summary import MAX_SUMMARY_CHARS, DirectSummarySink, HistorySummarizer, extract_summary
from contexture.errors import SourceUnavailable
from contexture.testing.doubles import NOON, ScriptedChatModel, ScriptedMemory, WordRedactor
from contexture.types import Scope
from support.turns import HIDDEN, KeptSummaries, TurnBench, chat

TURN = {"tenant_id": "acme", "user_id": "anna", "session_id": "s-1", "persona_id": "p-1", "user_message": "Go on."}


def bench(sink, **more):
    """A bench whose summaries go to `sink`."""
    return TurnBench(summaries=HistorySummarizer(sink, **more))


async def trimmed(builder, exchanges=12, limit=600, **turn):
    """A turn whose history does not fit, with its summary settled."""
    built = await builder.build_for_turn({**TURN, "history": chat(exchanges), **turn}, max_prompt_tokens=limit)
    await builder.settle()
    return built


async def test_a_trim_is_remembered_with_its_tags_and_numbers():
    """The summary has the type, tags, session, persona and metadata that others look for."""
    sink = KeptSummaries()
    built = await trimmed(bench(sink).builder())

    scope, memory = sink.kept[0]
    assert Scope(tenant="acme", user="anna") == scope
    assert ("session_summary", ("session_summary", "auto", "context_builder")) == (memory.type, memory.tags)
    assert ("s-1", "p-1", NOON) == (memory.session_id, memory.persona_id, memory.time)
    assert {
        "trimmed_from": 24,
        "trimmed_to": built.debug["history_count"],
        "timestamp": NOON.isoformat(),
        "source": "session_summary",
    } == memory.metadata


async def test_nothing_trimmed_is_nothing_remembered():
    """A history that fits leaves no summary."""
    sink = KeptSummaries()
    await trimmed(bench(sink).builder(), limit=100_000)

    assert [] == sink.kept


async def test_the_same_trim_is_handed_on_once_and_has_one_key():
    """Turns cut at the same place give one summary, also from another process."""
    sink = KeptSummaries()
    builder = bench(sink).builder()
    await trimmed(builder)
    await trimmed(builder)
    await trimmed(bench(sink).builder())

    assert 2 == len(sink.kept)
    assert 1 == len({memory.idempotency_key for _, memory in sink.kept})


@pytest.mark.parametrize("other", [{"tenant_id": "globex"}, {"session_id": "s-2"}])
async def test_other_tenants_and_sessions_have_other_keys(other):
    """Equal messages in another session are another trim."""
    sink = KeptSummaries()
    await trimmed(bench(sink).builder())
    await trimmed(bench(sink).builder(), **other)

    assert 2 == len({memory.idempotency_key for _, memory in sink.kept})


async def test_what_could_not_be_handed_on_is_tried_again_by_the_next_turn():
    """A sink that fails once gets the trim with the turn after."""
    sink, lost = KeptSummaries(failures=[SourceUnavailable("full")]), []
    builder = bench(sink, on_lost=lost.append).builder()
    await trimmed(builder)
    await trimmed(builder)

    assert (1, 1) == (len(lost), len(sink.kept))


async def test_the_stored_text_is_redacted():
    """What was hidden in the prompt is hidden in its summary."""
    sink = KeptSummaries()
    history = [{"role": "user", "content": f"the word is {HIDDEN}"}, *chat(12)]
    await trimmed(bench(sink).builder(), history=history)

    assert sink.kept[0][1].text.startswith("user: the word is <WORD_1> | user: user0w0")


async def test_a_later_step_tells_what_it_took_itself():
    """A summary is of the newest step alone when the steps before have been summarised."""
    sink = KeptSummaries()
    builder = bench(sink).builder()
    for exchanges in range(4, 40, 2):
        await trimmed(builder, exchanges)

    texts = [memory.text for _, memory in sink.kept]
    assert len(texts) == len(set(texts)) > 2


async def test_a_model_writes_the_summary_when_there_is_one():
    """The model is shown the trimmed messages as data, and its words are stored."""
    sink, model = KeptSummaries(), ScriptedChatModel(["They spoke of words."])
    await trimmed(bench(sink, model=model).builder())

    assert "They spoke of words." == sink.kept[0][1].text
    assert "[1] (conversation)\nuser: user0w0" in model.asked[0][1]["content"]


@pytest.mark.parametrize("answer", [SourceUnavailable("down"), "  "])
async def test_a_model_that_fails_leaves_the_extract(answer):
    """Without the model's words the summary is an extract."""
    sink = KeptSummaries()
    await trimmed(bench(sink, model=ScriptedChatModel([answer])).builder())

    assert sink.kept[0][1].text.startswith("user: user0w0")


def test_an_extract_has_roles_and_is_never_too_long():
    """`role: text | role: text`, empty contents left out, at most 1,024 characters."""
    short = [
        {"role": "user", "content": " Hello "},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "Hi!"},
    ]

    assert "user: Hello | assistant: Hi!" == extract_summary(short)
    assert MAX_SUMMARY_CHARS >= len(extract_summary(chat(20))) > MAX_SUMMARY_CHARS - 20
    assert "" == extract_summary([])


async def test_a_sink_may_be_memory_itself():
    """Without an outbox the summary goes straight to the memory service."""
    memory = ScriptedMemory()
    await DirectSummarySink(memory).put(Scope.local(), *[])
    builder = TurnBench(summaries=HistorySummarizer(DirectSummarySink(memory)), redactor=WordRedactor(())).builder()
    await trimmed(builder)

    assert ["session_summary"] == [each.type for each in memory.remembered]


async def test_two_hundred_turns_at_once_do_not_mix():
    """Every turn has its own session's history and one summary of it, none lost and none twice."""
    sink = KeptSummaries()
    builder = bench(sink).builder()

    def turn(at):
        history = [{**message, "content": f"{message['content']} s{at}."} for message in chat(8)]
        return {**TURN, "session_id": f"s-{at}", "user_message": f"Turn {at}", "history": history}

    built = await asyncio.gather(*(builder.build_for_turn(turn(at), max_prompt_tokens=600) for at in range(200)))
    await builder.settle()

    assert all(
        each.debug["session_id"] == f"s-{at}" and all(m["content"].endswith(f" s{at}.") for m in each.history)
        for at, each in enumerate(built)
    )
    assert {f"s-{at}" for at in range(200)} == {memory.session_id for _, memory in sink.kept}
    assert 200 == len(sink.kept)
    assert all(f" s{memory.session_id.removeprefix('s-')}." in memory.text for _, memory in sink.kept)
