"""`/v1/ingest/blocks` writes and removes blocks; `/v1/blocks/{id}` shows, moves, restores and notes a view of one."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from contexture.errors import NotFound
from contexture.service._dependencies import CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service.wire.ingest import BlocksBody, MoveBlockBody, RemoveBlocksBody, block_object
from contexture.service.wire.schemas import (
    BlockMovedResponse,
    BlockResponse,
    BlocksRestoredResponse,
    BlockTitleJson,
    BlockViewedResponse,
    DeletedResponse,
    json_answer,
)
from contexture.workspace import PutResult

BLOCKS_COLLECTION = "blocks"


def router() -> APIRouter:
    """Return the routes of blocks."""
    routes = APIRouter(prefix="/v1", tags=["blocks"])
    routes.post("/ingest/blocks", responses=json_answer(PutResult))(write_blocks)
    routes.delete("/ingest/blocks", responses=json_answer(DeletedResponse))(remove_blocks)
    routes.get("/blocks/{block_id:path}", responses=json_answer(BlockResponse))(read_block)
    routes.post("/blocks/{block_id:path}/move", responses=json_answer(BlockMovedResponse))(move_block)
    routes.post("/blocks/{block_id:path}/restore", responses=json_answer(BlocksRestoredResponse))(restore_block)
    routes.post("/blocks/{block_id:path}/view", responses=json_answer(BlockViewedResponse))(record_view)
    return routes


async def write_blocks(body: BlocksBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Write blocks, and return how many are new, changed and unchanged."""
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": len(body.blocks)})
    now = moment or engine.clock.now()
    blocks = await asyncio.to_thread(lambda: [each.to_block() for each in body.blocks])
    importing = body.importing.to_access() if body.importing is not None else None
    return json_response(await engine.workspace.put(caller, blocks, now=now, importing=importing))


async def remove_blocks(body: RemoveBlocksBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Delete blocks that the caller may read, and return how many; they can be restored."""
    await require_permission(engine, caller, "delete", {"collection": BLOCKS_COLLECTION, "records": len(body.ids)})
    gone = await engine.workspace.delete(caller, body.ids, now=moment or engine.clock.now())
    return json_response(DeletedResponse(deleted=gone))


async def read_block(block_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return a block as it was written, and the titles of its ancestors, topmost first."""
    await require_permission(engine, caller, "blocks.read", {"id": block_id})
    (found,) = await engine.blocks.get(caller, [block_id]) or (None,)
    if found is None:
        raise NotFound(f"there is no block {block_id!r}")
    above = (await engine.blocks.ancestors(caller, [block_id])).get(block_id, ())
    path = [BlockTitleJson(id=each.id, type=each.type, text=each.text) for each in reversed(above)]
    return json_response(BlockResponse(block=block_object(found), path=path))


async def move_block(block_id: str, body: MoveBlockBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Move a block to another parent or position."""
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": 1})
    await engine.workspace.move(caller, block_id, parent=body.parent, order=body.order)
    return json_response(BlockMovedResponse(moved=True))


async def restore_block(block_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Restore a deleted block, and return how many blocks that the caller may read came back."""
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": 1})
    back = await engine.workspace.restore(caller, [block_id])
    if not back:
        raise NotFound(f"there is no deleted block {block_id!r}")
    return json_response(BlocksRestoredResponse(restored=back))


async def record_view(block_id: str, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Record that the caller viewed a block."""
    await require_permission(engine, caller, "blocks.read", {"id": block_id})
    await engine.workspace.view(caller, block_id, now=moment or engine.clock.now())
    return json_response(BlockViewedResponse(viewed=True))
