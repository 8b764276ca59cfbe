"""The encoding of every response and the form of errors; imports little, so that `contexture --help` is fast."""

from functools import cache
from importlib.metadata import version
from typing import Any

from contexture.errors import ERROR_TYPES, CommandError, Conflict, ContextError, explain_missing_module
from contexture.results import encode_json as encode_json  # noqa: PLC0414 - every part of the service encodes with it

UNEXPECTED_MESSAGE = (
    "Something went wrong on our side. Please try again, and give the correlation id when you report it."
)


@cache
def package_version() -> str:
    """Return the version of this package; cached, because it is read from a file."""
    return version("contexture-ai")


def error_object(error: Exception, correlation_id: str) -> dict[str, Any]:
    """Return the JSON object of an error, for every route and command; an unexpected error shows only its type.

    An unexpected error is marked retryable, because it may not happen again. A slash command's error has its own
    version and id. `message` and `type` are for SDKs, which show these two fields.
    """
    answer = error.to_dict() if isinstance(error, CommandError) else _describe_error(error, correlation_id)
    body: dict[str, Any] = {**answer["error"]}
    kind = ERROR_TYPES.get(body["code"], "invalid_request_error")
    return {**answer, "error": {**body, "message": body["user_message"], "type": kind}}


def _describe_error(error: Exception, correlation_id: str) -> dict[str, dict[str, Any]]:
    known = isinstance(error, ContextError | ImportError)
    current = {"version": error.version} if isinstance(error, Conflict) else {}
    message = explain_missing_module(error) if isinstance(error, ImportError) else str(error)
    return {
        "error": {
            "code": error.code if isinstance(error, ContextError) else "INTERNAL",
            "user_message": message if known else UNEXPECTED_MESSAGE,
            "tech_message": f"{type(error).__name__}: {message}" if known else type(error).__name__,
            "retryable": error.retryable if isinstance(error, ContextError) else not known,
            **current,
        },
        "meta": {"version": package_version(), "correlation_id": correlation_id},
    }
