"""What each tool takes, described for the model that calls it; the service checks the values once more."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
Tokens = Annotated[int, Field(ge=1, description="Most tokens the context may have; else as the settings say.")]
Where = Annotated[
    dict[str, Any],
    Field(description='Filter tree, such as {"equals": ["lang", "ru"]} or {"and": [..., ...]}.'),
]
Messages = Annotated[
    list[dict[str, Any]], Field(description="Messages so far, oldest first, each with `role` and `content`.")
]


class Arguments(BaseModel):
    """Arguments of a tool; one that it does not know is refused."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def described(cls) -> dict[str, Any]:
        """The JSON Schema of the arguments, without what says nothing to a reader."""
        return _plain(cls.model_json_schema())


class QueryArguments(Arguments):
    """A question over one collection of records."""

    query: Annotated[Text, Field(description="The question.")]
    collection: Annotated[Text, Field(description="Collection to search; else the default one.")] | None = None
    max_tokens: Tokens | None = None
    system: Annotated[str, Field(description="Instructions to put before the context.")] | None = None
    where: Where | None = None
    model: Annotated[Text, Field(description="Model whose tokens are counted, such as `gpt-4o`.")] | None = None


class TurnArguments(Arguments):
    """One turn of a conversation."""

    user_message: Annotated[Text, Field(description="What the user says now.")]
    system_prompt: Annotated[str, Field(description="Instructions of the application.")] | None = None
    history: Messages | None = None
    session_id: Annotated[str, Field(description="The conversation; its memories are preferred.")] | None = None
    persona_id: Annotated[str, Field(description="Whom the assistant plays.")] | None = None
    max_prompt_tokens: Tokens | None = None


class CommandArguments(Arguments):
    """A slash command over news."""

    raw_command: Annotated[Text, Field(description="The command with its arguments, such as `/ask pumps window=1w`.")]
    args: Annotated[str, Field(description="Arguments, where they do not follow the command.")] | None = None
    user_lang: Literal["ru", "en", "auto"] | None = None


class ResearchArguments(Arguments):
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


class Focus(Arguments):
    """What the user looks at."""

    blockId: str | None = None  # noqa: N815 - the wire's name
    pageId: str | None = None  # noqa: N815 - the wire's name
    databaseId: str | None = None  # noqa: N815 - the wire's name


class WorkspaceArguments(Arguments):
    """A request over the blocks of a workspace."""

    query: Annotated[str, Field(description="What the user asks for.")] | None = None
    focus: Annotated[Focus, Field(description="What the user looks at: a block, a page, a database.")] | None = None
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


class SearchArguments(Arguments):
    """What to look for in one collection of records."""

    query: Annotated[Text, Field(description="What to look for.")]
    collection: Annotated[Text, Field(description="Collection to search; else the default one.")] | None = None
    where: Where | None = None
    limit: Annotated[int, Field(ge=1, le=1_000, description="Passages to return, 10 when left out.")] | None = None


class RememberArguments(Arguments):
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


class RecallArguments(Arguments):
    """A question to the memories."""

    query: Annotated[Text, Field(description="What to recall.")]
    top_k: Annotated[int, Field(ge=1, le=100, description="Memories to return at most.")] | None = None
    threshold: Annotated[float, Field(ge=0, le=1, description="Relevance from which a memory counts.")] | None = None
    session_id: Annotated[str, Field(description="Prefer memories of this conversation.")] | None = None
    tags: Annotated[list[str], Field(description="Only memories with one of these tags.")] | None = None


class ExplainArguments(Arguments):
    """A recent build, or one candidate of it."""

    build_id: Annotated[Text, Field(description="The `build_id` or `buildId` that a build answered with.")]
    candidate: (
        Annotated[Text, Field(description="Candidate id from the ledger; then only this one is explained.")] | None
    ) = None


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without generated titles; an argument that may be left out need not say that it may be null."""
    kept = {name: _below(part) for name, part in schema.items() if name != "title" or isinstance(part, dict)}
    real: list[dict[str, Any]] = [each for each in kept.get("anyOf", ()) if each != {"type": "null"}]
    if len(real) != 1:
        return kept
    return {**{name: part for name, part in kept.items() if name not in {"anyOf", "default"}}, **real[0]}


def _below(part: Any) -> Any:
    if isinstance(part, dict):
        return _plain(cast("dict[str, Any]", part))
    return [_below(each) for each in cast("list[Any]", part)] if isinstance(part, list) else part
