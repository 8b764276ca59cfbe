"""Everything the command line prints: results on standard output; errors, notes, progress and logs on standard error.

Imports rich and structlog only when they are used.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from contexture.errors import ContextError, RequestError, SourceError, explain_missing_module

if TYPE_CHECKING:
    from rich.console import Console


EXIT_INTERRUPTED = 130
EXIT_UNAVAILABLE = 3
_UNKNOWN_WIDTH = 80  # what rich assumes without a terminal
_UNLIMITED_WIDTH = 1_000_000
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def print_json(answer: object) -> None:
    """Print one JSON document on one line, in UTF-8 whatever the encoding of the terminal."""
    from contexture.service.envelope import encode_json

    typer.echo(encode_json(answer))


def print_line(line: str) -> None:
    """Print one line of text."""
    typer.echo(replace_control_chars(line))


def print_note(line: str) -> None:
    """Print one line on standard error."""
    typer.echo(replace_control_chars(line), err=True)


def console(*, err: bool = False) -> Console:
    """Return the console for tables, panels and progress bars; it wraps lines only for a terminal."""
    from rich.console import Console

    width = _UNLIMITED_WIDTH if is_plain() and not err else None
    return Console(stderr=err, highlight=False, markup=False, emoji=False, width=width)


def is_plain() -> bool:
    """Whether standard output is a file or a pipe, for which lines are not wrapped and tables have no rules.

    A width in `COLUMNS` asks for the output of a terminal.
    """
    from rich.console import Console

    out = Console()
    return not out.is_terminal and out.width == _UNKNOWN_WIDTH


def replace_control_chars(text: str) -> str:
    """Replace control and bidirectional characters, so that stored text cannot control the terminal."""
    return _CONTROL_CHARS.sub("\ufffd", text.replace("\r\n", "\n"))


def exit_code(error: Exception) -> int:
    """Return 2 for an error that the caller can fix, 3 for an unavailable source, and 1 otherwise."""
    if isinstance(error, RequestError):
        return 2
    return EXIT_UNAVAILABLE if isinstance(error, SourceError) else 1


@contextmanager
def report_errors(*, as_json: bool) -> Generator[None]:
    """Report expected errors as one line on standard error, or as one JSON object, and set the exit code."""
    try:
        yield
    except (ContextError, ImportError) as failure:
        print_error(failure, as_json=as_json)
        raise typer.Exit(exit_code(failure)) from None
    except BrokenPipeError:
        raise  # typer exits quietly when the reader has closed the pipe
    except OSError as refused:
        print_note(f"error: {refused}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print_note("error: interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def print_error(error: Exception, *, as_json: bool) -> None:
    """Print an error as one line, or as JSON."""
    if as_json:
        from contexture.service.envelope import error_object

        print_json(error_object(error, f"ctx-error-{secrets.token_hex(4)}"))
    else:
        message = explain_missing_module(error) if isinstance(error, ImportError) else str(error)
        print_note(f"error: {' '.join(message.split())}")


_FAST = 10  # steps a second that are shown without a decimal place


@contextmanager
def show_progress(*, as_json: bool) -> Generator[Callable[[str, int, int], None] | None]:
    """Yield a callback that draws progress bars on a terminal; None with `--json` or without a terminal."""
    out = console(err=True)
    if as_json or not out.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total or None, rate="")
            bars.update(tasks[task], completed=done, total=total or None)
            shown = bars.tasks[bars.task_ids.index(tasks[task])]
            # A task that is done in one step has no speed of its own.
            speed = shown.speed or (done / shown.elapsed if shown.elapsed else 0)
            bars.update(tasks[task], rate=(f"{speed:,.0f}/s" if speed >= _FAST else f"{speed:.1f}/s") if speed else "")

        yield show


def log_to_stderr() -> None:
    """Send logs to standard error, so that they do not mix with results."""
    import structlog
    from structlog.tracebacks import ExceptionDictTransformer

    people = sys.stderr.isatty()
    # Tracebacks without local variables, which contain what callers sent.
    failures = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    shown = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([shown] if people else [failures, structlog.processors.JSONRenderer(ensure_ascii=False)]),
        ],
        # Looked up at each use, because the caller may replace the stream.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
