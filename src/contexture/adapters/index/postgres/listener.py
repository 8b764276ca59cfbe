"""Listens for writes of other processes (LISTEN/NOTIFY), so that they are applied before the next request."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable

from contexture.adapters.postgres.pool import Connection, PostgresPool, postgres_errors
from contexture.errors import SourceError

_RETRY_SECONDS = 1.0  # between two attempts to reconnect


class WriteListener:
    """Calls a callback in its own thread after writes of other processes; reconnects after a connection loss.

    It only makes reads faster: they catch up by themselves if a notification is missed.
    """

    def __init__(self, pool: PostgresPool, on_write: Callable[[], None]) -> None:
        self._pool = pool
        self._on_write = on_write
        self._stopped = threading.Event()
        self._waker, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="contexture-listener", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopped.set()
        self._waker.close()
        self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with postgres_errors(self._pool.name), self._pool.open_connection() as connection:
                    self._listen(connection)
            except SourceError:
                self._stopped.wait(_RETRY_SECONDS)

    def _listen(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {self._pool.schema}_writes".encode())
        self._on_write()  # for writes from before LISTEN
        ear = select.poll()
        for source in (connection.fileno(), self._wake.fileno()):
            ear.register(source, select.POLLIN)
        while not self._stopped.is_set():
            ear.poll()
            if any(not self._pool.owns_backend(notice.pid) for notice in list(connection.notifies(timeout=0))):
                self._on_write()
