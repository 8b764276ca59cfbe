"""Answers on standard output, errors as one line or one object; the only place that prints."""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from contexture.errors import ContextError, RequestError, SourceError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def emit(answer: object) -> None:
    """One JSON document on one line, in UTF-8 whatever the terminal speaks."""
    from contexture.service.envelope import encoded

    typer.echo(encoded(answer))


def say(line: str) -> None:
    """One line for people."""
    typer.echo(plain(line))


def note(line: str) -> None:
    """One line on standard error."""
    typer.echo(plain(line), err=True)


def console(*, err: bool = False) -> Console:
    """Where tables, panels and progress bars go."""
    from rich.console import Console

    return Console(stderr=err, highlight=False, markup=False, emoji=False)


def plain(text: str) -> str:
    """The text without characters that steer a terminal: what was loaded must not write our screen."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def exit_code(error: Exception) -> int:
    """2 when the caller can fix it, 3 when a source let us down, 1 otherwise."""
    if isinstance(error, RequestError):
        return 2
    return 3 if isinstance(error, SourceError) else 1


@contextmanager
def reported(*, as_json: bool) -> Generator[None]:
    """Turn what may go wrong into one line on standard error, or one object, and an exit code."""
    try:
        yield
    except (ContextError, ImportError) as failure:
        # An ImportError comes from an optional part and says what to install.
        fail(failure, as_json=as_json)
        raise typer.Exit(exit_code(failure)) from None
    except BrokenPipeError:
        raise  # typer leaves quietly when nobody reads any more
    except OSError as refused:
        note(f"error: {refused}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        note("error: interrupted")
        raise typer.Exit(INTERRUPTED) from None


def fail(error: Exception, *, as_json: bool) -> None:
    """Print an error in the form that was asked for."""
    if as_json:
        from contexture.service.envelope import error_object

        emit(error_object(error, f"ctx-error-{secrets.token_hex(4)}"))
    else:
        note(f"error: {' '.join(str(error).split())}")
