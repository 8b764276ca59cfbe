"""Every request has a correlation id: the caller's when it is sane, else one made here."""

from __future__ import annotations

import re
import secrets
from typing import Any, cast

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Correlation-Id"
_SANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def new_id() -> str:
    """An id that nobody has had before."""
    return f"ctx-{secrets.token_hex(8)}"


def correlation_of(scope: Scope) -> str:
    """The correlation id of the request that `scope` belongs to."""
    state = cast("dict[str, Any]", scope.setdefault("state", {}))
    return cast("str", state.setdefault("correlation_id", new_id()))


def renamed(scope: Scope, name: str) -> None:
    """Let a request have the id of its answer, in the log too, unless the caller has chosen one."""
    state = cast("dict[str, Any]", scope.setdefault("state", {}))
    if not state.get("correlation_chosen"):
        state["correlation_id"] = name
        structlog.contextvars.bind_contextvars(correlation_id=name)


class Correlation:
    """Gives each request its id, in the log, in `meta` of errors and in a header of the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request with its id bound."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).getlist(HEADER)
        sane = len(given) == 1 and _SANE.fullmatch(given[0])
        name = given[0] if sane else new_id()
        scope.setdefault("state", {}).update(correlation_id=name, correlation_chosen=bool(sane))

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = correlation_of(scope)
            await send(message)

        with structlog.contextvars.bound_contextvars(correlation_id=name):
            await self._app(scope, receive, named)
