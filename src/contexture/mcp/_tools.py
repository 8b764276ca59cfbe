"""MCP tools: the arguments each takes, the service route it calls, and how the response is rendered as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, cast
from urllib.parse import quote

import msgspec
from msgspec import Meta

from contexture.answer.research import ANSWER_FIELDS, ResearchQuestion
from contexture.answer.workspace import WorkspaceQuestion
from contexture.builders.ask.request import ANSWER_FIELDS as ASK_ANSWER_FIELDS
from contexture.builders.ask.request import AskRequest
from contexture.builders.command.request import CommandRequest
from contexture.builders.query.request import QueryRequest, SearchRequest
from contexture.builders.turn.request import Turn
from contexture.builders.workspace.request import ContextRequest
from contexture.json_objects import object_schema, parse_object

_TEXT: TypeAlias = Annotated[str, Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberArguments:
    """Something to remember."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            description="What to remember, as a sentence that makes sense by itself.",
            examples=["Anna drinks tea in the morning."],
        ),
    ]
    kind: Annotated[str | None, Meta(description="What it is, such as `fact` or `preference`.")] = None
    tags: Annotated[list[str] | None, Meta(description="Labels to recall it by.")] = None
    importance: Annotated[float | None, Meta(description="From 0 to 1; higher values rank higher.")] = None
    session_id: Annotated[str | None, Meta(description="The conversation that it comes from.")] = None
    ttl_seconds: Annotated[float | None, Meta(description="Time to live in seconds.")] = None
    idempotency_key: Annotated[
        str | None, Meta(description="A second call with the same key remembers nothing new.")
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallArguments:
    """A query over memories."""

    query: Annotated[str, Meta(min_length=1, description="What to recall.", examples=["What does Anna drink?"])]
    top_k: Annotated[Annotated[int, Meta(ge=1, le=100)] | None, Meta(description="Memories to return at most.")] = None
    threshold: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="Relevance from which a memory counts.")
    ] = None
    session_id: Annotated[str | None, Meta(description="Prefer memories of this conversation.")] = None
    tags: Annotated[list[str] | None, Meta(description="Only memories with one of these tags.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainArguments:
    """A recent build, or one candidate of it."""

    build_id: Annotated[
        str,
        Meta(
            min_length=1, description="The `build_id` or `buildId` that a build answered with.", examples=["ctx-1a2b"]
        ),
    ]
    candidate: Annotated[
        _TEXT | None, Meta(description="Candidate id from the ledger; then only this one is explained.")
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FindBlocksArguments:
    """A title or an alias."""

    title: Annotated[str, Meta(min_length=1, description="A title or an alias, in any case.", examples=["Plans"])]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadBlocksArguments:
    """A block, and how much below it."""

    block_id: Annotated[str, Meta(min_length=1, description="The id of a page or block.", examples=["p"])]
    limit: Annotated[Annotated[int, Meta(ge=1, le=1_000)] | None, Meta(description="Blocks at most.")] = None
    cursor: Annotated[str | None, Meta(description="The `next` of the answer before.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListChangesArguments:
    """A time, and whose changes."""

    since: Annotated[
        str | None, Meta(description="ISO time with a zone; by default seven days ago.", examples=["2026-06-01T00:00Z"])
    ] = None
    user: Annotated[str | None, Meta(description="Only changes by this user.")] = None
    limit: Annotated[Annotated[int, Meta(ge=1, le=1_000)] | None, Meta(description="Changes at most.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryDatabaseArguments:
    """A query over a database, or over all tasks."""

    database_id: Annotated[str | None, Meta(description="The id of a database; all tasks if left out.")] = None
    filter: Annotated[
        list[dict[str, Any]] | None,
        Meta(
            description="Conditions with `column` and `equals`, `any_of`, `contains`, `start`, `before` or `empty`.",
            examples=[[{"column": "done", "equals": False}]],
        ),
    ] = None
    sort: Annotated[list[dict[str, Any]] | None, Meta(description="Columns with `column` and `descending`.")] = None
    group_by: Annotated[list[str] | None, Meta(description="Columns to count values of.")] = None
    aggregate: Annotated[
        list[dict[str, Any]] | None,
        Meta(description="`column` with `function`: count, sum, avg, min or max."),
    ] = None
    limit: Annotated[Annotated[int, Meta(ge=1, le=1_000)] | None, Meta(description="Rows at most.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteBlockArguments:
    """A new block, or changes of one."""

    id: Annotated[str, Meta(min_length=1, description="Id of the block; of a new one any id not in use.")]
    new: Annotated[bool, Meta(description="Whether to add a block; else the one with this id is changed.")] = False
    type: Annotated[str | None, Meta(description="Such as `page`, `paragraph` or `todo`.", examples=["todo"])] = None
    text: Annotated[str | None, Meta(description="Its text in Markdown.", examples=["Call Ada"])] = None
    parent: Annotated[str | None, Meta(description="The id of the block above it.")] = None
    properties: Annotated[
        dict[str, Any] | None, Meta(description="Such as `due`, `status` and `assignee`; null removes one.")
    ] = None
    version: Annotated[
        int | None, Meta(description="The version that is changed; the call fails if another is stored.")
    ] = None


def _quote(text: object) -> str:
    return quote(str(text), safe="")


def _with_query(path: str, given: Mapping[str, Any]) -> str:
    """The path with its parameters; a model is shown redacted texts."""
    return "&".join([f"{path}?redacted=true", *(f"{name}={_quote(value)}" for name, value in given.items())])


def _read_blocks_call(given: dict[str, Any]) -> ServiceCall:
    block = _quote(given.pop("block_id"))
    return ServiceCall(method="GET", path=_with_query(f"/v1/blocks/{block}/subtree", given))


def _list_changes_call(given: dict[str, Any]) -> ServiceCall:
    return ServiceCall(method="GET", path=_with_query("/v1/workspace/changes", given))


def _query_database_call(given: dict[str, Any]) -> ServiceCall:
    database = given.pop("database_id", "")
    path = f"/v1/blocks/{_quote(database)}/query" if database else "/v1/workspace/tasks"
    return ServiceCall(method="POST", path=_with_query(path, {}), body=given)


def _write_block_call(given: dict[str, Any]) -> ServiceCall:
    if given.pop("new", False):
        return ServiceCall(method="POST", path="/v1/ingest/blocks", body={"blocks": [given]})
    return ServiceCall(method="PATCH", path=f"/v1/blocks/{_quote(given.pop('id'))}", body=given)


def _simplify_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove titles from a schema, null from the types of optional arguments, and choices of which one is left.

    Choices between several types become a list of types, because some clients do not understand `anyOf`.
    """
    kept = {name: _simplify_part(part) for name, part in schema.items() if name != "title" or isinstance(part, dict)}
    real: list[dict[str, Any]] = [each for each in kept.pop("anyOf", ()) if each != {"type": "null"}]
    if not real:
        return kept
    merged = {name: part for each in real for name, part in each.items()}
    types = {"type": [each["type"] for each in real]} if len(real) > 1 else {}
    return {**{name: part for name, part in kept.items() if name != "default"}, **merged, **types}


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
    """A tool: the model of its arguments, the request it makes, and how its response is rendered as text.

    `withheld` are fields of the model that the application decides, not a language model. `hidden` are fields of the
    response that are left out, because they would fill a model's context window.
    """

    name: str
    title: str
    description: str
    arguments: type
    call: Callable[[dict[str, Any]], ServiceCall]
    text: Callable[[Mapping[str, Any]], str] = render_json
    writes: bool = False
    withheld: tuple[str, ...] = ()
    hidden: frozenset[str] = _LARGE_FIELDS

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return _simplify_schema(object_schema(self.arguments, without=self.withheld))

    def build_call(self, given: Mapping[str, Any]) -> ServiceCall:
        """Build the service call for these arguments; raises `InvalidRequest`, naming the invalid ones."""
        parse_object(self.arguments, given, what="this tool", without=self.withheld)
        return self.call({name: value for name, value in given.items() if value is not None})

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


TOOLS: Mapping[str, ToolSpec] = {
    tool.name: tool
    for tool in (
        ToolSpec(
            name="build_ask_context",
            title="Context from everything",
            description="Find what answers a question in everything the user has: memories, records, pages of "
            f"documents, news and the workspace, as numbered sources in one prompt. {_ACCESS_NOTE} "
            "Start here unless you know which kind of source holds the answer.",
            arguments=AskRequest,
            withheld=ASK_ANSWER_FIELDS,
            call=_post_to("/v1/context/ask"),
            text=render_field("text"),
        ),
        ToolSpec(
            name="build_query_context",
            title="Context for a question",
            description=f"Find, rank and pack what the stored records say about a question. {_ACCESS_NOTE} "
            "Returns the prompt text, its citations and a `build_id` for `explain`.",
            arguments=QueryRequest,
            call=_post_to("/v1/context/query"),
            text=render_field("text"),
        ),
        ToolSpec(
            name="build_turn_context",
            title="Prompt of a chat turn",
            description=f"Build the messages of a chat turn: instructions, history within the limit, and memories "
            f"that help with what the user says now. {_ACCESS_NOTE}",
            arguments=Turn,
            withheld=("tenant_id", "user_id"),
            call=_post_to("/v1/context/turn"),
            text=render_conversation,
        ),
        ToolSpec(
            name="build_command_context",
            title="Context of a slash command",
            description="Build the context of a slash command over news, such as `/trends window=24h` or "
            f"`/ask who repairs the pump?`: parsed arguments, documents with scores, and how to answer. {_ACCESS_NOTE}",
            arguments=CommandRequest,
            withheld=("env", "ab_test"),
            call=_post_to("/v1/context/command"),
        ),
        ToolSpec(
            name="build_research_context",
            title="Numbered sources for a research question",
            description=f"Find the pages of loaded documents that answer a question, as numbered sources to cite. "
            f"{_ACCESS_NOTE} Pages can be read whole as resources.",
            arguments=ResearchQuestion,
            withheld=("include_text", "include_visual", *ANSWER_FIELDS),
            call=_post_to("/v1/context/research"),
            text=render_field("formatted_text"),
        ),
        ToolSpec(
            name="build_workspace_context",
            title="Context of a workspace",
            description=f"Build the context around what the user looks at in a workspace of notes and databases: "
            f"the focus, what is related to it, and what is asked for. {_ACCESS_NOTE}",
            arguments=ContextRequest,
            withheld=("user",),
            call=_post_to("/v1/context/workspace"),
            text=render_field("serialized"),
        ),
        ToolSpec(
            name="ask_workspace",
            title="Ask the workspace",
            description="Answer a question about notes, tasks, people and databases, such as `Which of my tasks are "
            f"overdue?` or `What changed since Monday?`, with citations. {_ACCESS_NOTE}",
            arguments=WorkspaceQuestion,
            call=_post_to("/v1/workspace/ask"),
            text=render_field("answer"),
        ),
        ToolSpec(
            name="find_blocks",
            title="Find pages by title",
            description="Find pages, databases and rows of the workspace by title or alias; returns their ids.",
            arguments=FindBlocksArguments,
            call=lambda given: ServiceCall(method="GET", path=_with_query("/v1/workspace/find", given)),
        ),
        ToolSpec(
            name="read_blocks",
            title="Read a page",
            description="Read the blocks below a page or block, in document order; personal data is redacted.",
            arguments=ReadBlocksArguments,
            call=_read_blocks_call,
        ),
        ToolSpec(
            name="list_changes",
            title="List changes",
            description="List what changed in the workspace in the last days, newest first, with who and when.",
            arguments=ListChangesArguments,
            call=_list_changes_call,
        ),
        ToolSpec(
            name="query_database",
            title="Query a database",
            description="Filter, sort, group and aggregate the rows of a database of the workspace, or all tasks.",
            arguments=QueryDatabaseArguments,
            call=_query_database_call,
        ),
        ToolSpec(
            name="write_block",
            title="Write a block",
            description="Add a block to the workspace, such as a todo below a page, or change fields of one by its id.",
            arguments=WriteBlockArguments,
            call=_write_block_call,
            text=lambda _: "The block is written.",
            hidden=frozenset({"block"}),
            writes=True,
        ),
        ToolSpec(
            name="search",
            title="Search records",
            description="Find passages by words and by meaning, best first, with the signals behind each score. "
            "Use a build tool instead when the passages must fit a budget.",
            arguments=SearchRequest,
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
            description="Explain why each candidate of a recent build is in the prompt or not; with `candidate`, what "
            "the least change is that would have admitted it.",
            arguments=ExplainArguments,
            call=_explain_call,
            hidden=frozenset({"capsule"}),
        ),
    )
}
