"""The policy of those who configured none: everything inside the caller's scope is allowed."""

from __future__ import annotations

from collections.abc import Mapping

from contexture.conversation import Decision
from contexture.types import Json, Scope

_ALLOWED = Decision(allowed=True)


class OpenPolicy:
    """Allows every action; permissions on records hold all the same."""

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> Decision:
        """Always allowed."""
        del scope, action, resource
        return _ALLOWED
