"""Progress bars for people who watch; nothing for scripts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from contexture.cli.output import console


@contextmanager
def watched(*, as_json: bool) -> Generator[Callable[[str, int, int], None] | None]:
    """A function to report progress to, on a terminal; None where nobody watches."""
    out = console(err=True)
    if as_json or not out.is_terminal:
        yield None
        return
    from rich.progress import Progress, TaskID

    with Progress(console=out, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total or None)
            bars.update(tasks[task], completed=done, total=total or None)

        yield show
