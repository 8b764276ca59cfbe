"""Logging of failures: their type and location, without any data that callers sent."""

import logging
import re
import traceback
from collections.abc import Sequence

import structlog

_SERVER_LOGGER = "uvicorn.error"
_BUS_LOGGERS = ("contexture.bus", "nats")
_REPEAT_SECONDS = 60.0  # seconds
_DIGITS = re.compile(r"\d+")
_ASGI_FAILURE = "Exception in ASGI application"


def traceback_locations(failure: BaseException) -> Sequence[str]:
    """Return the location of a failure, innermost last; messages and values are left out: they may be caller data."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(failure.__traceback__)]


class LibraryLogHandler(logging.Handler):
    """Logging handler that forwards a library's records to our log, without messages of exceptions.

    Records that differ only in numbers are logged once in `quiet` seconds.
    """

    def __init__(self, level: int, who: str = "server", *, quiet: float = 0.0) -> None:
        super().__init__(level)
        self._who = who
        self._quiet = quiet
        self._told: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line; failures of the application are skipped, as they were logged when they were answered."""
        said, failure = record.getMessage(), record.exc_info[1] if record.exc_info else None
        if self._is_repeated(type(failure).__name__ if failure else _DIGITS.sub("", said), record.created):
            return
        if failure is None:
            structlog.get_logger().error(self._who, said=said)
        elif not said.startswith(_ASGI_FAILURE):
            kind, where = type(failure).__name__, traceback_locations(failure)
            structlog.get_logger().error(f"{self._who} failed", error=kind, where=where)

    def _is_repeated(self, kind: str, now: float) -> bool:
        """Whether the same kind was logged within the quiet period; older entries are forgotten."""
        self._told = {each: when for each, when in self._told.items() if now - when < self._quiet}
        known = kind in self._told
        self._told.setdefault(kind, now)
        return known


def capture_server_log() -> None:
    """Forward the server's log to ours."""
    _attach_handler(_SERVER_LOGGER, LibraryLogHandler(logging.ERROR))


def capture_bus_log() -> None:
    """Forward the logs of the bus client libraries to ours."""
    for name in _BUS_LOGGERS:
        _attach_handler(name, LibraryLogHandler(logging.WARNING, "bus", quiet=_REPEAT_SECONDS))


def _attach_handler(name: str, ours: LibraryLogHandler) -> None:
    logger = logging.getLogger(name)
    logger.propagate = False
    if not any(isinstance(each, LibraryLogHandler) for each in logger.handlers):
        logger.addHandler(ours)
