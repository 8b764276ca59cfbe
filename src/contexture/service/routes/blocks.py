"""`/v1/ingest/blocks` writes and removes blocks; `/v1/blocks/{id}` shows, changes, moves, copies and restores one."""

import asyncio
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Header, Response
from starlette.convertors import StringConvertor, register_url_convertor

from contexture.errors import Conflict, InvalidRequest, NotFound, PreconditionFailed
from contexture.service._dependencies import CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service.wire import schemas
from contexture.service.wire import workspace as wire
from contexture.service.wire.ingest import BlocksBody, MoveBlockBody, RemoveBlocksBody, block_object
from contexture.workspace import Block, BlockRight, PutResult

BLOCKS_COLLECTION = "blocks"


class _ReadableBlockConvertor(StringConvertor):
    """Any path but those of other routes, so that `GET` and `PATCH /v1/blocks/b/move` are answered with 405."""

    regex = ".+" + "".join(
        f"(?<!/{name})"
        for name in (
            "move",
            "restore",
            "view",
            "copy",
            "revert",
            "query",
            "children",
            "subtree",
            "history",
            "backlinks",
        )
    )


IfMatchHeader = Annotated[
    str | None, Header(alias="If-Match", description="The version that is replaced, as in the `ETag` of an answer.")
]
_ENTITY_TAG = re.compile(r'(?:W/)?"?([0-9]{1,16})"?')


def router() -> APIRouter:
    """Return the routes of blocks."""
    register_url_convertor("readable_block", _ReadableBlockConvertor())
    routes = APIRouter(prefix="/v1", tags=["blocks"])
    routes.post("/ingest/blocks", responses=schemas.json_answer(PutResult))(write_blocks)
    routes.delete("/ingest/blocks", responses=schemas.json_answer(schemas.DeletedResponse))(remove_blocks)
    routes.get("/blocks/{block_id:readable_block}", responses=schemas.json_answer(schemas.BlockResponse))(read_block)
    stored = schemas.json_answer(wire.StoredBlockResponse)
    routes.patch("/blocks/{block_id:readable_block}", responses=stored)(patch_block)
    routes.delete("/blocks/{block_id:readable_block}", responses=schemas.json_answer(schemas.DeletedResponse))(
        delete_block
    )
    routes.post("/blocks/{block_id:path}/revert", responses=stored)(revert_block)
    routes.post("/blocks/{block_id:path}/copy", responses=stored)(copy_block)
    routes.post("/blocks/{block_id:path}/move", responses=schemas.json_answer(schemas.BlockMovedResponse))(move_block)
    routes.post("/blocks/{block_id:path}/restore", responses=schemas.json_answer(schemas.BlocksRestoredResponse))(
        restore_block
    )
    routes.post("/blocks/{block_id:path}/view", responses=schemas.json_answer(schemas.BlockViewedResponse))(record_view)
    return routes


async def write_blocks(body: BlocksBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Write blocks, and return how many are new, changed and unchanged.

    A change of readers, editors or managers needs the right to manage the block. A block with a `version` other than
    the stored one is a conflict, and nothing is written.
    """
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": len(body.blocks)})
    now = moment or engine.clock.now()
    blocks = await asyncio.to_thread(lambda: [each.to_block() for each in body.blocks])
    importing = body.importing.to_access() if body.importing is not None else None
    return json_response(await engine.workspace.put(caller, blocks, now=now, importing=importing))


async def remove_blocks(body: RemoveBlocksBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Delete blocks with all below them that the caller may edit; they can be restored.

    Returns how many, and the receipt of what was removed where.
    What the caller may not see or edit stays, and moves to the nearest ancestor that remains.
    """
    await require_permission(engine, caller, "delete", {"collection": BLOCKS_COLLECTION, "records": len(body.ids)})
    receipt = await engine.workspace.delete(caller, body.ids, now=moment or engine.clock.now())
    return json_response(schemas.describe_deletion(receipt, BLOCKS_COLLECTION))


async def read_block(block_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return a block as it was written, its creator, the caller's right to it, and its ancestors, topmost first.

    The header `ETag` is its version.
    """
    await require_permission(engine, caller, "blocks.read", {"id": block_id})
    (found,) = await engine.blocks.get(caller, [block_id]) or (None,)
    if found is None:
        raise NotFound(f"there is no block {block_id!r}")
    above = (await engine.blocks.ancestors(caller, [block_id])).get(block_id, ())
    right = (await engine.workspace.get_rights(caller, [block_id])).get(block_id, BlockRight.READ)
    path = [schemas.BlockTitleJson(id=each.id, type=each.type, text=each.text) for each in reversed(above)]
    shown = schemas.BlockResponse(block=block_object(found), creator=found.creator, right=right, path=path)
    return _with_version(json_response(shown), found)


async def patch_block(
    block_id: str,
    body: wire.PatchBlockBody,
    engine: EngineDep,
    caller: CallerDep,
    moment: NowDep,
    expected: IfMatchHeader = None,
) -> Response:
    """Change the fields that are given, and return the block.

    With `If-Match` another stored version is `PRECONDITION_FAILED`, with `version` it is `CONFLICT`; without either,
    fields that others changed meanwhile stay changed.
    """
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": 1})
    now = moment or engine.clock.now()
    with _precondition(expected) as version:
        stored = await engine.workspace.update(caller, block_id, body.change, now=now, version=version or body.version)
    return _stored_response(stored)


async def delete_block(
    block_id: str, engine: EngineDep, caller: CallerDep, moment: NowDep, expected: IfMatchHeader = None
) -> Response:
    """Delete a block with all below it that the caller may edit; it can be restored.

    Returns how many blocks, and the receipt of what was removed where.
    """
    await require_permission(engine, caller, "delete", {"collection": BLOCKS_COLLECTION, "records": 1})
    with _precondition(expected) as version:
        receipt = await engine.workspace.delete(
            caller, [block_id], now=moment or engine.clock.now(), versions={block_id: version}
        )
    if not receipt.count_of(BLOCKS_COLLECTION):
        raise NotFound(f"there is no block {block_id!r}")
    return json_response(schemas.describe_deletion(receipt, BLOCKS_COLLECTION))


async def revert_block(
    block_id: str,
    body: wire.RevertBlockBody,
    engine: EngineDep,
    caller: CallerDep,
    moment: NowDep,
    expected: IfMatchHeader = None,
) -> Response:
    """Give a block the type, text and properties of an earlier version, as a new version, and return it."""
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": 1})
    now = moment or engine.clock.now()
    with _precondition(expected) as version:
        stored = await engine.workspace.restore_version(caller, block_id, body.version, now=now, expected=version)
    return _stored_response(stored)


async def copy_block(
    block_id: str, body: wire.CopyBlockBody, engine: EngineDep, caller: CallerDep, moment: NowDep
) -> Response:
    """Copy a block with all below it, such as a template, and return the copy, which belongs to the caller.

    `{{name}}` in its texts is replaced by the value of that name; readers are those of the new place.
    """
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": 1})
    stored = await engine.workspace.copy(
        caller,
        block_id,
        parent=body.parent,
        order=body.order,
        now=moment or engine.clock.now(),
        values=body.values,
    )
    return _stored_response(stored)


async def move_block(
    block_id: str,
    body: MoveBlockBody,
    engine: EngineDep,
    caller: CallerDep,
    moment: NowDep,
    expected: IfMatchHeader = None,
) -> Response:
    """Move a block to another parent or position."""
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": 1})
    now = moment or engine.clock.now()
    with _precondition(expected) as version:
        await engine.workspace.move(caller, block_id, parent=body.parent, order=body.order, now=now, version=version)
    return json_response(schemas.BlockMovedResponse(moved=True))


async def restore_block(block_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Restore a deleted block, and return how many blocks that the caller may read came back."""
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS_COLLECTION, "records": 1})
    back = await engine.workspace.restore(caller, [block_id])
    if not back:
        raise NotFound(f"there is no deleted block {block_id!r}")
    return json_response(schemas.BlocksRestoredResponse(restored=back))


async def record_view(block_id: str, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Record that the caller viewed a block."""
    await require_permission(engine, caller, "blocks.read", {"id": block_id})
    await engine.workspace.view(caller, block_id, now=moment or engine.clock.now())
    return json_response(schemas.BlockViewedResponse(viewed=True))


@contextmanager
def _precondition(expected: str | None) -> Generator[int]:
    """The version that `If-Match` names, 0 for any; a conflict with it is raised as `PreconditionFailed`."""
    if expected is None:
        yield 0
        return
    found = _ENTITY_TAG.fullmatch(expected.strip())
    if found is None and expected.strip() != "*":
        raise InvalidRequest(f'`If-Match` is {expected!r}; give the version of the block, such as "3"')
    try:
        yield int(found[1]) if found else 0
    except Conflict as failure:
        raise PreconditionFailed(str(failure), version=failure.version) from failure


def _stored_response(block: Block) -> Response:
    return _with_version(json_response(wire.StoredBlockResponse(block=block_object(block))), block)


def _with_version(answer: Response, block: Block) -> Response:
    answer.headers["ETag"] = f'"{block.version}"'
    return answer
