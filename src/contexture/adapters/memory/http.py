"""Client for a memory service over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import httpx

from contexture import memory_payloads as payloads
from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import InvalidRequest, NotFound, SourceTimeout, SourceUnavailable
from contexture.types import Scope

MAX_ANSWER_BYTES = 16 * 2**20
"""Maximum size of an answer."""

_OK, _REDIRECT, _SERVER_ERROR = 200, 300, 500
_NOT_FOUND = 404
_REFUSED_STATUSES = frozenset({401, 403, 408, 429})
_MAX_PORT = 65_535
_MAX_MESSAGE_CHARS = 200


class Refused(SourceUnavailable):
    """The service refuses us: an invalid key, or too many requests. Not retryable, since a short wait does not help."""

    retryable = False


class RemoteMemory:
    """Implements the `MemoryService` port over HTTP.

    Network failures, server errors and malformed answers raise `SourceError`. Wrap it in a `GuardedMemory` for retries
    and a circuit breaker. The key must belong to the tenant and user of the scope: a service like ours refuses
    payloads that name others. A memory in an answer that cannot be read is skipped, and `on_invalid` is told why.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str = "",
        timeout: float = 30.0,
        path: str = "/context/evaluate",
        transport: httpx.AsyncBaseTransport | None = None,
        on_invalid: Callable[[str], None] = lambda _: None,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(
            base_url=_parse_url(url), headers=headers, timeout=timeout, transport=transport
        )
        self._timeout = timeout
        self._path = path
        self._on_invalid = on_invalid

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order."""
        if not memories:
            return ()
        payload = {
            **payloads.scope_to_json(scope),
            "memories": [payloads.memory_to_json(memory) for memory in memories],
        }
        return payloads.ids_from_json(await self._post(scope, "/memory/remember/batch", payload), memories)

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """Best memories at or above the threshold, which is enforced even if the service ignores it."""
        if not query.top_k:
            return ()
        answer = await self._post(scope, self._path, payloads.recall_to_json(scope, query))
        return payloads.recall_answer_from_json(answer, query, self._on_invalid)

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Send feedback, which ranks one memory a little higher or lower."""
        await self._post(scope, "/context/feedback", payloads.feedback_to_json(scope, given))

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Delete memories that the scope may read; missing ones are ignored. Returns how many were deleted."""
        gone = 0
        for each in dict.fromkeys(ids):
            try:
                await self._ask(
                    scope, "DELETE", f"/memory/{quote(each, safe='')}", payloads.scope_to_json(scope), in_query=True
                )
            except NotFound:
                continue
            gone += 1
        return gone

    async def probe(self) -> None:
        """Ask for a sign of life; raises `SourceError` unless the service answers and accepts our key."""
        try:
            await self._ask(Scope.local(), "GET", "/health", {}, in_query=True)
        except (NotFound, InvalidRequest):  # it answers, and has no such route
            return

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, scope: Scope, path: str, payload: Mapping[str, Any]) -> object:
        return await self._ask(scope, "POST", path, payload)

    async def _ask(
        self, scope: Scope, method: str, path: str, payload: Mapping[str, Any], *, in_query: bool = False
    ) -> object:
        params, content = (payload, None) if in_query else (None, _encode_payload(payload))
        headers = {**_scope_headers(scope), **({"Content-Type": "application/json"} if content else {})}
        request = self._client.build_request(method, path, params=params, content=content, headers=headers)
        try:
            status, body = await self._send(request)
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"the memory service did not answer within {self._timeout:g} s") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"the memory service cannot be reached: {failure}") from failure
        _check_status(status, body)
        return _decode_body(body)

    async def _send(self, request: httpx.Request) -> tuple[int, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise payloads.invalid_answer_error(f"it is longer than {MAX_ANSWER_BYTES} bytes")
            return response.status_code, bytes(body)
        finally:
            await response.aclose()


def _parse_url(url: str) -> httpx.URL:
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as failure:
        raise InvalidRequest(f"{url!r} is not the address of a memory service: {failure}") from failure
    if found.scheme not in {"http", "https"} or not found.host or (found.port or 0) > _MAX_PORT:
        raise InvalidRequest(
            f"{url!r} is not the address of a memory service; write it like http://memory.example:8420"
        )
    return found


def _scope_headers(scope: Scope) -> dict[str, str]:
    """Scope headers, for services on this machine that trust them."""
    groups = ",".join(quote(name, safe="") for name in scope.groups)
    named = {"Tenant": quote(scope.tenant, safe=""), "User": quote(scope.user, safe=""), "Groups": groups}
    return {f"X-Contexture-{name}": value for name, value in named.items() if value}


def _encode_payload(payload: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(payload, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"a memory cannot be written as JSON: {failure}") from failure


def _decode_body(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as failure:
        raise payloads.invalid_answer_error(f"not JSON: {failure}") from failure


def _check_status(status: int, body: bytes) -> None:
    if _OK <= status < _REDIRECT:
        return
    said = _error_message(body)
    if status == _NOT_FOUND:
        raise NotFound(said or "the memory service has no such memory")
    if status in _REFUSED_STATUSES:
        raise Refused(f"the memory service rejected the request with status {status}: {said}")
    if _NOT_FOUND - 4 <= status < _SERVER_ERROR:
        raise InvalidRequest(said or f"the memory service rejected the request with status {status}")
    raise SourceUnavailable(f"the memory service answered with status {status}: {said}")


def _error_message(body: bytes) -> str:
    """Message of an error answer, truncated; empty if there is none."""
    try:
        answer: object = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = cast("dict[str, object]", answer).get("error") if isinstance(answer, dict) else None
    said = cast("dict[str, object]", error).get("user_message") if isinstance(error, dict) else None
    return said[:_MAX_MESSAGE_CHARS] if isinstance(said, str) else ""
