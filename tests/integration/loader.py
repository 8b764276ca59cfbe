"""Loads a file into a store over small embedders, as `contexture ingest` does, and says each step it has finished."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contexture import Settings
from contexture.ingestion.loader import load_records
from support.service import small_engine


async def load(folder: Path, rows: Path) -> None:
    """Write the records, then embed what they left, one line of output per batch."""
    async with small_engine(Settings(home=folder)) as engine:
        assert engine.backfill is not None
        engine.backfill.defer()
        await load_records(engine, [rows], collection="documents", progress=lambda *step: say(f"loaded {step}"))
        await engine.embed_rest(lambda *step: say(f"embedded {step}"))
    say("done")


def say(line: str) -> None:
    """Write a line that the parent process counts."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(load(Path(sys.argv[1]), Path(sys.argv[2])))
