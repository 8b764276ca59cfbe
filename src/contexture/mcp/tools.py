"""MCP tools: the arguments each takes, the service route it calls, and how the response is rendered as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast
from urllib.parse import quote

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contexture.errors import InvalidRequest

Text = Annotated[str, Field(min_length=1)]
Tokens = Annotated[int, Field(ge=1, description="Most tokens the context may have; else as the settings say.")]
Where = Annotated[
    dict[str, Any],
    Field(description='Filter tree, such as {"equals": ["lang", "ru"]} or {"and": [..., ...]}.'),
]
Messages = Annotated[
    list[dict[str, Any]], Field(description="Messages so far, oldest first, each with `role` and `content`.")
]


class ToolArguments(BaseModel):
    """Arguments of a tool; one that it does not know is refused."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def describe_schema(cls) -> dict[str, Any]:
        """The JSON Schema of the arguments, without generated titles and nulls."""
        return _simplify_schema(cls.model_json_schema())


class QueryArguments(ToolArguments):
    """A question over one collection of records."""

    query: Annotated[Text, Field(description="The question.")]
    collection: Annotated[Text, Field(description="Collection to search; else the default one.")] | None = None
    max_tokens: Tokens | None = None
    system: Annotated[str, Field(description="Instructions to put before the context.")] | None = None
    where: Where | None = None
    model: Annotated[Text, Field(description="Model whose tokens are counted, such as `gpt-4o`.")] | None = None


class TurnArguments(ToolArguments):
    """One turn of a conversation."""

    user_message: Annotated[Text, Field(description="What the user says now.")]
    system_prompt: Annotated[str, Field(description="Instructions of the application.")] | None = None
    history: Messages | None = None
    session_id: Annotated[str, Field(description="The conversation; its memories are preferred.")] | None = None
    persona_id: Annotated[str, Field(description="Whom the assistant plays.")] | None = None
    max_prompt_tokens: Tokens | None = None


class CommandArguments(ToolArguments):
    """A slash command over news."""

    raw_command: Annotated[Text, Field(description="The command with its arguments, such as `/ask pumps window=1w`.")]
    args: Annotated[str, Field(description="Arguments, where they do not follow the command.")] | None = None
    user_lang: Literal["ru", "en", "auto"] | None = None


class ResearchArguments(ToolArguments):
    """A question over the pages of documents."""

    query: Annotated[Text, Field(description="The question.")]
    num_results: Annotated[int, Field(ge=1, le=100, description="Pages to look for, 10 when left out.")] | None = None
    search_mode: (
        Annotated[
            Literal["hybrid", "text", "visual"], Field(description="Search words, what pages look like, or both.")
        ]
        | None
    ) = None
    max_tokens: Tokens | None = None
    where: Where | None = None


class FocusArguments(ToolArguments):
    """What the user looks at."""

    blockId: str | None = None  # noqa: N815 - the wire's name
    pageId: str | None = None  # noqa: N815 - the wire's name
    databaseId: str | None = None  # noqa: N815 - the wire's name


class WorkspaceArguments(ToolArguments):
    """A request over the blocks of a workspace."""

    query: Annotated[str, Field(description="What the user asks for.")] | None = None
    focus: (
        Annotated[FocusArguments, Field(description="What the user looks at: a block, a page, a database.")] | None
    ) = None
    type: (
        Annotated[Literal["assist", "chat", "search", "automate"], Field(description="What it is for; else `assist`.")]
        | None
    ) = None
    conversationHistory: Messages | None = None  # noqa: N815 - the wire's name
    tokenBudget: (  # noqa: N815 - the wire's name
        Annotated[dict[str, Any], Field(description="`total`, a share for each section, and `caps`.")] | None
    ) = None
    hints: Annotated[dict[str, Any], Field(description="Types, times and blocks to prefer or to leave out.")] | None = (
        None
    )


class SearchArguments(ToolArguments):
    """What to look for in one collection of records."""

    query: Annotated[Text, Field(description="What to look for.")]
    collection: Annotated[Text, Field(description="Collection to search; else the default one.")] | None = None
    where: Where | None = None
    limit: Annotated[int, Field(ge=1, le=1_000, description="Passages to return, 10 when left out.")] | None = None


class RememberArguments(ToolArguments):
    """Something to remember."""

    text: Annotated[Text, Field(description="What to remember, as a sentence that makes sense by itself.")]
    kind: Annotated[str, Field(description="What it is, such as `fact` or `preference`.")] | None = None
    tags: list[str] | None = None
    importance: Annotated[float, Field(description="From 0 to 1; more is recalled sooner.")] | None = None
    session_id: Annotated[str, Field(description="The conversation that it comes from.")] | None = None
    ttl_seconds: Annotated[float, Field(description="Forget it after this time.")] | None = None
    idempotency_key: (
        Annotated[str, Field(description="A second call with the same key remembers nothing new.")] | None
    ) = None


class RecallArguments(ToolArguments):
    """A question to the memories."""

    query: Annotated[Text, Field(description="What to recall.")]
    top_k: Annotated[int, Field(ge=1, le=100, description="Memories to return at most.")] | None = None
    threshold: Annotated[float, Field(ge=0, le=1, description="Relevance from which a memory counts.")] | None = None
    session_id: Annotated[str, Field(description="Prefer memories of this conversation.")] | None = None
    tags: Annotated[list[str], Field(description="Only memories with one of these tags.")] | None = None


class ExplainArguments(ToolArguments):
    """A recent build, or one candidate of it."""

    build_id: Annotated[Text, Field(description="The `build_id` or `buildId` that a build answered with.")]
    candidate: (
        Annotated[Text, Field(description="Candidate id from the ledger; then only this one is explained.")] | None
    ) = None


def _simplify_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove generated titles from a schema, and null from the types of optional arguments."""
    kept = {name: _simplify_part(part) for name, part in schema.items() if name != "title" or isinstance(part, dict)}
    real: list[dict[str, Any]] = [each for each in kept.get("anyOf", ()) if each != {"type": "null"}]
    if len(real) != 1:
        return kept
    return {**{name: part for name, part in kept.items() if name not in {"anyOf", "default"}}, **real[0]}


def _simplify_part(part: Any) -> Any:
    if isinstance(part, dict):
        return _simplify_schema(cast("dict[str, Any]", part))
    return [_simplify_part(each) for each in cast("list[Any]", part)] if isinstance(part, list) else part


def render_json(answer: Mapping[str, Any]) -> str:
    """Render the whole response as JSON."""
    return msgspec.json.encode(answer).decode()


def render_field(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a renderer for one text field of the response."""
    return lambda answer: str(answer[name])


def render_conversation(answer: Mapping[str, Any]) -> str:
    """Render messages one below the other, each after its role."""
    return "\n\n".join(f"[{each['role']}]\n{_render_content(each.get('content'))}" for each in answer["messages"])


def _render_content(said: object) -> str:
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()


_LARGE_FIELDS = frozenset({"ledger", "capsule", "debug"})
_ACCESS_NOTE = "What the user may not see is not in it, personal data and secrets are redacted."


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceCall:
    """One HTTP request to the service."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool: its arguments, the request it makes, and how its response is rendered as text.

    `hidden` are fields of the response that are left out, because they would fill a model's context window.
    """

    name: str
    title: str
    description: str
    arguments: type[ToolArguments]
    call: Callable[[dict[str, Any]], ServiceCall]
    text: Callable[[Mapping[str, Any]], str] = render_json
    writes: bool = False
    hidden: frozenset[str] = _LARGE_FIELDS

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self.arguments.describe_schema()

    def build_call(self, given: Mapping[str, Any]) -> ServiceCall:
        """Build the service call for these arguments; raises `InvalidRequest`, naming the invalid ones."""
        try:
            checked = self.arguments.model_validate(given)
        except ValidationError as failure:
            raise InvalidRequest("; ".join(_describe_problem(each) for each in failure.errors())) from failure
        return self.call(checked.model_dump(exclude_none=True))

    def drop_hidden(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response without its hidden fields."""
        return {name: value for name, value in answer.items() if name not in self.hidden}


def _post_to(path: str) -> Callable[[dict[str, Any]], ServiceCall]:
    return lambda given: ServiceCall(method="POST", path=path, body=given)


def _explain_call(given: dict[str, Any]) -> ServiceCall:
    path = f"/v1/builds/{quote(given['build_id'], safe='')}"
    if "candidate" in given:
        path += f"/explain/{quote(given['candidate'], safe='')}"
    return ServiceCall(method="GET", path=path)


def _describe_problem(found: Mapping[str, Any]) -> str:
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
            description=f"Find, rank and pack what the stored records say about a question. {_ACCESS_NOTE} "
            "Returns the prompt text, its citations and a `build_id` for `explain`.",
            arguments=QueryArguments,
            call=_post_to("/v1/context/query"),
            text=render_field("text"),
        ),
        ToolSpec(
            name="build_turn_context",
            title="Prompt of a chat turn",
            description=f"Build the messages of a chat turn: instructions, history within the limit, and memories "
            f"that help with what the user says now. {_ACCESS_NOTE}",
            arguments=TurnArguments,
            call=_post_to("/v1/context/turn"),
            text=render_conversation,
        ),
        ToolSpec(
            name="build_command_context",
            title="Context of a slash command",
            description="Build the context of a slash command over news, such as `/trends window=24h` or "
            f"`/ask who mends the pump?`: parsed arguments, documents with scores, and how to answer. {_ACCESS_NOTE}",
            arguments=CommandArguments,
            call=_post_to("/v1/context/command"),
        ),
        ToolSpec(
            name="build_research_context",
            title="Numbered sources for a research question",
            description=f"Find the pages of loaded documents that answer a question, as numbered sources to cite. "
            f"{_ACCESS_NOTE} Pages can be read whole as resources.",
            arguments=ResearchArguments,
            call=_post_to("/v1/context/research"),
            text=render_field("formatted_text"),
        ),
        ToolSpec(
            name="build_workspace_context",
            title="Context of a workspace",
            description=f"Build the context around what the user looks at in a workspace of notes and databases: "
            f"the focus, what is related to it, and what is asked for. {_ACCESS_NOTE}",
            arguments=WorkspaceArguments,
            call=_post_to("/v1/context/workspace"),
            text=render_field("serialized"),
        ),
        ToolSpec(
            name="search",
            title="Search records",
            description="Find passages by words and by meaning, best first, with the signals behind each score. "
            "Use a build tool instead when the passages must fit a budget.",
            arguments=SearchArguments,
            call=_post_to("/v1/search"),
        ),
        ToolSpec(
            name="remember",
            title="Remember something",
            description="Store a memory for the user. Turns and `recall` find it from now on. Returns its id.",
            arguments=RememberArguments,
            call=_post_to("/memory/remember"),
            writes=True,
        ),
        ToolSpec(
            name="recall",
            title="Recall memories",
            description="Find memories of the user that answer a question, best first, with their relevance.",
            arguments=RecallArguments,
            call=_post_to("/memory/recall"),
            hidden=frozenset({"results"}),
        ),
        ToolSpec(
            name="explain",
            title="Explain a build",
            description="Say why each candidate of a recent build is in the prompt or not; with `candidate`, what "
            "the least change is that would have admitted it.",
            arguments=ExplainArguments,
            call=_explain_call,
            hidden=frozenset({"capsule"}),
        ),
    )
}
