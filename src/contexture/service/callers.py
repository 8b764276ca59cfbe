"""Who asks: a key decides alone; headers are believed only where no key exists, and from the local command line."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from contexture.adapters.keys import ApiKeys, Right
from contexture.config import Settings
from contexture.errors import ContextError, InvalidRequest, NotPermitted, Unauthorized
from contexture.ports import Clock
from contexture.service.problems import problem
from contexture.types import Scope

TENANT, USER, GROUPS = "X-Contexture-Tenant", "X-Contexture-User", "X-Contexture-Groups"
OPEN_PATHS = frozenset({"/", "/health", "/ready", "/metrics", "/docs", "/openapi.json"})
OPEN_FOLDER = "/playground/"
"""Answered to anyone: nothing of a tenant is in them, nor in what lies below the folder."""

_REFUSED = "this needs an API key that works: Authorization: Bearer ctx_…; `contexture keys add` makes one"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a request has proved: `scope` is what its key is bound to, None when it may say who asks.

    `rights` are what its key may be used for, None when that is everything.
    """

    scope: Scope | None
    rights: frozenset[Right] | None = None


class Callers:
    """Decides who asks.

    Headers say it with the command line's own `token`. They say it for everyone on loopback where there are no keys
    to check, and in a demonstration, which has `members`, until the first key is added; those are the groups of users
    who name none there.
    """

    def __init__(
        self,
        *,
        keys: ApiKeys | None,
        settings: Settings,
        clock: Clock,
        token: str = "",
        members: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._token = token
        self._members = members or {}
        self._demo = members is not None

    async def identified(self, headers: Headers) -> Identity:
        """What `identify` says; keys that are far away hold up nobody else."""
        if self._keys is not None and self._keys.far:
            return await asyncio.to_thread(self.identify, headers)
        return self.identify(headers)

    def identify(self, headers: Headers) -> Identity:
        """What the request proves; raises `Unauthorized` when that is nothing."""
        presented = _presented(headers)
        if presented and self._token and hmac.compare_digest(presented.encode(), self._token.encode()):
            return Identity(None)
        key = self._keys.find(presented, now=self._clock.now()) if presented and self._keys else None
        if key is not None:
            _check_claims(headers, key.scope)
            return Identity(key.scope, key.rights)
        if presented or not self._is_open():
            raise Unauthorized(_REFUSED)
        _check_host(headers)
        _check_origin(headers, self._settings.cors_origins)
        return Identity(None)

    def scope(self, identity: Identity, headers: Headers, body: Mapping[str, Any]) -> Scope:
        """Who asks, once a request has proved what it could; `body` may name them where headers do not."""
        if identity.scope is not None:
            return identity.scope
        named = _text(body, "tenant_id"), _text(body, "user_id")
        tenant = _header(headers, TENANT) or named[0] or self._settings.tenant
        user = _header(headers, USER) or named[1] or self._settings.user
        if GROUPS in headers:
            groups = _groups(headers)
        elif (tenant, user) == (self._settings.tenant, self._settings.user):
            groups = self._settings.groups or self._members.get(user, ())
        else:
            groups = self._members.get(user, ()) if tenant == self._settings.tenant else ()
        return Scope(tenant=tenant, user=user, groups=groups)

    def _is_open(self) -> bool:
        keyless = self._keys is None or (self._demo and self._keys.empty())
        return is_loopback(self._settings.host) and keyless


class Gate:
    """Refuses a request before its body is read, and leaves what it has proved in the request's state."""

    def __init__(self, app: ASGIApp, *, callers: Callers) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it."""
        if scope["type"] == "http" and not answers_anyone(scope["path"]):
            try:
                scope.setdefault("state", {})["identity"] = await self._callers.identified(Headers(scope=scope))
            except ContextError as refusal:
                await problem(refusal, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def answers_anyone(path: str) -> bool:
    """Whether a path is answered without a key."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def own(scope: Scope, *, tenant_id: str | None = None, user_id: str | None = None) -> Scope:
    """The caller, once it is sure that a request names no other tenant or user."""
    if tenant_id and tenant_id != scope.tenant:
        raise NotPermitted(f"you may not act for tenant {tenant_id!r}")
    if user_id and user_id != scope.user:
        raise NotPermitted(f"you may not act for user {user_id!r}")
    return scope


def _presented(headers: Headers) -> str:
    given = headers.getlist("authorization")
    if not given:
        return ""
    scheme, _, rest = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not rest.strip():
        raise Unauthorized(_REFUSED)
    return rest.strip()


def _check_claims(headers: Headers, scope: Scope) -> None:
    """Refuse headers that name anyone but the key's owner: to ignore them would answer another question."""
    own(scope, tenant_id=_header(headers, TENANT), user_id=_header(headers, USER))
    if foreign := sorted(set(_groups(headers)) - set(scope.groups)):
        raise NotPermitted(f"you may not act for group {foreign[0]!r}")


def _check_host(headers: Headers) -> None:
    """Without keys, a web page must not reach us under a name of its own that leads to this machine."""
    given = headers.get("host", "")
    bare = given.rpartition("]")[0] if given.startswith("[") else given.partition(":")[0]
    if not is_loopback(bare):
        raise NotPermitted(f"without keys only this machine is answered, as 127.0.0.1 or localhost, not as {given!r}")


def _check_origin(headers: Headers, known: Sequence[str]) -> None:
    """Without keys, a page of the web must not have a browser on this machine send what it could not send itself."""
    given = headers.get("origin", "")
    try:
        own_machine = is_loopback(urlsplit(given).hostname or "")
    except ValueError:
        own_machine = False
    if given and given not in known and not own_machine:
        raise NotPermitted(f"without keys pages of {given!r} are not answered, unless CONTEXTURE_CORS_ORIGINS names it")


def _groups(headers: Headers) -> tuple[str, ...]:
    return tuple(unquote(name.strip()) for name in _once(headers, GROUPS).split(",") if name.strip())


def _header(headers: Headers, name: str) -> str:
    return unquote(_once(headers, name).strip())


def _once(headers: Headers, name: str) -> str:
    given = headers.getlist(name)
    if len(given) > 1:
        raise InvalidRequest(f"the header {name} was sent {len(given)} times")
    return given[0] if given else ""


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    return found if isinstance(found, str) else ""
