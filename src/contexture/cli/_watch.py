"""`--watch`: loads again whenever a file below the given paths changes."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import typer

from contexture.cli._output import print_note
from contexture.errors import ContextError

_SECONDS = 1.0

FileStates: TypeAlias = frozenset[tuple[str, int, int]]
"""Name, time of modification and size of every file."""


def watch_files(
    paths: Sequence[Path], load: Callable[[], bool], *, wait: Callable[[], None] = lambda: time.sleep(_SECONDS)
) -> None:
    """Call `load` now and after every change below `paths`, until interrupted; a failed load does not end it.

    A change is loaded when the files have been the same for two looks, so that half of a copy is not.
    """
    loaded: FileStates | None = None
    seen = read_states(paths)
    print_note("watching for changes; Ctrl-C ends")
    try:
        while True:
            if seen != loaded:
                loaded = seen
                _try_load(load)
            wait()
            before, seen = seen, read_states(paths)
            while seen not in (before, loaded):
                wait()
                before, seen = seen, read_states(paths)
    except KeyboardInterrupt:
        print_note("stopped watching")


def read_states(paths: Sequence[Path]) -> FileStates:
    """Return the state of every file at and below the paths; a file that vanishes meanwhile is left out."""
    from contexture.ingestion.files import FoundFile, walk_files  # loads numpy, which `--help` does not need

    states: set[tuple[str, int, int]] = set()
    for path in paths:
        for found in walk_files(path):
            if isinstance(found, FoundFile):
                try:
                    status = found.path.stat()
                except OSError:
                    continue
                states.add((found.name, status.st_mtime_ns, status.st_size))
    return frozenset(states)


def _try_load(load: Callable[[], bool]) -> None:
    try:
        load()
    except typer.Exit:
        return  # the report has said what failed
    except ContextError as failure:
        print_note(f"error: {failure}")
