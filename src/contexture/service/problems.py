"""Every error on every route in one shape, with the status its code stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from contexture.errors import (
    CommandError,
    CommandFailed,
    ContextError,
    InvalidRequest,
    NotFound,
    NotPermitted,
    SourceError,
    SourceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from contexture.service.correlation import HEADER, correlation_of, renamed
from contexture.service.envelope import encoded, error_object
from contexture.service.failures import places_of

STATUS = {
    "VALIDATION_FAILED": 422,
    "NO_DATA": 404,
    "FORBIDDEN": 403,
    "UNAUTHORIZED": 401,
    "LIMITED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
}
TOO_LARGE = 413
TOO_SLOW = 408

_UNPROCESSABLE = 422
_SHOWN = 5  # wrong fields named in one answer
_KINDS: Mapping[int, type[ContextError]] = {
    401: Unauthorized,
    403: NotPermitted,
    404: NotFound,
    503: SourceUnavailable,
}


def problem(error: Exception, scope: Scope, *, status: int | None = None) -> Response:
    """The answer to a request that ended in `error`; `status` is given where HTTP has a closer one."""
    if isinstance(error, CommandError):
        renamed(scope, error.correlation_id)
    name = correlation_of(scope)
    body = error_object(error, name)
    chosen = status or STATUS[body["error"]["code"]]
    return Response(encoded(body), chosen, {HEADER: name, **_extra(error)}, media_type="application/json")


def install(app: FastAPI) -> None:
    """Let every error of the application be answered in our shape."""
    app.add_exception_handler(ContextError, _context_error)
    app.add_exception_handler(ImportError, _unexpected)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def _extra(error: Exception) -> dict[str, str]:
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, TooManyRequests):
        return {"Retry-After": f"{max(1, round(error.after))}"}
    return {"Retry-After": "1"} if isinstance(error, SourceError) and error.retryable else {}


async def _context_error(request: Request, error: Exception) -> Response:
    answer, cause = problem(error, request.scope), error.__cause__
    if isinstance(error, CommandFailed) and isinstance(cause, Exception) and not isinstance(cause, ContextError):
        _logged(request, cause)
    return answer


async def _unexpected(request: Request, error: Exception) -> Response:
    _logged(request, error)
    return problem(error, request.scope)


def _logged(request: Request, error: Exception) -> None:
    """Write down what nobody foresaw: the caller is told its type alone."""
    route = getattr(request.scope.get("route"), "path", "")
    structlog.get_logger().error("request failed", route=route, error=type(error).__name__, where=places_of(error))


async def _validation_error(request: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    return problem(InvalidRequest(_sentence(request, found)), request.scope)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: no such route, a method it does not have, an unreadable body."""
    status = error.status_code if isinstance(error, HTTPException) else STATUS["INTERNAL"]
    path = request.url.path
    told = {
        400: "the body cannot be read as JSON in UTF-8, or is nested too deeply",
        404: f"there is nothing at {path!r}",
        405: f"{path!r} does not answer to {request.method}",
    }
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    kind = _KINDS.get(status, InvalidRequest)
    kept = _UNPROCESSABLE if status == 400 else status  # noqa: PLR2004 - malformed and invalid are one thing to callers
    answer = problem(kind(told.get(status, detail)), request.scope, status=kept)
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer


def _sentence(request: Request, found: Sequence[Any]) -> str:
    """What is wrong with a request, field by field; values are not repeated."""
    if any(each["type"] == "json_invalid" for each in found):
        return f"the body is not JSON: {found[0]['ctx']['error']} at character {found[0]['loc'][-1]}"
    sent = request.headers.get("content-type", "")
    if any(each["loc"] == ("body",) for each in found) and "json" not in sent:
        return "send the request as JSON, with the header Content-Type: application/json"
    if any(each["type"] == "model_attributes_type" and each["loc"] == ("body",) for each in found):
        return "the body is not a JSON object"
    parts = [_part(each) for each in found[:_SHOWN]]
    more = len(found) - len(parts)
    return "; ".join([*parts, *([f"and {more} more"] if more else [])])


def _part(found: Mapping[str, Any]) -> str:
    where = ".".join(str(step) for step in found["loc"][1:])
    if found["type"] == "extra_forbidden":
        return f"unknown field {where!r}"
    if found["type"] == "missing":
        return f"field {where!r} is missing" if where else "the request has no body"
    message = str(found["msg"])
    return f"field {where!r}: {message[:1].lower()}{message[1:]}" if where else message
