"""Measures how fast Contexture is: `python -m benchmarks` prints a table and writes bench-results.json."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from benchmarks.options import Options, options
from benchmarks.report import Results, from_json, table, to_json, write_docs
from benchmarks.run import measured
from benchmarks.timing import Progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

COLUMNS = 120


def main(arguments: list[str]) -> None:
    """Measure what the options ask for, or read it again, and report it."""
    chosen = options(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=COLUMNS)
    results = _results(chosen, console)
    console.print(table(results.rows))
    if chosen.docs is not None:
        write_docs(chosen.docs, results)


def _results(chosen: Options, console: Console) -> Results:
    if chosen.reuse:
        return from_json(chosen.json.read_text(encoding="utf-8"))
    with _bars() as progress:
        results = measured(chosen, progress, console)
    chosen.json.write_text(to_json(results), encoding="utf-8")
    return results


@contextmanager
def _bars() -> Generator[Progress]:
    """Progress bars on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def progress(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total)
            bars.update(tasks[task], completed=done, total=total)

        yield progress


if __name__ == "__main__":
    main(sys.argv[1:])
