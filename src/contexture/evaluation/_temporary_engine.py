"""Opens a temporary engine over the records of one evaluation; its embeddings are cached for the next run."""

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

ProgressCallback = Callable[[str, int, int], None]

COLLECTION = "evaluation"

_BATCH_SIZE = 64


def ignore_progress(task: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""
    del task, done, total


@asynccontextmanager
async def open_temporary_engine(
    records: Sequence[Record], settings: Settings, progress: ProgressCallback
) -> AsyncGenerator[Contexture]:
    """An engine over the records alone, in a temporary folder that is deleted afterwards.

    Embeddings are cached in the home of `settings`, so that a second run only searches.
    """
    folder = Path(tempfile.mkdtemp(prefix="contexture-eval-"))
    try:
        encoders = wiring.encoders(settings)
        here = settings.model_copy(update={"home": folder, "keep_builds": 0, "collection": COLLECTION})
        store = await wiring.index(here, encoders)
        engine = Contexture(here, store, encoders)
        await engine.create(Collection(name=COLLECTION, fields={"group": FieldType.KEYWORD}))
        await _load_records(engine, records, progress)
        yield engine
        await engine.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _load_records(engine: Contexture, records: Sequence[Record], progress: ProgressCallback) -> None:
    for at in range(0, len(records), _BATCH_SIZE):
        await engine.add(records[at : at + _BATCH_SIZE])
        progress("load", min(at + _BATCH_SIZE, len(records)), len(records))
    await engine.index.optimize()
