"""`python -m benchmarks.postgres_probe URL [COLLECTION]`: how soon a fresh process answers, and its memory.

The process opens a store in PostgreSQL that `benchmarks.postgres` has filled, and has no models.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, process_time

from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions
from contexture.pipeline.scoring import fuse_channels
from contexture.types import Query, Scope


async def probe(url: str, collection: str) -> dict[str, float]:
    """Ask for any passage with one of three terms."""
    imported = since_start()
    index = await PostgresIndex.open(url, PostgresOptions(vectors={}))
    query = Query(collection=collection, terms=(1, 2, 3), fuse=lambda found: fuse_channels(found, pool=50))
    scope = Scope(tenant="bench", user="reader", groups=("staff",))
    await index.search(scope, query)
    numbers = {
        "process_imported_s": imported,
        "process_first_answer_s": since_start(),
        "process_first_answer_cpu_s": process_time(),
    }
    for _ in range(20):
        await index.search(scope, query)
    await index.close()
    return {**numbers, "process_peak_mb": peak_megabytes()}


def peak_megabytes() -> float:
    """The most memory that this process has had at once; what it was forked from does not count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM"))


def since_start() -> float:
    """Seconds since this process was started."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    return clock_gettime(CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(probe(sys.argv[1], *(sys.argv[2:] or ["documents"])))))
