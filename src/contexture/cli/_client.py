"""HTTP client of a running service, which commands use if a service holds the store.

Results computed in this process have the same form as the responses of that service.
"""

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

    from contexture.builders.replay import Explanation
    from contexture.config import Settings
    from contexture.ledger import Degradation, Ledger


_TIMEOUT_SECONDS = 300.0  # seconds: ingestion embeds what it is given
_CONNECT_SECONDS = 5.0
_COMMAND_ERRORS: Mapping[str, type[errors.CommandError]] = {
    "VALIDATION_FAILED": errors.CommandRefused,
    "NO_DATA": errors.NothingFound,
    "UNAVAILABLE": errors.CommandUnavailable,
    "INTERNAL": errors.CommandFailed,
}
_ERRORS_BY_CODE: Mapping[str, type[ContextError]] = {
    "VALIDATION_FAILED": InvalidRequest,
    "NO_DATA": errors.NotFound,
    "FORBIDDEN": errors.NotPermitted,
    "UNAUTHORIZED": errors.Unauthorized,
    "LIMITED": errors.TooManyRequests,
    "UNAVAILABLE": SourceUnavailable,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteService:
    """HTTP client of a running service: its address and the headers presented to it."""

    url: str
    headers: Mapping[str, str]

    def request(self, method: str, path: str, body: object = None, *, now: datetime | None = None) -> dict[str, Any]:
        """Return the JSON object of the response; errors of the service are raised as the same exceptions here."""
        with self._open_response(method, path, body, now) as response:
            response.read()
            return _parse_object(response.content)

    @contextmanager
    def stream_events(self, path: str, body: object) -> Generator[Generator[tuple[str, Any]]]:
        """Yield the named events of a stream as they arrive; an `error` event is raised."""
        with self._open_response("POST", path, body, None) as response:
            yield _parse_events(response)

    @contextmanager
    def _open_response(self, method: str, path: str, body: object, now: datetime | None) -> Generator[httpx.Response]:
        import httpx

        headers = {**self.headers, **({"X-Contexture-Now": now.isoformat()} if now else {})}
        content = None if body is None else _encode_body(body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        # Ignore proxies of the environment: a proxy cannot reach this machine's loopback address.
        timeout = httpx.Timeout(_TIMEOUT_SECONDS, connect=_CONNECT_SECONDS)
        try:
            with (
                httpx.Client(base_url=self.url, timeout=timeout, trust_env=False) as client,
                client.stream(method, path, content=content, headers=headers) as response,
            ):
                if response.is_error:
                    raise parse_error(response.read())
                yield response
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"the service at {self.url} did not answer in time") from failure
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as failure:
            raise InvalidRequest(f"{self.url!r} is not the address of a service: {failure}") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the service at {self.url} cannot be reached: {failure}") from failure


def find_service(settings: Settings) -> RemoteService | None:
    """Return a client of the service at `url`, or else of the one that holds the store, or else None."""
    if settings.url:
        return RemoteService(url=settings.url.rstrip("/"), headers=_auth_headers(settings))
    from contexture.announcement import read_announcement

    found = read_announcement(settings.home)
    if found is None or not _is_listening(found.url):
        return None
    return RemoteService(
        url=found.url, headers={"Authorization": f"Bearer {found.token}", **identity_headers(settings)}
    )


def request_service(settings: Settings, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Return the response of a running service; raises `SourceUnavailable` if there is none."""
    service = find_service(settings)
    if service is None:
        raise SourceUnavailable(
            f"no service is running for the store in {str(settings.home)!r}; start one: contexture serve"
        )
    return service.request(method, path, body)


def parse_error(body: bytes) -> ContextError:
    """Return the exception for an error response; `SourceUnavailable` if the body is not in our error format."""
    try:
        whole = msgspec.json.decode(body)
        error = whole["error"]
        code, message, tech = str(error["code"]), str(error["user_message"]), str(error["tech_message"])
        meta: dict[str, str] = {name: str(said) for name, said in whole.get("meta", {}).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return SourceUnavailable("the answer is not from a Contexture service; check CONTEXTURE_URL")
    if code in _COMMAND_ERRORS and meta.get("correlation_id", "").startswith("ctx-error-"):
        return _COMMAND_ERRORS[code](
            message, tech=tech, version=meta.get("version", ""), correlation_id=meta["correlation_id"]
        )
    closer = getattr(errors, tech.partition(":")[0], None)
    if isinstance(closer, type) and issubclass(closer, ContextError) and closer.__init__ is Exception.__init__:
        return closer(message)
    return _ERRORS_BY_CODE.get(code, ContractError)(message)


def _auth_headers(settings: Settings) -> dict[str, str]:
    """Return the request headers; with an API key, only an identity that was set explicitly is sent.

    So a wrong identity is refused, and none is made up from defaults.
    """
    if not settings.api_key:
        return identity_headers(settings)
    if not (settings.api_key.isascii() and settings.api_key.isprintable()):
        raise InvalidRequest("CONTEXTURE_API_KEY contains characters that are not valid in a key")
    said = {"tenant": "X-Contexture-Tenant", "user": "X-Contexture-User", "groups": "X-Contexture-Groups"}
    own = identity_headers(settings)
    return {
        "Authorization": f"Bearer {settings.api_key}",
        **{header: own[header] for name, header in said.items() if name in settings.model_fields_set},
    }


def identity_headers(settings: Settings) -> dict[str, str]:
    """Return the headers with the tenant, user and groups of the settings."""
    try:
        return {
            "X-Contexture-Tenant": quote(settings.tenant),
            "X-Contexture-User": quote(settings.user),
            "X-Contexture-Groups": ",".join(quote(name, safe="") for name in settings.groups),
        }
    except UnicodeEncodeError as failure:
        raise InvalidRequest("the tenant, the user or a group is not valid Unicode") from failure


def _encode_body(body: object) -> bytes:
    """Encode as ASCII JSON: input may contain lone surrogates, which UTF-8 cannot encode."""
    return json.dumps(msgspec.to_builtins(body, enc_hook=str), separators=(",", ":")).encode()


def _is_listening(url: str) -> bool:
    """Whether a server is listening: the process id of a dead service may belong to another process now."""
    where = urlsplit(url)
    try:
        with socket.create_connection((where.hostname or "", where.port or 80), timeout=1.0):
            return True
    except OSError:
        return False


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        found: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise SourceUnavailable("the answer is not JSON; check CONTEXTURE_URL") from failure
    if not isinstance(found, dict):
        raise SourceUnavailable("the answer is not a JSON object; check CONTEXTURE_URL")
    return cast("dict[str, Any]", found)


def _parse_events(response: httpx.Response) -> Generator[tuple[str, Any]]:
    name, data = "", b""
    for line in _iter_lines(response):
        if line.startswith(b"event:"):
            name = line[6:].strip().decode()
        elif line.startswith(b"data:"):
            data += line[5:].strip()
        elif not line and data:
            if name == "error":
                raise parse_error(data)
            yield name, msgspec.json.decode(data)
            name, data = "", b""


def _iter_lines(response: httpx.Response) -> Generator[bytes]:
    """Yield lines of bytes; a separator such as U+2028 inside a text does not end a line."""
    rest = b""
    for chunk in response.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.rstrip(b"\r") for line in whole)


def to_wire_json(answer: object) -> dict[str, Any]:
    """Convert a result computed in this process to the JSON object that a service would have sent."""
    import msgspec

    from contexture.service.envelope import encode_json

    return msgspec.json.decode(encode_json(answer), type=dict[str, Any])


def parse_degradations(answer: dict[str, Any]) -> tuple[Degradation, ...]:
    """Return the degradations in a response."""
    import msgspec

    from contexture.ledger import Degradation

    return msgspec.convert(answer["degradations"], tuple[Degradation, ...])


def parse_ledger(answer: dict[str, Any]) -> Ledger:
    """Return the ledger in a response."""
    import msgspec

    from contexture.ledger import Ledger, LedgerEntry

    entries = msgspec.convert(answer["ledger"], tuple[LedgerEntry, ...])
    return Ledger(entries=entries, degradations=parse_degradations(answer))


def parse_explanation(answer: dict[str, Any]) -> Explanation:
    """Return the explanation in a response."""
    import msgspec

    from contexture.builders.replay import Explanation
    from contexture.ledger import LedgerEntry

    entry = msgspec.convert(answer["candidate"], LedgerEntry)
    return Explanation(entry=entry, more_tokens=answer["more_tokens"], score_needed=answer["score_needed"])
