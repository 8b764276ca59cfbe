"""Failures in the log: of what kind and where, and nothing of what callers sent."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence

import structlog

_SERVER = "uvicorn.error"
_BUS = ("contexture.bus", "nats")
_TOLD = "Exception in ASGI application"


def places_of(failure: BaseException) -> Sequence[str]:
    """Where a failure came from, innermost last; messages and values are left out, for they are what callers sent."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(failure.__traceback__)]


class ServerLog(logging.Handler):
    """Passes what a library below us logs on to our log as `who`, without the messages of failures."""

    def __init__(self, level: int, who: str = "server") -> None:
        super().__init__(level)
        self._who = who

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line; a failure of the application was logged where it was answered."""
        said, failure = record.getMessage(), record.exc_info[1] if record.exc_info else None
        if failure is None:
            structlog.get_logger().error(self._who, said=said)
        elif not said.startswith(_TOLD):
            kind, where = type(failure).__name__, places_of(failure)
            structlog.get_logger().error(f"{self._who} failed", error=kind, where=where)


def hear_server() -> None:
    """Let the server's log be part of ours."""
    _hear(_SERVER, ServerLog(logging.ERROR))


def hear_bus() -> None:
    """Let the log of the libraries that speak to a bus be part of ours."""
    for name in _BUS:
        _hear(name, ServerLog(logging.WARNING, "bus"))


def _hear(name: str, ours: ServerLog) -> None:
    logger = logging.getLogger(name)
    logger.propagate = False
    if not any(isinstance(each, ServerLog) for each in logger.handlers):
        logger.addHandler(ours)
