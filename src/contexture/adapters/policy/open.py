"""Constant policies: allow everything if no policy is configured, deny everything if it cannot be loaded."""

from collections.abc import Mapping

from contexture.conversation import Decision, HealthState
from contexture.types import Json, Scope

_ALLOWED = Decision(allowed=True)
_DENIED = Decision(allowed=False, reason="the policy cannot be loaded, so everything is denied; the log says why")


class OpenPolicy:
    """Allows every action; access control on records still applies."""

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> Decision:
        """Always allowed."""
        del scope, action, resource
        return _ALLOWED


class DenyingPolicy:
    """Denies every action, because the configured policy cannot be loaded; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> Decision:
        """Always denied."""
        del scope, action, resource
        return _DENIED

    async def state(self) -> HealthState:
        """Always down."""
        return HealthState.DOWN
