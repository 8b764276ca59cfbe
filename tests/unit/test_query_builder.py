"""The query builder: what it refuses, survives, shows and remembers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from contexture.adapters.token_counters import counter_for
from contexture.builders.query.request import QueryRecipe, QueryRequest, query_from_json, query_to_json
from contexture.builders.record_blocks import NOTHING_FOUND
from contexture.capsule import pack_capsule, seal_capsule, unpack_capsule
from contexture.engine import replay
from contexture.errors import BudgetTooSmall, InvalidRequest, NotFound, RedactionFailed, ReplayMismatch
from contexture.ledger import Reason, State
from contexture.retrieval.citations import resolve_citation, verify_citations
from contexture.testing.doubles import NOON, FailingEmbedder, FailingRedactor, FixedClock, HashEmbedder, WordCounter
from contexture.types import PUBLIC, And, AnyOf, Contains, Equals, Matrix, Not, Record, Scope
from support.replay import replayer
from support.workbench import HIDDEN, NAME, Parts, Workbench, workbench

ANNA = Scope.local()
COUNTER = counter_for("o200k_base")
RECORDS = (
    Record(id="pump", title="Pump", text="The pump leaks. Ask Anna about the pump.", acl=(PUBLIC,)),
    Record(id="valve", source="handbook", text="The pump has a valve.", acl=(PUBLIC,)),
    Record(id="bare", text="Every pump hums.", acl=(PUBLIC,)),
)


@pytest.fixture
async def bench(new_folder: Callable[[], Path]) -> AsyncIterator[Workbench]:
    """A workbench with three records."""
    async with workbench(new_folder()) as opened:
        await opened.add(ANNA, RECORDS)
        yield opened


def content(messages: Sequence[Mapping[str, Any]]) -> str:
    """The part of a prompt that holds what was found."""
    return str(messages[1]["content"])


async def test_a_prompt_has_instructions_material_and_question(bench: Workbench) -> None:
    """In that order, with blocks named by title, by source or by id."""
    built = await bench.builder.build(QueryRequest(query="Which pump?", system="Be brief."), scope=ANNA)
    system, _, user = built.context.messages

    assert system["content"].startswith("Be brief.\n\n")
    assert "Which pump?" == user["content"]
    assert all(f"({name})\n" in content(built.context.messages) for name in ("Pump", "handbook", "bare"))
    assert (NOON, "query") == (built.capsule.now, built.capsule.kind)
    assert {"redact_query", "collect", "redact", "compose"} == set(built.context.timings)


async def test_the_moment_can_be_given(bench: Workbench) -> None:
    """A build takes the clock's time unless it is told another."""
    moment = NOON.replace(year=2020)
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA, now=moment)

    assert moment == built.capsule.now
    assert NOON == FixedClock().now()


async def test_nothing_found_is_said(bench: Workbench) -> None:
    """A question that nothing matches gives a prompt that says so, and an empty ledger."""
    built = await bench.builder.build(QueryRequest(query="pump", where=Equals("id", "nobody")), scope=ANNA)

    assert NOTHING_FOUND == content(built.context.messages)
    assert ((), ()) == (built.ledger.entries, built.context.citations)


@pytest.mark.parametrize(
    "request_", [QueryRequest(query=" \n"), QueryRequest(query=""), QueryRequest(query="pump", max_tokens=0)]
)
async def test_a_request_without_sense_is_refused(bench: Workbench, request_: QueryRequest) -> None:
    """An empty question or budget is the caller's mistake."""
    with pytest.raises(InvalidRequest):
        await bench.builder.build(request_, scope=ANNA)


async def test_a_budget_below_the_fixed_parts_says_both_numbers(bench: Workbench) -> None:
    """What is needed and what was given."""
    with pytest.raises(BudgetTooSmall) as refusal:
        await bench.builder.build(QueryRequest(query="pump", max_tokens=10), scope=ANNA)

    assert 10 == refusal.value.available < refusal.value.needed
    assert str(refusal.value.needed) in str(refusal.value)


async def test_a_question_is_redacted_before_it_is_shown(bench: Workbench) -> None:
    """The prompt and the capsule hold the redacted question; the search had the real one."""
    await bench.add(ANNA, [Record(id="code", text=f"The code {HIDDEN} opens it.", acl=(PUBLIC,))])
    built = await bench.builder.build(QueryRequest(query=f"what does {HIDDEN} open?"), scope=ANNA)

    assert "what does <WORD_1> open?" == built.context.messages[-1]["content"]
    assert "The code <WORD_1> opens it." in content(built.context.messages)
    assert HIDDEN not in pack_capsule(built.capsule).decode()


async def test_a_filter_finds_by_its_values_and_keeps_them_redacted(bench: Workbench) -> None:
    """The search has the real values, the capsule the redacted ones, and it is replayed and explained as before."""
    await bench.add(ANNA, [Record(id="code", source=HIDDEN, text="The pump has a code.", acl=(PUBLIC,))])
    where = And((Equals("source", HIDDEN), Not(AnyOf("id", (HIDDEN, "pump"))), Contains("source", HIDDEN)))
    built = await bench.builder.build(QueryRequest(query="pump", where=where), scope=ANNA)
    packed = pack_capsule(built.capsule)

    assert ["code"] == [each.record_id for each in built.context.citations]
    assert HIDDEN not in packed.decode()
    assert "<WORD_1>" in str(built.capsule.request["where"])
    assert built.context.messages == replay(packed)[0].messages
    assert State.KEPT is replayer(COUNTER).explain(built.capsule, built.ledger.entries[0].id).entry.state


async def test_a_redactor_that_raises_drops_exactly_that_item(new_folder: Callable[[], Path]) -> None:
    """The item is in the ledger, not in the prompt and not in the capsule; a replay says the same."""
    async with workbench(new_folder()) as bench:
        await bench.add(ANNA, RECORDS)
        failing = Workbench(bench.index, Parts(redactor=FailingRedactor("valve")))
        built = await failing.builder.build(QueryRequest(query="pump"), scope=ANNA)
    capsule, ledger = replay(pack_capsule(built.capsule))
    dropped = [entry.id for entry in built.ledger.entries if entry.reason is Reason.REDACTION_FAILED]

    assert ["valve#00000"] == dropped == [entry.id for entry in capsule.lost]
    assert 2 == built.ledger.count(State.KEPT)
    assert "valve" not in built.context.text
    assert ["redactor:FailingRedactor"] == [each.source for each in built.ledger.degradations]
    assert built.ledger == ledger
    assert replayer(COUNTER).explain(capsule, "valve#00000").more_tokens is None


async def test_a_question_that_cannot_be_redacted_is_not_shown(new_folder: Callable[[], Path]) -> None:
    """There is nothing to fall back to, so the build fails."""
    async with workbench(new_folder(), Parts(redactor=FailingRedactor("poison"))) as bench:
        with pytest.raises(RedactionFailed):
            await bench.builder.build(QueryRequest(query="poison"), scope=ANNA)


async def test_a_failing_embedder_is_named_and_words_still_answer(new_folder: Callable[[], Path]) -> None:
    """The context is built from what BM25 finds, with the loss in the ledger and in the capsule."""
    parts = Parts(english=FailingEmbedder(16, "hash-en", healthy=1))
    async with workbench(new_folder(), parts) as bench:
        await bench.add(ANNA, RECORDS)
        built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)

    assert 3 == built.ledger.count(State.KEPT)
    assert ["embedder"] == [each.source for each in built.ledger.degradations]
    assert built.ledger == replay(pack_capsule(built.capsule))[1]


class SilentEmbedder(HashEmbedder):
    """An embedder that answers once and then never again."""

    answered = False

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Vectors the first time, then silence."""
        if self.answered:
            await asyncio.Event().wait()
        self.answered = True
        return await super().embed(texts)


async def test_a_search_that_never_answers_is_given_up(new_folder: Callable[[], Path]) -> None:
    """At the deadline the build goes on without it and names it."""
    parts = Parts(english=SilentEmbedder(16, "hash-en"), deadline=0.05)
    async with workbench(new_folder(), parts) as bench:
        await bench.add(ANNA, RECORDS)
        built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)

    assert NOTHING_FOUND == content(built.context.messages)
    assert [("search", "SourceTimeout: no answer within 0.05 s")] == [
        (each.source, each.reason) for each in built.ledger.degradations
    ]


async def test_another_counter_counts_its_own_tokens(new_folder: Callable[[], Path]) -> None:
    """A counter whose tokens were not counted at ingestion counts them now."""
    async with workbench(new_folder()) as bench:
        await bench.add(ANNA, RECORDS)
        other = Workbench(bench.index, Parts(counter=WordCounter(), model="words"))
        built = await other.builder.build(QueryRequest(query="pump", max_tokens=60), scope=ANNA)

    assert ("words", True) == (built.context.encoding, built.context.exact)
    assert WordCounter().count_messages(built.context.messages) == built.context.tokens <= 60


async def test_a_citation_that_no_longer_holds_is_named(bench: Workbench) -> None:
    """A record that changed, one that is gone, a span outside the text and an unknown collection are told apart."""
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)
    changed, gone, kept = (next(c for c in built.context.citations if c.record_id == record.id) for record in RECORDS)
    await bench.add(ANNA, [structs.replace(RECORDS[0], text="Something else.")])
    await bench.index.delete(ANNA, NAME, ["valve"])
    beyond, elsewhere = structs.replace(kept, end=10_000), structs.replace(kept, collection="nowhere")
    problems = await verify_citations(bench.index, ANNA, [changed, gone, kept, beyond, elsewhere])

    assert [changed, gone, beyond, elsewhere] == [problem.citation for problem in problems]
    for problem, words in zip(problems, ("has changed", "no record", "10000", "'nowhere'"), strict=True):
        assert words in problem.reason
    assert [None, "Every pump hums."] == [await resolve_citation(bench.index, ANNA, each) for each in (changed, kept)]


async def test_explain_answers_for_every_candidate(bench: Workbench) -> None:
    """Kept ones need nothing, an unknown one is not found, and copies have no score that would admit both."""
    await bench.add(ANNA, [Record(id="copy", text="Every pump hums.", acl=(PUBLIC,))])
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)
    kept, copy = built.ledger.find("pump#00000"), built.ledger.find("copy#00000")
    with pytest.raises(NotFound):
        replayer(COUNTER).explain(built.capsule, "nobody#00000")

    assert kept is not None
    assert copy is not None
    assert (None, None) == answer(built, kept.id)
    assert State.DROPPED is copy.state


async def test_explain_says_what_a_floor_and_a_limit_would_take(new_folder: Callable[[], Path]) -> None:
    """A candidate below the floor, or beyond the number that may enter, is admitted by a score and by no budget."""
    recipe = QueryRecipe(floor=0.3, top_k=1)
    async with workbench(new_folder()) as bench:
        await bench.add(ANNA, [*RECORDS, Record(id="far", text=f"pump {'word ' * 30}", acl=(PUBLIC,))])
        strict = Workbench(bench.index, Parts(recipe=recipe))
        built = await strict.builder.build(QueryRequest(query="pump leaks"), scope=ANNA)
    for entry in built.ledger.entries:
        if entry.state is State.DROPPED:
            more, score = answer(built, entry.id)
            assert more is None
            assert score is not None
            assert score > entry.score


def answer(built: Any, candidate: str) -> tuple[int | None, float | None]:
    """What explain says about a candidate."""
    found = replayer(COUNTER).explain(built.capsule, candidate)
    return found.more_tokens, found.score_needed


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("user",), "boris"),
        (("now",), "2020-01-01T00:00:00Z"),
        (("request", "max_tokens"), 1_999),
        (("settings", "recipe", "sharpness"), 1.0),
        (("candidates", 0, "text"), "forged"),
        (("candidates", 0, "score"), 0.9),
        (("messages", 1, "content"), "forged"),
        (("digest",), "0" * 64),
        (("seal",), "0" * 64),
    ],
)
async def test_a_changed_capsule_is_refused(bench: Workbench, path: tuple[Any, ...], value: object) -> None:
    """Whatever was changed after it was written, the capsule no longer replays."""
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)
    data = json.loads(pack_capsule(built.capsule))
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value

    with pytest.raises(ReplayMismatch):
        replay(json.dumps(data).encode())


async def test_a_forged_capsule_does_not_replay(bench: Workbench) -> None:
    """Even with a seal of its own, a prompt that its candidates do not give is refused."""
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)
    forged = ({**built.capsule.messages[0], "content": "obey"}, *built.capsule.messages[1:])

    with pytest.raises(ReplayMismatch, match="the replay gives"):
        replay(pack_capsule(seal_capsule(replace(built.capsule, messages=forged))))


@pytest.mark.parametrize("settings", [{}, {"model": 5, "recipe": {}}, {"model": "gpt-4o", "recipe": {"packer": "?"}}])
async def test_a_capsule_without_its_settings_is_refused(bench: Workbench, settings: dict[str, Any]) -> None:
    """A model or recipe that cannot be read is named."""
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)

    with pytest.raises(InvalidRequest, match="this capsule"):
        replay(pack_capsule(seal_capsule(replace(built.capsule, settings=settings))))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"kind": 1}', b"[" * 100_000])
def test_what_is_no_capsule_is_refused(data: bytes) -> None:
    """Anything else is the caller's mistake, not a crash."""
    with pytest.raises(InvalidRequest, match="not a capsule"):
        unpack_capsule(data)


async def test_a_capsule_of_another_format_is_refused(bench: Workbench) -> None:
    """The message says which format this version reads."""
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)

    with pytest.raises(InvalidRequest, match="format 99"):
        unpack_capsule(pack_capsule(seal_capsule(replace(built.capsule, format=99))))


async def test_reformatting_a_capsule_changes_nothing(bench: Workbench) -> None:
    """White space and the order of keys are not part of what is sealed."""
    built = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)
    pretty = json.dumps(dict(reversed(json.loads(pack_capsule(built.capsule)).items())), indent=2).encode()

    assert built.context.messages == replay(pretty)[0].messages


async def test_two_users_never_share_a_build(bench: Workbench) -> None:
    """The same prompt for two users is two builds with two names."""
    boris = Scope(tenant="local", user="boris")
    mine = await bench.builder.build(QueryRequest(query="pump"), scope=ANNA)
    theirs = await bench.builder.build(QueryRequest(query="pump"), scope=boris)

    assert mine.context.messages == theirs.context.messages
    assert mine.context.build_id != theirs.context.build_id


async def test_a_replay_needs_no_store(bench: Workbench) -> None:
    """A capsule and a counter are enough to compose the same messages."""
    built = await bench.builder.build(QueryRequest(query="pump", max_tokens=130), scope=ANNA)
    again = replayer(COUNTER).rebuild(unpack_capsule(pack_capsule(built.capsule)))

    assert (built.context.messages, built.ledger) == (again.messages, again.ledger)


REQUEST = QueryRequest(query="q", collection="c", max_tokens=5, system="s", where=Equals("lang", "ru"))


def test_a_request_survives_json() -> None:
    """With every field, and with only the question."""
    assert REQUEST == query_from_json(query_to_json(REQUEST))
    assert QueryRequest(query="q") == query_from_json({"query": "q", "system": None})


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "query"),
        ({"query": 1}, "query"),
        ({"query": "q", "colour": "red"}, "colour"),
        ({"query": "q", "max_tokens": "5"}, "max_tokens"),
        ({"query": "q", "max_tokens": True}, "max_tokens"),
        ({"query": "q", "max_tokens": 0}, "max_tokens"),
        ({"query": "q", "system": 7}, "system"),
        ({"query": "q", "where": "source=wiki"}, "source=wiki"),
    ],
)
def test_a_bad_field_of_a_request_is_named(data: dict[str, Any], field: str) -> None:
    """Missing, unknown and mistyped fields are the caller's mistakes."""
    with pytest.raises(InvalidRequest, match=field):
        query_from_json(data)
