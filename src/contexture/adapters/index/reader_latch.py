"""Reader latch: `close()` waits for running readers and refuses new ones."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from contexture.errors import SourceUnavailable


class ReaderLatch:
    """Reader latch: `close()` waits for running readers and refuses new ones.

    Needed because SQLite crashes when a connection is closed during a read.
    """

    def __init__(self, refusal: str) -> None:
        self._closed_message = refusal
        self._changed = threading.Condition()
        self._readers = 0
        self._closed = False

    def check_open(self) -> None:
        """Raise `SourceUnavailable` once it is closed."""
        if self._closed:
            raise SourceUnavailable(self._closed_message)

    @contextmanager
    def reader(self) -> Generator[None]:
        """Context of one reader; `close()` waits until it ends."""
        with self._changed:
            self.check_open()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    def close(self) -> bool:
        """Refuse new readers and wait for the running ones; returns whether it was open."""
        with self._changed:
            before, self._closed = self._closed, True
            self._changed.wait_for(lambda: not self._readers)
        return not before
