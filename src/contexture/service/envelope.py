"""What every answer has in common: its encoding, and the shape of an error. Light enough for `contexture --help`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from contexture.errors import CommandError, ContextError

UNEXPECTED = "Something went wrong on our side. Please try again, and give the correlation id when you report it."


def encoded(answer: object) -> bytes:
    """One JSON document; equal answers give equal bytes."""
    return msgspec.json.encode(answer, enc_hook=str)


@cache
def own_version() -> str:
    """The version of this package; looked up once, because that reads and parses a file."""
    return version("contexture")


def error_object(error: Exception, correlation_id: str) -> dict[str, Any]:
    """An error as every route and every command answers it; one that nobody foresaw shows only its type.

    What nobody foresaw may not happen again, so another try may help. A slash command's error has a version and an
    id of its own.
    """
    if isinstance(error, CommandError):
        return dict[str, Any](error.to_dict())
    known = isinstance(error, ContextError | ImportError)
    return {
        "error": {
            "code": error.code if isinstance(error, ContextError) else "INTERNAL",
            "user_message": str(error) if known else UNEXPECTED,
            "tech_message": f"{type(error).__name__}: {error}" if known else type(error).__name__,
            "retryable": error.retryable if isinstance(error, ContextError) else not known,
        },
        "meta": {"version": own_version(), "correlation_id": correlation_id},
    }
