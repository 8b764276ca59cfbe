"""A process that appends events and hands memories on, and says so on standard output; a test kills it.

The memory service of this process never answers, so that everything it was handed waits in the outbox.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contexture.adapters.conversation.outbox import Outbox
from contexture.adapters.conversation.sqlite import SqliteSessions
from contexture.conversation import Memory
from contexture.testing.sessions import make_event
from contexture.types import Scope
from contexture.wiring import SystemClock


class Silent:
    """A memory service that takes forever."""

    async def remember(self, scope, memories):
        """Never answers."""
        await asyncio.Event().wait()


async def talk(folder: Path) -> None:
    """Go on until killed."""
    sessions = SqliteSessions(folder / "sessions.sqlite")
    outbox = Outbox(folder / "outbox.sqlite", Silent(), clock=SystemClock())
    outbox.start()
    for number in range(100_000):
        await sessions.append(Scope.local(), "s", [make_event(f"{number}a"), make_event(f"{number}b")])
        say(f"event {number}")
        await outbox.put(Scope.local(), Memory(text=f"memory {number}", idempotency_key=f"k{number}"))
        say(f"memory {number}")


def say(done: str) -> None:
    """Acknowledge a write."""
    sys.stdout.write(done + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(talk(Path(sys.argv[1])))
