"""The tools: each is a route of the service, described for the model that calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from contexture.errors import InvalidRequest
from contexture.mcp.arguments import (
    Arguments,
    CommandArguments,
    ExplainArguments,
    QueryArguments,
    RecallArguments,
    RememberArguments,
    ResearchArguments,
    SearchArguments,
    TurnArguments,
    WorkspaceArguments,
)
from contexture.mcp.reading import as_json, conversation, field_of

_LEDGER = frozenset({"ledger", "capsule", "debug"})
_CITED = "What the user may not see is not in it, personal data and secrets are redacted."


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request to the service."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool: what it takes, which request it makes, and how its answer reads as text.

    `hidden` are fields of the answer that are left out, because they would fill a model's window.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    call: Callable[[dict[str, Any]], Call]
    text: Callable[[Mapping[str, Any]], str] = as_json
    writes: bool = False
    hidden: frozenset[str] = _LEDGER

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self.arguments.described()

    def request(self, given: Mapping[str, Any]) -> Call:
        """The request that these arguments ask for; raises `InvalidRequest`, naming what is wrong with them."""
        try:
            checked = self.arguments.model_validate(given)
        except ValidationError as failure:
            raise InvalidRequest("; ".join(_problem(each) for each in failure.errors())) from failure
        return self.call(checked.model_dump(exclude_none=True))

    def shown(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The answer without what is hidden."""
        return {name: value for name, value in answer.items() if name not in self.hidden}


def _post(path: str) -> Callable[[dict[str, Any]], Call]:
    return lambda given: Call(method="POST", path=path, body=given)


def _explanation(given: dict[str, Any]) -> Call:
    path = f"/v1/builds/{quote(given['build_id'], safe='')}"
    if "candidate" in given:
        path += f"/explain/{quote(given['candidate'], safe='')}"
    return Call(method="GET", path=path)


def _problem(found: Mapping[str, Any]) -> str:
    where = ".".join(str(step) for step in found["loc"])
    if found["type"] == "extra_forbidden":
        return f"unknown argument {where!r}"
    if found["type"] == "missing":
        return f"argument {where!r} is missing"
    message = str(found["msg"])
    return f"argument {where!r}: {message[:1].lower()}{message[1:]}"


TOOLS: Mapping[str, ToolSpec] = {
    tool.name: tool
    for tool in (
        ToolSpec(
            name="build_query_context",
            title="Context for a question",
            description=f"Find, rank and pack what the stored records say about a question. {_CITED} "
            "Returns the prompt text, its citations and a `build_id` for `explain`.",
            arguments=QueryArguments,
            call=_post("/v1/context/query"),
            text=field_of("text"),
        ),
        ToolSpec(
            name="build_turn_context",
            title="Prompt of a chat turn",
            description=f"Build the messages of a chat turn: instructions, history within the limit, and memories "
            f"that help with what the user says now. {_CITED}",
            arguments=TurnArguments,
            call=_post("/v1/context/turn"),
            text=conversation,
        ),
        ToolSpec(
            name="build_command_context",
            title="Context of a slash command",
            description="Build the context of a slash command over news, such as `/trends window=24h` or "
            f"`/ask who mends the pump?`: parsed arguments, documents with scores, and how to answer. {_CITED}",
            arguments=CommandArguments,
            call=_post("/v1/context/command"),
        ),
        ToolSpec(
            name="build_research_context",
            title="Numbered sources for a research question",
            description=f"Find the pages of loaded documents that answer a question, as numbered sources to cite. "
            f"{_CITED} Pages can be read whole as resources.",
            arguments=ResearchArguments,
            call=_post("/v1/context/research"),
            text=field_of("formatted_text"),
        ),
        ToolSpec(
            name="build_workspace_context",
            title="Context of a workspace",
            description=f"Build the context around what the user looks at in a workspace of notes and databases: "
            f"the focus, what is related to it, and what is asked for. {_CITED}",
            arguments=WorkspaceArguments,
            call=_post("/v1/context/workspace"),
            text=field_of("serialized"),
        ),
        ToolSpec(
            name="search",
            title="Search records",
            description="Find passages by words and by meaning, best first, with the signals behind each score. "
            "Use a build tool instead when the passages must fit a budget.",
            arguments=SearchArguments,
            call=_post("/v1/search"),
        ),
        ToolSpec(
            name="remember",
            title="Remember something",
            description="Store a memory for the user. Turns and `recall` find it from now on. Returns its id.",
            arguments=RememberArguments,
            call=_post("/memory/remember"),
            writes=True,
        ),
        ToolSpec(
            name="recall",
            title="Recall memories",
            description="Find memories of the user that answer a question, best first, with their relevance.",
            arguments=RecallArguments,
            call=_post("/memory/recall"),
            hidden=frozenset({"results"}),
        ),
        ToolSpec(
            name="explain",
            title="Explain a build",
            description="Say why each candidate of a recent build is in the prompt or not; with `candidate`, what "
            "the least change is that would have admitted it.",
            arguments=ExplainArguments,
            call=_explanation,
            hidden=frozenset({"capsule"}),
        ),
    )
}
