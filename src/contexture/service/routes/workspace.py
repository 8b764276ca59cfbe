"""The workspace as applications read it: lists with cursors, names, tasks, queries, changes, versions and the trash."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Depends, Query, Response
from msgspec import structs

from contexture.answer.workspace import WorkspaceAnswerJson, WorkspaceQuestion
from contexture.blocks.records import BLOCKS, find_home_page
from contexture.blocks.table_query import decode_cursor, encode_cursor, query_table
from contexture.engine import Contexture
from contexture.errors import InvalidRequest, NotFound
from contexture.json_objects import parse_object
from contexture.service._dependencies import BodyDep, CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service._openapi import AnySpelling, TimeField, describe_body
from contexture.service.wire import schemas
from contexture.service.wire import workspace as wire
from contexture.service.wire.ingest import BlockJson, block_object
from contexture.types import Json, Scope
from contexture.workspace import Block, BlockType


@dataclass(frozen=True, slots=True)
class _TextView:
    """How texts are shown: as they were written, or without personal data and secrets."""

    redact: Callable[[str], str] | None

    def text(self, text: str) -> str:
        return text if self.redact is None else self.redact(text)

    def block(self, block: Block) -> BlockJson:
        if self.redact is None:
            return block_object(block)
        properties = msgspec.json.decode(self.redact(msgspec.json.encode(dict(block.properties)).decode()))
        return block_object(structs.replace(block, text=self.redact(block.text), properties=properties))


async def _text_view(
    engine: EngineDep,
    *,
    redacted: Annotated[
        bool, Query(description="Whether personal data and secrets are redacted, as for a language model.")
    ] = False,
) -> _TextView:
    return _TextView(engine.redact_text if redacted else None)


TextViewDep = Annotated[_TextView, Depends(_text_view)]

_DEPTH_LIMIT = 256
_WEEK = timedelta(days=7)

LimitParam = Annotated[int, Query(ge=1, le=wire.MAX_PAGE, description="How many to return at most."), AnySpelling]
CursorParam = Annotated[str, Query(description="The `next` of the answer before; left out for the first page.")]


def router() -> APIRouter:
    """Return the routes that read a workspace, and the one that empties its trash."""
    routes = APIRouter(prefix="/v1", tags=["workspace"])
    blocks = schemas.json_answer(wire.BlocksResponse)
    routes.get("/blocks", responses=blocks)(list_roots)
    routes.get("/blocks/{block_id:path}/children", responses=blocks)(list_children)
    routes.get("/blocks/{block_id:path}/subtree", responses=blocks)(list_subtree)
    routes.get("/blocks/{block_id:path}/history", responses=schemas.json_answer(wire.HistoryResponse))(read_history)
    routes.get("/blocks/{block_id:path}/backlinks", responses=schemas.json_answer(wire.BacklinksResponse))(
        list_backlinks
    )
    routes.post("/blocks/{block_id:path}/query", responses=schemas.json_answer(wire.TableResponse))(query_database)
    routes.get("/workspace/find", responses=blocks)(find_blocks)
    routes.post("/workspace/tasks", responses=schemas.json_answer(wire.TableResponse))(query_tasks)
    routes.get("/workspace/changes", responses=schemas.json_answer(wire.ChangesResponse))(list_changes)
    routes.get("/workspace/trash", responses=schemas.json_answer(wire.TrashResponse))(list_trash)
    routes.delete("/workspace/trash", responses=schemas.json_answer(wire.PurgedResponse))(purge_trash)
    routes.post(
        "/workspace/ask",
        responses=schemas.json_answer(WorkspaceAnswerJson),
        openapi_extra=describe_body(WorkspaceQuestion),
    )(ask_workspace)
    return routes


async def ask_workspace(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Answer a question from the workspace, with citations of blocks and of what was counted.

    Markers without a source are removed, and unsupported sentences are listed.
    """
    asked = parse_object(WorkspaceQuestion, body, what="a question")
    engine.check_query(asked.query)
    return json_response((await engine.ask_workspace.run(asked, scope=caller, now=now)).json_form())


async def list_roots(
    engine: EngineDep, caller: CallerDep, limit: LimitParam = 100, cursor: CursorParam = ""
) -> Response:
    """List the blocks at the top: those without a parent, and those shared from places that the caller may not read."""
    await require_permission(engine, caller, "blocks.read", {"id": ""})
    found = await engine.blocks.roots(caller, limit=limit + 1, after=_decode_place(cursor))
    return json_response(_blocks_page(found, limit))


async def list_children(
    block_id: str, engine: EngineDep, caller: CallerDep, limit: LimitParam = 100, cursor: CursorParam = ""
) -> Response:
    """List the children of a block in order."""
    await _require_block(engine, caller, block_id)
    found = await engine.blocks.children(caller, block_id, limit=limit + 1, after=_decode_place(cursor))
    return json_response(_blocks_page(found, limit))


async def list_subtree(
    block_id: str,
    engine: EngineDep,
    caller: CallerDep,
    show: TextViewDep,
    depth: Annotated[int, Query(ge=1, le=_DEPTH_LIMIT, description="Levels below the block."), AnySpelling] = (
        _DEPTH_LIMIT
    ),
    limit: LimitParam = 100,
    cursor: CursorParam = "",
) -> Response:
    """List the blocks below a block in document order, each before those below it.

    A page of the list begins after the last block of the page before, wherever it stands by then.
    """
    await _require_block(engine, caller, block_id)
    seen, last = (0, "") if not cursor else _decode_position(cursor)
    found = list(await engine.blocks.subtree(caller, block_id, depth=depth, limit=seen + limit + 1))
    if last and (seen > len(found) or found[seen - 1].id != last):
        found = list(await engine.blocks.subtree(caller, block_id, depth=depth, limit=1 << 20))
        seen = next((at for at, block in enumerate(found, start=1) if block.id == last), min(seen, len(found)))
    page = found[seen : seen + limit]
    body: wire.BlocksResponse = {"blocks": [show.block(each) for each in page]}
    if len(found) > seen + limit:
        body["next"] = encode_cursor(seen + limit, page[-1].id)
    return json_response(body)


async def find_blocks(
    engine: EngineDep,
    caller: CallerDep,
    show: TextViewDep,
    title: Annotated[str, Query(min_length=1, description="A title or an alias, in any case.")],
    limit: LimitParam = 20,
) -> Response:
    """Find pages, databases and rows by title or alias."""
    await require_permission(engine, caller, "blocks.read", {"id": ""})
    found = await engine.blocks.find_named(caller, title, limit=limit)
    return json_response(wire.BlocksResponse(blocks=[show.block(each) for each in found]))


async def read_history(block_id: str, engine: EngineDep, caller: CallerDep, limit: LimitParam = 100) -> Response:
    """List the versions of a block, with who wrote each and when; those the caller could not have read are left out."""
    await _require_block(engine, caller, block_id)
    found = await engine.blocks.history(caller, block_id, limit=limit)
    versions = [
        wire.RevisionJson(
            version=each.version,
            type=each.type,
            text=each.text,
            properties=each.properties,
            user=each.user,
            time=each.time,
        )
        for each in found
    ]
    return json_response(wire.HistoryResponse(versions=versions))


async def list_backlinks(block_id: str, engine: EngineDep, caller: CallerDep, limit: LimitParam = 100) -> Response:
    """List the blocks that link to a block, the most recently modified first."""
    await _require_block(engine, caller, block_id)
    links = await engine.blocks.backlinks(caller, [block_id], limit=limit)
    sources = {block.id: block for block in await engine.blocks.get(caller, [link.source for link in links])}
    shown = [
        wire.BacklinkJson(block=block_object(sources[link.source]), kind=link.kind, name=link.name)
        for link in links
        if link.source in sources
    ]
    return json_response(wire.BacklinksResponse(links=shown))


async def query_database(
    block_id: str, body: wire.TableQueryBody, engine: EngineDep, caller: CallerDep, show: TextViewDep
) -> Response:
    """Filter, sort, group and aggregate the rows of a database."""
    block = await _require_block(engine, caller, block_id)
    if block.type is not BlockType.DB:
        raise InvalidRequest(f"block {block_id!r} is a {block.type}, not a db")
    return await _run_query(engine, caller, show, body, database=block_id)


async def query_tasks(body: wire.TableQueryBody, engine: EngineDep, caller: CallerDep, show: TextViewDep) -> Response:
    """Filter, sort, group and aggregate tasks: todos, cards, and rows that have a due date or are done or not."""
    await require_permission(engine, caller, "blocks.read", {"id": ""})
    return await _run_query(engine, caller, show, body)


async def list_changes(
    engine: EngineDep,
    caller: CallerDep,
    show: TextViewDep,
    since: Annotated[TimeField | None, Query(description="By default seven days ago.")] = None,
    until: Annotated[TimeField | None, Query(description="By default now.")] = None,
    user: Annotated[str, Query(description="Only changes by this user.")] = "",
    limit: LimitParam = 100,
    cursor: CursorParam = "",
) -> Response:
    """List what changed, the latest change of each block, newest first; an import is nobody's change."""
    await require_permission(engine, caller, "blocks.read", {"id": ""})
    now = engine.clock.now()
    start, skip = since or now - _WEEK, 0
    if cursor:
        given = decode_cursor(cursor, parts=3)
        skip, start, until = _parse_count(given[0]), _parse_cursor_time(given[1]), _parse_cursor_time(given[2])
    end = until or now + timedelta(microseconds=1)
    feed = await engine.blocks.changes(
        caller, since=start, until=end, users=(user,) if user else (), limit=skip + limit
    )
    shown = feed.changes[skip:]
    blocks = {block.id: block for block in await engine.blocks.get(caller, [each.block_id for each in shown])}
    above = await engine.blocks.ancestors(caller, list(blocks))
    changes = [
        wire.ChangeJson(
            id=each.block_id,
            type=blocks[each.block_id].type,
            text=show.text(blocks[each.block_id].text),
            page=show.text(_page_title(blocks[each.block_id], above.get(each.block_id, ()))),
            user=each.user,
            time=each.time,
        )
        for each in shown
        if each.block_id in blocks
    ]
    body = wire.ChangesResponse(changes=changes, total=feed.total)
    if shown and skip + len(shown) < feed.total:
        body["next"] = encode_cursor(skip + len(shown), start.isoformat(), end.isoformat())
    return json_response(body)


async def list_trash(
    engine: EngineDep, caller: CallerDep, limit: LimitParam = 100, cursor: CursorParam = ""
) -> Response:
    """List deletions, the latest first; `POST /v1/blocks/{id}/restore` undoes one."""
    await require_permission(engine, caller, "blocks.read", {"id": ""})
    skip = _parse_count(decode_cursor(cursor, parts=1)[0]) if cursor else 0
    found = await engine.blocks.deletions(caller, limit=limit + 1, offset=skip)
    shown = [
        wire.DeletionJson(
            id=each.block.id,
            type=each.block.type,
            text=each.block.text,
            user=each.user,
            time=each.time,
            blocks=each.count,
        )
        for each in found[:limit]
    ]
    body = wire.TrashResponse(deletions=shown)
    if len(found) > limit:
        body["next"] = encode_cursor(skip + limit)
    return json_response(body)


async def purge_trash(body: wire.PurgeTrashBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Remove for good what was deleted before a time and the caller manages, and return how many blocks."""
    await require_permission(engine, caller, "delete", {"collection": "blocks", "records": 0})
    receipt = await engine.workspace.purge(caller, before=body.before)
    return json_response(wire.PurgedResponse(**receipt.json_form(), purged=receipt.count_of(BLOCKS.name)))


async def _run_query(
    engine: Contexture, caller: Scope, show: _TextView, body: wire.TableQueryBody, *, database: str = ""
) -> Response:
    skip = _parse_count(decode_cursor(body.cursor, parts=1)[0]) if body.cursor else 0
    found = await query_table(engine.blocks, caller, body.to_query(), database=database)
    page = found.blocks[skip : skip + body.limit]
    answer: wire.TableResponse = {
        "blocks": [show.block(each) for each in page],
        "total": len(found.blocks),
        "groups": {
            name: [{**each, "value": show.text(each["value"])} for each in groups]
            for name, groups in found.groups.items()
        },
        "aggregates": cast("dict[str, Json]", found.aggregates),
    }
    if len(found.blocks) > skip + body.limit:
        answer["next"] = encode_cursor(skip + body.limit)
    return json_response(answer)


async def _require_block(engine: Contexture, caller: Scope, block_id: str) -> Block:
    await require_permission(engine, caller, "blocks.read", {"id": block_id})
    (found,) = await engine.blocks.get(caller, [block_id]) or (None,)
    if found is None:
        raise NotFound(f"there is no block {block_id!r}")
    return found


def _page_title(block: Block, above: Sequence[Block]) -> str:
    home = find_home_page(block, above)
    return home.text if home is not None else ""


def _blocks_page(found: Sequence[Block], limit: int) -> wire.BlocksResponse:
    body: wire.BlocksResponse = {"blocks": [block_object(each) for each in found[:limit]]}
    if len(found) > limit:
        body["next"] = encode_cursor(found[limit - 1].order, found[limit - 1].id)
    return body


def _decode_place(cursor: str) -> Block | None:
    """The block that a page of siblings ends with: only its place counts."""
    if not cursor:
        return None
    order, name = decode_cursor(cursor, parts=2)
    try:
        return Block(id=name, type=BlockType.PARAGRAPH, text="", order=float(order))
    except ValueError as failure:
        raise _not_a_cursor(cursor) from failure


def _decode_position(cursor: str) -> tuple[int, str]:
    count, name = decode_cursor(cursor, parts=2)
    return _parse_count(count), name


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):  # noqa: PLR2004 - below any list
        raise _not_a_cursor(text)
    return int(text)


def _parse_cursor_time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as failure:
        raise _not_a_cursor(text) from failure
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _not_a_cursor(text: Any) -> InvalidRequest:
    return InvalidRequest(f"{text!r} is not part of a cursor; leave the cursor out, or give the `next` of an answer")
