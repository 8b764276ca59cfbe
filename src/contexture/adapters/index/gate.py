"""A door for readers that is shut once, behind the last of them."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from contexture.errors import SourceUnavailable


class Gate:
    """Lets readers in while it is open. SQLite crashes where a connection is closed under a reader's hands.

    A caller that gave up waiting leaves its reader inside: the thread goes on until it has its answer.
    """

    def __init__(self, refusal: str) -> None:
        self._refusal = refusal
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False

    def check(self) -> None:
        """Refuse whoever comes when it is shut."""
        if self._shut:
            raise SourceUnavailable(self._refusal)

    @contextmanager
    def inside(self) -> Generator[None]:
        """Holds the gate open for as long as something is read."""
        with self._changed:
            self.check()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self) -> bool:
        """Let nobody in any more and wait for the last to leave; whether it was open before."""
        with self._changed:
            before, self._shut = self._shut, True
            self._changed.wait_for(lambda: not self._inside)
        return not before
