"""What loading costs: `python -m benchmarks.loading FILE [--count 2000]`, or `python -m benchmarks.loading REPORT.pdf`.

`FILE` is the `corpus.jsonl` of an evaluation folder, whose records get given vectors. PDF files are loaded with the
default models until their words are found. The script imports nothing else of the benchmarks, so that it also runs with
the source of an earlier version: in an environment of that version, with this file's folder on the path.
Processor time is measured, in one thread but for the engine's own, because other work on the machine disturbs it least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import contexture
from contexture import engine, wiring
from contexture.config import Settings
from contexture.ingestion.documents import LoadOptions, document_files, load_documents
from contexture.retrieval.encoders import Encoders
from contexture.types import PUBLIC, Collection, Matrix, Record, Vector

_BATCH = 250
_WARM_UP = 50


class GivenVectors:
    """An embedder whose vectors cost nothing."""

    def __init__(self, name: str, dimensions: int) -> None:
        self.name = name
        self.dimensions = dimensions
        rows = np.random.default_rng(0).standard_normal((8_192, dimensions), np.float32)
        self._rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines from 0 to 1 as they are."""
        return np.clip(cosine, 0, 1)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """A row per text."""
        return self._rows[: len(texts)]


def read_records(path: Path, count: int) -> list[Record]:
    """The first records of a file, readable by everybody."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, count + _WARM_UP)]
    return [Record(id=row["id"], text=row["text"], title=row.get("title", ""), acl=(PUBLIC,)) for row in rows]


async def measure_loading(records: Sequence[Record], home: Path) -> dict[str, object]:
    """Milliseconds of processor time a record, for preparing alone and for all of `Contexture.add`."""
    encoders = Encoders(specialists={"en": GivenVectors("granite", 384)}, generalist=GivenVectors("use", 512))
    settings = Settings(home=home)
    store = await wiring.index(settings, encoders)
    opened = engine.Contexture(settings, store, encoders)
    measured, count = records[_WARM_UP:], len(records) - _WARM_UP
    try:
        await opened.create(Collection(name="records"))
        await opened.add(records[:_WARM_UP], collection="records")
        started = process_time()
        for at in range(0, count, _BATCH):
            await opened.add(measured[at : at + _BATCH], collection="records")
        added = process_time() - started
    finally:
        await opened.close()
    preparer = wiring.preparer(settings, encoders, wiring.redactor(settings))
    started = process_time()
    for at in range(0, count, _BATCH):
        await preparer.prepare(measured[at : at + _BATCH])
    prepared = process_time() - started
    preparer.close()
    return {
        "records": count,
        "add_ms": round(added / count * 1_000, 3),
        "prepare_again_ms": round(prepared / count * 1_000, 3),
        "source": contexture.__file__,
    }


async def measure_pages(files: Sequence[Path], home: Path) -> dict[str, object]:
    """Seconds until the pages of files are found by words, with the processes that read them, and until they end.

    The models are loaded before, and vectors that follow later are not waited for.
    """
    settings = Settings(home=home)
    encoders = wiring.encoders(settings)
    store = await wiring.index(settings, encoders)
    opened = engine.Contexture(settings, store, encoders)
    backfill = getattr(opened, "backfill", None)  # an earlier version has none
    if backfill is not None:
        backfill.defer()
    try:
        await opened.warm_embedders()
        options = LoadOptions(scope=opened.scope, now=opened.clock.now(), readers=(PUBLIC,), again=False)
        started, used = perf_counter(), _processor_seconds()
        async with wiring.reading_workers() as workers:
            report = await load_documents(opened.pages, workers, document_files(files, ("pdf",)), options)
        wall, processor = perf_counter() - started, _processor_seconds() - used
    finally:
        await opened.close()
        await store.close()
    return {
        "pages": report.pages,
        "wall_s": round(wall, 2),
        "processor_s": round(processor, 2),
        "pages_per_second": round(report.pages / wall, 2),
        "source": contexture.__file__,
    }


def _processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    """Measure once and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--count", type=int, default=2_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        if all(path.suffix == ".pdf" for path in asked.files):
            found = asyncio.run(measure_pages(asked.files, Path(home)))
        else:
            found = asyncio.run(measure_loading(read_records(asked.files[0], asked.count), Path(home)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
