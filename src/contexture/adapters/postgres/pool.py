"""Connection pool of one PostgreSQL database, shared by the threads of a process."""

import select
import threading
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeAlias

from contexture.adapters.postgres.address import parse_address
from contexture.errors import ContextError, InvalidRequest, SourceTimeout, SourceUnavailable, StoreUnwritable

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import make_conninfo
    from psycopg.types.numeric import Int8Dumper
except ImportError as missing:
    raise ImportError('a store in PostgreSQL needs psycopg: pip install "contexture-ai[postgres]"') from missing

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

# Defaults that the URL may override.
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 5,
    "application_name": "contexture",
    "keepalives_idle": 15,
    "tcp_user_timeout": 15_000,
}
# The timeouts keep a process that hangs in a write from blocking the others for ever. JIT compilation and repeated
# planning cost more than they save here. Set by SQL, because connection poolers do not pass options on.
_SESSION = (
    "SET search_path TO {}, public; SET lock_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'; "
    "SET jit = off; SET plan_cache_mode = force_generic_plan; SET work_mem = '32MB'; "
    "SET max_parallel_workers_per_gather = 0; SET random_page_cost = 1.1; SET enable_memoize = off; "
    "SET hnsw.ef_search = 200; SET hnsw.iterative_scan = strict_order"
)
_MAX_IDLE = 16  # idle connections kept in the pool
_WRITE_REFUSED_ERRORS = (
    errors.DiskFull,
    errors.ReadOnlySqlTransaction,
    errors.InsufficientPrivilege,
    errors.OutOfMemory,
)


class PostgresPool:
    """Connection pool: one connection per thread; a broken one is replaced.

    `?schema=NAME` in the URL names the schema, `contexture` by default.
    """

    def __init__(self, url: str) -> None:
        self._address = parse_address(url)
        self.schema, self.name = self._address.schema, self._address.name
        self._guard = threading.Lock()
        self._idle: list[Connection] = []
        self._local = threading.local()
        self._backend_pids: set[int] = set()
        self._closed = False

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """The connection of this thread, the same one in nested calls; autocommit outside `transaction`."""
        held: Connection | None = getattr(self._local, "connection", None)
        if held is not None:
            yield held
            return
        with postgres_errors(self.name):
            self._local.connection = connection = self._acquire()
            try:
                yield connection
            finally:
                self._local.connection = None
                self._give_back(connection)

    @contextmanager
    def transaction(self, kind: str = "") -> Generator[Connection]:
        """Transaction, committed on success and rolled back on error; `kind` follows BEGIN.

        Inside another transaction it is part of that one.
        """
        with self.connection() as connection:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                yield connection
                return
            connection.execute(f"BEGIN {kind}".encode())
            with ExitStack() as undo:
                undo.callback(_rollback, connection)
                yield connection
                connection.execute("COMMIT")
                undo.pop_all()

    def open_connection(self) -> Connection:
        """A connection outside the pool, owned by the caller."""
        conninfo = make_conninfo(**{**_DEFAULTS, **self._address.options, "client_encoding": "UTF8"})
        connection = psycopg.connect(conninfo, autocommit=True)
        with ExitStack() as undo:
            undo.callback(connection.close)
            connection.execute(_SESSION.format(self.schema).encode())
            undo.pop_all()
        connection.adapters.register_dumper(int, Int8Dumper)  # else the SQL type would depend on the value
        return connection

    def owns_backend(self, number: int) -> bool:
        """Whether this backend process id belongs, or belonged, to a connection of this pool."""
        return number in self._backend_pids

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they are returned."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _acquire(self) -> Connection:
        while True:
            with self._guard:
                if self._closed:
                    raise SourceUnavailable(f"the store in {self.name} is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                made = self.open_connection()
                self._backend_pids.add(made.info.backend_pid)
                return made
            if not _is_dead(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        sound = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._guard:
            if sound and not self._closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()


@contextmanager
def postgres_errors(name: str) -> Generator[None]:
    """Translate driver errors.

    Raises `StoreUnwritable` if the server refused to write, `SourceTimeout` after a timeout, `InvalidRequest` for an id
    or a name that is too long, else `SourceUnavailable`.
    """
    try:
        yield
    except psycopg.Error as failure:
        raise _translate_error(failure, name) from failure


def _translate_error(failure: psycopg.Error, name: str) -> ContextError:
    lines = str(failure).strip().splitlines()
    reason = lines[0] if lines else type(failure).__name__
    if isinstance(failure, errors.ProgramLimitExceeded):
        return InvalidRequest(f"an id or a name is too long to be stored: {reason}")
    if isinstance(failure, _WRITE_REFUSED_ERRORS):
        return StoreUnwritable(f"{name} rejected the write: {reason}; nothing was stored")
    if isinstance(failure, (errors.QueryCanceled, errors.LockNotAvailable)):
        return SourceTimeout(f"{name} did not answer in time: {reason}")
    return SourceUnavailable(f"{name} failed: {reason}")


def _rollback(connection: Connection) -> None:
    with suppress(psycopg.Error):  # the server rolls back when the connection is lost
        connection.execute("ROLLBACK")


def _is_dead(connection: Connection) -> bool:
    """Whether the server closed an idle connection: unrequested data means that it did."""
    if connection.closed:
        return True
    ear = select.poll()  # unlike `select`, it has no limit on file descriptors
    ear.register(connection.pgconn.socket, select.POLLIN)
    return bool(ear.poll(0))
