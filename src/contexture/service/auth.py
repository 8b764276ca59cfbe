"""Authentication and rights: who calls, by API key or local headers, and which right each route requires.

With a key, the key alone decides. Identity headers are trusted only without keys on loopback, and from the local
command line.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from contexture.config import Settings
from contexture.errors import ContextError, InvalidRequest, NotPermitted, Unauthorized
from contexture.ports import Clock, KeyStore
from contexture.service._error_responses import error_response
from contexture.types import Right, Scope

TENANT_HEADER, USER_HEADER, GROUPS_HEADER = "X-Contexture-Tenant", "X-Contexture-User", "X-Contexture-Groups"
TENANT_ALIAS_HEADER = "X-Tenant-ID"
"""How clients of other memory services name the tenant; it may not contradict `TENANT_HEADER`."""
PUBLIC_PATHS = frozenset({"/", "/health", "/ready", "/metrics", "/docs", "/openapi.json"})
PUBLIC_PREFIX = "/playground/"
"""The `PUBLIC_PATHS` and paths below this prefix need no key: they contain no tenant data."""

_KEY_PREFIX = "ctx_"
_KEY_REQUIRED = "a valid API key is required: Authorization: Bearer ctx_…; create one with `contexture keys add`"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a request has proved: `scope` is the scope of its key, None if the request may name its own.

    `rights` are those of its key, None for all rights.
    """

    scope: Scope | None
    rights: frozenset[Right] | None = None

    @property
    def acts_for_others(self) -> bool:
        """Whether the request may name another user of the key's tenant."""
        return self.rights is not None and Right.ACT_FOR in self.rights


class Authenticator:
    """Authenticates requests by the command line's own token, by API key, or without a key on loopback.

    With the command line's `token`, headers name the identity. Without a key they do so for everyone on loopback, but
    only if there are no keys to check, or in a demonstration (with `members`) until the first key is added. `members`
    are the groups of users who name none.
    """

    def __init__(
        self,
        *,
        keys: KeyStore | None,
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

    async def identify_async(self, headers: Headers) -> Identity:
        """Return what `identify` returns; keys in a database are looked up in a thread."""
        if self._keys is not None and self._keys.needs_thread:
            return await asyncio.to_thread(self.identify, headers)
        return self.identify(headers)

    def identify(self, headers: Headers) -> Identity:
        """Return the identity that a request proves; raises `Unauthorized` if it proves none.

        Many clients cannot do without a key. While no key was ever added, any token that is not in the form of a key is
        accepted on loopback, for the identity of the settings.
        """
        presented = _bearer_token(headers)
        if presented and self._token and hmac.compare_digest(presented.encode(), self._token.encode()):
            return Identity(None)
        key = self._keys.find(presented, now=self._clock.now()) if presented and self._keys else None
        if key is not None:
            found = Identity(key.scope, key.rights)
            _check_identity_headers(headers, found)
            return found
        is_foreign = bool(presented) and not presented.startswith(_KEY_PREFIX)
        if self._allows_keyless() and (not presented or is_foreign):
            found = Identity(None)
        elif is_foreign and self._has_no_keys():
            found = self._settings_identity()
            _check_identity_headers(headers, found)
        else:
            raise Unauthorized(_KEY_REQUIRED)
        _check_host(headers)
        _check_origin(headers, self._settings.cors_origins)
        return found

    def scope(self, identity: Identity, headers: Headers, body: Mapping[str, Any]) -> Scope:
        """Return the caller's scope; without a key, headers name it, or else `body`.

        A key that acts for others lets them name the user. That user has none of the key's groups but those that the
        header names.
        """
        if identity.scope is not None:
            user = _read_header(headers, USER_HEADER) or _text_field(body, "user_id")
            if not identity.acts_for_others or not user or user == identity.scope.user:
                return identity.scope
            return Scope(tenant=identity.scope.tenant, user=user, groups=_parse_groups(headers))
        named = _text_field(body, "tenant_id"), _text_field(body, "user_id")
        tenant = _read_tenant(headers) or named[0] or self._settings.tenant
        user = _read_header(headers, USER_HEADER) or named[1] or self._settings.user
        if GROUPS_HEADER in headers:
            groups = _parse_groups(headers)
        elif (tenant, user) == (self._settings.tenant, self._settings.user):
            groups = self._settings.groups or self._members.get(user, ())
        else:
            groups = self._members.get(user, ()) if tenant == self._settings.tenant else ()
        return Scope(tenant=tenant, user=user, groups=groups)

    def _settings_identity(self) -> Identity:
        settings = self._settings
        scope = Scope(tenant=settings.tenant, user=settings.user, groups=settings.groups)
        return Identity(scope, frozenset({Right.READ, Right.ASK, Right.WRITE}))

    def _has_no_keys(self) -> bool:
        return is_loopback(self._settings.host) and (self._keys is None or self._keys.is_empty())

    def _allows_keyless(self) -> bool:
        keyless = self._keys is None or (self._demo and self._keys.is_empty())
        return is_loopback(self._settings.host) and keyless


class AuthMiddleware:
    """Refuses unauthenticated requests before their body is read; stores the identity in the request's state.

    Public paths need no key, unless they are among the `keyed` ones.
    """

    def __init__(self, app: ASGIApp, *, callers: Authenticator, keyed: Sequence[str] = ()) -> None:
        self._app = app
        self._callers = callers
        self._keyed = frozenset(keyed)

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and (not is_public_path(scope["path"]) or scope["path"] in self._keyed):
            try:
                scope.setdefault("state", {})["identity"] = await self._callers.identify_async(Headers(scope=scope))
            except ContextError as refusal:
                await error_response(refusal, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def is_public_path(path: str) -> bool:
    """Whether a path needs no key."""
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIX)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(settings: Settings, keys: KeyStore) -> None:
    """Refuse to listen on a network address while there is no key."""
    if keys.is_empty() and not is_loopback(settings.host):
        raise NotPermitted(
            f"without API keys the service listens only on this machine, not on {settings.host!r}; "
            "create a key first: contexture keys add NAME"
        )


def check_same_identity(scope: Scope, *, tenant_id: str | None = None, user_id: str | None = None) -> Scope:
    """Return the caller's scope; raises `NotPermitted` if a request names another tenant or user."""
    if tenant_id and tenant_id != scope.tenant:
        raise NotPermitted(f"you may not act for tenant {tenant_id!r}")
    if user_id and user_id != scope.user:
        raise NotPermitted(f"you may not act for user {user_id!r}")
    return scope


def _bearer_token(headers: Headers) -> str:
    given = headers.getlist("authorization")
    if not given:
        return ""
    scheme, _, rest = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not rest.strip():
        raise Unauthorized(_KEY_REQUIRED)
    return rest.strip()


def _check_identity_headers(headers: Headers, identity: Identity) -> None:
    """Refuse headers that name another identity than the key's: ignoring them would answer a different question."""
    scope = identity.scope or Scope.local()
    user = "" if identity.acts_for_others else _read_header(headers, USER_HEADER)
    check_same_identity(scope, tenant_id=_read_tenant(headers), user_id=user)
    if foreign := sorted(set(_parse_groups(headers)) - set(scope.groups)):
        raise NotPermitted(f"you may not act for group {foreign[0]!r}")


def _check_host(headers: Headers) -> None:
    """Without keys, refuse requests for another host name: a web page could reach us by DNS rebinding."""
    given = headers.get("host", "")
    bare = given.rpartition("]")[0] if given.startswith("[") else given.partition(":")[0]
    if not is_loopback(bare):
        raise NotPermitted(f"without API keys the service answers only as 127.0.0.1 or localhost, not as {given!r}")


def _check_origin(headers: Headers, known: Sequence[str]) -> None:
    """Without keys, refuse cross-origin requests: a web page could send them through a browser on this machine."""
    given = headers.get("origin", "")
    try:
        own_machine = is_loopback(urlsplit(given).hostname or "")
    except ValueError:
        own_machine = False
    if given and given not in known and not own_machine:
        raise NotPermitted(
            f"without API keys the origin {given!r} is rejected unless CONTEXTURE_CORS_ORIGINS contains it"
        )


def _read_tenant(headers: Headers) -> str:
    """The tenant that the headers name; raises `NotPermitted` if they name two."""
    own, other = _read_header(headers, TENANT_HEADER), _read_header(headers, TENANT_ALIAS_HEADER)
    if own and other and own != other:
        raise NotPermitted(f"{TENANT_HEADER} and {TENANT_ALIAS_HEADER} name different tenants")
    return own or other


def _parse_groups(headers: Headers) -> tuple[str, ...]:
    return tuple(unquote(name.strip()) for name in _single_header(headers, GROUPS_HEADER).split(",") if name.strip())


def _read_header(headers: Headers, name: str) -> str:
    return unquote(_single_header(headers, name).strip())


def _single_header(headers: Headers, name: str) -> str:
    given = headers.getlist(name)
    if len(given) > 1:
        raise InvalidRequest(f"the header {name} was sent {len(given)} times")
    return given[0] if given else ""


def _text_field(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    return found if isinstance(found, str) else ""


BEARER_SCHEME = HTTPBearer(auto_error=False, description="API key created with `contexture keys add`.")
"""Documents how a key is presented; `AuthMiddleware` has checked it already."""

MODEL_ROUTES = frozenset(
    {
        "/v1/chat",
        "/v1/chat/completions",
        "/v1/commands",
        "/api/research/ask",
        "/v1/ask",
        "/v1/workspace/ask",
        "/v1/builds/answer",
    }
)
"""Routes that ask a model and store the exchange."""

READ_ROUTES = frozenset(
    {
        "/v1/search",
        "/v1/documents",
        "/v1/context/ask",
        "/v1/context/query",
        "/v1/context/turn",
        "/v1/context/command",
        "/v1/context/research",
        "/v1/context/workspace",
        "/v1/blocks/{block_id:path}/query",
        "/v1/workspace/tasks",
        "/v1/citations/verify",
        "/memory/recall",
        "/recall",
        "/context/evaluate",
        "/v1/embeddings",
    }
)
"""Routes with a request body that change nothing; storing what a turn would remember needs the write right."""

_DEMO_PREFIX = "/v1/demo/"
_CONTEXT_PREFIX = "/v1/context/"  # builders of other packages are here too


def required_right(method: str, path: str) -> Right:
    """Return the right that a route requires, by its path template."""
    if path.startswith(_DEMO_PREFIX):
        return Right.ADMIN
    if method in {"GET", "HEAD"} or path in READ_ROUTES or path.startswith(_CONTEXT_PREFIX):
        return Right.READ
    return Right.ASK if path in MODEL_ROUTES else Right.WRITE


async def check_rights(request: Request) -> None:
    """Raise `NotPermitted` if the caller's key lacks the right for this route."""
    rights = _caller_rights(request)
    if rights is None:
        return
    route: Any = request.scope["route"]
    right = required_right(request.method, route.path)
    if right not in rights:
        has = ", ".join(sorted(rights)) or "none"
        raise NotPermitted(f"this needs a key with the scope {right.value!r}; yours has {has}")


async def has_write_right(request: Request) -> bool:
    """Whether the caller's key has the write right."""
    rights = _caller_rights(request)
    return rights is None or Right.WRITE in rights


HasWriteRight = Annotated[bool, Depends(has_write_right)]


def _caller_rights(request: Request) -> frozenset[Right] | None:
    """Return the rights of the caller's key, None for all rights."""
    identity: Identity | None = getattr(request.state, "identity", None)
    if identity is None or identity.rights is None or Right.ADMIN in identity.rights:
        return None
    return identity.rights
