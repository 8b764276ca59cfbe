"""The memory service: remember, recall, give feedback, forget."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from contexture.adapters.memory.payloads import answer_json
from contexture.errors import NotFound
from contexture.service.callers import own
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.wire.answers import DoneShape, ForgottenShape, RecalledShape, RememberedShape, RemovedShape
from contexture.service.wire.memory import BatchBody, FeedbackBody, ForgetBody, MemoryItem, Payload, RecallBody
from contexture.types import Scope


def router() -> APIRouter:
    """The routes of memories; three of them ask the same question under the names that clients know."""
    routes = APIRouter(tags=["memory"])
    routes.post("/memory/remember", response_model=RememberedShape)(remember)
    routes.post("/memory/remember/batch", response_model=RememberedShape)(remember_batch)
    routes.post("/v1/ingest/memories", response_model=RememberedShape)(remember_batch)
    routes.delete("/v1/ingest/memories", response_model=RemovedShape)(forget_batch)
    for path in ("/memory/recall", "/recall", "/context/evaluate"):
        routes.post(path, response_model=RecalledShape)(recall)
    routes.post("/context/feedback", response_model=DoneShape)(feedback)
    routes.delete("/memory/{memory_id:path}", response_model=ForgottenShape)(forget)
    return routes


async def remember(body: MemoryItem, engine: Engine, caller: Caller) -> Response:
    """The id of the memory; a known idempotency key gives the id it has."""
    scope = _own(body, caller)
    await permit(engine, scope, "memory.remember", {"memories": 1})
    (written,) = await engine.memory.remember(scope, [body.memory(engine.settings)])
    return answer({"ok": True, "id": written, "ids": [written]})


async def remember_batch(body: BatchBody, engine: Engine, caller: Caller) -> Response:
    """The ids of the memories, in order; all of them are stored, or none."""
    scope = _own(body, caller)
    for item in body.memories:
        _own(item, caller)
    await permit(engine, scope, "memory.remember", {"memories": len(body.memories)})
    written = await engine.memory.remember(scope, [item.memory(engine.settings) for item in body.memories])
    return answer({"ok": True, "ids": list(written)})


async def recall(body: RecallBody, engine: Engine, caller: Caller, moment: Moment) -> Response:
    """The memories that answer the query, best first, as `candidates` and as `results`."""
    scope = _own(body, caller)
    await permit(engine, scope, "memory.recall", {})
    query = body.recall(engine.settings, moment or engine.clock.now())
    return answer(answer_json(await engine.memory.recall(scope, query)))


async def feedback(body: FeedbackBody, engine: Engine, caller: Caller) -> Response:
    """The memory ranks a little higher or lower from now on."""
    scope = _own(body, caller)
    await permit(engine, scope, "memory.feedback", {})
    await engine.memory.feedback(scope, body.feedback(engine.clock.now()))
    return answer({"ok": True})


async def forget_batch(body: ForgetBody, engine: Engine, caller: Caller) -> Response:
    """How many of these memories there were that the caller may read; they are gone."""
    scope = _own(body, caller)
    await permit(engine, scope, "memory.forget", {"memories": len(body.ids)})
    return answer({"deleted": await engine.memory.forget(scope, body.ids) if body.ids else 0})


async def forget(
    memory_id: str,
    engine: Engine,
    caller: Caller,
    tenant_id: Annotated[str | None, Query()] = None,
    user_id: Annotated[str | None, Query()] = None,
) -> Response:
    """The memory is gone; one that does not exist and one that the caller may not read are answered alike."""
    scope = own(caller, tenant_id=tenant_id, user_id=user_id)
    await permit(engine, scope, "memory.forget", {"memory": memory_id})
    if not await engine.memory.forget(scope, [memory_id]):
        raise NotFound(f"no memory {memory_id!r} can be read here")
    return answer({"ok": True, "deleted": 1})


def _own(body: Payload, caller: Scope) -> Scope:
    return own(caller, tenant_id=body.tenant_id, user_id=body.user_id)
