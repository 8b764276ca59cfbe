"""Failures in the log: of what kind and where, and nothing of what callers sent."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence

import structlog

_SERVER = "uvicorn.error"
_TOLD = "Exception in ASGI application"


def places_of(failure: BaseException) -> Sequence[str]:
    """Where a failure came from, innermost last; messages and values are left out, for they are what callers sent."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(failure.__traceback__)]


class ServerLog(logging.Handler):
    """Passes what the server below the application logs on to our log, without the messages of failures."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line; a failure of the application was logged where it was answered."""
        said, failure = record.getMessage(), record.exc_info[1] if record.exc_info else None
        if failure is None:
            structlog.get_logger().error("server", said=said)
        elif not said.startswith(_TOLD):
            structlog.get_logger().error("server failed", error=type(failure).__name__, where=places_of(failure))


def hear_server() -> None:
    """Let the server's log be part of ours."""
    logger = logging.getLogger(_SERVER)
    logger.propagate = False
    if not any(isinstance(each, ServerLog) for each in logger.handlers):
        logger.addHandler(ServerLog(logging.ERROR))
