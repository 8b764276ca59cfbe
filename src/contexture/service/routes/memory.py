"""The memory service: remember, recall, give feedback, forget; and the bodies of these routes.

Unknown fields of a body are kept as metadata, because other clients send them.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.convertors import StringConvertor, register_url_convertor

from contexture import memory_payloads as payloads
from contexture.answer.permissions import describe_memories
from contexture.config import Settings
from contexture.conversation import MEMORIES_COLLECTION, Feedback, Memory, MemoryKind, Recall
from contexture.engine import Contexture
from contexture.erasure.request import ForgetRequest
from contexture.errors import InvalidRequest, NotFound
from contexture.memory_payloads import RecallAnswerJson, recall_answer_to_json
from contexture.service._dependencies import CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service._openapi import AnySpelling, JsonField, PrincipalField, any_json
from contexture.service.auth import check_same_identity
from contexture.service.wire import schemas
from contexture.types import Receipt, Scope

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


_RATED_BY_QUERY = 3  # memories that feedback without an id concerns


class _MemoryIdConvertor(StringConvertor):
    """Any path but those of other routes, so that `DELETE /memory/remember/batch` is answered with 405."""

    regex = "(?!(?:remember|remember/batch|recall)$).+"


def router() -> APIRouter:
    """Return the routes of memories; three of them are the same recall under the names that clients use."""
    routes = APIRouter(tags=["memory"])
    routes.post("/memory/remember", responses=schemas.json_answer(schemas.RememberResponse))(remember)
    routes.post("/memory/remember/batch", responses=schemas.json_answer(schemas.RememberResponse))(remember_batch)
    routes.post("/v1/ingest/memories", responses=schemas.json_answer(schemas.RememberResponse))(remember_batch)
    routes.delete("/v1/ingest/memories", responses=schemas.json_answer(schemas.DeletedResponse))(forget_batch)
    for path in ("/memory/recall", "/recall", "/context/evaluate"):
        routes.post(path, responses=schemas.json_answer(RecallAnswerJson))(recall)
    routes.post("/context/feedback", responses=schemas.json_answer(schemas.OkResponse))(feedback)
    register_url_convertor("memory_id", _MemoryIdConvertor())
    routes.delete("/memory/{memory_id:memory_id}", responses=schemas.json_answer(schemas.ForgetResponse))(forget)
    return routes


async def remember(body: MemoryItem, engine: EngineDep, caller: CallerDep) -> Response:
    """Store a memory and return its id; a known idempotency key returns the existing id."""
    scope = _caller_scope(body, caller)
    (written,) = await engine.memory.remember(scope, [body.to_memory(engine.settings)])
    return json_response(schemas.RememberResponse(ok=True, id=written, ids=[written]))


async def remember_batch(body: RememberBatchBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Store memories, all or none, and return their ids in order."""
    scope = _caller_scope(body, caller)
    items = body.read_items()
    for item in items:
        _caller_scope(item, caller)
    memories = await asyncio.to_thread(lambda: [item.to_memory(engine.settings) for item in items])
    written = await engine.memory.remember(scope, memories)
    return json_response(schemas.RememberResponse(ok=True, ids=list(written)))


async def recall(body: RecallBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Return the memories that match the query, best first, as `candidates` and as `results`."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.recall", {})
    query = body.to_recall(engine.settings, moment or engine.clock.now())
    engine.check_query(query.query)
    await engine.wait_delivered(scope)
    return json_response(recall_answer_to_json(await engine.memory.recall(scope, query)))


async def feedback(body: FeedbackBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Make a memory rank a little higher or lower; without an id, the memories that its query recalls first."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.feedback", {})
    now = engine.clock.now()
    for memory_id in await _rated_ids(body, engine, scope, now):
        await engine.memory.feedback(scope, body.to_feedback(memory_id, now))
    return json_response(schemas.OkResponse(ok=True))


async def forget_batch(body: ForgetMemoriesBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Delete memories that the caller may read, with every copy of their texts; return how many, and the receipt."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.forget", describe_memories(len(body.ids)))
    receipt = await _forget_memories(engine, scope, body.ids)
    deleted = _count_forgotten(receipt, body.ids)
    return json_response(schemas.DeletedResponse(**receipt.json_form(), deleted=deleted))


async def forget(
    memory_id: str,
    engine: EngineDep,
    caller: CallerDep,
    tenant_id: Annotated[str | None, Query()] = None,
    user_id: Annotated[str | None, Query()] = None,
) -> Response:
    """Delete a memory with every copy of its text; a missing one and one that the caller may not read are not found."""
    scope = check_same_identity(caller, tenant_id=tenant_id, user_id=user_id)
    await require_permission(engine, scope, "memory.forget", describe_memories(1))
    receipt = await _forget_memories(engine, scope, [memory_id])
    if not _count_forgotten(receipt, [memory_id]):
        raise NotFound(f"no memory {memory_id!r} can be read here")
    return json_response(schemas.ForgetResponse(**receipt.json_form(), ok=True, deleted=1))


async def _rated_ids(body: FeedbackBody, engine: Contexture, scope: Scope, now: datetime) -> Sequence[str]:
    """The memory that the feedback names, or those that its query recalls first."""
    if named := body.memory_id or body.id:
        return [named]
    if not body.query:
        raise InvalidRequest("`memory_id` is missing")
    engine.check_query(body.query)
    settings = engine.settings
    query = Recall(
        query=body.query,
        now=now,
        top_k=_RATED_BY_QUERY,
        namespace=settings.memory_namespace,
        universe=settings.memory_universe,
        threshold=settings.memory_threshold,
    )
    return [found.id for found in await engine.memory.recall(scope, query)]


async def _forget_memories(engine: Contexture, scope: Scope, ids: Sequence[str]) -> Receipt:
    """Forget memories, their messages and summaries made from them."""
    if not ids:
        return Receipt.of_deletion(engine.clock.now(), {}, ())
    return await engine.forget(ForgetRequest(ids=tuple(ids), collection=MEMORIES_COLLECTION), scope=scope)


def _count_forgotten(receipt: Receipt, ids: Sequence[str]) -> int:
    return len(set(ids) & set(receipt.removed.get(MEMORIES_COLLECTION, ())))


def _caller_scope(body: MemoryPayload, caller: Scope) -> Scope:
    check_same_identity(caller, tenant_id=body.tenant)
    return check_same_identity(caller, tenant_id=body.tenant_id, user_id=body.user_id)
