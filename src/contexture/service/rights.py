"""What a key must be good for to use a route; a route that nobody has thought of takes more than it may need."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from contexture.adapters.keys import Right
from contexture.errors import NotPermitted
from contexture.service.callers import Identity

BEARER = HTTPBearer(auto_error=False, description="A key that `contexture keys add` made.")
"""Only describes how a key is presented; the gate has looked at it long before."""

ASKS = frozenset({"/v1/chat", "/v1/chat/completions", "/v1/commands", "/api/research/ask"})
"""Routes that ask a model, and keep what was said."""

READS = frozenset(
    {
        "/v1/search",
        "/v1/documents",
        "/v1/context/query",
        "/v1/context/turn",
        "/v1/context/command",
        "/v1/context/research",
        "/v1/context/workspace",
        "/v1/citations/verify",
        "/memory/recall",
        "/recall",
        "/context/evaluate",
    }
)
"""Routes that are asked with a body and change nothing; what a turn would remember takes the right to write."""

_DEMO = "/v1/demo/"


def needed(method: str, path: str) -> Right:
    """The right that a route takes, by its template."""
    if path.startswith(_DEMO):
        return Right.ADMIN
    if method in {"GET", "HEAD"} or path in READS:
        return Right.READ
    return Right.ASK if path in ASKS else Right.WRITE


async def check_rights(request: Request) -> None:
    """Raise `NotPermitted` when the caller's key is not good for this route."""
    rights = _rights(request)
    if rights is None:
        return
    route: Any = request.scope["route"]
    right = needed(request.method, route.path)
    if right not in rights:
        has = ", ".join(sorted(rights)) or "none"
        raise NotPermitted(f"this takes a key with the scope {right.value!r}; yours has {has}")


async def may_write(request: Request) -> bool:
    """Whether the caller's key is good for routes that write."""
    rights = _rights(request)
    return rights is None or Right.WRITE in rights


MayWrite = Annotated[bool, Depends(may_write)]


def _rights(request: Request) -> frozenset[Right] | None:
    """The rights of the caller's key, None when it is good for everything."""
    identity: Identity | None = getattr(request.state, "identity", None)
    if identity is None or identity.rights is None or Right.ADMIN in identity.rights:
        return None
    return identity.rights
