"""`/v1/ingest/blocks` writes and removes blocks; `/v1/blocks/{id}` shows, moves, restores and notes a view of one."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from contexture.errors import NotFound
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.wire.answers import (
    BlockShape,
    MovedShape,
    RemovedShape,
    RestoredShape,
    ViewedShape,
    WrittenShape,
)
from contexture.service.wire.blocks import BlocksBody, MoveBody, RemoveBody, block_row

PLACE = "blocks"


def router() -> APIRouter:
    """The routes of blocks."""
    routes = APIRouter(prefix="/v1", tags=["blocks"])
    routes.post("/ingest/blocks", response_model=WrittenShape)(write)
    routes.delete("/ingest/blocks", response_model=RemovedShape)(remove)
    routes.get("/blocks/{block_id:path}", response_model=BlockShape)(show)
    routes.post("/blocks/{block_id:path}/move", response_model=MovedShape)(move)
    routes.post("/blocks/{block_id:path}/restore", response_model=RestoredShape)(restore)
    routes.post("/blocks/{block_id:path}/view", response_model=ViewedShape)(view)
    return routes


async def write(body: BlocksBody, engine: Engine, caller: Caller, moment: Moment) -> Response:
    """How many blocks were new, altered, and known as they are."""
    await permit(engine, caller, "ingest", {"collection": PLACE, "records": len(body.blocks)})
    now = moment or engine.clock.now()
    done = await engine.workspace.put(caller, [each.block() for each in body.blocks], now=now)
    return answer(msgspec.to_builtins(done))


async def remove(body: RemoveBody, engine: Engine, caller: Caller, moment: Moment) -> Response:
    """How many blocks went, of those that the caller may read; they can be restored."""
    await permit(engine, caller, "delete", {"collection": PLACE, "records": len(body.ids)})
    return answer({"deleted": await engine.workspace.delete(caller, body.ids, now=moment or engine.clock.now())})


async def show(block_id: str, engine: Engine, caller: Caller) -> Response:
    """The block as it was written, and the titles above it, the topmost first."""
    await permit(engine, caller, "blocks.read", {"id": block_id})
    (found,) = await engine.blocks.get(caller, [block_id]) or (None,)
    if found is None:
        raise NotFound(f"there is no block {block_id!r}")
    above = (await engine.blocks.ancestors(caller, [block_id])).get(block_id, ())
    path = [{"id": each.id, "type": str(each.type), "text": each.text} for each in reversed(above)]
    return answer({"block": block_row(found), "path": path})


async def move(block_id: str, body: MoveBody, engine: Engine, caller: Caller) -> Response:
    """Says that the block stands where it was asked to."""
    await permit(engine, caller, "ingest", {"collection": PLACE, "records": 1})
    await engine.workspace.move(caller, block_id, parent=body.parent, order=body.order)
    return answer({"moved": True})


async def restore(block_id: str, engine: Engine, caller: Caller) -> Response:
    """How many blocks came back, of those that the caller may read."""
    await permit(engine, caller, "ingest", {"collection": PLACE, "records": 1})
    back = await engine.workspace.restore(caller, [block_id])
    if not back:
        raise NotFound(f"there is no block {block_id!r} that was deleted")
    return answer({"restored": back})


async def view(block_id: str, engine: Engine, caller: Caller, moment: Moment) -> Response:
    """Says that the view was noted."""
    await permit(engine, caller, "blocks.read", {"id": block_id})
    await engine.workspace.view(caller, block_id, now=moment or engine.clock.now())
    return answer({"viewed": True})
