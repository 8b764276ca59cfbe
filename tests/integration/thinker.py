"""A process with one message for a model that never answers; the model says that it was asked, and a test kills it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contexture.adapters.conversation.sqlite import SqliteSessions
from contexture.adapters.policy.open import OpenPolicy
from contexture.answer.chat import ProcessMessage
from contexture.answer.chat_types import ChatRequest
from contexture.answer.route import ModelRoute
from contexture.testing.doubles import FixedClock, WordCounter
from contexture.types import Scope
from support.turns import KeptSummaries, KnownSecrets, TurnBench


class Thinker:
    """A model that takes forever."""

    name = "thinker"

    async def complete(self, messages, *, max_tokens):
        """Says on standard output that it was asked, and never answers."""
        sys.stdout.write("asked\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


async def main(folder: Path) -> None:
    """Ask it."""
    process = ProcessMessage(
        policy=OpenPolicy(),
        sessions=SqliteSessions(folder / "sessions.sqlite"),
        build=TurnBench().builder().build_for_turn,
        route=ModelRoute({"thinker": Thinker()}),
        memories=KeptSummaries(),
        secrets=KnownSecrets({}),
        counter=WordCounter(),
        clock=FixedClock(),
    )
    await process.run(ChatRequest(message="The key is blue.", session_id="s"), scope=Scope.local())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
