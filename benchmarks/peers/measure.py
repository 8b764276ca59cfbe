"""One contestant in a process of its own: `python -m benchmarks.peers.measure NAME MATERIAL SCRATCH OUT`.

It runs in the environment of the contestant and imports nothing that others need.
"""

from __future__ import annotations

import ctypes
import gc
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time

import psutil
from benchmarks.peers.contestant import Answer, Contestant
from benchmarks.peers.entries import ENTRIES
from benchmarks.peers.material import Asked, Rows, read

FEW = 5
SLOW_MS = 250
SLOW_QUESTIONS = 50
"""How many questions are asked of a contestant whose answers take longer than that."""


def main(arguments: Sequence[str]) -> None:
    """Load, warm up, ask, and write what happened as JSON."""
    name, folder, scratch, out = arguments[0], *map(Path, arguments[1:])
    entry = ENTRIES[name]
    made: Contestant = getattr(import_module(entry.module), entry.made_by)(folder, scratch)
    load_s = _loaded(made, folder)
    rows = read(folder)
    known = rows.by_text
    slow = _warmed_up(made, rows.warm_up, known)
    speed_only = not any(each.gold for each in rows.questions)
    measured = rows.questions[:SLOW_QUESTIONS] if slow and speed_only else rows.questions
    started = process_time()
    answers, wall = _asked(made, measured, known)
    busy = process_time() - started
    del rows
    told = {
        "load_s": load_s,
        "rss_mb": _resident(),
        "wall_ms": wall,
        "cpu_ms": busy * 1_000 / len(wall),
        "answers": [asdict(answer) for answer in answers],
        "versions": {package: version(package) for package in entry.packages},
    }
    out.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")


def _loaded(made: Contestant, folder: Path) -> float:
    """Seconds until the contestant can be asked; what it was given is let go of."""
    given = read(folder)
    started = perf_counter()
    embedding = made.load(given.documents, given.vectors)
    return perf_counter() - started - embedding


def _warmed_up(made: Contestant, questions: Sequence[Asked], known: dict[str, Rows]) -> bool:
    """Ask questions that are not measured; whether the contestant is slow, which a few of them tell."""
    _, wall = _asked(made, questions[:FEW], known)
    slow = bool(wall) and statistics.median(wall) > SLOW_MS
    if not slow:
        _asked(made, questions[FEW:], known)
    return slow


def _asked(made: Contestant, questions: Sequence[Asked], known: dict[str, Rows]) -> tuple[list[Answer], list[float]]:
    answers: list[Answer] = []
    wall: list[float] = []
    for each in questions:
        vector = known[each.text]
        started = perf_counter()
        answers.append(made.ask(each, vector))
        wall.append((perf_counter() - started) * 1_000)
    return answers, wall


def _resident() -> float:
    """Megabytes in memory once what is free was given back."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss / 1e6


if __name__ == "__main__":
    main(sys.argv[1:])
