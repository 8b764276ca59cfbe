"""Chat completions as clients of OpenAI ask for them: the caller's own messages, with what is remembered added."""

from __future__ import annotations

import json

import httpx
import pytest

from contexture.answer.completions import turn_from_messages
from contexture.answer.route import ModelRoute
from contexture.conversation import Decision
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.testing.doubles import ScriptedChatModel
from support.service import use_in_chat

PATH = "/v1/chat/completions"
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "When does the ferry to Arran leave?"},
]


class Listening(ScriptedChatModel):
    """A model that remembers what it was shown."""

    def __init__(self, *answers):
        super().__init__(answers)
        self.shown = []

    async def complete(self, messages, *, max_tokens):
        """Answer as scripted."""
        self.shown.append((messages, max_tokens))
        return await super().complete(messages, max_tokens=max_tokens)


@pytest.fixture
async def remembered(client: httpx.AsyncClient) -> None:
    """One memory of anna's."""
    await client.post("/memory/remember", json={"text": "The ferry to Arran leaves at nine."})


def chunks(text):
    """The chunks of a stream, and what ends it."""
    blocks = [block.removeprefix("data: ") for block in text.split("\n\n") if block]
    return [json.loads(block) for block in blocks[:-1]], blocks[-1]


async def test_what_is_remembered_is_added_to_the_callers_messages(engine, client, remembered):
    """The model sees their messages in order, and the memory between them; the build says what was added."""
    model = Listening("At nine [1].")
    use_in_chat(engine, route=ModelRoute({"scripted": model}))
    answer = await client.post(PATH, json={"model": "contexture", "messages": ASKED, "max_tokens": 50})
    told = answer.json()
    ((shown, most),) = model.shown

    assert 200 == answer.status_code, answer.text
    assert ("chat.completion", "scripted", "At nine [1].", "stop") == (
        told["object"],
        told["model"],
        told["choices"][0]["message"]["content"],
        told["choices"][0]["finish_reason"],
    )
    assert shown[0]["content"].startswith("Be brief.")
    assert ["Hello", "Hi."] == [each["content"] for each in shown if each["content"] in {"Hello", "Hi."}]
    assert ("user", ASKED[-1]["content"]) == (shown[-1]["role"], shown[-1]["content"])
    assert any("leaves at nine" in each["content"] for each in shown)
    assert [True] == [each["cited"] for each in told["contexture"]["citations"]]
    assert 50 == most
    assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] + told["usage"]["completion_tokens"]
    assert 200 == (await client.get(f"/v1/builds/{told['contexture']['build_id']}")).status_code


async def test_nothing_of_it_is_kept(engine, client):
    """No session begins and nothing is remembered: the conversation is the caller's."""
    use_in_chat(engine, route=ModelRoute({"scripted": ScriptedChatModel(["At nine."])}))
    await client.post(PATH, json={"messages": ASKED})
    found = await client.post("/recall", json={"query": "When does the ferry to Arran leave?", "threshold": 0})

    assert ([], []) == ((await client.get("/v1/sessions")).json()["sessions"], found.json()["candidates"])


@pytest.mark.parametrize("counted", [True, False])
async def test_a_stream_has_the_shape_that_clients_know(engine, client, counted):
    """A role, pieces, a reason to finish, what it cost for those who ask, and the end."""
    use_in_chat(engine, route=ModelRoute({"scripted": ScriptedChatModel(["One two three."])}))
    body = {"messages": ASKED, "stream": True, "stream_options": {"include_usage": counted}}
    found, end = chunks((await client.post(PATH, json=body)).text)
    choices = [each["choices"][0] for each in found if each["choices"]]

    assert "[DONE]" == end
    assert {"role": "assistant", "content": ""} == choices[0]["delta"]
    assert "One two three." == "".join(each["delta"].get("content", "") for each in choices)
    assert [None, "stop"] == [choices[-2]["finish_reason"], choices[-1]["finish_reason"]]
    assert counted is ("usage" in found[-1])
    assert 1 == len({each["id"] for each in found})


async def test_a_secret_is_masked_in_every_form(engine, client, monkeypatch):
    """Also when a model gives it in pieces."""
    secrets = {"DB": "hunter2hunter2"}
    known = type("Known", (), {"known_values": lambda _: secrets})()
    use_in_chat(engine, route=ModelRoute({"s": ScriptedChatModel(["It is hunter2hunter2."] * 2)}), secrets=known)
    whole = await client.post(PATH, json={"messages": ASKED})
    streamed = await client.post(PATH, json={"messages": ASKED, "stream": True})

    assert "It is §§secret(DB)." == whole.json()["choices"][0]["message"]["content"]
    assert "hunter2" not in whole.text + streamed.text


async def test_a_model_that_fails_is_passed_over(engine, client):
    """The answer names who gave it, and what was lost."""
    models = {"bad": ScriptedChatModel([SourceUnavailable("down")]), "good": ScriptedChatModel(["Here."], name="good")}
    use_in_chat(engine, route=ModelRoute(models))
    told = (await client.post(PATH, json={"messages": ASKED})).json()

    assert "good" == told["model"]
    assert 1 == len(told["contexture"]["degradations"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": 2}, "field 'n'"),
        ({"messages": []}, "field 'messages'"),
        ({"messages": ASKED[:1]}, "needs a message of the role 'user'"),
        ({"messages": [{"role": "system", "content": 5}, *ASKED[1:]]}, r"messages[0]"),
        ({"messages": [{"role": "user", "content": " "}]}, "is empty"),
        ({"messages": [{"role": "king", "content": "x"}, *ASKED[1:]]}, "role must be one of"),
    ],
)
async def test_what_cannot_be_done_is_refused(client, change, said):
    """By name, and nothing is answered in its place."""
    answer = await client.post(PATH, json={"messages": ASKED, **change})

    assert 400 == answer.status_code
    assert said in answer.json()["error"]["message"]


async def test_what_only_steers_a_model_is_accepted(client):
    """Clients send it without being asked to."""
    steering = {"temperature": 0, "top_p": 1.0, "presence_penalty": 0, "frequency_penalty": 0.5, "seed": 7, "n": 1}

    assert 200 == (await client.post(PATH, json={"messages": ASKED, **steering})).status_code


async def test_the_models_can_be_listed(engine, client):
    """With the name that stands for the usual one."""
    use_in_chat(engine, route=ModelRoute({"litellm:gpt-5": ScriptedChatModel([]), "extractive": ScriptedChatModel([])}))
    told = (await client.get("/v1/models")).json()

    assert ["contexture", "litellm:gpt-5", "extractive"] == [each["id"] for each in told["data"]][:3]


async def test_a_denied_message_is_not_answered(engine, client):
    """The policy is asked as for a chat."""
    asked = []

    class Refusing:
        async def decide(self, scope, action, resource):
            asked.append(action)
            return Decision(allowed=False, reason="closed")

    use_in_chat(engine, policy=Refusing())
    answer = await client.post(PATH, json={"messages": ASKED})

    assert (403, "closed", ["message.process"]) == (
        answer.status_code,
        answer.json()["error"]["message"],
        asked,
    )


def test_instructions_in_the_middle_stay_where_they_are():
    """Only those before all others are the system prompt."""
    middle = {"role": "system", "content": "Now in verse."}
    turn = turn_from_messages(
        [{"role": "developer", "content": "A"}, {"role": "system", "content": "B"}, middle, *ASKED[1:]]
    )
    later = turn_from_messages([*ASKED[1:3], middle, ASKED[3]])

    assert "A\n\nB\n\nNow in verse." == turn.system_prompt
    assert middle in later.history


def test_messages_of_instructions_alone_are_no_question():
    """There is nothing to look for."""
    with pytest.raises(InvalidRequest, match="needs a message of the role 'user'"):
        turn_from_messages(ASKED[:1])
