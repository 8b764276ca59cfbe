"""Asks the policy: one function for every action, and a memory service that asks before it stores."""

from collections.abc import Callable, Mapping, Sequence

from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import NotPermitted
from contexture.ports import MemoryService, Policy
from contexture.types import Json, Scope

REMEMBER = "memory.remember"


async def require_permission(policy: Policy, scope: Scope, action: str, resource: Mapping[str, Json]) -> None:
    """Raise `NotPermitted`, with the policy's reason, unless the policy allows the action."""
    decision = await policy.decide(scope, action, resource)
    if not decision.allowed:
        raise NotPermitted(decision.reason or f"the policy does not allow {action!r}")


def describe_memories(count: int) -> dict[str, Json]:
    """The input of the policy for storing this many memories, the same wherever they come from."""
    return {"memories": count}


class PolicyCheckedMemory:
    """Implements the `MemoryService` port over another service; nothing is stored unless the policy allows it.

    `policy` returns the policy to ask.
    """

    def __init__(self, service: MemoryService, policy: Callable[[], Policy]) -> None:
        self._service = service
        self._policy = policy

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all memories or none; raises `NotPermitted` if the policy denies `memory.remember`."""
        await require_permission(self._policy(), scope, REMEMBER, describe_memories(len(memories)))
        return await self._service.remember(scope, memories)

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best memories at or above the threshold."""
        return await self._service.recall(scope, query)

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Rank one memory slightly higher or lower."""
        await self._service.feedback(scope, given)

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove the memories the scope may read; returns how many."""
        return await self._service.forget(scope, ids)
