"""`POST /v1/forget`, `DELETE` of sessions and events, and what reading a build or a reply asks for."""

from __future__ import annotations

import pytest

from contexture.conversation import Decision
from contexture.testing.doubles import NOON
from contexture.types import Record
from support.service import service_client

BORIS = {"X-Contexture-User": "boris"}


class Recording:
    """A policy that denies some actions and remembers what it was asked."""

    def __init__(self, *denied):
        self.denied = denied
        self.asked = []

    async def decide(self, scope, action, resource):
        """Allowed, unless the action is denied."""
        self.asked.append((action, dict(resource)))
        return Decision(allowed=action not in self.denied, reason="closed on Sundays")


async def chat(client, engine, text, **more):
    """Send a message, and deliver its memories."""
    answer = await client.post("/v1/chat", json={"message": text, "session_id": "s", **more})
    assert 200 == answer.status_code, answer.text
    await engine.outbox.drain()
    return answer.json()


async def recalled(client, question):
    """The texts that a question recalls."""
    found = await client.post("/memory/recall", json={"query": question})
    return [each["text"] for each in found.json()["results"]]


async def test_a_session_is_deleted_with_a_receipt(client, engine):
    """Its events, memories and builds are gone from every route."""
    told = await chat(client, engine, "My dog is called Rex")
    receipt = await client.delete("/v1/sessions/s")

    assert 200 == receipt.status_code
    assert {"memories", "session events", "builds"} == {each["place"] for each in receipt.json()["removed"]}
    assert [] == (await client.get("/v1/sessions")).json()["sessions"]
    assert [] == await recalled(client, "My dog is called Rex")
    assert 404 == (await client.get(f"/v1/builds/{told['build_id']}")).status_code


async def test_an_event_is_deleted_alone(client, engine):
    """A session whose id holds a slash works; an unknown event is not found."""
    told = await chat(client, engine, "My dog is called Rex", session_id="a/b")
    first = told["events"][0]["id"]

    assert 200 == (await client.delete(f"/v1/sessions/a/b/events/{first}")).status_code
    assert 404 == (await client.delete(f"/v1/sessions/a/b/events/{first}")).status_code
    left = (await client.get("/v1/sessions/a/b/events")).json()["events"]
    assert ["assistant"] == [each["message"]["role"] for each in left]


async def test_another_user_is_not_forgotten(client, engine):
    """A request may name only the caller, and a session of another user is empty."""
    await chat(client, engine, "My dog is called Rex")

    assert 403 == (await client.post("/v1/forget", json={"user_id": "anna"}, headers=BORIS)).status_code
    assert [] == (await client.delete("/v1/sessions/s", headers=BORIS)).json()["removed"]
    assert ["My dog is called Rex"] == await recalled(client, "My dog is called Rex")


async def test_a_preview_removes_nothing(client, engine):
    """It shows what matches, and the same request without it removes that."""
    await chat(client, engine, "My dog is called Rex")
    shown = (await client.post("/v1/forget", json={"matching": "dog", "preview": True})).json()

    assert shown["preview"]
    assert "My dog is called Rex" in [each["text"] for each in shown["matched"]]
    assert ["My dog is called Rex"] == await recalled(client, "My dog is called Rex")
    assert [] == (await client.post("/v1/forget", json={"matching": "dog"})).json()["matched"]
    assert [] == await recalled(client, "My dog is called Rex")


@pytest.mark.parametrize("body", [{}, {"session_id": "s", "trash": True}, {"ids": "x"}, {"who": "x"}])
async def test_a_wrong_request_is_refused(client, body):
    """Nothing to forget, two subjects, a wrong type and an unknown field."""
    assert 422 == (await client.post("/v1/forget", json=body)).status_code


async def test_a_deleted_memory_leaves_its_session(client, engine):
    """`DELETE /memory/{id}` also removes the message that it repeats; a second call finds nothing."""
    await chat(client, engine, "My dog is called Rex")
    found = (await client.post("/memory/recall", json={"query": "My dog is called Rex"})).json()["results"]

    assert 200 == (await client.delete(f"/memory/{found[0]['id']}")).status_code
    assert 404 == (await client.delete(f"/memory/{found[0]['id']}")).status_code
    left = (await client.get("/v1/sessions/s/events")).json()["events"]
    assert "My dog is called Rex" not in [each["message"]["content"] for each in left]


async def test_reading_a_build_asks_the_policy(client, engine):
    """The build, its capsule and its explanation are `builds.read`, with the same input."""
    built = (await client.post("/v1/context/query", json={"query": "pump"})).json()["build_id"]
    engine.policy = Recording("builds.read")
    for path in (f"/v1/builds/{built}", f"/v1/builds/{built}/capsule", f"/v1/builds/{built}/explain/pump%2300000"):
        assert 403 == (await client.get(path)).status_code

    assert [("builds.read", {"build": built})] * 3 == engine.policy.asked


async def test_a_reply_is_withheld_when_it_cites_what_is_revoked(client, engine):
    """Neither the reply route nor sending the message again shows it, and the policy is asked for its build."""
    mail = {"text": "The code of the safe is 4711", "id": "code", "readers": ["user:anna", "user:boris"]}
    await client.post("/memory/remember", json=mail)
    asked = {"message": "What is the code of the safe?", "session_id": "t", "message_id": "m"}
    answer = await client.post("/v1/chat", json=asked, headers=BORIS)
    assert "4711" in answer.json()["reply"]
    engine.policy = Recording()
    assert 200 == (await client.get("/v1/chat/replies/m", headers=BORIS)).status_code
    assert ("builds.read", {"build": answer.json()["build_id"]}) in engine.policy.asked

    await client.post("/memory/remember", json={**mail, "readers": ["user:anna"]})
    for again in (
        await client.get("/v1/chat/replies/m", headers=BORIS),
        await client.post("/v1/chat", json=asked, headers=BORIS),
    ):
        assert 404 == again.status_code
        assert "4711" not in again.text


async def test_a_chat_remembers_only_what_the_policy_allows(client, engine):
    """The answer is given and says so; no memory is stored, and the session is."""
    engine.policy = Recording("memory.remember")
    engine.__dict__.pop("chat", None)
    told = await chat(client, engine, "My dog is called Rex")

    assert "the policy does not allow this exchange to be remembered" in [d["reason"] for d in told["degradations"]]
    assert [] == await recalled(client, "My dog is called Rex")
    assert ["s"] == (await client.get("/v1/sessions")).json()["sessions"]
    for path, body in (
        ("/memory/remember", {"text": "tea"}),
        ("/memory/remember/batch", {"memories": [{"text": "t"}]}),
    ):
        assert 403 == (await client.post(path, json=body)).status_code


async def test_one_action_has_one_policy_input(client, engine):
    """Both chat routes describe a message by the same fields, and every deletion of memories by the same."""
    engine.policy = Recording()
    engine.__dict__.pop("chat", None)
    await client.post("/v1/chat", json={"message": "Hello", "session_id": "s"})
    await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hello"}]})
    await client.delete("/memory/none")
    await client.request("DELETE", "/v1/ingest/memories", json={"ids": ["none"]})
    inputs = {}
    for action, resource in engine.policy.asked:
        inputs.setdefault(action, []).append(resource)

    assert 1 == len({tuple(sorted(each)) for each in inputs["message.process"]})
    assert [5, 5] == [each["length"] for each in inputs["message.process"]]
    assert [{"memories": 1}] * 2 == inputs["memory.forget"]


async def test_forgetting_asks_the_policy(client, engine):
    """All three routes ask for `forget` with the same fields; a denied request removes nothing."""
    await chat(client, engine, "My dog is called Rex")
    engine.policy = Recording("forget")
    for method, path, body in (
        ("POST", "/v1/forget", {"session_id": "s"}),
        ("DELETE", "/v1/sessions/s", None),
        ("DELETE", "/v1/sessions/s/events/x", None),
    ):
        assert 403 == (await client.request(method, path, json=body)).status_code

    assert 1 == len({tuple(sorted(resource)) for _, resource in engine.policy.asked})
    assert ["My dog is called Rex"] == await recalled(client, "My dog is called Rex")


async def test_a_record_is_forgotten_in_its_collection(engine):
    """Ids without a collection are of the default one."""
    async with service_client(engine) as client:
        await engine.add([Record(id="note", text="A note", acl=("user:anna",), time=NOON)], collection="notes")
        receipt = (await client.post("/v1/forget", json={"ids": ["note"]})).json()
        there = (await client.post("/v1/forget", json={"ids": ["note"], "collection": "notes"})).json()

    assert ([], ["notes"]) == (receipt["removed"], [each["place"] for each in there["removed"]])


BLOCK = {"id": "b1", "type": "paragraph", "text": "The pump leaks."}
ARTICLE = {"id": "a1", "title": "Pump", "text": "The pump leaks.", "time": "2026-01-01T00:00:00Z"}
DELETIONS = {
    "records": (
        ("/v1/ingest/documents", {"records": [{"id": "r1", "text": "The pump leaks.", "acl": ["public"]}]}),
        ("/v1/ingest/documents", {"ids": ["r1"]}),
        ("documents", ["r1"]),
    ),
    "memories": (
        ("/memory/remember", {"text": "The pump leaks."}),
        ("/v1/ingest/memories", {"ids": [""]}),
        ("memories", [""]),
    ),
    "memory": (("/memory/remember", {"text": "The pump leaks."}), ("/memory/{}", None), ("memories", [""])),
    "articles": (
        ("/v1/ingest/articles", {"articles": [ARTICLE]}),
        ("/v1/ingest/articles", {"ids": ["a1"]}),
        ("articles", ["a1"]),
    ),
    "blocks": (("/v1/ingest/blocks", {"blocks": [BLOCK]}), ("/v1/ingest/blocks", {"ids": ["b1"]}), ("blocks", ["b1"])),
    "block": (("/v1/ingest/blocks", {"blocks": [BLOCK]}), ("/v1/blocks/b1", None), ("blocks", ["b1"])),
}


@pytest.mark.parametrize("kind", DELETIONS)
async def test_every_deletion_answers_with_a_receipt(client, kind):
    """What was removed where, and what is out of reach, beside the number there was before; nothing the second time."""
    (written, body), (path, named), (place, ids) = DELETIONS[kind]
    stored = await client.post(written, json=body)
    assert 200 == stored.status_code, stored.text
    new = stored.json().get("id", "")
    named = {"ids": [each or new for each in named["ids"]]} if named else None
    first, again = [await client.request("DELETE", path.format(new), json=named) for _ in range(2)]

    assert 200 == first.status_code, first.text
    receipt = first.json()
    assert 1 == receipt["deleted"]
    assert {"place": place, "count": 1, "ids": [each or new for each in ids]} in receipt["removed"]
    assert receipt["receipt_id"]
    assert receipt["out_of_reach"]
    assert again.status_code == 404 or (0, []) == (again.json()["deleted"], again.json()["removed"])


async def test_a_deletion_lists_the_builds_that_it_removed(client):
    """They cite what is gone."""
    await client.post("/v1/ingest/documents", json={"records": [{"id": "r1", "text": "The pump leaks."}]})
    built = (await client.post("/v1/context/query", json={"query": "pump"})).json()
    receipt = (await client.request("DELETE", "/v1/ingest/documents", json={"ids": ["r1"]})).json()

    assert {"place": "builds", "count": 1, "ids": [built["build_id"]]} in receipt["removed"]


async def test_purging_the_trash_answers_with_a_receipt(client):
    """The blocks that are gone for good."""
    await client.post("/v1/ingest/blocks", json={"blocks": [BLOCK]})
    await client.request("DELETE", "/v1/blocks/b1")
    purged = await client.request("DELETE", "/v1/workspace/trash", json={"before": "2100-01-01T00:00:00Z"})

    assert 1 == purged.json()["purged"]
    assert [{"place": "blocks", "count": 1, "ids": ["b1"]}] == purged.json()["removed"]
