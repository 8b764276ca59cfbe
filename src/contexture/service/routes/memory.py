"""The memory service: remember, recall, give feedback, forget."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from contexture.errors import NotFound
from contexture.memory_payloads import RecallAnswerJson, recall_answer_to_json
from contexture.service.auth import check_same_identity
from contexture.service.dependencies import CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service.wire.memory import (
    FeedbackBody,
    ForgetMemoriesBody,
    MemoryItem,
    MemoryPayload,
    RecallBody,
    RememberBatchBody,
)
from contexture.service.wire.schemas import (
    DeletedResponse,
    ForgetResponse,
    OkResponse,
    RememberResponse,
    json_answer,
)
from contexture.types import Scope


def router() -> APIRouter:
    """Return the routes of memories; three of them are the same recall under the names that clients use."""
    routes = APIRouter(tags=["memory"])
    routes.post("/memory/remember", responses=json_answer(RememberResponse))(remember)
    routes.post("/memory/remember/batch", responses=json_answer(RememberResponse))(remember_batch)
    routes.post("/v1/ingest/memories", responses=json_answer(RememberResponse))(remember_batch)
    routes.delete("/v1/ingest/memories", responses=json_answer(DeletedResponse))(forget_batch)
    for path in ("/memory/recall", "/recall", "/context/evaluate"):
        routes.post(path, responses=json_answer(RecallAnswerJson))(recall)
    routes.post("/context/feedback", responses=json_answer(OkResponse))(feedback)
    routes.delete("/memory/{memory_id:path}", responses=json_answer(ForgetResponse))(forget)
    return routes


async def remember(body: MemoryItem, engine: EngineDep, caller: CallerDep) -> Response:
    """Store a memory and return its id; a known idempotency key returns the existing id."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.remember", {"memories": 1})
    (written,) = await engine.memory.remember(scope, [body.to_memory(engine.settings)])
    return json_response(RememberResponse(ok=True, id=written, ids=[written]))


async def remember_batch(body: RememberBatchBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Store memories, all or none, and return their ids in order."""
    scope = _caller_scope(body, caller)
    for item in body.memories:
        _caller_scope(item, caller)
    await require_permission(engine, scope, "memory.remember", {"memories": len(body.memories)})
    memories = await asyncio.to_thread(lambda: [item.to_memory(engine.settings) for item in body.memories])
    written = await engine.memory.remember(scope, memories)
    return json_response(RememberResponse(ok=True, ids=list(written)))


async def recall(body: RecallBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Return the memories that match the query, best first, as `candidates` and as `results`."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.recall", {})
    query = body.to_recall(engine.settings, moment or engine.clock.now())
    return json_response(recall_answer_to_json(await engine.memory.recall(scope, query)))


async def feedback(body: FeedbackBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Make a memory rank a little higher or lower."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.feedback", {})
    await engine.memory.feedback(scope, body.to_feedback(engine.clock.now()))
    return json_response(OkResponse(ok=True))


async def forget_batch(body: ForgetMemoriesBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Delete memories that the caller may read, and return how many."""
    scope = _caller_scope(body, caller)
    await require_permission(engine, scope, "memory.forget", {"memories": len(body.ids)})
    return json_response(DeletedResponse(deleted=await engine.memory.forget(scope, body.ids) if body.ids else 0))


async def forget(
    memory_id: str,
    engine: EngineDep,
    caller: CallerDep,
    tenant_id: Annotated[str | None, Query()] = None,
    user_id: Annotated[str | None, Query()] = None,
) -> Response:
    """Delete a memory; a missing one and one that the caller may not read give the same error."""
    scope = check_same_identity(caller, tenant_id=tenant_id, user_id=user_id)
    await require_permission(engine, scope, "memory.forget", {"memory": memory_id})
    if not await engine.memory.forget(scope, [memory_id]):
        raise NotFound(f"no memory {memory_id!r} can be read here")
    return json_response(ForgetResponse(ok=True, deleted=1))


def _caller_scope(body: MemoryPayload, caller: Scope) -> Scope:
    return check_same_identity(caller, tenant_id=body.tenant_id, user_id=body.user_id)
