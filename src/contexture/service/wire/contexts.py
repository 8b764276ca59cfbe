"""Built contexts, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contexture.service.wire.parts import Answered, CitationShape, DegradationShape, EntryShape, Grounds, Object


class QueryShape(Grounds):
    """The context of a plain question."""

    build_id: str
    messages: list[Object]
    text: str
    tokens: int
    token_counts: dict[str, int]
    max_tokens: int
    encoding: str
    exact: bool


class SnippetShape(Answered):
    """A memory in a prompt."""

    id: str
    text: str
    score: float
    base_score: float
    recency: float
    label: str
    form: str
    tokens: int
    metadata: Object


class TurnShape(Grounds):
    """The prompt of a turn."""

    build_id: str
    system_prompt: str
    messages: list[Object]
    tokens: int
    token_counts: dict[str, int]
    max_prompt_tokens: int
    encoding: str
    exact: bool
    snippets: list[SnippetShape]
    history: list[Object]
    debug: Object


class CommandShape(Grounds):
    """The context of a slash command."""

    command: str
    params: Object
    retrieval: Object
    graph: Object
    memory: Object
    models: Object
    limits: Object
    telemetry: dict[str, str]
    ab_test: dict[str, str | None]
    recovery: list[Object]
    messages: list[Object]
    tokens: int


class SourceShape(Answered):
    """A page that research found."""

    doc_id: str
    filename: str
    page: int
    extension: str
    thumbnail_path: str | None
    image_path: str | None
    timestamp: str
    section_path: str | None
    parent_heading: str | None
    markdown_content: str | None
    relevance_score: float
    citations: list[CitationShape]
    thumbnail_url: str | None
    image_url: str | None


class ResearchShape(Grounds):
    """The context of a research question."""

    build_id: str
    query: str | None
    search_mode: str | None
    formatted_text: str
    sources: list[SourceShape]
    total_tokens: int
    max_tokens: int | None
    truncated: bool
    encoding: str
    exact: bool
    messages: list[Object]


class WorkspaceShape(Grounds):
    """The context of a request over the workspace."""

    build_id: Annotated[str, Field(alias="buildId")]
    sections: list[Object]
    metadata: Object
    serialized: str
    validation: Object
    encoding: str
    exact: bool


class KeptShape(Answered):
    """A recent build."""

    build_id: str
    request: Object
    ledger: list[EntryShape]
    degradations: list[DegradationShape]
    capsule: Object


class ExplanationShape(Answered):
    """What became of a candidate, and the least that would have admitted it."""

    build_id: str
    candidate: EntryShape
    more_tokens: int | None
    score_needed: float | None
