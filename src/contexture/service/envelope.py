"""The encoding of every response and the form of errors; imports little, so that `contexture --help` is fast."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from contexture.errors import CommandError, ContextError
from contexture.results import encode_json as encode_json  # noqa: PLC0414 - every part of the service encodes with it

UNEXPECTED_MESSAGE = (
    "Something went wrong on our side. Please try again, and give the correlation id when you report it."
)


@cache
def package_version() -> str:
    """Return the version of this package; cached, because it is read from a file."""
    return version("contexture")


def error_object(error: Exception, correlation_id: str) -> dict[str, Any]:
    """Return the JSON object of an error, for every route and command; an unexpected error shows only its type.

    An unexpected error is marked retryable, because it may not happen again. A slash command's error has its own
    version and id.
    """
    if isinstance(error, CommandError):
        return dict[str, Any](error.to_dict())
    known = isinstance(error, ContextError | ImportError)
    return {
        "error": {
            "code": error.code if isinstance(error, ContextError) else "INTERNAL",
            "user_message": str(error) if known else UNEXPECTED_MESSAGE,
            "tech_message": f"{type(error).__name__}: {error}" if known else type(error).__name__,
            "retryable": error.retryable if isinstance(error, ContextError) else not known,
        },
        "meta": {"version": package_version(), "correlation_id": correlation_id},
    }
