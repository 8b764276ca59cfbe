"""How tools reach the service: the one that runs, or the application inside this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import httpx
import msgspec
from fastapi import FastAPI

from contexture.errors import SourceTimeout, SourceUnavailable

INSIDE = "http://127.0.0.1"
"""The address of the application inside this process; no socket is opened for it."""

_PATIENCE = httpx.Timeout(300.0, connect=5.0)  # seconds: whoever calls has a shorter patience of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a service answers, and what is presented to it."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the service said: the object of a route, or of an error."""

    failed: bool
    content: dict[str, Any]


class Link:
    """Asks one service over HTTP; `place` is called for every request, because a service may have moved."""

    def __init__(self, client: httpx.AsyncClient, place: Callable[[], Place]) -> None:
        self._client = client
        self._place = place

    async def ask(
        self, method: str, path: str, body: object = None, *, presented: Mapping[str, str] | None = None
    ) -> Answer:
        """What a route answers; `presented` says who asks, instead of the link's own headers."""
        place = self._place()
        headers = {**(place.headers if presented is None else presented), "Content-Type": "application/json"}
        content = None if body is None else msgspec.json.encode(body)
        try:
            response = await self._client.request(method, place.url + path, content=content, headers=headers)
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"the service at {place.url} did not answer in time") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the service at {place.url} cannot be reached: {failure}") from failure
        return Answer(failed=response.is_error, content=_object(response.content))


@asynccontextmanager
async def outside(place: Callable[[], Place]) -> AsyncGenerator[Link]:
    """A link to a service in another process."""
    # The environment may name a proxy, which would not find this machine's loopback.
    async with httpx.AsyncClient(timeout=_PATIENCE, trust_env=False) as client:
        yield Link(client, place)


@asynccontextmanager
async def inside(app: FastAPI, headers: Mapping[str, str]) -> AsyncGenerator[Link]:
    """A link to an application in this process, which is started and stopped with it."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, timeout=_PATIENCE) as client,
    ):
        yield Link(client, lambda: Place(url=INSIDE, headers=headers))


def _object(body: bytes) -> dict[str, Any]:
    try:
        found: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise SourceUnavailable("the answer is not one of a Contexture service; check CONTEXTURE_URL")
    return cast("dict[str, Any]", found)
