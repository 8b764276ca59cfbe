"""The memory service: remember, recall, give feedback, forget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.convertors import StringConvertor, register_url_convertor

from contexture.answer.permissions import describe_memories
from contexture.conversation import MEMORIES_COLLECTION, Recall
from contexture.engine import Contexture
from contexture.erasure.request import ForgetRequest
from contexture.errors import InvalidRequest, NotFound
from contexture.memory_payloads import RecallAnswerJson, recall_answer_to_json
from contexture.service._dependencies import CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service.auth import check_same_identity
from contexture.service.wire import memory as wire
from contexture.service.wire import schemas
from contexture.types import Scope

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


async def remember(body: wire.MemoryItem, engine: EngineDep, caller: CallerDep) -> Response:
    """Store a memory and return its id; a known idempotency key returns the existing id."""
    scope = _caller_scope(body, caller)
    (written,) = await engine.memory.remember(scope, [body.to_memory(engine.settings)])
    return json_response(schemas.RememberResponse(ok=True, id=written, ids=[written]))


async def remember_batch(body: wire.RememberBatchBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Store memories, all or none, and return their ids in order."""
    scope = _caller_scope(body, caller)
    items = body.read_items()
    for item in items:
        _caller_scope(item, caller)
    memories = await asyncio.to_thread(lambda: [item.to_memory(engine.settings) for item in items])
    written = await engine.memory.remember(scope, memories)
    return json_response(schemas.RememberResponse(ok=True, ids=list(written)))


async def recall(body: wire.RecallBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Return the memories that match the query, best first, as `candidates` and as `results`."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.recall", {})
    query = body.to_recall(engine.settings, moment or engine.clock.now())
    engine.check_query(query.query)
    await engine.wait_delivered(scope)
    return json_response(recall_answer_to_json(await engine.memory.recall(scope, query)))


async def feedback(body: wire.FeedbackBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Make a memory rank a little higher or lower; without an id, the memories that its query recalls first."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.feedback", {})
    now = engine.clock.now()
    for memory_id in await _rated_ids(body, engine, scope, now):
        await engine.memory.feedback(scope, body.to_feedback(memory_id, now))
    return json_response(schemas.OkResponse(ok=True))


async def forget_batch(body: wire.ForgetMemoriesBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Delete memories that the caller may read, with every copy of their texts, and return how many."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.forget", describe_memories(len(body.ids)))
    return json_response(schemas.DeletedResponse(deleted=await _forget_memories(engine, scope, body.ids)))


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
    if not await _forget_memories(engine, scope, [memory_id]):
        raise NotFound(f"no memory {memory_id!r} can be read here")
    return json_response(schemas.ForgetResponse(ok=True, deleted=1))


async def _rated_ids(body: wire.FeedbackBody, engine: Contexture, scope: Scope, now: datetime) -> Sequence[str]:
    """The memory that the feedback names, or those that its query recalls first."""
    if named := body.memory_id or body.id:
        return [named]
    if not body.query:
        raise InvalidRequest("`memory_id` is missing")
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


async def _forget_memories(engine: Contexture, scope: Scope, ids: Sequence[str]) -> int:
    """Forget memories, their messages and summaries made from them; returns how many of `ids` there were."""
    if not ids:
        return 0
    receipt = await engine.forget(ForgetRequest(ids=tuple(ids), collection=MEMORIES_COLLECTION), scope=scope)
    return len(set(ids) & set(receipt.removed.get(MEMORIES_COLLECTION, ())))


def _caller_scope(body: wire.MemoryPayload, caller: Scope) -> Scope:
    check_same_identity(caller, tenant_id=body.tenant)
    return check_same_identity(caller, tenant_id=body.tenant_id, user_id=body.user_id)
