"""Answers to the prompts of kept builds: what a model is sent, what is checked, and for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contexture.answer.build import find_numbered_blocks
from contexture.answer.route import ModelRoute
from contexture.testing.doubles import ScriptedChatModel
from support.service import service_client

ARTICLE = {
    "id": "a1", "title": "Pump strike", "text": "The pump strike goes on. Nine hundred workers want more pay.",
    "date": "2026-05-30T10:00:00Z", "source": "x.example",
}  # fmt: skip
REQUESTS = {
    "ask": {"query": "Who wants more pay?"},
    "turn": {"user_message": "Where is the spare pump?"},
    "command": {"raw_command": "/ask pump strike window=1y"},
    "research": {"query": "What do pumps do?"},
    "workspace": {"query": "Who repairs the pump?", "focus": {"pageId": "p"}},
}


@pytest.fixture
async def client(engine):
    """A client of a service with one source of each kind."""
    async with service_client(engine) as http:
        for path, body in (
            ("articles", {"articles": [ARTICLE]}),
            ("documents", {"files": [{"filename": "a.md", "content": "IyBIZWxsbwpQdW1wcyBhcmUgbmljZSBhbmQgbGVhay4="}]}),
            ("blocks", {"blocks": [{"id": "p", "type": "page", "text": "Pumps"},
                                   {"id": "q", "type": "todo", "parent": "p", "text": "Viktor repairs the pump."}]}),
            ("memories", {"memories": [{"text": "The spare pump is in the cellar."}]}),
        ):  # fmt: skip
            assert (await http.post(f"/v1/ingest/{path}", json=body)).is_success
        yield http


async def build(client, kind):
    """The id of a build of this kind."""
    answer = await client.post(f"/v1/context/{kind}", json=REQUESTS[kind])
    assert answer.is_success, answer.text
    body = answer.json()
    return body.get("build_id") or body.get("buildId") or body["telemetry"]["correlation_id"]


def use_model(engine, model):
    """Let prompts be answered by this model."""
    engine.__dict__["answer_build"] = replace(engine.answer_build, route=ModelRoute({"m": model}))


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_model_is_sent_the_prompt_of_the_build_and_its_markers_are_checked(engine, client, kind):
    """Exactly the messages of the capsule; a marker that names nothing in the prompt is removed."""
    model = ScriptedChatModel(answers=["Nine hundred want more pay [1] [77]."])
    use_model(engine, model)
    name = await build(client, kind)

    said = (await client.post("/v1/builds/answer", json={"build_id": name})).json()

    capsule = await engine.capsule(name)
    assert [list(capsule.messages)] == [list(each) for each in model.asked]
    assert ["[77]"] == [each["marker"] for each in said["removed_markers"]]
    assert ([1], "scripted", name) == (said["cited"], said["model"], said["build_id"])
    assert 1 in find_numbered_blocks(capsule)


@pytest.mark.parametrize("kind", REQUESTS)
async def test_without_a_model_the_answer_quotes_the_prompt(client, kind):
    """What it quotes is in the block that it cites."""
    name = await build(client, kind)

    said = (await client.post("/v1/builds/answer", json={"build_id": name})).json()

    assert said["extractive"]
    assert said["cited"] or kind == "command", said["answer"]


async def test_nothing_is_stored_and_a_build_of_another_user_is_unknown(engine, client):
    """A run leaves no session, no memory and no build; nobody runs what is not theirs."""
    name = await build(client, "turn")
    sessions = (await client.get("/v1/sessions")).json()
    builds = sorted(each.name for each in (engine.settings.home / "builds").rglob("*"))

    mine = await client.post("/v1/builds/answer", json={"build_id": name})
    other = await client.post("/v1/builds/answer", json={"build_id": name}, headers={"X-Contexture-User": "boris"})
    unknown = await client.post("/v1/builds/answer", json={"build_id": name, "model": "gpt-9"})

    assert [200, 404, 422] == [each.status_code for each in (mine, other, unknown)]
    assert sessions == (await client.get("/v1/sessions")).json()
    assert builds == sorted(each.name for each in (engine.settings.home / "builds").rglob("*"))
    assert "gpt-9" in unknown.json()["error"]["message"]
