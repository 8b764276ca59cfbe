"""The client of a remote memory service: what it sends, what it accepts, what it makes of everything else."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest

from contexture.adapters.memory_client import MAX_ANSWER_BYTES, ClientMemory, MemoryClient, Refused, RemoteMemory
from contexture.conversation import Feedback, Memory, MemoryKind, Recalled
from contexture.errors import InvalidRequest, NotFound, NotPermitted, SourceError, SourceTimeout, SourceUnavailable
from contexture.testing.doubles import NOON, FixedClock, ScriptedMemory
from contexture.types import Scope
from support.memory_conformance import asking

SCOPE = Scope(tenant="acme", user="anna", groups=("crew", "a,b"))
ITEM = {
    "id": "mem-001",
    "score": 0.92,
    "text": "Previously stored memory content",
    "metadata": {"source": "conversation", "timestamp": "2025-12-10T10:30:00Z"},
}


def remote(answer, seen=None, **options):
    """A client whose service gives this answer: an object, a response, or an error."""

    def handle(request):
        if seen is not None:
            seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    return RemoteMemory("http://memory.test", transport=httpx.MockTransport(handle), **options)


@pytest.mark.parametrize("name", ["candidates", "results"])
@pytest.mark.parametrize("time", ["timestamp", "created_at"])
async def test_candidates_and_results_are_read(name, time):
    """Either name of the list, and either name of the time, is understood."""
    item = {**ITEM, "metadata": {"source": "conversation", time: "2025-12-10T10:30:00Z"}}
    (found,) = await remote({name: [item]}).recall(SCOPE, asking("content"))

    assert (found.id, found.score, found.text, found.label) == ("mem-001", 0.92, ITEM["text"], "conversation")
    assert found.time == datetime(2025, 12, 10, 10, 30, tzinfo=UTC)
    assert found.redactions is None


async def test_a_question_is_sent_as_the_specification_has_it():
    """Tenant, session, persona, query, number and threshold under their names, with the key and who asks."""
    seen = []
    query = replace(asking("tea", top_k=3), session_id="s", persona_id="p", kinds=(MemoryKind.SEMANTIC,))
    await remote({"candidates": []}, seen, api_key="ctx_k").recall(SCOPE, query)
    (request,) = seen

    assert (request.method, request.url.path) == ("POST", "/context/evaluate")
    assert json.loads(request.content) == {
        "tenant_id": "acme",
        "user_id": "anna",
        "query": "tea",
        "top_k": 3,
        "threshold": 0.3,
        "namespace": "wm",
        "session_id": "s",
        "persona_id": "p",
        "kinds": ["semantic"],
    }
    assert request.headers["authorization"] == "Bearer ctx_k"
    assert request.headers["x-contexture-groups"] == "crew,a%2Cb"


async def test_a_batch_is_sent_as_the_specification_has_it():
    """Items carry type, text, session, persona, tags and metadata; a service that only says ok keeps the ids given."""
    seen = []
    summary = Memory(
        id="m-1",
        type="session_summary",
        text="user: Hello | assistant: Hi there!",
        session_id="session-456",
        persona_id="agent_0",
        tags=("session_summary", "auto"),
        metadata={"trimmed_from": 20},
        time=NOON,
    )
    ids = await remote({"ok": True}, seen).remember(SCOPE, [summary])
    body = json.loads(seen[0].content)

    assert list(ids) == ["m-1"]
    assert seen[0].url.path == "/memory/remember/batch"
    assert body["tenant_id"] == "acme"
    assert (
        body["memories"][0].items()
        >= {
            "type": "session_summary",
            "text": summary.text,
            "session_id": "session-456",
            "persona_id": "agent_0",
            "tags": ["session_summary", "auto"],
            "metadata": {"trimmed_from": 20},
            "timestamp": NOON.isoformat(),
        }.items()
    )


async def test_feedback_carries_score_and_timestamp():
    """The payload names the memory, how useful it was, and when."""
    seen = []
    given = Feedback(memory_id="m-1", score=0.5, time=NOON, session_id="s")
    await remote({"ok": True}, seen).feedback(SCOPE, given)

    assert seen[0].url.path == "/context/feedback"
    assert (
        json.loads(seen[0].content).items()
        >= {
            "memory_id": "m-1",
            "score": 0.5,
            "timestamp": NOON.isoformat(),
            "session_id": "s",
        }.items()
    )


async def test_ids_of_any_shape_are_forgotten_one_by_one():
    """An id is one path segment whatever it holds, and one that is not there counts as none."""
    seen = []

    def handle(request):
        seen.append(request.url.raw_path.decode().partition("?")[0])
        return httpx.Response(404 if len(seen) > 1 else 200, json={})

    memory = RemoteMemory("http://memory.test", transport=httpx.MockTransport(handle))

    assert await memory.forget(SCOPE, ["a/b ?", "gone", "a/b ?"]) == 1
    assert seen == ["/memory/a%2Fb%20%3F", "/memory/gone"]


NESTED = json.loads("[" * 600 + "]" * 600)
WRONG = [
    [],
    {},
    {"candidates": {}},
    {"candidates": ["text"]},
    {"candidates": [{**ITEM, "id": True}]},
    {"candidates": [{**ITEM, "score": "high"}]},
    {"candidates": [{**ITEM, "score": None}]},
    {"candidates": [{**ITEM, "score": 10**400}]},
    {"candidates": [{**ITEM, "metadata": {"deep": NESTED}}]},
    {"candidates": [{**ITEM, "text": 7}]},
    {"candidates": [{**ITEM, "metadata": ["source"]}]},
    httpx.Response(200, content=b"<html>hello</html>"),
    httpx.Response(200, content=b"\xff\xfe"),
    httpx.Response(200, content=b"[" * 100_000),
    httpx.Response(200, content=b'{"candidates": [{"id": "a", "text": "b", "score": NaN}]}'),
    httpx.Response(200, content=b" " * (MAX_ANSWER_BYTES + 1)),
    httpx.Response(302, headers={"location": "/elsewhere"}),
    httpx.Response(500),
    httpx.Response(503, json={"error": "a text"}),
    httpx.ConnectError("refused"),
    httpx.RemoteProtocolError("closed"),
]


@pytest.mark.parametrize("answer", WRONG, ids=lambda answer: str(answer)[:60])
async def test_whatever_is_not_an_answer_is_a_failure_of_the_service(answer):
    """Garbage, wrong types, broken connections and server errors can be retried and count as failures."""
    with pytest.raises(SourceUnavailable) as caught:
        await remote(answer).recall(SCOPE, asking("tea"))
    assert caught.value.retryable


@pytest.mark.parametrize("answer", [{"ok": True, "ids": ["a", "b"]}, {"ok": False}, {"ids": [7]}, []])
async def test_a_batch_without_its_ids_was_not_acknowledged(answer):
    """As many ids as memories, or it did not happen."""
    with pytest.raises(SourceUnavailable):
        await remote(answer).remember(SCOPE, [Memory(text="tea")])


async def test_a_late_answer_is_a_timeout():
    """The client says how long it waited."""
    with pytest.raises(SourceTimeout, match="within 2 s"):
        await remote(httpx.ReadTimeout("late"), timeout=2.0).recall(SCOPE, asking("tea"))


@pytest.mark.parametrize(
    ("status", "error"), [(400, InvalidRequest), (422, InvalidRequest), (413, InvalidRequest), (404, NotFound)]
)
async def test_what_the_caller_can_fix_is_told_to_the_caller(status, error):
    """The service's own words are repeated."""
    answer = httpx.Response(status, json={"error": {"user_message": "field 'x' is odd"}})

    with pytest.raises(error, match="field 'x' is odd"):
        await remote(answer).recall(SCOPE, asking("tea"))


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_a_refused_key_is_our_trouble_and_opens_no_breaker(status):
    """The one who asks cannot fix it, and trying again does not help."""
    with pytest.raises(Refused) as caught:
        await remote(httpx.Response(status)).recall(SCOPE, asking("tea"))
    assert isinstance(caught.value, SourceError)
    assert not caught.value.retryable


async def test_answers_are_held_to_what_was_asked_for():
    """A service that ignores threshold and number, repeats itself or exaggerates is put right."""
    items = [{**ITEM, "id": str(at), "score": at / 4} for at in range(6)]
    found = await remote({"results": [*items, items[5]]}).recall(SCOPE, asking("tea", threshold=0.5, top_k=3))

    assert [(each.id, each.score) for each in found] == [("4", 1.0), ("5", 1.0), ("3", 0.75)]


async def test_a_caller_who_ranks_again_gets_what_a_service_has_sent_too_much():
    """So that a newer memory is not cut off before its time counts."""
    items = [{**ITEM, "id": str(at), "score": at / 10} for at in range(6)]
    query = replace(asking("tea", threshold=0.2, top_k=2), unclipped=True)

    assert ["5", "4", "3", "2"] == [each.id for each in await remote({"results": items}).recall(SCOPE, query)]


async def test_pieces_and_signals_of_little_use_do_no_harm():
    """What only helps is taken where it makes sense, and passed over where it does not."""
    good = {"start": 0, "end": 3, "score": 2}
    item = {
        **ITEM,
        "pieces": [good, {"start": 5, "end": 999, "score": 1}, 7],
        "signals": {"a": 1, "b": "x", "c": 10**400},
    }
    (found,) = await remote({"results": [item]}).recall(SCOPE, asking("tea"))

    assert [(piece.start, piece.end, piece.score) for piece in found.pieces] == [(0, 3, 1.0)]
    assert found.signals == {"a": 1.0}


async def test_half_characters_are_replaced_wherever_they_stand():
    """A lone surrogate in an id, a text, or a name or value of metadata could neither be stored nor answered with."""
    item = {
        **ITEM,
        "id": "m\ud800",
        "text": "a \ud83d\ude00 b\ud800",
        "metadata": {"k\ud800": ["v\ud800"], "source": "x"},
    }
    body = json.dumps({"candidates": [item]}).encode()
    (found,) = await remote(httpx.Response(200, content=body)).recall(SCOPE, asking("tea"))

    assert (found.id, found.text) == ("m\ufffd", "a \U0001f600 b\ufffd")
    assert found.metadata == {"k\ufffd": ["v\ufffd"], "source": "x"}


@pytest.mark.parametrize(
    "url", ["http://[::bad", "localhost:8420", "nonsense", "ftp://memory", "http://", "http://127.0.0.1:99999"]
)
def test_an_address_that_is_none_is_refused(url):
    """The setting is to blame, and says so at once instead of in every turn."""
    with pytest.raises(InvalidRequest, match="not the address"):
        RemoteMemory(url)


async def test_what_is_wrong_with_an_answer_is_told_in_short():
    """However large the nonsense, results and logs repeat little of it."""
    with pytest.raises(SourceUnavailable) as caught:
        await remote({"candidates": [{**ITEM, "id": ["x" * 10_000]}]}).recall(SCOPE, asking("tea"))
    assert len(str(caught.value)) < 300


async def test_what_json_cannot_say_is_the_callers_to_fix():
    """Metadata that cannot be sent is refused before anything is."""
    with pytest.raises(InvalidRequest, match="JSON"):
        await remote({}).remember(SCOPE, [Memory(text="tea", metadata={"x": object()})])


class TheirError(Exception):
    """What somebody else's client raises."""


class TheirClient:
    """Somebody else's client: three calls that take payloads."""

    def __init__(self, answer):
        self.answer = answer
        self.seen = []

    async def context_evaluate(self, payload):
        """Answer, or fail."""
        self.seen.append(payload)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    recall = remember_batch = context_evaluate


async def test_somebody_elses_client_is_a_memory_service():
    """Its answers are read, and its errors surface as ours."""
    client = TheirClient({"candidates": [ITEM]})
    memory = ClientMemory(client, failures=(TheirError,))

    assert ["mem-001"] == [found.id for found in await memory.recall(SCOPE, asking("tea"))]
    assert client.seen[0]["top_k"] == 8
    client.answer = TheirError("circuit open")
    with pytest.raises(SourceUnavailable, match="circuit open"):
        await memory.recall(SCOPE, asking("tea"))


async def test_somebody_elses_client_cannot_forget():
    """What a client has no call for is refused, not ignored."""
    memory = ClientMemory(TheirClient({"ok": True}))

    assert ["m"] == list(await memory.remember(SCOPE, [Memory(text="tea", id="m")]))
    with pytest.raises(InvalidRequest):
        await memory.forget(SCOPE, ["m"])
    with pytest.raises(InvalidRequest):
        await memory.feedback(SCOPE, Feedback(memory_id="m", score=1, time=NOON))


async def test_our_service_is_a_client_of_payloads():
    """The three calls give what the routes give, for the scope they were made for."""
    inner = ScriptedMemory(recalls=[Recalled(id="m", text="tea", score=0.9, metadata={"source": "chat"})])
    client = MemoryClient(inner, SCOPE, FixedClock())
    answer = await client.context_evaluate({"tenant_id": "acme", "query": "tea", "session_id": "s", "odd": 1})

    assert answer == await client.recall({"query": "tea"})
    assert answer["candidates"] == answer["results"]
    assert answer["candidates"][0].items() >= {"id": "m", "score": 0.9, "text": "tea"}.items()
    assert {"ok": True, "ids": ["m-0"]} == await client.remember_batch(
        {"memories": [{"text": "x", "created_at": "2026-01-01", "mood": "good"}]}
    )
    assert inner.remembered[0].metadata == {"mood": "good"}
    assert inner.remembered[0].time == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"query": "tea", "tenant_id": "other"}, NotPermitted),
        ({"query": "tea", "user_id": "boris"}, NotPermitted),
        ({}, InvalidRequest),
        ({"query": 7}, InvalidRequest),
        ({"query": "tea", "kinds": ["odd"]}, InvalidRequest),
        ({"query": "tea", "tags": "text"}, InvalidRequest),
    ],
)
async def test_payloads_that_make_no_sense_are_refused(payload, error):
    """Another tenant, a missing query, a wrong type: the field is named."""
    with pytest.raises(error):
        await MemoryClient(ScriptedMemory(), SCOPE, FixedClock()).recall(payload)


@pytest.mark.parametrize("payload", [{}, {"memories": {}}, {"memories": ["x"]}, {"memories": [{"metadata": 3}]}])
async def test_batches_that_make_no_sense_are_refused(payload):
    """Nothing is stored of them."""
    inner = ScriptedMemory()
    with pytest.raises(InvalidRequest):
        await MemoryClient(inner, SCOPE, FixedClock()).remember_batch(payload)
    assert inner.remembered == []


@pytest.mark.parametrize(
    "item",
    [
        {"id": "m", "score": "0.9", "payload": {"text": "tea"}},
        {"id": "m", "score": 0.9, "value": "tea"},
        {"id": "m", "score": 0.9, "value": {"content": "tea", "tags": ["drinks"]}},
        {"key": "m", "score": "0.9", "payload": {"value": {"text": "tea"}}},
    ],
)
async def test_answers_of_other_services_are_read(item):
    """Their text may be in `payload` or `value`, and their score a string."""
    (found,) = await remote({"results": [item]}).recall(SCOPE, asking("tea"))

    assert ("m", "tea", 0.9) == (found.id, found.text, found.score)


async def test_a_memory_without_an_id_gets_one_from_its_text():
    """Equal answers give equal ids."""
    answer = {"results": [{"score": 0.9, "text": "tea"}, {"score": 0.8, "text": "coffee"}]}
    first, second = [await remote(answer).recall(SCOPE, asking("tea")) for _ in range(2)]

    assert 2 == len({found.id for found in first})
    assert [found.id for found in first] == [found.id for found in second]


async def test_a_bad_memory_is_skipped_and_named_and_the_rest_is_used():
    """One item that cannot be read does not cost the others."""
    reasons: list[str] = []
    bad = {"id": "bad", "score": "high", "text": "tea"}
    found = await remote({"candidates": [bad, ITEM]}, on_invalid=reasons.append).recall(SCOPE, asking("content"))

    assert ["mem-001"] == [each.id for each in found]
    assert ["`score` is 'high', not a number" in reason for reason in reasons] == [True]
