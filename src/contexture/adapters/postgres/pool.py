"""Connections to one PostgreSQL database, shared by the threads of a process."""

from __future__ import annotations

import select
import threading
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeAlias

from contexture.adapters.postgres.address import address_of
from contexture.errors import ContextError, InvalidRequest, SourceTimeout, SourceUnavailable, StoreUnwritable

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import make_conninfo
    from psycopg.types.numeric import Int8Dumper
except ImportError as missing:
    raise ImportError('a store in PostgreSQL needs psycopg: pip install "contexture[postgres]"') from missing

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

# What an address may say otherwise.
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 5,
    "application_name": "contexture",
    "keepalives_idle": 15,
    "tcp_user_timeout": 15_000,
}
# A process that hangs in the middle of a write does not hold up the others for ever; and no statement is worth being
# compiled, or planned twice. Said in SQL, because poolers pass no options on.
_SESSION = (
    "SET search_path TO {}; SET lock_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'; "
    "SET jit = off; SET plan_cache_mode = force_generic_plan"
)
_IDLE = 16  # connections that are kept for later
_REFUSED = (
    errors.DiskFull,
    errors.ReadOnlySqlTransaction,
    errors.InsufficientPrivilege,
    errors.OutOfMemory,
)


class Pool:
    """Lends connections, one to each thread that asks; a broken one is thrown away and a new one made.

    Nothing is done in the background: a server that is gone is an error at once, and one that is back is found by the
    next who asks. `?schema=NAME` in the URL says in which schema the tables are; `contexture` where nothing is said.
    """

    def __init__(self, url: str) -> None:
        self._address = address_of(url)
        self.schema, self.name = self._address.schema, self._address.name
        self._guard = threading.Lock()
        self._idle: list[Connection] = []
        self._mine = threading.local()
        self._numbers: set[int] = set()
        self._closed = False

    @contextmanager
    def lent(self) -> Generator[Connection]:
        """A connection for this thread, the same one wherever it asks inside; nothing is committed but by statement."""
        held: Connection | None = getattr(self._mine, "connection", None)
        if held is not None:
            yield held
            return
        with postgres_errors(self.name):
            self._mine.connection = connection = self._taken()
            try:
                yield connection
            finally:
                self._mine.connection = None
                self._back(connection)

    @contextmanager
    def transaction(self, kind: str = "") -> Generator[Connection]:
        """All of it or nothing; `kind` is what follows BEGIN. Inside another one it is part of that."""
        with self.lent() as connection:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                yield connection
                return
            connection.execute(f"BEGIN {kind}".encode())
            with ExitStack() as undo:
                undo.callback(_undo, connection)
                yield connection
                connection.execute("COMMIT")
                undo.pop_all()

    def connect(self) -> Connection:
        """A connection of one's own, that the pool knows nothing of."""
        told = make_conninfo(**{**_DEFAULTS, **self._address.options, "client_encoding": "UTF8"})
        connection = psycopg.connect(told, autocommit=True)
        with ExitStack() as undo:
            undo.callback(connection.close)
            connection.execute(_SESSION.format(self.schema).encode())
            undo.pop_all()
        connection.adapters.register_dumper(int, Int8Dumper)  # else a number's size would decide what a query means
        return connection

    def owns(self, number: int) -> bool:
        """Whether the server's process of this number serves, or has served, one of the connections lent here."""
        return number in self._numbers

    def close(self) -> None:
        """Let go of every connection; those lent are closed when they come back."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _taken(self) -> Connection:
        while True:
            with self._guard:
                if self._closed:
                    raise SourceUnavailable(f"the store in {self.name} is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                made = self.connect()
                self._numbers.add(made.info.backend_pid)
                return made
            if not _spoken_to(connection):
                return connection
            connection.close()

    def _back(self, connection: Connection) -> None:
        sound = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._guard:
            if sound and not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()


@contextmanager
def postgres_errors(name: str) -> Generator[None]:
    """The driver's errors as ours: what the server refused to write is told apart from a server that is gone."""
    try:
        yield
    except psycopg.Error as failure:
        raise _ours(failure, name) from failure


def _ours(failure: psycopg.Error, name: str) -> ContextError:
    told = str(failure).strip().splitlines()
    reason = told[0] if told else type(failure).__name__
    if isinstance(failure, errors.ProgramLimitExceeded):
        return InvalidRequest(f"an id or a name is too long to be stored: {reason}")
    if isinstance(failure, _REFUSED):
        return StoreUnwritable(f"{name} refuses to write: {reason}; nothing was stored")
    if isinstance(failure, (errors.QueryCanceled, errors.LockNotAvailable)):
        return SourceTimeout(f"{name} did not answer in time: {reason}")
    return SourceUnavailable(f"{name} failed: {reason}")


def _undo(connection: Connection) -> None:
    with suppress(psycopg.Error):  # a connection that is lost has undone it already
        connection.execute("ROLLBACK")


def _spoken_to(connection: Connection) -> bool:
    """Whether the server said something while nobody asked: it does so only when it ends a connection."""
    if connection.closed:
        return True
    ear = select.poll()  # which has no limit on the numbers of files, as `select` has
    ear.register(connection.pgconn.socket, select.POLLIN)
    return bool(ear.poll(0))
