"""Records nothing: what is used unless someone asks for spans."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from contexture.ports import Note
from contexture.types import Scalar


class SilentSpans:
    """Implements `Spans` by doing nothing."""

    @contextmanager
    def span(self, operation: str, target: str, told: Mapping[str, Scalar]) -> Generator[Note]:
        """Nothing is recorded."""
        del operation, target, told
        yield _ignored


def _ignored(_: Mapping[str, Scalar]) -> None:
    """Where notes go."""
