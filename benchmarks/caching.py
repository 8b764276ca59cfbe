"""The cache of search answers on a fixed trace: questions by Zipf's law, one operation in fifty a write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.corpus import ELSEWHERE, SCOPE, Owned, questions, records
from benchmarks.index import find
from benchmarks.store import Models, Writer, opened, searcher
from benchmarks.timing import Numbers, Progress
from msgspec.structs import replace

QUESTIONS = 1_000
EXPONENT = 1.1
WRITES = 0.02

_SEED = 31


async def caching(folder: Path, models: Models, operations: int, progress: Progress) -> Numbers:
    """Hit rates when the writes go where the questions look, and when they go to another tenant."""
    index = await opened(folder, models)
    numbers: Numbers = {}
    for name, scope in (("same_tenant", SCOPE), ("other_tenant", ELSEWHERE)):
        search, writer = searcher(index, models.encoders(), remembered=2_048), Writer(index, models)
        new = (replace(owned.record, id=f"new-{owned.record.id}", acl=("public",))
               for block in records(operations, seed=2) for owned in block)  # fmt: skip
        for done, asked in enumerate(trace(operations)):
            if asked is None:
                await writer.write([Owned(scope, next(new))])
            else:
                await find(search, asked)
            progress(f"cache, writes to {name.replace('_', ' ')}", done + 1, operations)
        numbers[f"cache_hits_writes_to_{name}_share"] = search.cache_stats().rate
    await index.close()
    return numbers


def trace(operations: int) -> list[str | None]:
    """Questions in the order they are asked; None is a write."""
    draw = np.random.default_rng(_SEED)
    weights = 1 / np.arange(1, QUESTIONS + 1) ** EXPONENT
    asked = questions(QUESTIONS, seed=_SEED)
    chosen = draw.choice(QUESTIONS, size=operations, p=weights / weights.sum())
    writes = draw.random(operations) < WRITES
    return [None if write else asked[at] for at, write in zip(chosen.tolist(), writes.tolist(), strict=True)]
