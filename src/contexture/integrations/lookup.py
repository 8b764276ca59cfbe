"""A search as other frameworks make it: one question in, the best passages out, with or without an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import to_builtins

from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.sync import SyncContexture
from contexture.types import Candidate, Filter, Scope

Engine: TypeAlias = Contexture | SyncContexture
"""What `contexture.open` gives to code with an event loop, or `contexture.open_sync` to code without one."""

_POOL = 60  # what the engine looks at by itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookup:
    """Where to look, as whom, and for how many passages; what is left out is as the engine's settings say."""

    engine: Engine
    k: int = 10
    collection: str | None = None
    scope: Scope | None = None
    where: Filter | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InvalidRequest(f"`k` must be at least 1, not {self.k}")

    def run(self, question: str) -> list[Candidate]:
        """The best passages, redacted; needs an engine of `contexture.open_sync`."""
        if isinstance(self.engine, Contexture):
            raise InvalidRequest("this engine answers with `await`; open it with `contexture.open_sync` to do without")
        found = self.engine.search(
            question, collection=self.collection, scope=self.scope, where=self.where, pool=self._pool
        )
        return list(found.found[: self.k])

    async def run_async(self, question: str) -> list[Candidate]:
        """The best passages, redacted, from either kind of engine."""
        if isinstance(self.engine, SyncContexture):
            return await asyncio.to_thread(self.run, question)
        found = await self.engine.search(
            question, collection=self.collection, scope=self.scope, where=self.where, pool=self._pool
        )
        return list(found.found[: self.k])

    @property
    def _pool(self) -> int | None:
        return self.k if self.k > _POOL else None


def metadata_of(found: Candidate) -> dict[str, Any]:
    """What is known about a passage besides its text, as plain values; `citation` leads back to the record."""
    return {
        "record_id": found.record_id,
        "title": found.title,
        "source": found.source,
        "kind": found.kind,
        "lang": found.lang,
        "time": found.time.isoformat() if found.time else None,
        "score": found.score,
        "signals": dict(found.signals),
        "citation": to_builtins(found.citation),
    }
