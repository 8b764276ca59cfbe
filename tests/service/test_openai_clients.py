"""The clients that exist, against our endpoint over a scripted model of OpenAI's API: SDK, LangChain, LlamaIndex."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from threading import Thread
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from contexture.adapters.keys import ApiKeys
from contexture.answer.route import ModelRoute
from contexture.testing.doubles import NOON
from contexture.types import DEFAULT_RIGHTS, Right, Scope
from support.service import service_client, use_in_chat

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a town.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
            "additionalProperties": False,
        },
    },
}
MISSING = "needs the client of another library: make clients-check installs it"
QUESTION = "Should I take the ferry to Arran today?"


def tool_call(at: int, town: str) -> dict[str, Any]:
    """A call of the only tool."""
    arguments = json.dumps({"town": town})
    return {
        "index": at,
        "id": f"call_{at}",
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }


class Vendor:
    """OpenAI's chat API: asks for the weather of two towns, and then repeats what the tools said."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.answer)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"
        self.server = uvicorn.Server(uvicorn.Config(self.app, log_level="critical", lifespan="off"))

    async def answer(self, request: Request):
        """One request."""
        body = await request.json()
        self.asked.append(body)
        if any(tool["function"]["name"] == "refused" for tool in body.get("tools", ())):
            error = {"message": "Invalid schema for function 'refused'", "type": "invalid_request_error", "code": "x"}
            return JSONResponse({"error": error}, 400)
        results = [each["content"] for each in body["messages"] if each["role"] == "tool"]
        if results or not body.get("tools"):
            message: dict[str, Any] = {"role": "assistant", "content": " and ".join(results) or "Good day."}
            finish = "stop"
        else:
            calls = [tool_call(0, "Brodick"), tool_call(1, "Ardrossan")]
            message, finish = {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
        if body.get("stream"):
            return StreamingResponse(self.pieces(message, finish), media_type="text/event-stream")
        choice = {"index": 0, "message": message, "finish_reason": finish}
        usage = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    async def pieces(self, message: dict[str, Any], finish: str):
        """The answer in pieces: a call's name first, then its arguments in two parts."""
        yield self.chunk({"role": "assistant", "content": None}, None)
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            yield self.chunk({"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]}, None)
            for part in (arguments[:6], arguments[6:]):
                yield self.chunk({"tool_calls": [{"index": call["index"], "function": {"arguments": part}}]}, None)
        for word in (message["content"] or "").split(" "):
            if word:
                yield self.chunk({"content": f"{word} "}, None)
        yield self.chunk({}, finish)
        yield "data: [DONE]\n\n"

    def chunk(self, delta: dict[str, Any], finish: str | None) -> str:
        """One event of the stream."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(body)}\n\n"


@pytest.fixture(scope="module")
def vendor() -> Iterator[Vendor]:
    """A running server, stopped afterwards."""
    running = Vendor()
    thread = Thread(target=running.server.run, kwargs={"sockets": [running.socket]}, daemon=True)
    thread.start()
    yield running
    running.server.should_exit = running.server.force_exit = True
    thread.join()
    running.socket.close()


@pytest.fixture
async def http(engine, vendor, monkeypatch) -> Any:
    """A connection to our service, whose chat model is the vendor's."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    from contexture.adapters.llm.litellm import LiteLLMChat

    vendor.asked.clear()
    model = LiteLLMChat("openai/m", api_base=vendor.url, api_key="k", timeout=60)
    use_in_chat(engine, route=ModelRoute({"litellm:openai/m": model}))
    async with service_client(engine) as found:
        await found.post("/memory/remember", json={"text": "I get seasick on the ferry to Arran when it is windy."})
        yield found


@pytest.fixture
def sdk(http: httpx.AsyncClient) -> openai.AsyncOpenAI:
    """OpenAI's own client, with any key."""
    return openai.AsyncOpenAI(api_key="sk-any", base_url="http://127.0.0.1/v1", http_client=http, max_retries=0)


def weather(arguments: str) -> str:
    """What the tool does."""
    return f"storm in {json.loads(arguments)['town']}"


async def run_agent(sdk: openai.AsyncOpenAI, *, stream: bool) -> tuple[str, list[dict[str, Any]]]:
    """A loop that calls tools until there is an answer; returns it and the messages."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    for _ in range(4):
        given: Any = {"model": "contexture", "messages": messages, "tools": [TOOL], "tool_choice": "auto"}
        if stream:
            async with sdk.chat.completions.stream(**given) as events:
                async for _event in events:
                    pass
                message = (await events.get_final_completion()).choices[0].message
        else:
            message = (await sdk.chat.completions.create(**given)).choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            return message.content or "", messages
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": weather(call.function.arguments)}
            for call in message.tool_calls
        ]
    raise AssertionError("the loop does not end")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_runs_an_agent_loop_with_parallel_calls(sdk, vendor, stream):
    """Tools reach the model, its calls the client, and their results the model, with the memory in every prompt."""
    answer, _ = await run_agent(sdk, stream=stream)
    first, last = vendor.asked

    assert "storm in Brodick and storm in Ardrossan" == answer.strip()
    assert [TOOL] == first["tools"] == last["tools"]
    assert ["assistant", "tool", "tool"] == [each["role"] for each in last["messages"][-3:]]
    assert QUESTION == last["messages"][-4]["content"]
    for prompt in (first, last):
        assert any("seasick" in str(each["content"]) for each in prompt["messages"])


async def test_options_reach_the_model_and_nothing_else(sdk, vendor):
    """Known and unknown ones; one that would redirect the request stays a field of its body."""
    await sdk.chat.completions.create(
        model="openai/m",
        messages=[{"role": "user", "content": "Hello ferry"}],
        stop=["END"],
        seed=7,
        user="label",
        response_format={"type": "json_object"},
        metadata={"trace": "t-1"},
        extra_body={"top_k": 5, "api_base": "http://127.0.0.1:9/v1", "mock_response": "no"},
    )
    (asked,) = vendor.asked

    assert (["END"], 7, {"type": "json_object"}) == tuple(asked[name] for name in ("stop", "seed", "response_format"))
    assert (5, {"trace": "t-1"}) == (asked["top_k"], asked["metadata"])
    assert "max_tokens" not in asked


async def test_a_secret_is_masked_in_a_call(engine, sdk, vendor):
    """Also when its arguments come in parts, and in the definitions of tools."""
    known = type("Known", (), {"known_values": lambda _: {"TOWN": "Ardrossan"}})()
    use_in_chat(engine, secrets=known)
    _, messages = await run_agent(sdk, stream=True)
    calls = [call["function"]["arguments"] for each in messages for call in each.get("tool_calls") or ()]

    assert ['{"town": "Brodick"}', '{"town": "§§secret(TOWN)"}'] == calls


async def test_errors_have_the_form_that_the_sdk_prints(sdk):
    """Status, type, code and message are OpenAI's."""
    asked: Any = [{"role": "user", "content": "Hello ferry"}]
    with pytest.raises(openai.NotFoundError, match="model 'gpt-9' is not configured") as unknown:
        await sdk.chat.completions.create(model="gpt-9", messages=asked)
    with pytest.raises(openai.BadRequestError, match="needs a message of the role 'user'") as empty:
        await sdk.chat.completions.create(model="contexture", messages=[{"role": "system", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as small:
        await sdk.chat.completions.create(model="contexture", messages=asked, extra_body={"max_prompt_tokens": 3})
    refused: Any = {"type": "function", "function": {"name": "refused", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="Invalid schema for function 'refused'"):
        await sdk.chat.completions.create(model="contexture", messages=asked, tools=[refused])
    with pytest.raises(openai.BadRequestError, match="Invalid schema"):
        await sdk.chat.completions.create(model="contexture", messages=asked, tools=[refused], stream=True)

    assert ("model_not_found", "invalid_request_error") == (unknown.value.code, unknown.value.type)
    assert "invalid_request_error" == empty.value.type
    assert "context_length_exceeded" == small.value.code


async def test_any_key_is_accepted_on_loopback_until_a_key_is_made(engine, settings):
    """On every route, for the user of the settings; one of our own keys that is unknown is refused."""
    keys = ApiKeys(settings.home / "keys.sqlite")

    async def statuses() -> list[int]:
        async with service_client(engine, keys=keys) as client:
            found = [
                await client.get(path, headers={"Authorization": f"Bearer {token}", **more})
                for path, token, more in (
                    ("/v1/models", "sk-any", {}),
                    ("/v1/models", "ctx_0123456789ab_unknown", {}),
                    ("/v1/sessions", "sk-any", {}),
                    ("/v1/sessions", "sk-any", {"Host": "evil.example"}),
                    ("/v1/models", "sk-any", {"X-Contexture-User": "boris"}),
                    ("/v1/models", "sk-any", {"Origin": "https://evil.example"}),
                )
            ]
        return [each.status_code for each in found]

    before = await statuses()
    keys.add("x", Scope(tenant="acme", user="anna"), now=NOON)
    after = await statuses()
    keys.close()

    assert [200, 401, 200, 403, 403, 403] == before
    assert [401] * 6 == after


async def test_with_any_key_a_client_of_ours_loads_and_asks(engine, settings):
    """A client that always sends a key needs none of ours on the machine of its user."""
    keys = ApiKeys(settings.home / "keys.sqlite")
    async with service_client(engine, keys=keys) as client:
        client.headers["Authorization"] = "Bearer anything"
        loaded = await client.post(
            "/v1/ingest/documents", json={"records": [{"id": "owl", "text": "The owl is grey."}]}
        )
        found = await client.post("/v1/search", json={"query": "grey owl"})
        nobody = await client.post("/v1/search", json={"query": "pump"}, headers={"Authorization": ""})
    keys.close()

    assert [200, 200, 401] == [each.status_code for each in (loaded, found, nobody)]
    assert "owl#00000" == found.json()["results"][0]["id"]
    assert {"message", "type"} <= nobody.json()["error"].keys()


async def test_a_gateway_acts_for_the_user_that_it_names(engine, settings, http):
    """With `act_for`, `user` is whose memories are recalled; without it, it is a label."""
    keys = ApiKeys(settings.home / "keys.sqlite")
    scope = Scope(tenant="acme", user="gateway")
    _, gateway = keys.add("gateway", scope, now=NOON, rights={*DEFAULT_RIGHTS, Right.ACT_FOR})
    _, plain = keys.add("plain", scope, now=NOON)
    cited: list[int] = []
    async with service_client(engine, keys=keys) as client:
        for token in (gateway, plain):
            told = await client.post(
                "/v1/chat/completions",
                json={"messages": [{"role": "user", "content": QUESTION}], "user": "anna"},
                headers={"Authorization": f"Bearer {token}"},
            )
            cited.append(len(told.json()["contexture"]["citations"]))
    keys.close()

    assert [1, 0] == cited


async def test_what_is_to_be_stored_is_remembered_once(engine, sdk):
    """The steps of an agent loop are one turn; what only asks is not remembered; nothing is stored without `store`."""
    said = "My cabin on the ferry to Arran is number 14. Should I go today?"
    messages: Any = [{"role": "user", "content": said}]
    await sdk.chat.completions.create(model="contexture", messages=messages)
    nothing = await recall(engine, "cabin number")
    session = {"X-Contexture-Session": "s-1"}
    for _ in range(2):
        await sdk.chat.completions.create(model="contexture", messages=messages, extra_headers=session)
    await engine.outbox.drain()
    events = await engine.sessions.list_events(engine.scope, "s-1")

    assert not any("cabin" in each for each in nothing)
    assert ["My cabin on the ferry to Arran is number 14."] == [
        each for each in await recall(engine, "cabin number") if "cabin" in each
    ]
    assert ["user", "assistant"] == [each.message["role"] for each in events]


async def recall(engine, query: str) -> list[str]:
    """The texts that are recalled, whatever their score."""
    from contexture.conversation import Recall

    return [each.text for each in await engine.memory.recall(engine.scope, Recall(query=query, now=NOON, threshold=0))]


async def test_the_embedders_are_offered_too(sdk, engine):
    """As numbers and as base64, which the SDK asks for; by name, and as the default."""
    found = await sdk.embeddings.create(model="contexture", input=["a ferry", "a pump"])
    numbers = await sdk.embeddings.create(model="contexture", input="a ferry", encoding_format="float")
    name = next(iter(engine.embedders))

    assert 2 == len(found.data)
    assert engine.embedders[name].dimensions == len(found.data[0].embedding)
    assert found.data[0].embedding == pytest.approx(numbers.data[0].embedding)
    assert name in [each.id async for each in sdk.models.list()]
    assert name == (await sdk.models.retrieve(name)).id
    with pytest.raises(openai.NotFoundError):
        await sdk.embeddings.create(model="ada", input="a ferry")
    with pytest.raises(openai.BadRequestError, match="none of them empty"):
        await sdk.embeddings.create(model="contexture", input=["a", ""])


async def test_the_client_of_langchain_calls_tools(http):
    """Whole and streamed, and with results of tools as the last messages."""
    chat = pytest.importorskip("langchain_openai", reason=MISSING).ChatOpenAI(
        model="contexture", api_key="sk-any", base_url="http://127.0.0.1/v1", http_async_client=http
    )
    bound = chat.bind_tools([TOOL])
    called = await bound.ainvoke(QUESTION)
    streamed = None
    async for piece in bound.astream(QUESTION):
        streamed = piece if streamed is None else streamed + piece
    results: list[Any] = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"storm in {call['args']['town']}"}
        for call in called.tool_calls
    ]
    answer = await bound.ainvoke([("user", QUESTION), called, *results])

    assert [{"town": "Brodick"}, {"town": "Ardrossan"}] == [call["args"] for call in called.tool_calls]
    assert streamed is not None
    assert called.tool_calls == streamed.tool_calls
    assert "storm in Brodick and storm in Ardrossan" == answer.content


async def test_the_client_of_llamaindex_calls_tools(http):
    """Whole and streamed."""
    like = pytest.importorskip("llama_index.llms.openai_like", reason=MISSING).OpenAILike(
        model="contexture",
        api_key="sk-any",
        api_base="http://127.0.0.1/v1",
        is_chat_model=True,
        is_function_calling_model=True,
        async_http_client=http,
    )
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool

    def get_weather(town: str) -> str:
        """The weather of a town."""
        return f"storm in {town}"

    tools = [FunctionTool.from_defaults(get_weather)]
    called = await like.achat_with_tools(tools, user_msg=QUESTION, allow_parallel_tool_calls=True)
    streamed = [
        each
        async for each in await like.astream_chat_with_tools(tools, user_msg=QUESTION, allow_parallel_tool_calls=True)
    ]
    plain = await like.achat([ChatMessage(role="user", content="Hello ferry")])
    towns = [call.tool_kwargs["town"] for call in like.get_tool_calls_from_response(called)]

    assert ["Brodick", "Ardrossan"] == towns
    assert towns == [call.tool_kwargs["town"] for call in like.get_tool_calls_from_response(streamed[-1])]
    assert "Good day." == plain.message.content
