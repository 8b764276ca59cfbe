"""Request bodies of the memory routes; unknown fields are kept as metadata, because other clients send them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from contexture import memory_payloads as payloads
from contexture.config import Settings
from contexture.conversation import Feedback, Memory, MemoryKind, Recall
from contexture.errors import InvalidRequest
from contexture.service._openapi import AnySpelling, JsonField, PrincipalField, any_json

_EXAMPLE: dict[str, JsonValue] = {"text": "Anna drinks tea in the morning.", "tags": ["drinks"]}
MAX_MEMORIES = 1_000
"""Maximum number of memories in one request."""

KindField: TypeAlias = Annotated[str, Field(json_schema_extra={"enum": list(map(str, MemoryKind))})]
TimestampField: TypeAlias = Annotated[Any, any_json("An ISO time; one that cannot be read counts as missing.")]


class MemoryPayload(BaseModel):
    """What every payload may say about who asks: it must be the caller."""

    model_config = ConfigDict(extra="allow", strict=True)

    tenant_id: Annotated[str | None, Field(description="The caller's tenant.")] = None
    tenant: Annotated[str | None, Field(description="Alias of `tenant_id`.")] = None
    user_id: Annotated[str | None, Field(description="The caller.")] = None


class MemoryItem(MemoryPayload):
    """One memory to store."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    text: Annotated[str | None, Field(description="The text; or `value`, as other clients send it.")] = None
    value: Annotated[
        dict[str, JsonField] | str | None, Field(description="The text, or an object with `text` or `content`.")
    ] = None
    id: Annotated[str | None, Field(description="Its id; one is made if it is left out.")] = None
    key: Annotated[str | None, Field(description="Alias of `id`.")] = None
    kind: Annotated[KindField | None, Field(description="A fact (`semantic`) or an event (`episodic`).")] = None
    type: Annotated[str | None, Field(description="What it is about, such as `preference`.")] = None
    namespace: Annotated[
        str | None,
        Field(description="Where it is kept; the setting's if left out.", json_schema_extra={"minLength": 1}),
    ] = None
    universe: Annotated[str | None, Field(description="Its universe; the setting's if left out.")] = None
    session_id: Annotated[str | None, Field(description="The session it comes from.")] = None
    persona_id: Annotated[str | None, Field(description="The persona it belongs to.")] = None
    tags: Annotated[list[str] | None, Field(description="Words to select it by.")] = None
    importance: Annotated[
        float | None,
        Field(description="How important it is, from 0 to 1.", json_schema_extra={"minimum": 0, "maximum": 1}),
    ] = None
    ttl_seconds: Annotated[
        float | None,
        Field(description="It is forgotten after this many seconds.", json_schema_extra={"exclusiveMinimum": 0}),
    ] = None
    timestamp: TimestampField = None
    created_at: TimestampField = None
    idempotency_key: Annotated[str | None, Field(description="A second memory with this key is not stored.")] = None
    readers: Annotated[
        list[PrincipalField] | None, Field(description="Who may recall it; its owner alone if left out.")
    ] = None
    injected: Annotated[list[str] | None, Field(description="Ids of the memories in the prompt it comes from.")] = None
    metadata: Annotated[dict[str, JsonField] | None, Field(description="Further fields of any JSON, by name.")] = None

    def to_memory(self, settings: Settings) -> Memory:
        """Convert to a memory, in the namespace and universe of the service unless it names its own."""
        given = payloads.rename_memory_fields(self.model_dump(exclude_none=True))
        if not isinstance(given.get("text"), str):
            raise InvalidRequest("a memory needs `text`, or a `value` that is a text or has `text` or `content`")
        return payloads.memory_from_json(given, namespace=settings.memory_namespace, universe=settings.memory_universe)


class RememberBatchBody(MemoryPayload):
    """Memories to store, all of them or none."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        json_schema_extra={"examples": [{"memories": [_EXAMPLE]}]},
    )

    memories: Annotated[list[MemoryItem] | None, Field(max_length=MAX_MEMORIES)] = None
    items: Annotated[list[MemoryItem] | None, Field(max_length=MAX_MEMORIES, description="Alias of `memories`.")] = None

    def read_items(self) -> list[MemoryItem]:
        """The memories, under either name or both."""
        if self.memories is None and self.items is None:
            raise InvalidRequest("`memories` is missing")
        return [*(self.memories or ()), *(self.items or ())]


class ForgetMemoriesBody(MemoryPayload):
    """Memories to forget."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"ids": ["m1"]}]})

    ids: Annotated[list[str], Field(max_length=MAX_MEMORIES)]


class RecallBody(MemoryPayload):
    """A query over memories."""

    model_config = ConfigDict(
        extra="allow", strict=True, json_schema_extra={"examples": [{"query": "What does Anna drink?"}]}
    )

    query: Annotated[str, Field(description="What to recall.")]
    top_k: Annotated[int, Field(description="How many memories at most.", ge=0, le=100), AnySpelling] | None = None
    threshold: Annotated[float, Field(description="The least score.", ge=0, le=1)] | None = None
    min_score: Annotated[float, Field(ge=0, le=1, description="Alias of `threshold`.")] | None = None
    session_id: Annotated[str | None, Field(description="Memories of this session are preferred.")] = None
    persona_id: Annotated[str | None, Field(description="Memories of this persona are preferred.")] = None
    namespace: Annotated[str | None, Field(description="Recall from this namespace alone.")] = None
    universe: Annotated[str | None, Field(description="Recall from this universe alone.")] = None
    sessions: Annotated[list[str] | None, Field(description="Recall from these sessions alone.")] = None
    personas: Annotated[list[str] | None, Field(description="Recall from these personas alone.")] = None
    tags: Annotated[list[str] | None, Field(description="Recall memories that have one of these tags.")] = None
    kinds: Annotated[list[KindField] | None, Field(description="Recall these kinds alone.")] = None

    def to_recall(self, settings: Settings, now: datetime) -> Recall:
        """Convert to a recall, with defaults from the settings."""
        configured = {"top_k": settings.memory_top_k} if settings.memory_top_k else {}
        fields = {**configured, **payloads.rename_recall_fields(self.model_dump(exclude_none=True))}
        return payloads.recall_from_json(
            fields,
            now=now,
            namespace=settings.memory_namespace,
            universe=settings.memory_universe,
            threshold=settings.memory_threshold,
        )


class FeedbackBody(MemoryPayload):
    """How useful one recalled memory was."""

    model_config = ConfigDict(
        extra="allow", strict=True, json_schema_extra={"examples": [{"memory_id": "m1", "score": 1}]}
    )

    memory_id: Annotated[str | None, Field(description="The id of the memory.")] = None
    id: Annotated[str | None, Field(description="Alias of `memory_id`.")] = None
    score: Annotated[float, Field(description="From -1, harmful, to 1, useful.", ge=-1, le=1)] | None = None
    utility: Annotated[float | None, Field(description="Alias of `score`; beyond -1 and 1 it counts as these.")] = None
    reward: Annotated[float | None, Field(description="Alias of `score`, like `utility`.")] = None
    timestamp: TimestampField = None
    created_at: TimestampField = None
    session_id: Annotated[str | None, Field(description="The session in which it was recalled.")] = None
    query: Annotated[str | None, Field(description="What was asked.")] = None

    def to_feedback(self, memory_id: str, now: datetime) -> Feedback:
        """Convert to feedback on one memory, dated `now` if it has no time of its own."""
        given = next((each for each in (self.score, self.utility, self.reward) if each is not None), None)
        if given is None:
            raise InvalidRequest("`score` is missing")
        return Feedback(
            memory_id=memory_id,
            score=min(1.0, max(-1.0, given)),
            time=payloads.read_time({"timestamp": self.timestamp, "created_at": self.created_at}) or now,
            session_id=self.session_id or "",
            query=self.query or "",
        )
