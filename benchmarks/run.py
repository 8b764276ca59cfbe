"""One run: every step on its own, then every store, smallest first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import machine
from benchmarks.build import building
from benchmarks.caching import caching
from benchmarks.command import commands
from benchmarks.corpus import questions
from benchmarks.index import searches
from benchmarks.options import STORES, Options
from benchmarks.parts import profiled
from benchmarks.report import Results
from benchmarks.research import PAGES, research
from benchmarks.steps import STEPS
from benchmarks.store import Models, filled, opened
from benchmarks.targets import growth
from benchmarks.timing import Numbers, Progress
from benchmarks.turn import turns
from benchmarks.visual import visual
from benchmarks.workspace import workspaces
from rich.console import Console

_OVER_DOCUMENTS = {"index", "build", "cache"}  # the others fill stores of their own

PAGED = {"research": research, "visual": visual}
"""What is measured over pages."""


def measured(chosen: Options, progress: Progress, console: Console) -> Results:
    """Everything that was chosen; a profile, when asked for, is printed on the way."""
    about = {**machine.facts(), "questions": chosen.questions, "load_at_start": machine.load()}
    detail: Numbers = {}
    general: Numbers = {}
    for done, name in enumerate(name for name in STEPS if name in chosen.only):
        progress(name, done, len(STEPS))
        found = STEPS[name].measure()
        detail |= found
        general |= STEPS[name].headline(found)
    sized: dict[int, Numbers] = {}
    if set(STORES) & set(chosen.only):
        for size in chosen.sizes:
            sized[size], once = _store(chosen, size, progress, console)
            general |= once
    for name in (name for name in PAGED if name in chosen.only):
        general |= _paged(name, chosen, progress)
    general |= growth(sized)
    return Results(sized=sized, general=general, detail=detail, machine={**about, "load_at_end": machine.load()})


def _store(chosen: Options, size: int, progress: Progress, console: Console) -> tuple[Numbers, Numbers]:
    """The figures of one store, and those measured on the smallest store only."""
    with TemporaryDirectory(prefix="contexture-bench-", ignore_cleanup_errors=True) as scratch:
        models, folder = Models(Path(scratch)), Path(scratch) / "store"
        needed = chosen.profile or not _OVER_DOCUMENTS.isdisjoint(chosen.only)
        numbers = asyncio.run(filled(folder, models, size, progress)) if needed else {}
        if "build" in chosen.only:
            numbers |= asyncio.run(building(folder, models, chosen.questions, progress))
        if "turn" in chosen.only:
            numbers |= asyncio.run(turns(Path(scratch) / "memories", models, size, chosen.questions, progress))
        if "command" in chosen.only:
            numbers |= asyncio.run(commands(Path(scratch) / "articles", models, size, chosen.questions, progress))
        if "workspace" in chosen.only:
            numbers |= asyncio.run(workspaces(Path(scratch) / "workspace", models, size, chosen.questions, progress))
        if chosen.profile:
            console.print(_profile(folder, models, chosen.questions), markup=False, highlight=False, soft_wrap=True)
        once: Numbers = {}
        if "cache" in chosen.only and size == min(chosen.sizes):
            once = asyncio.run(caching(folder, models, chosen.operations, progress))
        if "index" in chosen.only:
            numbers |= asyncio.run(searches(folder, models, chosen.questions, progress))
        models.close()
    return numbers, once


def _paged(name: str, chosen: Options, progress: Progress) -> Numbers:
    """The figures of a store of pages, of which there are fewer where stores are small."""
    with TemporaryDirectory(prefix="contexture-bench-", ignore_cleanup_errors=True) as scratch:
        models = Models(Path(scratch))
        pages = min(PAGES, max(chosen.sizes))
        numbers = asyncio.run(PAGED[name](Path(scratch) / "pages", models, pages, chosen.questions, progress))
        models.close()
    return {**numbers, f"{name}_pages": pages}


def _profile(folder: Path, models: Models, asked: int) -> str:
    index = asyncio.run(opened(folder, models))
    found = profiled(index, models, questions(asked, seed=41))
    asyncio.run(index.close())
    return found
