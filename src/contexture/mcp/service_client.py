"""HTTP client of the service for MCP handlers: a running service, or the application inside this process."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import httpx
import msgspec
from fastapi import FastAPI

from contexture.errors import SourceTimeout, SourceUnavailable

IN_PROCESS_URL = "http://127.0.0.1"
"""The base URL of the application inside this process; no socket is opened for it."""

_HTTP_TIMEOUT = httpx.Timeout(300.0, connect=5.0)  # seconds: callers have shorter timeouts of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceAddress:
    """The URL of a service and the headers sent to it."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceResponse:
    """The decoded JSON body of a response; `failed` says that it is an error."""

    failed: bool
    content: dict[str, Any]


class ServiceClient:
    """Sends requests to one service over HTTP; `place` is called per request, as the service may have restarted."""

    def __init__(self, client: httpx.AsyncClient, place: Callable[[], ServiceAddress]) -> None:
        self._client = client
        self._address = place

    async def request(
        self, method: str, path: str, body: object = None, *, presented: Mapping[str, str] | None = None
    ) -> ServiceResponse:
        """Return the response of a route; `presented` replaces the client's own headers."""
        place = self._address()
        headers = {**(place.headers if presented is None else presented), "Content-Type": "application/json"}
        content = None if body is None else msgspec.json.encode(body)
        try:
            response = await self._client.request(method, place.url + path, content=content, headers=headers)
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"the service at {place.url} did not answer in time") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the service at {place.url} cannot be reached: {failure}") from failure
        return ServiceResponse(failed=response.is_error, content=_decode_object(response.content))


@asynccontextmanager
async def connect_over_http(place: Callable[[], ServiceAddress]) -> AsyncGenerator[ServiceClient]:
    """Yield a client of a service in another process."""
    # Ignore proxies of the environment: a proxy cannot reach this machine's loopback address.
    async with httpx.AsyncClient(timeout=_HTTP_TIMEOUT, trust_env=False) as client:
        yield ServiceClient(client, place)


@asynccontextmanager
async def connect_in_process(app: FastAPI, headers: Mapping[str, str]) -> AsyncGenerator[ServiceClient]:
    """Yield a client of an application in this process, which is started and stopped with it."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, timeout=_HTTP_TIMEOUT) as client,
    ):
        yield ServiceClient(client, lambda: ServiceAddress(url=IN_PROCESS_URL, headers=headers))


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        found: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise SourceUnavailable("the answer is not from a Contexture service; check CONTEXTURE_URL")
    return cast("dict[str, Any]", found)
