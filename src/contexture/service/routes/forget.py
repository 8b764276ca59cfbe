"""`POST /v1/forget`, and `DELETE` of sessions and their events: erasure with a receipt."""

from fastapi import APIRouter, Response
from starlette.convertors import StringConvertor, register_url_convertor

from contexture.engine import Contexture
from contexture.erasure.request import ForgetRequest, parse_forget
from contexture.service._dependencies import BodyDep, CallerDep, EngineDep, JobsDep, json_response, require_permission
from contexture.service._openapi import describe_body
from contexture.service.auth import check_same_identity
from contexture.service.wire import schemas
from contexture.types import ReceiptJson, Scope


class _WholeSessionConvertor(StringConvertor):
    """Any path but that of a session's events, so that `DELETE /v1/sessions/s/events` is answered with 405."""

    regex = ".+(?<!/events)"


def router() -> APIRouter:
    """Return the routes of erasure."""
    routes = APIRouter(prefix="/v1", tags=["forget"])
    answers = schemas.json_answer(ReceiptJson)
    register_url_convertor("whole_session", _WholeSessionConvertor())
    routes.post("/forget", responses=answers, openapi_extra=describe_body(ForgetRequest))(forget)
    # First, because the id of a session may hold slashes.
    routes.delete("/sessions/{session_id:path}/events/{event_id}", responses=answers)(forget_event)
    routes.delete("/sessions/{session_id:whole_session}", responses=answers)(forget_session)
    return routes


async def forget(engine: EngineDep, caller: CallerDep, body: BodyDep, jobs: JobsDep) -> Response:
    """Forget the caller, a session, records or a subject, in every place that keeps a copy of their text.

    The receipt lists what was removed where, and what is out of reach. With `preview` nothing is removed. A caller who
    is forgotten has no loading jobs afterwards.
    """
    request = parse_forget(body)
    check_same_identity(caller, user_id=request.user_id)
    resolved = await _require_forgetting(engine, caller, request)
    if request.user_id and not request.preview:
        await jobs.cancel_all(caller)
    return json_response((await engine.forget(resolved, scope=caller)).json_form())


async def forget_session(session_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Forget one of the caller's sessions, with its memories, summaries, replies and builds."""
    return await _forget(engine, caller, ForgetRequest(session_id=session_id))


async def forget_event(session_id: str, event_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Forget an event of one of the caller's sessions, with its memory; summaries of it are made again."""
    return await _forget(engine, caller, ForgetRequest(session_id=session_id, event_ids=(event_id,)))


async def _forget(engine: Contexture, caller: Scope, request: ForgetRequest) -> Response:
    resolved = await _require_forgetting(engine, caller, request)
    return json_response((await engine.forget(resolved, scope=caller)).json_form())


async def _require_forgetting(engine: Contexture, caller: Scope, request: ForgetRequest) -> ForgetRequest:
    """The request with its collection, once the policy allows it."""
    resolved = request.with_collection(engine.settings.collection)
    await require_permission(engine, caller, "forget", resolved.describe())
    return resolved
