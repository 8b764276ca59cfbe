"""The memory routes speak as other clients expect, for the caller alone."""

from __future__ import annotations

import httpx
import pytest

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.service.app import create_app
from contexture.testing.doubles import NOON, FixedClock
from support.workbench import Parts

SUMMARY = {
    "type": "session_summary",
    "text": "user: Hello | assistant: the ferry leaves at nine",
    "session_id": "session-456",
    "persona_id": "agent_0",
    "tags": ["session_summary", "auto", "context_builder"],
    "metadata": {"trimmed_from": 20, "trimmed_to": 10, "timestamp": "2025-12-10T12:00:00Z"},
}
ASKED = {"tenant_id": "acme", "session_id": "s", "query": "when does the ferry leave", "top_k": 8, "threshold": 0.3}


@pytest.fixture
async def http(new_folder):
    """A client of the service, without keys, on an engine over doubles whose clock stands at noon."""
    folder, speakers = new_folder(), Parts().encoders
    store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=speakers.vectors, threads=1))
    engine = Contexture(Settings(home=folder, redaction="none"), store, speakers, FixedClock())
    app = create_app(engine, keys=None, settings=engine.settings)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        yield client
    await engine.close()


async def post(http, path, body, status=200):
    """The answer to a request, which must have this status."""
    answer = await http.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_batch_is_answered_with_ok_and_ids(http):
    """The payload of the specification is stored, and its ids come back in order."""
    answer = await post(http, "/memory/remember/batch", {"tenant_id": "acme", "memories": [SUMMARY, {"text": "tea"}]})

    assert answer["ok"] is True
    assert len(set(answer["ids"])) == 2


async def test_a_batch_may_have_both_names(http):
    """What stands under the alias is stored after the rest, and nothing is dropped or unchecked."""
    body = {"tenant_id": "acme", "memories": [{"text": "tea", "id": "m1"}], "items": [{"text": "milk", "id": "m2"}]}
    answer = await post(http, "/memory/remember/batch", body)
    wrong = {**body, "items": [{"text": "milk", "readers": ["everyone"]}]}

    assert ["m1", "m2"] == answer["ids"]
    assert "may hold 'public'" in (await post(http, "/memory/remember/batch", wrong, 422))["error"]["user_message"]


async def test_three_routes_give_one_answer(http):
    """`/context/evaluate`, `/recall` and `/memory/recall` rank alike, under `candidates` and `results`."""
    await post(http, "/memory/remember/batch", {"tenant_id": "acme", "memories": [SUMMARY]})
    answers = [await post(http, path, ASKED) for path in ("/context/evaluate", "/recall", "/memory/recall")]

    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["candidates"] == answers[0]["results"]
    (found,) = answers[0]["candidates"]
    assert found["text"] == SUMMARY["text"]
    assert 0.3 <= found["score"] <= 1
    assert (
        found["metadata"].items()
        >= {
            "source": "session_summary",
            "timestamp": "2025-12-10T12:00:00+00:00",
            "trimmed_from": 20,
            "trimmed_to": 10,
            "session_id": "session-456",
            "persona_id": "agent_0",
            "tags": SUMMARY["tags"],
        }.items()
    )


@pytest.mark.parametrize("name", ["timestamp", "created_at"])
async def test_either_name_of_the_time_is_read(http, name):
    """A time may be called `timestamp` or `created_at`."""
    await post(http, "/memory/remember", {"text": "the ferry leaves", name: "2025-01-02T03:04:05Z"})
    answer = await post(http, "/recall", {"query": "ferry"})

    assert answer["candidates"][0]["metadata"]["timestamp"] == "2025-01-02T03:04:05+00:00"


@pytest.mark.parametrize("time", ["soon", 7, {"year": 2026}, "9999-99-99"])
async def test_a_time_that_cannot_be_read_counts_as_missing(http, time):
    """The memory is then dated by its writing."""
    await post(http, "/memory/remember", {"text": "the ferry leaves", "timestamp": time})
    answer = await post(http, "/recall", {"query": "ferry"})

    assert answer["candidates"][0]["metadata"]["timestamp"] == NOON.isoformat()


async def test_unknown_fields_are_kept_as_metadata(http):
    """Other clients say more than we know, and find it again."""
    await post(http, "/memory/remember", {"text": "the ferry leaves", "mood": "calm", "metadata": {"source": "log"}})
    answer = await post(http, "/recall", {"query": "ferry", "odd": True})

    assert answer["candidates"][0]["metadata"].items() >= {"mood": "calm", "source": "log"}.items()


async def test_nothing_found_is_an_empty_answer(http):
    """A question to nobody's memories has no candidates."""
    assert {"candidates": [], "results": []} == await post(http, "/context/evaluate", {"query": "anything"})


async def test_feedback_with_score_and_timestamp_moves_a_memory(http):
    """The payload names the memory; the effect is a signal of the next answer."""
    written = (await post(http, "/memory/remember", {"text": "the ferry leaves"}))["id"]
    given = {"memory_id": written, "score": 1, "timestamp": "2026-06-01T11:00:00Z", "session_id": "s"}
    assert {"ok": True} == await post(http, "/context/feedback", given)

    found = (await post(http, "/recall", {"query": "ferry"}))["results"][0]
    assert found["signals"]["feedback"] == 0.05


async def test_a_memory_is_deleted_once(http):
    """The first time it is gone, the second time there is none; so it is with one that never was."""
    await post(http, "/memory/remember", {"text": "the ferry leaves", "id": "a/b c"})

    assert {"ok": True, "deleted": 1}.items() <= (await http.delete("/memory/a%2Fb%20c")).json().items()
    for name in ("a%2Fb%20c", "never"):
        answer = await http.delete(f"/memory/{name}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NO_DATA")


async def test_the_ingest_route_remembers_too(http):
    """`/v1/ingest/memories` is the same door."""
    assert (await post(http, "/v1/ingest/memories", {"memories": [{"text": "tea", "id": "m"}]}))["ids"] == ["m"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/memory/remember", {}),
        ("/memory/remember", {"text": 7}),
        ("/memory/remember", {"text": " "}),
        ("/memory/remember", {"text": "x", "kind": "odd"}),
        ("/memory/remember", {"text": "x", "importance": 2}),
        ("/memory/remember", {"text": "x", "readers": ["anna"]}),
        ("/memory/remember/batch", {"memories": [{"text": "fine"}, {"tags": "x"}]}),
        ("/memory/remember/batch", {"memories": [{"text": "x"}] * 1_001}),
        ("/recall", {"query": None}),
        ("/recall", {"query": "x", "top_k": -1}),
        ("/recall", {"query": "x", "top_k": "many"}),
        ("/recall", {"query": "x", "threshold": 7}),
        ("/recall", {"query": "x", "kinds": ["odd"]}),
        ("/context/feedback", {"score": 1}),
        ("/context/feedback", {"memory_id": "m"}),
        ("/context/feedback", {"memory_id": "m", "score": 3}),
    ],
)
async def test_bad_requests_are_refused_with_a_sentence(http, path, body):
    """The answer has our shape and says what to fix."""
    error = (await post(http, path, body, 422))["error"]

    assert error["code"] == "VALIDATION_FAILED"
    assert error["user_message"]


async def test_a_body_may_not_name_another_user(http):
    """Who asks is settled before the body is read, and items are no way around it."""
    who = {"X-Contexture-Tenant": "acme", "X-Contexture-User": "anna"}
    for path, body in (
        ("/memory/remember", {"text": "x", "tenant_id": "other"}),
        ("/memory/remember/batch", {"memories": [{"text": "x", "user_id": "boris"}]}),
        ("/recall", {"query": "x", "user_id": "boris"}),
        ("/context/feedback", {"memory_id": "m", "score": 1, "tenant_id": "other"}),
    ):
        answer = await http.post(path, json=body, headers=who)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN"), path
    assert (await http.delete("/memory/m", params={"tenant_id": "other"}, headers=who)).status_code == 403


async def test_bodies_of_other_clients_are_understood(http):
    """`value` as text or object, `key`, `coord`, `tenant`, `namespace`, `tags`, `items`, `min_score`, `utility`."""
    one = {"tenant": "local", "namespace": "wm", "key": "trip", "value": "The ferry leaves at nine.", "tags": ["trip"]}
    other = {"key": "pier", "coord": [0.1, 0.2], "value": {"content": "The ferry leaves from pier four.", "mood": "ok"}}
    written = await post(http, "/memory/remember", one)
    batch = await post(http, "/memory/remember/batch", {"tenant": "local", "universe": "", "items": [other]})
    asked = {"tenant": "local", "namespace": "wm", "query": "when does the ferry leave", "top_k": 5, "min_score": 0.1}
    found = (await post(http, "/memory/recall", asked))["results"]

    assert ("trip", ["pier"]) == (written["id"], batch["ids"])
    assert {"trip", "pier"} == {each["id"] for each in found}
    (pier,) = [each for each in found if each["id"] == "pier"]
    assert ([0.1, 0.2], "ok") == (pier["metadata"]["coord"], pier["metadata"]["mood"])
    assert "content" not in pier["metadata"]
    rated = {"session_id": "s", "query": asked["query"], "prompt": "p", "response_text": "r", "utility": 4.0}
    assert {"ok": True} == await post(http, "/context/feedback", rated)
    assert {"ok": True} == await post(http, "/context/feedback", {"memory_id": "trip", "reward": -0.5})


@pytest.mark.parametrize("path", ["/memory/remember", "/memory/remember/batch", "/memory/recall", "/context/feedback"])
async def test_another_tenant_by_any_name_is_refused(http, path):
    """It is never answered for the caller's own."""
    body = {"tenant": "other", "text": "x", "memories": [], "query": "x", "memory_id": "x", "score": 1}

    assert "FORBIDDEN" == (await post(http, path, body, status=403))["error"]["code"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/memory/remember", {"key": "x"}),
        ("/memory/remember", {"value": {"mood": "ok"}}),
        ("/memory/remember/batch", {}),
        ("/context/feedback", {"memory_id": "x"}),
        ("/context/feedback", {"score": 1}),
    ],
)
async def test_a_body_without_what_it_is_about_is_refused(http, path, body):
    """The error names the missing field."""
    assert "VALIDATION_FAILED" == (await post(http, path, body, status=422))["error"]["code"]
