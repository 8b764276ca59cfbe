"""A process that writes records one after the other and says so on standard output; the crash test kills it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.testing.index_records import COLLECTION, NAME, VECTORS, make_record, prepare_record
from contexture.types import Scope


async def write(folder: Path, first: int, flush_every: int) -> None:
    """Write until killed: every fifth write replaces an earlier record, every seventh removes one."""
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=VECTORS, threads=1))
    scope = Scope.local()
    await index.create(scope, COLLECTION)
    for number in range(first, first + 10_000):
        text = f"zebra number {number}\n\nsecond line of w{number}"
        await index.upsert(scope, NAME, [prepare_record(make_record(f"r{number}", text))])
        say(f"+r{number}")
        if number % 5 == 0:
            await index.upsert(
                scope, NAME, [prepare_record(make_record(f"r{number - 1}", f"zebra rewritten w{number}"))]
            )
            say(f"*r{number - 1}")
        if number % 7 == 0:
            await index.delete(scope, NAME, [f"r{number - 3}"])
            say(f"-r{number - 3}")
        if number % flush_every == 0:
            await index.optimize()


def say(done: str) -> None:
    """Acknowledge a write."""
    sys.stdout.write(done + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
