"""A store made for one evaluation, which keeps its embeddings for the next."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from contexture import wiring
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.types import Collection, FieldType, Record

Progress = Callable[[str, int, int], None]

COLLECTION = "evaluation"

_BATCH = 64


def silent(task: str, done: int, total: int) -> None:
    """Progress for those who do not watch."""
    del task, done, total


@asynccontextmanager
async def loaded(records: Sequence[Record], settings: Settings, progress: Progress) -> AsyncGenerator[Contexture]:
    """An engine over the records alone, in a folder that is thrown away.

    Embeddings are cached in the home of `settings`, so that a second run only searches.
    """
    folder = Path(tempfile.mkdtemp(prefix="contexture-eval-"))
    try:
        speakers = wiring.encoders(settings)
        here = settings.model_copy(update={"home": folder, "keep_builds": 0, "collection": COLLECTION})
        store = await wiring.index(here, speakers)
        engine = Contexture(here, store, speakers)
        await engine.create(Collection(name=COLLECTION, fields={"group": FieldType.KEYWORD}))
        await _fill(engine, records, progress)
        yield engine
        await engine.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _fill(engine: Contexture, records: Sequence[Record], progress: Progress) -> None:
    for at in range(0, len(records), _BATCH):
        await engine.add(records[at : at + _BATCH])
        progress("load", min(at + _BATCH, len(records)), len(records))
    await engine.index.optimize()
