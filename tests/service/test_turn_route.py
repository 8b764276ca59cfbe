"""Turns over HTTP: the same bytes as from the command line, and only for whom the key stands."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from contexture import Settings
from contexture import open as open_store
from contexture.adapters.keys import ApiKeys, Right
from contexture.builders.turn.summary import SUMMARY_TYPE
from contexture.capsule import pack_capsule, unpack_capsule
from contexture.cli.main import app
from contexture.conversation import Decision, Memory, Recall
from contexture.engine import replay
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.service import service_client
from support.turns import chat

ANNA = Scope(tenant="acme", user="anna")
NOW = "2026-06-01T12:00:00+00:00"
TURN = {
    "tenant_id": "acme",
    "user_id": "anna",
    "session_id": "s-1",
    "system_prompt": "You help with pumps.",
    "user_message": "Who mends the pump? Mail anna@example.org.",
    "history": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}],
}
LONG = {**TURN, "history": [{"role": "user", "content": "My boat is called Heron."}, *chat(60)]}


async def remembered(engine, *texts):
    """Store these texts as Anna's memories."""
    await engine.memory.remember(ANNA, [Memory(text=text) for text in texts])


async def test_a_turn_is_built_over_http(client, engine):
    """The answer has the prompt, the memories and why each is there; timings are in a header only."""
    await remembered(engine, "The pump is mended by Boris, who mends every pump.")

    answer = await client.post("/v1/context/turn", json=TURN)

    found = answer.json()
    assert ["system", "user", "assistant", "system", "user"] == [message["role"] for message in found["messages"]]
    assert "Boris" in found["messages"][3]["content"]
    assert "Mail <EMAIL_1>." in found["messages"][4]["content"]
    assert {"score", "base_score", "recency", "id", "text", "metadata"} <= found["snippets"][0].keys()
    assert "retrieval;dur=" in answer.headers["server-timing"]
    assert "timings" not in found


async def test_equal_requests_are_answered_with_equal_bytes(client, engine):
    """With the same clock, nothing in the answer differs."""
    await remembered(engine, "The pump is mended by Boris.")
    first, second = [await client.post("/v1/context/turn", json=TURN) for _ in range(2)]

    assert first.content == second.content


def test_the_command_line_and_the_route_give_the_same_bytes(new_folder):
    """For the same clock and store, both doors answer with the same document."""
    settings = Settings(home=new_folder())

    async def over_http():
        async with open_store(settings) as engine, service_client(engine) as client:
            return await client.post("/v1/context/turn", json=TURN, headers={"X-Contexture-Now": NOW})

    async def fill():
        async with open_store(settings) as engine:
            await remembered(engine, "The pump is mended by Boris.", "Tea is at five.")

    asyncio.run(fill())
    words = ["--home", str(settings.home), "build", "turn", "--json", "--now", NOW]
    typed = CliRunner().invoke(app, words, input=json.dumps(TURN))
    answer = asyncio.run(over_http())

    assert 0 == typed.exit_code, typed.output
    assert typed.stdout_bytes.rstrip(b"\n") == answer.content
    assert 1 <= len(answer.json()["snippets"])


def test_the_command_line_shows_turns_to_people(new_folder, tmp_path):
    """Without `--json` the messages are shown in frames, and a capsule can be written and replayed."""
    turn = {**TURN, "history": chat(40), "user_message": [{"type": "text", "text": "Well?"}]}
    file = tmp_path / "turn.json"
    words = ["--home", str(new_folder()), "build", "turn", "--max-prompt-tokens", "900", "--capsule", str(file)]

    shown = CliRunner().invoke(app, words, input=json.dumps(turn))

    assert 0 == shown.exit_code, shown.output
    assert "of 900 tokens" in shown.output
    assert "--tenant acme --user anna" in shown.output
    assert "turn" == replay(file.read_bytes())[0].kind


@pytest.mark.parametrize("named", [{"tenant_id": "globex"}, {"user_id": "boris"}])
async def test_a_body_may_not_name_anyone_but_the_owner_of_the_key(engine, named, tmp_path):
    """A key decides alone who asks; a body that says otherwise is forbidden."""
    keys = ApiKeys(tmp_path / "keys.sqlite")
    _, token = keys.add("test", ANNA, now=NOON)

    async with service_client(engine, keys=keys) as client:
        answer = await client.post(
            "/v1/context/turn", json={**TURN, **named}, headers={"Authorization": f"Bearer {token}"}
        )

    keys.close()
    assert (403, "FORBIDDEN") == (answer.status_code, answer.json()["error"]["code"])


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({**TURN, "colour": "red"}, "colour"),
        ({}, "user_message"),
        ({**TURN, "history": [{"role": "pirate", "content": "x"}]}, "history[0].role"),
        ({**TURN, "max_prompt_tokens": -1}, "max_prompt_tokens"),
        ({**TURN, "max_prompt_tokens": 5}, "raise the budget"),
    ],
)
async def test_what_is_wrong_is_named(client, body, named):
    """A bad turn is answered with the name of the field."""
    answer = await client.post("/v1/context/turn", json=body)

    assert (422, "VALIDATION_FAILED") == (answer.status_code, answer.json()["error"]["code"])
    assert named in answer.json()["error"]["user_message"]


async def test_a_turn_can_be_explained_and_replayed_over_http(client):
    """The build is kept: its ledger, its capsule, and what would have admitted a message."""
    built = (await client.post("/v1/context/turn", json={**TURN, "history": chat(40)})).json()
    kept = (await client.get(f"/v1/builds/{built['build_id']}")).json()
    capsule = json.dumps(kept["capsule"]).encode()
    told = (await client.get(f"/v1/builds/{built['build_id']}/explain/history[0]")).json()

    assert built["ledger"] == kept["ledger"]
    assert built["messages"] == kept["capsule"]["messages"]
    assert pack_capsule(unpack_capsule(capsule))
    assert "dropped" == told["candidate"]["state"]
    assert told["more_tokens"] > 0


async def test_the_metrics_of_turns_are_served(client):
    """What turns report is on `/metrics`, without a tenant in it."""
    await client.post("/v1/context/turn", json=TURN)

    found = (await client.get("/metrics")).text

    assert "context_builder_prompt_total 1.0" in found
    assert 'thinking_retrieval_seconds_count{state="normal"} 1.0' in found
    assert "acme" not in found


async def test_a_summary_of_what_was_cut_is_recalled_by_a_later_turn(client, engine):
    """What no longer fits is remembered, and comes back when it is asked for."""
    told = [{"role": "user", "content": "My boat is called Heron and it is painted green."}, *chat(60)]
    await client.post("/v1/context/turn", json={**TURN, "history": told})
    await engine.turns.settle()
    await engine.outbox.drain()

    later = await client.post("/v1/context/turn", json={**TURN, "user_message": "What is my boat called?"})

    assert "Heron" in str([snippet["text"] for snippet in later.json()["snippets"]])


async def summaries(engine):
    """The summaries that Anna can recall, once all that was handed on is stored."""
    await engine.turns.settle()
    await engine.outbox.drain()
    found = await engine.memory.recall(ANNA, Recall(query="What is my boat called?", now=NOON, threshold=0))
    return [each.text for each in found if SUMMARY_TYPE == each.type]


@pytest.mark.parametrize(("rights", "stored"), [([Right.READ], 0), ([Right.READ, Right.WRITE], 1), ([Right.ADMIN], 1)])
async def test_a_key_that_may_not_write_leaves_no_summary(engine, rights, stored, tmp_path):
    """The prompt is the same as for a key that may."""
    keys = ApiKeys(tmp_path / "keys.sqlite")
    _, token = keys.add("test", ANNA, now=NOON, rights=rights)
    expected = await engine.build_turn(LONG, scope=ANNA, remember=False)

    async with service_client(engine, keys=keys) as client:
        answer = await client.post("/v1/context/turn", json=LONG, headers={"Authorization": f"Bearer {token}"})

    keys.close()
    assert list(expected.messages) == answer.json()["messages"]
    assert stored == len(await summaries(engine))


async def test_a_turn_that_is_only_looked_at_leaves_no_summary(client, engine):
    """`remember=false` gives the same prompt, again and again, and writes nothing."""
    looked = [await client.post("/v1/context/turn?remember=false", json=LONG) for _ in range(2)]
    left = await summaries(engine)
    sent = await client.post("/v1/context/turn", json=LONG)

    assert 1 == len({answer.json()["digest"] for answer in (*looked, sent)})
    assert ([], 1) == (left, len(await summaries(engine)))


class Forgetful:
    """A policy under which nobody remembers anything."""

    async def decide(self, scope, action, resource):
        """All but one is fine."""
        return Decision(allowed=action != "memory.remember")


async def test_a_policy_that_lets_nothing_be_remembered_holds_for_turns(client, engine):
    """The turn is built all the same."""
    engine.policy = Forgetful()

    assert 200 == (await client.post("/v1/context/turn", json=LONG)).status_code
    assert [] == await summaries(engine)
