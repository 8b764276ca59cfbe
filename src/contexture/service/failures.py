"""Failures in the log: of what kind and where, and nothing of what callers sent."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Sequence

import structlog

_SERVER = "uvicorn.error"
_BUS = ("contexture.bus", "nats")
_QUIET = 60.0  # seconds
_NUMBER = re.compile(r"\d+")
_TOLD = "Exception in ASGI application"


def places_of(failure: BaseException) -> Sequence[str]:
    """Where a failure came from, innermost last; messages and values are left out, for they are what callers sent."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(failure.__traceback__)]


class ServerLog(logging.Handler):
    """Passes what a library below us logs on to our log as `who`, without the messages of failures.

    What differs only in its numbers is told once in `quiet` seconds: clients of a broker that is away try every second.
    """

    def __init__(self, level: int, who: str = "server", *, quiet: float = 0.0) -> None:
        super().__init__(level)
        self._who = who
        self._quiet = quiet
        self._told: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line; a failure of the application was logged where it was answered."""
        said, failure = record.getMessage(), record.exc_info[1] if record.exc_info else None
        if self._is_known(type(failure).__name__ if failure else _NUMBER.sub("", said), record.created):
            return
        if failure is None:
            structlog.get_logger().error(self._who, said=said)
        elif not said.startswith(_TOLD):
            kind, where = type(failure).__name__, places_of(failure)
            structlog.get_logger().error(f"{self._who} failed", error=kind, where=where)

    def _is_known(self, kind: str, now: float) -> bool:
        """Whether the same was told not long ago; what was told longer ago is forgotten."""
        self._told = {each: when for each, when in self._told.items() if now - when < self._quiet}
        known = kind in self._told
        self._told.setdefault(kind, now)
        return known


def hear_server() -> None:
    """Let the server's log be part of ours."""
    _hear(_SERVER, ServerLog(logging.ERROR))


def hear_bus() -> None:
    """Let the log of the libraries that speak to a bus be part of ours."""
    for name in _BUS:
        _hear(name, ServerLog(logging.WARNING, "bus", quiet=_QUIET))


def _hear(name: str, ours: ServerLog) -> None:
    logger = logging.getLogger(name)
    logger.propagate = False
    if not any(isinstance(each, ServerLog) for each in logger.handlers):
        logger.addHandler(ours)
