"""Adapters between `MemoryService` and clients that exchange JSON payloads, in both directions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import httpx

from contexture import memory_payloads as payloads
from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import InvalidRequest, NotPermitted, SourceUnavailable
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
