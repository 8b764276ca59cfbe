"""Files into pages: two made-up PDF files at a time, as loading reads them, without embedding."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.corpus import records
from benchmarks.timing import Numbers
from fpdf import FPDF

from contexture.adapters.documents.worker_pool import DocumentWorkerPool
from contexture.documents import ReadLimits

_PAGES = 60
_FILES = 2
_LETTERS = 3_000


def documents() -> Numbers:
    """Pages a second over two processes: text alone, and text with pictures drawn."""
    with TemporaryDirectory(prefix="contexture-bench-") as scratch:
        paths = [_written(Path(scratch) / f"{number}.pdf") for number in range(_FILES)]
        return {
            "documents_text_pages_per_s": asyncio.run(_read(paths, draw=False)),
            "documents_drawn_pages_per_s": asyncio.run(_read(paths, draw=True)),
        }


async def _read(paths: list[Path], *, draw: bool) -> float:
    """How many pages a second were read, processes that are already there not counted."""
    async with DocumentWorkerPool(count=_FILES, limits=ReadLimits(draw=draw)) as workers:
        await asyncio.gather(*(workers.read(path, path.name, _quiet, draw=False) for path in paths))
        start = perf_counter()
        found = await asyncio.gather(*(workers.read(path, path.name, _quiet) for path in paths))
        return sum(len(document.pages) for document in found) / (perf_counter() - start)


def _written(path: Path) -> Path:
    """A PDF with a heading and about three thousand letters on every page."""
    texts = " ".join(owned.record.text for block in records(_PAGES * 4) for owned in block)
    words = texts.encode("latin-1", "replace").decode("latin-1")
    pdf = FPDF(format="A4")
    for number in range(_PAGES):
        pdf.add_page()
        pdf.set_font("Helvetica", "B", 14)
        pdf.cell(0, 8, f"{number + 1} Section", new_x="LMARGIN", new_y="NEXT")
        pdf.set_font("Helvetica", size=9)
        start = number * _LETTERS % max(len(words) - _LETTERS, 1)
        pdf.multi_cell(0, 4.5, words[start : start + _LETTERS], new_x="LMARGIN", new_y="NEXT")
    pdf.output(str(path))
    return path


def _quiet(done: int, total: int) -> None:
    """Nobody watches."""
