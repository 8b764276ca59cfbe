"""Warms an engine up while the service already listens, and knows how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from contexture.conversation import HealthState
from contexture.engine import Contexture
from contexture.errors import ContextError


class Readiness:
    """`done` once the index was touched and each embedder has answered; a part that fails keeps it from being so."""

    def __init__(self, engine: Contexture) -> None:
        self._parts: dict[str, Callable[[], Awaitable[object]]] = {
            "index": engine.index.warm,
            "embedders": engine.warm_embedders,
        }
        self.steps: dict[str, str] = dict.fromkeys(self._parts, "waiting")

    @property
    def done(self) -> bool:
        """Whether the first request would find everything loaded."""
        return all(step == "done" for step in self.steps.values())

    @property
    def embedders(self) -> HealthState:
        """Down when they could not be loaded, degraded while that is not known."""
        said = self.steps["embedders"]
        if said == "done":
            return HealthState.NORMAL
        return HealthState.DEGRADED if said == "waiting" else HealthState.DOWN

    async def warm(self) -> None:
        """Do every step; one that fails is logged, and the others go on."""
        for name, step in self._parts.items():
            try:
                await step()
            except ContextError as failure:
                self.steps[name] = f"failed: {failure}"
                structlog.get_logger().error("warm-up failed", part=name, reason=str(failure))
            else:
                self.steps[name] = "done"
            await asyncio.sleep(0)
