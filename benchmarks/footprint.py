"""What a process weighs that holds a store open and has answered some searches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from benchmarks.corpus import SCOPE, questions
from benchmarks.store import NAME, Models, opened, searcher

from contexture.ledger import Trace

SEARCHES = 50


def reader_megabytes(folder: Path) -> float:
    """Resident memory after 50 exact searches, no embedding model loaded, in a process of its own."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_resident, folder).result()


def disk_megabytes(folder: Path) -> float:
    """What the files of a store take on disk; holes in them take nothing."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


def _resident(folder: Path) -> float:
    return asyncio.run(_after_searches(folder))


async def _after_searches(folder: Path) -> float:
    with TemporaryDirectory() as scratch:
        models = Models(Path(scratch))
        index = await opened(folder, models)
        search = searcher(index, models.encoders())
        for text in questions(SEARCHES, seed=16):
            await search.search(SCOPE, NAME, text, trace=Trace())
        weight = psutil.Process().memory_info().rss / 1e6
        await index.close()
        models.close()
    return weight
