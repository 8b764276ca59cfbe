"""A memory service behind a URL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import httpx

from contexture.adapters.memory.payloads import (
    answer_from,
    asker,
    broken,
    feedback_json,
    ids_from,
    memory_json,
    recall_json,
)
from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import InvalidRequest, NotFound, SourceTimeout, SourceUnavailable
from contexture.types import Scope

LARGEST = 16 * 2**20
"""Bytes up to which an answer is read."""

_OK, _REDIRECT, _SERVER = 200, 300, 500
_NOT_FOUND = 404
_REFUSED = frozenset({401, 403, 408, 429})
_LAST_PORT = 65_535
_SHOWN = 200


class Refused(SourceUnavailable):
    """The service answers, but not us: a key it does not accept, or too many requests. Waiting a moment is no cure."""

    retryable = False


class RemoteMemory:
    """Implements the `MemoryService` port over HTTP.

    Whatever goes wrong on the way or at the other end is a `SourceError`, an answer of the wrong shape included.
    Wrap it in a `GuardedMemory` for retries and a breaker. The key must belong to the tenant and the user who
    ask: a service like ours refuses payloads that name others.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str = "",
        timeout: float = 30.0,
        path: str = "/context/evaluate",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(base_url=_address(url), headers=headers, timeout=timeout, transport=transport)
        self._timeout = timeout
        self._path = path

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all of them or none; ids in order."""
        if not memories:
            return ()
        payload = {**asker(scope), "memories": [memory_json(memory) for memory in memories]}
        return ids_from(await self._post(scope, "/memory/remember/batch", payload), memories)

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best memories at or above the threshold, whatever the service makes of it."""
        if not query.top_k:
            return ()
        return answer_from(await self._post(scope, self._path, recall_json(scope, query)), query)

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Let one memory rank a little higher or lower."""
        await self._post(scope, "/context/feedback", feedback_json(scope, given))

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove those the scope may read; one that is not there is no error."""
        gone = 0
        for each in dict.fromkeys(ids):
            try:
                await self._ask(scope, "DELETE", f"/memory/{quote(each, safe='')}", asker(scope), in_query=True)
            except NotFound:
                continue
            gone += 1
        return gone

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, scope: Scope, path: str, payload: Mapping[str, Any]) -> object:
        return await self._ask(scope, "POST", path, payload)

    async def _ask(
        self, scope: Scope, method: str, path: str, payload: Mapping[str, Any], *, in_query: bool = False
    ) -> object:
        params, content = (payload, None) if in_query else (None, _encoded(payload))
        headers = {**_who(scope), **({"Content-Type": "application/json"} if content else {})}
        request = self._client.build_request(method, path, params=params, content=content, headers=headers)
        try:
            status, body = await self._sent(request)
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"the memory service did not answer within {self._timeout:g} s") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the memory service cannot be reached: {failure}") from failure
        _check_status(status, body)
        return _decoded(body)

    async def _sent(self, request: httpx.Request) -> tuple[int, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > LARGEST:
                    raise broken(f"it is longer than {LARGEST} bytes")
            return response.status_code, bytes(body)
        finally:
            await response.aclose()


def _address(url: str) -> httpx.URL:
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as failure:
        raise InvalidRequest(f"{url!r} is not the address of a memory service: {failure}") from failure
    if found.scheme not in {"http", "https"} or not found.host or (found.port or 0) > _LAST_PORT:
        raise InvalidRequest(
            f"{url!r} is not the address of a memory service; write it like http://memory.example:8420"
        )
    return found


def _who(scope: Scope) -> dict[str, str]:
    """Who asks, for services on this machine that take our word for it."""
    groups = ",".join(quote(name, safe="") for name in scope.groups)
    named = {"Tenant": quote(scope.tenant, safe=""), "User": quote(scope.user, safe=""), "Groups": groups}
    return {f"X-Contexture-{name}": value for name, value in named.items() if value}


def _encoded(payload: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(payload, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"a memory cannot be written as JSON: {failure}") from failure


def _decoded(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as failure:
        raise broken(f"not JSON: {failure}") from failure


def _check_status(status: int, body: bytes) -> None:
    if _OK <= status < _REDIRECT:
        return
    said = _message(body)
    if status == _NOT_FOUND:
        raise NotFound(said or "the memory service knows no such memory")
    if status in _REFUSED:
        raise Refused(f"the memory service refuses us with {status}: {said}")
    if _NOT_FOUND - 4 <= status < _SERVER:
        raise InvalidRequest(said or f"the memory service refuses the request with {status}")
    raise SourceUnavailable(f"the memory service answers {status}: {said}")


def _message(body: bytes) -> str:
    """What an error answer says, short enough to repeat."""
    try:
        answer: object = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = cast("dict[str, object]", answer).get("error") if isinstance(answer, dict) else None
    said = cast("dict[str, object]", error).get("user_message") if isinstance(error, dict) else None
    return said[:_SHOWN] if isinstance(said, str) else ""
