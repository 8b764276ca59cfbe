"""Error responses in one JSON form, with the HTTP status of their code, and the correlation id of each request."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture import errors
from contexture.answer.route import UnknownModel
from contexture.json_objects import describe_problems
from contexture.service.envelope import encode_json, error_object
from contexture.service.error_log import traceback_locations

STATUS_BY_CODE = {
    "VALIDATION_FAILED": 422,
    "NO_DATA": 404,
    "FORBIDDEN": 403,
    "CONFLICT": 409,
    "PRECONDITION_FAILED": 412,
    "UNAUTHORIZED": 401,
    "LIMITED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
}
TOO_LARGE = 413
TOO_SLOW = 408

_METHOD_NOT_ALLOWED = 405
_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_UNPROCESSABLE = 422
_ERRORS_BY_STATUS: Mapping[int, type[errors.ContextError]] = {
    401: errors.Unauthorized,
    403: errors.NotPermitted,
    404: errors.NotFound,
    503: errors.SourceUnavailable,
}


def error_response(error: Exception, scope: Scope, *, status: int | None = None) -> Response:
    """Return the response for a request that failed with `error`; `status` overrides the status of its code."""
    if isinstance(error, errors.CommandError):
        replace_correlation_id(scope, error.correlation_id)
    elif scope["path"] in _COMMAND_PATHS and isinstance(error, errors.InvalidRequest):  # a body that is no command
        replace_correlation_id(scope, f"ctx-error-{secrets.token_hex(4)}")
    name = get_correlation_id(scope)
    chosen = status or STATUS_BY_CODE[error_object(error, name)["error"]["code"]]
    if is_openai_path(scope["path"]):
        chosen = _openai_status(error, chosen)
    return Response(
        encode_json(error_body(error, scope)),
        chosen,
        {CORRELATION_HEADER: name, **_error_headers(error)},
        media_type="application/json",
    )


def error_body(error: Exception, scope: Scope) -> dict[str, Any]:
    """Return the JSON object of an error, in OpenAI's form on the routes of OpenAI."""
    body = error_object(error, get_correlation_id(scope))
    if not is_openai_path(scope["path"]):
        return body
    code = body["error"]["code"]
    codes = {"UNAUTHORIZED": "invalid_api_key", "LIMITED": "rate_limit_exceeded", "FORBIDDEN": "permission_denied"}
    named = next((name for each, name in _OPENAI_CODES.items() if isinstance(error, each)), None)
    return {
        "error": {
            **body["error"],
            "param": None,
            "code": named or codes.get(code, code.lower()),
        },
        "meta": body["meta"],
    }


def is_openai_path(path: str) -> bool:
    """Whether a path is one of OpenAI's, whose clients know its statuses and the form of its errors alone."""
    return path in _OPENAI_PATHS or path.startswith("/v1/models/")


_COMMAND_PATHS = frozenset({"/v1/commands", "/v1/context/command"})
_OPENAI_PATHS = frozenset({"/v1/chat/completions", "/v1/models", "/v1/embeddings"})
_OPENAI_CODES: Mapping[type[Exception], str] = {
    errors.BudgetTooSmall: "context_length_exceeded",
    UnknownModel: "model_not_found",
}


def _openai_status(error: Exception, status: int) -> int:
    if isinstance(error, UnknownModel):
        return STATUS_BY_CODE["NO_DATA"]
    return 400 if status == _UNPROCESSABLE else status


def add_error_handlers(app: FastAPI) -> None:
    """Make the application answer every error in our JSON form."""
    app.add_exception_handler(errors.ContextError, _handle_context_error)
    app.add_exception_handler(ImportError, _handle_unexpected)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(Exception, _handle_unexpected)


def _error_headers(error: Exception) -> dict[str, str]:
    if isinstance(error, errors.Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, errors.TooManyRequests):
        return {"Retry-After": f"{max(1, round(error.after))}"}
    return {"Retry-After": "1"} if isinstance(error, errors.SourceError) and error.retryable else {}


async def _handle_context_error(request: Request, error: Exception) -> Response:
    if isinstance(error, errors.StoreDamaged):
        request.app.state.integrity.report(error)
    answer, cause = error_response(error, request.scope), error.__cause__
    if (
        isinstance(error, errors.CommandFailed)
        and isinstance(cause, Exception)
        and not isinstance(cause, errors.ContextError)
    ):
        _log_failure(request, cause)
    return answer


async def _handle_unexpected(request: Request, error: Exception) -> Response:
    _log_failure(request, error)
    return error_response(error, request.scope)


def _log_failure(request: Request, error: Exception) -> None:
    """Log an unexpected error with its type and location; the caller sees only its type."""
    route = getattr(request.scope.get("route"), "path", "")
    structlog.get_logger().error(
        "request failed", route=route, error=type(error).__name__, where=traceback_locations(error)
    )


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    return error_response(errors.InvalidRequest(_describe_errors(request, found)), request.scope)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Answer errors raised by the framework: unknown route, wrong method, unreadable body."""
    status = error.status_code if isinstance(error, HTTPException) else STATUS_BY_CODE["INTERNAL"]
    path = request.url.path
    messages = {
        400: "the body cannot be read as JSON in UTF-8, or is nested too deeply",
        404: f"there is no route {path!r}",
        405: f"{path!r} does not support {request.method}",
    }
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    kind = _ERRORS_BY_STATUS.get(status, errors.InvalidRequest)
    kept = _UNPROCESSABLE if status == 400 else status  # noqa: PLR2004 - malformed and invalid are the same to callers
    answer = error_response(kind(messages.get(status, detail)), request.scope, status=kept)
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    if status == _METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(_allowed_methods(request))
    return answer


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods that some route of this path answers; the router names those of the first route only."""
    routes = cast("FastAPI", request.app).routes
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return [name for name, each in scopes.items() if any(route.matches(each)[0] is Match.FULL for route in routes)]


BODY_KINDS = ("body of documents", "body of blocks")
"""Tags of the bodies of a route that takes several; they are no fields of what was sent."""


def _describe_errors(request: Request, found: Sequence[Any]) -> str:
    """Describe what is wrong with a request, field by field, without repeating values."""
    found = [{**each, "loc": tuple(part for part in each["loc"] if part not in BODY_KINDS)} for each in found]
    if any(each["type"] == "json_invalid" for each in found):
        return f"the body is not JSON: {found[0]['ctx']['error']} at character {found[0]['loc'][-1]}"
    sent = request.headers.get("content-type", "")
    if any(each["loc"] == ("body",) for each in found) and "json" not in sent:
        return "send the request as JSON, with the header Content-Type: application/json"
    if any(each["type"] == "model_attributes_type" and each["loc"] == ("body",) for each in found):
        return "the body is not a JSON object"
    return describe_problems([{**each, "loc": each["loc"][1:]} for each in found])


CORRELATION_HEADER = "X-Correlation-Id"
_VALID_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def new_correlation_id() -> str:
    """Return a new unique id."""
    return f"ctx-{secrets.token_hex(8)}"


def get_correlation_id(scope: Scope) -> str:
    """Return the correlation id of the request with this ASGI scope."""
    state = cast("dict[str, Any]", scope.setdefault("state", {}))
    return cast("str", state.setdefault("correlation_id", new_correlation_id()))


def replace_correlation_id(scope: Scope, name: str) -> None:
    """Replace the request's correlation id, in the log too, unless the caller chose it."""
    state = cast("dict[str, Any]", scope.setdefault("state", {}))
    if not state.get("correlation_chosen"):
        state["correlation_id"] = name
        structlog.contextvars.bind_contextvars(correlation_id=name)


class CorrelationMiddleware:
    """Assigns each request its correlation id, in the log, in `meta` of errors and in a response header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request with its id bound."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).getlist(CORRELATION_HEADER)
        sane = len(given) == 1 and _VALID_ID.fullmatch(given[0])
        name = given[0] if sane else new_correlation_id()
        scope.setdefault("state", {}).update(correlation_id=name, correlation_chosen=bool(sane))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[CORRELATION_HEADER] = get_correlation_id(scope)
            await send(message)

        with structlog.contextvars.bound_contextvars(correlation_id=name):
            await self._app(scope, receive, send_with_id)
