"""The door to a running service: commands go through it when a service holds the store."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

import msgspec

from contexture import errors
from contexture.errors import ContextError, ContractError, InvalidRequest, SourceTimeout, SourceUnavailable

if TYPE_CHECKING:
    import httpx

    from contexture.config import Settings

_PATIENCE = 300.0  # seconds: loading embeds what it is given
_CONNECT = 5.0
_COMMANDS: Mapping[str, type[errors.CommandError]] = {
    "VALIDATION_FAILED": errors.CommandRefused,
    "NO_DATA": errors.NothingFound,
    "UNAVAILABLE": errors.CommandUnavailable,
    "INTERNAL": errors.CommandFailed,
}
_KINDS: Mapping[str, type[ContextError]] = {
    "VALIDATION_FAILED": InvalidRequest,
    "NO_DATA": errors.NotFound,
    "FORBIDDEN": errors.NotPermitted,
    "UNAUTHORIZED": errors.Unauthorized,
    "LIMITED": errors.TooManyRequests,
    "UNAVAILABLE": SourceUnavailable,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """A service and what is presented to it."""

    url: str
    headers: Mapping[str, str]

    def ask(self, method: str, path: str, body: object = None, *, now: datetime | None = None) -> dict[str, Any]:
        """The JSON that the service answers; its errors are raised as the same errors here."""
        with self._answered(method, path, body, now) as response:
            response.read()
            return _object(response.content)

    @contextmanager
    def events(self, path: str, body: object) -> Generator[Generator[tuple[str, Any]]]:
        """The events of a stream as they come, each with its name; an `error` event is raised."""
        with self._answered("POST", path, body, None) as response:
            yield _events(response)

    @contextmanager
    def _answered(self, method: str, path: str, body: object, now: datetime | None) -> Generator[httpx.Response]:
        import httpx

        headers = {**self.headers, **({"X-Contexture-Now": now.isoformat()} if now else {})}
        content = None if body is None else _encoded(body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        # The environment may name a proxy, which would not find this machine's loopback.
        timeout = httpx.Timeout(_PATIENCE, connect=_CONNECT)
        try:
            with (
                httpx.Client(base_url=self.url, timeout=timeout, trust_env=False) as client,
                client.stream(method, path, content=content, headers=headers) as response,
            ):
                if response.is_error:
                    raise error_of(response.read())
                yield response
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"the service at {self.url} did not answer in time") from failure
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as failure:
            raise InvalidRequest(f"{self.url!r} is not the address of a service: {failure}") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the service at {self.url} cannot be reached: {failure}") from failure


def remote(settings: Settings) -> Door | None:
    """The service to ask: the one that `url` names, else the one that holds the store, else None."""
    if settings.url:
        return Door(url=settings.url.rstrip("/"), headers=_presented(settings))
    from contexture.adapters.announcement import read_announcement

    found = read_announcement(settings.home)
    if found is None or not _listens(found.url):
        return None
    return Door(url=found.url, headers={"Authorization": f"Bearer {found.token}", **claims(settings)})


def ask(settings: Settings, method: str, path: str, body: object = None) -> dict[str, Any]:
    """What a running service answers; raises `SourceUnavailable` when there is none."""
    door = remote(settings)
    if door is None:
        raise SourceUnavailable(f"no service holds the store in {str(settings.home)!r}; start one: contexture serve")
    return door.ask(method, path, body)


def error_of(body: bytes) -> ContextError:
    """The error that an answer in our shape says; anything else is not our service."""
    try:
        whole = msgspec.json.decode(body)
        told = whole["error"]
        code, message, tech = str(told["code"]), str(told["user_message"]), str(told["tech_message"])
        meta: dict[str, str] = {name: str(said) for name, said in whole.get("meta", {}).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return SourceUnavailable("the answer is not one of a Contexture service; check CONTEXTURE_URL")
    if code in _COMMANDS and meta.get("correlation_id", "").startswith("ctx-error-"):
        return _COMMANDS[code](
            message, tech=tech, version=meta.get("version", ""), correlation_id=meta["correlation_id"]
        )
    closer = getattr(errors, tech.partition(":")[0], None)
    if isinstance(closer, type) and issubclass(closer, ContextError) and closer.__init__ is Exception.__init__:
        return closer(message)
    return _KINDS.get(code, ContractError)(message)


def _presented(settings: Settings) -> dict[str, str]:
    """With a key only what was said on purpose is claimed, so that a wrong claim is refused and none is made up."""
    if not settings.api_key:
        return claims(settings)
    if not (settings.api_key.isascii() and settings.api_key.isprintable()):
        raise InvalidRequest("CONTEXTURE_API_KEY holds characters that no key has")
    said = {"tenant": "X-Contexture-Tenant", "user": "X-Contexture-User", "groups": "X-Contexture-Groups"}
    own = claims(settings)
    return {
        "Authorization": f"Bearer {settings.api_key}",
        **{header: own[header] for name, header in said.items() if name in settings.model_fields_set},
    }


def claims(settings: Settings) -> dict[str, str]:
    """The headers that say on whose behalf the settings act."""
    try:
        return {
            "X-Contexture-Tenant": quote(settings.tenant),
            "X-Contexture-User": quote(settings.user),
            "X-Contexture-Groups": ",".join(quote(name, safe="") for name in settings.groups),
        }
    except UnicodeEncodeError as failure:
        raise InvalidRequest("the tenant, the user or a group is not valid Unicode") from failure


def _encoded(body: object) -> bytes:
    """JSON in ASCII: what came from a command line or a file may hold half a character, which UTF-8 cannot say."""
    return json.dumps(msgspec.to_builtins(body, enc_hook=str), separators=(",", ":")).encode()


def _listens(url: str) -> bool:
    """Whether anything answers there: the process may be another one that got the number of a dead one."""
    where = urlsplit(url)
    try:
        with socket.create_connection((where.hostname or "", where.port or 80), timeout=1.0):
            return True
    except OSError:
        return False


def _object(body: bytes) -> dict[str, Any]:
    try:
        found: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise SourceUnavailable("the answer is not JSON; check CONTEXTURE_URL") from failure
    if not isinstance(found, dict):
        raise SourceUnavailable("the answer is not a JSON object; check CONTEXTURE_URL")
    return cast("dict[str, Any]", found)


def _events(response: httpx.Response) -> Generator[tuple[str, Any]]:
    name, data = "", b""
    for line in _lines(response):
        if line.startswith(b"event:"):
            name = line[6:].strip().decode()
        elif line.startswith(b"data:"):
            data += line[5:].strip()
        elif not line and data:
            if name == "error":
                raise error_of(data)
            yield name, msgspec.json.decode(data)
            name, data = "", b""


def _lines(response: httpx.Response) -> Generator[bytes]:
    """Lines of bytes: a separator such as U+2028 inside a text does not end one."""
    rest = b""
    for chunk in response.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.rstrip(b"\r") for line in whole)
