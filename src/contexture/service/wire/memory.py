"""Request bodies of the memory routes; unknown fields are kept as metadata, because other clients send them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from contexture.config import Settings
from contexture.conversation import Feedback, Memory, Recall
from contexture.errors import InvalidRequest
from contexture.memory_payloads import memory_from_json, read_time, recall_from_json
from contexture.service.openapi import JsonField, any_json

_EXAMPLE: dict[str, JsonValue] = {"text": "Anna drinks tea in the morning.", "tags": ["drinks"]}
MAX_MEMORIES = 1_000
"""Maximum number of memories in one request."""

TimestampField: TypeAlias = Annotated[Any, any_json("An ISO time; one that cannot be read counts as missing.")]


class MemoryPayload(BaseModel):
    """What every payload may say about who asks: it must be the caller."""

    model_config = ConfigDict(extra="allow", strict=True)

    tenant_id: str | None = None
    user_id: str | None = None


class MemoryItem(MemoryPayload):
    """One memory to store."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    text: str
    id: str | None = None
    kind: str | None = None
    type: str | None = None
    namespace: str | None = None
    universe: str | None = None
    session_id: str | None = None
    persona_id: str | None = None
    tags: list[str] | None = None
    importance: float | None = None
    ttl_seconds: float | None = None
    timestamp: TimestampField = None
    created_at: TimestampField = None
    idempotency_key: str | None = None
    readers: list[str] | None = None
    injected: list[str] | None = None
    metadata: Annotated[dict[str, JsonField] | None, Field(description="Further fields of any JSON, by name.")] = None

    def to_memory(self, settings: Settings) -> Memory:
        """Convert to a memory, in the namespace and universe of the service unless it names its own."""
        return memory_from_json(
            self.model_dump(exclude_none=True), namespace=settings.memory_namespace, universe=settings.memory_universe
        )


class RememberBatchBody(MemoryPayload):
    """Memories to store, all of them or none."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        json_schema_extra={"examples": [{"memories": [_EXAMPLE]}]},
    )

    memories: Annotated[list[MemoryItem], Field(max_length=MAX_MEMORIES)]


class ForgetMemoriesBody(MemoryPayload):
    """Memories to forget."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"ids": ["m1"]}]})

    ids: Annotated[list[str], Field(max_length=MAX_MEMORIES)]


class RecallBody(MemoryPayload):
    """A query over memories."""

    model_config = ConfigDict(
        extra="allow", strict=True, json_schema_extra={"examples": [{"query": "What does Anna drink?"}]}
    )

    query: str
    top_k: Annotated[int, Field(ge=0, le=100)] | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    session_id: str | None = None
    persona_id: str | None = None
    namespace: str | None = None
    universe: str | None = None
    sessions: list[str] | None = None
    personas: list[str] | None = None
    tags: list[str] | None = None
    kinds: list[str] | None = None

    def to_recall(self, settings: Settings, now: datetime) -> Recall:
        """Convert to a recall, with defaults from the settings."""
        asked = {"top_k": settings.memory_top_k, **self.model_dump(exclude_none=True)}
        return recall_from_json(
            asked,
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

    memory_id: str | None = None
    id: str | None = None
    score: Annotated[float, Field(ge=-1, le=1)]
    timestamp: TimestampField = None
    created_at: TimestampField = None
    session_id: str | None = None
    query: str | None = None

    def to_feedback(self, now: datetime) -> Feedback:
        """Convert to feedback, dated `now` if it has no time of its own."""
        named = self.memory_id or self.id
        if not named:
            raise InvalidRequest("`memory_id` is missing")
        return Feedback(
            memory_id=named,
            score=self.score,
            time=read_time({"timestamp": self.timestamp, "created_at": self.created_at}) or now,
            session_id=self.session_id or "",
            query=self.query or "",
        )
