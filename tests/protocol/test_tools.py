"""The tools: what they take, what they answer, how they fail."""

from __future__ import annotations

import json

import pytest
from mcp.shared.exceptions import MCPError

from contexture.errors import InvalidRequest
from contexture.mcp._tools import TOOLS

BUILDS = {
    "build_query_context": {"query": "pump"},
    "build_turn_context": {"user_message": "What about the pump?", "history": [{"role": "user", "content": "Hello."}]},
    "build_command_context": {"raw_command": "/memory recall pump"},
    "build_research_context": {"query": "pump", "search_mode": "text"},
    "build_workspace_context": {"query": "pump", "type": "search"},
}


WORKSPACE = ("ask_workspace", "find_blocks", "read_blocks", "list_changes", "query_database", "write_block")


async def test_a_model_works_in_a_workspace(client):
    """It writes and changes blocks, finds and reads pages, queries tasks and asks; personal data is redacted."""

    async def call(name: str, **given: object) -> dict:
        answer = await client.call_tool(name, given)
        assert not answer.is_error, answer.content
        return answer.structured_content

    await call("write_block", id="p", new=True, type="page", text="Plant")
    await call("write_block", id="t", new=True, type="todo", text="Mail ada@example.org", parent="p")
    await call("write_block", id="t", properties={"assignee": "anna"}, version=1)
    tasks = [{"column": "assignee", "equals": "me"}]

    assert ["p"] == [each["id"] for each in (await call("find_blocks", title="plant"))["blocks"]]
    assert ["Mail <EMAIL_1>"] == [each["text"] for each in (await call("read_blocks", block_id="p"))["blocks"]]
    assert ["t"] == [each["id"] for each in (await call("query_database", filter=tasks))["blocks"]]
    assert {"p", "t"} <= {each["id"] for each in (await call("list_changes", limit=9))["changes"]}
    asked = await call("ask_workspace", query="What are my open tasks?")
    assert "Open tasks of anna: 1, all shown below. [1]" in asked["answer"]
    late = await client.call_tool("write_block", {"id": "t", "text": "x", "version": 1})
    assert late.is_error
    assert "CONFLICT" in late.content[0].text


async def test_every_kind_of_context_has_a_tool(client):
    """A model can build each context, search, remember, recall and explain."""
    names = {tool.name for tool in (await client.list_tools()).tools}

    assert {*BUILDS, *WORKSPACE, "build_ask_context", "search", "remember", "recall", "explain"} == names


async def test_every_argument_is_explained_and_unknown_ones_are_refused(client):
    """A schema says what each argument means, and allows no others."""
    for tool in (await client.list_tools()).tools:
        text = json.dumps(tool.input_schema)
        named = tool.input_schema["properties"].values()

        assert tool.input_schema["additionalProperties"] is False
        assert all("type" in each or "enum" in each or "$ref" in each for each in named), tool.name
        assert "anyOf" not in text
        assert '"title": "' not in text


@pytest.mark.parametrize("name", BUILDS)
async def test_a_build_answers_without_its_ledger(client, name):
    """What fills a model's window is left out; the rest is what the route answers."""
    result = await client.call_tool(name, BUILDS[name])

    assert not result.is_error, result.content[0].text
    assert result.content[0].text
    assert not {"ledger", "capsule", "debug"} & result.structured_content.keys()


async def test_a_context_reads_as_its_prompt(client):
    """The text of a build is the prompt, as the caller may see it."""
    text = (await client.call_tool("build_query_context", {"query": "pump"})).content[0].text

    assert "The pump leaks. Mail <EMAIL_1> about it." in text
    assert "anna mends" in text
    assert "finance" not in text


async def test_a_turn_reads_as_a_conversation(client):
    """Each message stands behind its role."""
    text = (await client.call_tool("build_turn_context", BUILDS["build_turn_context"])).content[0].text

    assert text.startswith("[system]\n")
    assert text.endswith("[user]\nHello.\n\n[user]\nWhat about the pump?")


async def test_what_is_remembered_is_recalled(client):
    """A memory is found by the next question."""
    written = await client.call_tool("remember", {"text": "Anna drinks tea in the morning.", "tags": ["drinks"]})
    found = await client.call_tool("recall", {"query": "What does Anna drink?", "tags": ["drinks"], "threshold": 0})

    assert [written.structured_content["id"]] == [each["id"] for each in found.structured_content["candidates"]]


async def test_a_build_is_explained(client):
    """The ledger of a build names every candidate, and each can be asked about."""
    built = (await client.call_tool("build_query_context", {"query": "pump"})).structured_content["build_id"]
    whole = (await client.call_tool("explain", {"build_id": built})).structured_content
    one = await client.call_tool("explain", {"build_id": built, "candidate": "a/valve?#00000"})

    assert {"pump#00000", "a/valve?#00000"} == {entry["id"] for entry in whole["ledger"]}
    assert "capsule" not in whole
    assert one.structured_content["candidate"]["id"] == "a/valve?#00000"


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("search", {"quer": "pump"}, "VALIDATION_FAILED: field 'query' is missing; unknown field 'quer'"),
        ("search", {"query": "pump", "collection": "nothing"}, "NO_DATA: unknown collection 'nothing'"),
        ("search", {"query": "pump", "where": {"like": ["a", "b"]}}, "VALIDATION_FAILED: "),
        ("recall", {"query": "x", "top_k": 0}, "VALIDATION_FAILED: field 'top_k' must be a whole number >= 1"),
        ("explain", {"build_id": "ctx-none"}, "NO_DATA: no build 'ctx-none' is stored here"),
        ("explain", {"build_id": "../keys"}, "NO_DATA: "),
    ],
)
async def test_what_goes_wrong_is_the_result_of_the_tool(client, name, given, told):
    """A model is told in our words what to do better."""
    result = await client.call_tool(name, given)

    assert result.is_error
    assert result.content[0].text.startswith(told)


async def test_an_unknown_tool_is_refused(client):
    """A tool that is not there is a fault of the caller, and the others are named."""
    with pytest.raises(MCPError, match="unknown tool 'drop'; the tools are build_ask_context"):
        await client.call_tool("drop", {})


def test_arguments_left_out_are_not_sent():
    """The service fills in what a caller does not say."""
    assert TOOLS["search"].build_call({"query": "x", "where": None}).body == {"query": "x"}


def test_nested_arguments_are_checked():
    """A focus with an unknown field is refused with its path."""
    with pytest.raises(InvalidRequest, match=r"unknown field 'focus\.block'"):
        TOOLS["build_workspace_context"].build_call({"query": "x", "focus": {"block": "x"}})
