"""Hears of writes by other processes, so that they are followed before somebody asks."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable

from contexture.adapters.postgres.pool import Connection, Pool, postgres_errors
from contexture.errors import SourceError

_AGAIN = 1.0  # seconds between two tries to reach a server that is gone


class Listener:
    """Calls `heard` in a thread of its own after writes; a server that is gone is waited for.

    Nothing depends on it but speed: whoever reads asks first what there is to follow.
    """

    def __init__(self, pool: Pool, heard: Callable[[], None]) -> None:
        self._pool = pool
        self._heard = heard
        self._stopped = threading.Event()
        self._waker, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="contexture-listener", daemon=True)

    def start(self) -> None:
        """Listen from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._stopped.set()
        self._waker.close()
        self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with postgres_errors(self._pool.name), self._pool.connect() as connection:
                    self._listen(connection)
            except SourceError:
                self._stopped.wait(_AGAIN)

    def _listen(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {self._pool.schema}_writes".encode())
        self._heard()  # of what was written before it listened
        ear = select.poll()
        for source in (connection.fileno(), self._wake.fileno()):
            ear.register(source, select.POLLIN)
        while not self._stopped.is_set():
            ear.poll()
            if any(not self._pool.owns(notice.pid) for notice in list(connection.notifies(timeout=0))):
                self._heard()
