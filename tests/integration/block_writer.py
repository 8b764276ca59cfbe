"""A process that writes blocks and kills itself at the index; the crash test says at which moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from contexture.config import Settings
from contexture.testing.blocks_tree import make_block, make_page
from contexture.testing.doubles import NOON
from contexture.types import PreparedRecord, Scope
from support.service import small_engine

ANNA = Scope(tenant="acme", user="anna")
BEFORE = [
    make_page("p", text="Plant"),
    make_block("a", "p", text="old pump"),
    make_block("s", "p", text="pump of anna"),
]
AFTER = [make_page("p", text="Works", readers=("user:anna",)), make_block("b", "p", text="new pump")]


def die() -> None:
    """End at once, without a chance to tidy up."""
    os.kill(os.getpid(), signal.SIGKILL)


async def write(folder: Path, moment: str) -> None:
    """Write a page; then alter its title and readers and die before, or right after, the index is written."""
    async with small_engine(Settings(home=folder, tenant="acme", user="anna")) as engine:
        await engine.workspace.put(ANNA, BEFORE, now=NOON)
        upsert = engine.index.upsert

        async def deadly(scope: Scope, collection: str, records: Sequence[PreparedRecord]) -> int:
            if moment == "before":
                die()
            done = await upsert(scope, collection, records)
            die()
            return done

        engine.index.upsert = deadly
        await engine.workspace.delete(ANNA, ["s"], now=NOON)
        await engine.workspace.put(ANNA, AFTER, now=NOON)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2]))
