"""Memory services as clients that take and give payloads, in both directions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import httpx

from contexture.adapters.memory.payloads import (
    answer_from,
    answer_json,
    asker,
    ids_from,
    memory_from,
    memory_json,
    recall_from,
    recall_json,
)
from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import InvalidRequest, NotPermitted, SourceUnavailable
from contexture.ports import Clock, MemoryService
from contexture.types import Scope

Payload = Mapping[str, Any]


class PayloadClient(Protocol):
    """A client of a memory service as other software has it: JSON objects in, JSON objects out."""

    def context_evaluate(self, payload: dict[str, Any]) -> Awaitable[Payload]:
        """Memories for a question, in `candidates` or `results`."""
        ...

    def recall(self, payload: dict[str, Any]) -> Awaitable[Payload]:
        """The same under its other name."""
        ...

    def remember_batch(self, payload: dict[str, Any]) -> Awaitable[Payload]:
        """Store the `memories` of a payload."""
        ...


class ClientMemory:
    """Implements the `MemoryService` port over somebody else's client.

    `failures` are the errors by which that client says that its service is in trouble; they surface as
    `SourceUnavailable`. Such clients know neither feedback nor forgetting, and say so.

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
        """Store all of them or none; ids in order."""
        if not memories:
            return ()
        payload = {**asker(scope), "memories": [memory_json(memory) for memory in memories]}
        return ids_from(await self._ask(self._client.remember_batch, payload), memories)

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best memories at or above the threshold."""
        if not query.top_k:
            return ()
        return answer_from(await self._ask(self._client.context_evaluate, recall_json(scope, query)), query)

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Refused: the client has no such call."""
        del scope, given
        raise InvalidRequest("this memory client takes no feedback")

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Refused: the client has no such call."""
        del scope, ids
        raise InvalidRequest("this memory client cannot forget")

    async def _ask(self, call: Callable[[dict[str, Any]], Awaitable[Payload]], payload: dict[str, Any]) -> object:
        try:
            return await call(payload)
        except self._failures as failure:
            raise SourceUnavailable(f"the memory client failed: {failure}") from failure


class MemoryClient:
    """A memory service behind the three calls that take payloads, for one scope.

    A payload that names another tenant or user is `NotPermitted`.
    """

    def __init__(self, service: MemoryService, scope: Scope, clock: Clock) -> None:
        self._service = service
        self._scope = scope
        self._clock = clock

    async def context_evaluate(self, payload: Payload) -> dict[str, Any]:
        """Memories for a question, under `candidates` and `results`."""
        self._check(payload)
        query = recall_from(payload, now=self._clock.now())
        return answer_json(await self._service.recall(self._scope, query))

    async def recall(self, payload: Payload) -> dict[str, Any]:
        """The same answer as `context_evaluate`."""
        return await self.context_evaluate(payload)

    async def remember_batch(self, payload: Payload) -> dict[str, Any]:
        """Store the `memories` of a payload, all of them or none."""
        self._check(payload)
        found: object = payload.get("memories")
        items = cast("list[object]", found) if isinstance(found, list) else None
        if items is None or not all(isinstance(item, Mapping) for item in items):
            raise InvalidRequest("`memories` must be a list of objects")
        memories = [memory_from(cast("Payload", item)) for item in items]
        return {"ok": True, "ids": list(await self._service.remember(self._scope, memories))}

    def _check(self, payload: Payload) -> None:
        for name, own in asker(self._scope).items():
            if payload.get(name) not in (None, "", own):
                raise NotPermitted(f"this client may not act for {name} {payload[name]!r}")
