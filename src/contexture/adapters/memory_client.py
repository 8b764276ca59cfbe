"""Clients of a memory service: over HTTP, and between `MemoryService` and clients that exchange JSON payloads."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.parse import quote

import httpx

from contexture import memory_payloads as payloads
from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import InvalidRequest, NotFound, NotPermitted, SourceTimeout, SourceUnavailable
from contexture.ports import Clock, MemoryService
from contexture.types import Scope

Payload = Mapping[str, Any]


class PayloadClient(Protocol):
    """A third-party client of a memory service: JSON objects in, JSON objects out."""

    def context_evaluate(self, payload: dict[str, Any]) -> Awaitable[Payload]:
        """Memories for a recall query, in `candidates` or `results`."""
        ...

    def recall(self, payload: dict[str, Any]) -> Awaitable[Payload]:
        """Same as `context_evaluate`."""
        ...

    def remember_batch(self, payload: dict[str, Any]) -> Awaitable[Payload]:
        """Store the `memories` of a payload."""
        ...


class ClientMemory:
    """Implements the `MemoryService` port over a third-party client.

    `failures` are the exceptions with which the client reports failures of its service; they are raised as
    `SourceUnavailable`. Such clients support neither feedback nor forgetting, which raise `InvalidRequest`.

    memory = ClientMemory(their_client, failures=(TheirError,))
    """

    def __init__(
        self,
        client: PayloadClient,
        *,
        failures: tuple[type[Exception], ...] = (OSError, RuntimeError, httpx.HTTPError),
    ) -> None:
        self._client = client
        self._failures = failures

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order."""
        if not memories:
            return ()
        payload = {
            **payloads.scope_to_json(scope),
            "memories": [payloads.memory_to_json(memory) for memory in memories],
        }
        return payloads.ids_from_json(await self._ask(self._client.remember_batch, payload), memories)

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """Best memories at or above the threshold."""
        if not query.top_k:
            return ()
        return payloads.recall_answer_from_json(
            await self._ask(self._client.context_evaluate, payloads.recall_to_json(scope, query)), query
        )

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Raise `InvalidRequest`: the client has no such call."""
        del scope, given
        raise InvalidRequest("this memory client does not support feedback")

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Raise `InvalidRequest`: the client has no such call."""
        del scope, ids
        raise InvalidRequest("this memory client does not support deletion")

    async def _ask(self, call: Callable[[dict[str, Any]], Awaitable[Payload]], payload: dict[str, Any]) -> object:
        try:
            return await call(payload)
        except self._failures as failure:
            raise SourceUnavailable(f"the memory client failed: {failure}") from failure


class MemoryClient:
    """Payload client over a `MemoryService`, for one scope.

    A payload that names another tenant or user raises `NotPermitted`.
    """

    def __init__(self, service: MemoryService, scope: Scope, clock: Clock) -> None:
        self._service = service
        self._scope = scope
        self._clock = clock

    async def context_evaluate(self, payload: Payload) -> dict[str, Any]:
        """Memories for a recall query, under `candidates` and `results`."""
        self._check(payload)
        query = payloads.recall_from_json(payload, now=self._clock.now())
        return dict[str, Any](payloads.recall_answer_to_json(await self._service.recall(self._scope, query)))

    async def recall(self, payload: Payload) -> dict[str, Any]:
        """Same as `context_evaluate`."""
        return await self.context_evaluate(payload)

    async def remember_batch(self, payload: Payload) -> dict[str, Any]:
        """Store the `memories` of a payload, all or none."""
        self._check(payload)
        found: object = payload.get("memories")
        items = cast("list[object]", found) if isinstance(found, list) else None
        if items is None or not all(isinstance(item, Mapping) for item in items):
            raise InvalidRequest("`memories` must be a list of objects")
        memories = [payloads.memory_from_json(cast("Payload", item)) for item in items]
        return {"ok": True, "ids": list(await self._service.remember(self._scope, memories))}

    def _check(self, payload: Payload) -> None:
        for name, own in payloads.scope_to_json(self._scope).items():
            if payload.get(name) not in (None, "", own):
                raise NotPermitted(f"this client may not act for {name} {payload[name]!r}")


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
