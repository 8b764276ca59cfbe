"""Logs of a command on standard error: lines for people on a terminal, JSON for everyone else."""

from __future__ import annotations

import sys


def to_stderr() -> None:
    """Send what is logged to standard error, where it cannot get into an answer."""
    import structlog
    from structlog.tracebacks import ExceptionDictTransformer

    people = sys.stderr.isatty()
    # Tracebacks without the values of variables: those are what callers sent.
    failures = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    shown = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([shown] if people else [failures, structlog.processors.JSONRenderer(ensure_ascii=False)]),
        ],
        # Looked up at each use, because whoever runs us may exchange the stream.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
