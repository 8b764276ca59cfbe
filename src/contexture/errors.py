"""Every error this package raises, split by who can fix it.

* ContextError
  x RequestError            the caller can fix it                 (HTTP 4xx)
    + InvalidRequest        a value is missing, malformed or out of range
    + UnknownCollection     the tenant has no such collection; those it has are named
    + UnknownField          a filter names a field the collection does not have
    + UnknownAdapter        a name in the settings that no adapter answers to
    + BudgetTooSmall        the fixed parts alone exceed the budget
    + NotPermitted          the scope may not do this, or a policy denies it
    + Unauthorized          no key, or one that is unknown, expired or revoked
    + TooManyRequests       a limit was reached; try again later
    + NotFound              no such thing, or none the scope may see
    + Conflict              something else was written since the caller read it
      PreconditionFailed    the same, where the caller named a version with `If-Match`
  x SourceError             a store or service let us down        (HTTP 503)
    + SourceTimeout         it did not answer in time
    + SourceUnavailable     it refused, or is not there
      Overloaded            it has all the work that it takes
      MissingLibrary        a system library is not installed; the Debian package is named
      StoreDamaged          a database cannot be read as it was written; the way back is named
    + Outdated              what was read is no longer so; nothing was written
    + StoreLocked           another process holds the embedded store
    + StoreUnwritable       disk full, read-only folder: nothing was acknowledged
  x ContractError           a plug-in, or we, broke a promise     (HTTP 500)
    + BrokenPromise         a built context failed its own validation
    + RedactionFailed       a redactor raised; the item is dropped
    + TamperedWeights       a model file is not the one that was pinned
    + ReplayMismatch        a capsule did not rebuild the same bytes

A slash command that gives no context raises one of these again as a CommandError, which is its answer:
CommandRefused (an InvalidRequest), NothingFound (a NotFound), CommandUnavailable (a SourceError) or
CommandFailed (a ContractError). A page that is not there is an UnknownPage: a NotFound, and a ValueError too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ContextError(Exception):
    """Base of everything raised on purpose; `code` is the wire name, `retryable` a hint."""

    code = "INTERNAL"
    retryable = False


class RequestError(ContextError):
    """The caller can fix it."""

    code = "VALIDATION_FAILED"


class InvalidRequest(RequestError):
    """A value is missing, malformed or out of range."""


class UnknownCollection(RequestError):
    """The tenant has no such collection, whoever else may have one of that name."""

    code = "NO_DATA"


class UnknownField(RequestError):
    """A filter names a field that the collection does not have."""


class UnknownAdapter(RequestError):
    """A name in the settings that no adapter answers to."""


class BudgetTooSmall(RequestError):
    """The fixed parts of a prompt need `needed` tokens and only `available` were given; `parts` has each one's."""

    def __init__(self, needed: int, available: int, parts: Mapping[str, int] | None = None) -> None:
        each = ", ".join(f"{name} {tokens}" for name, tokens in (parts or {}).items())
        super().__init__(
            f"the fixed parts of this prompt need {needed} tokens{f' ({each})' if each else ''} but the budget is "
            f"{available}; raise the budget to at least {needed}"
        )
        self.needed = needed
        self.available = available


class NotPermitted(RequestError):
    """The scope may not do this, or a policy denies it."""

    code = "FORBIDDEN"


class Unauthorized(RequestError):
    """No key, or one that is unknown, expired or revoked: all are answered alike."""

    code = "UNAUTHORIZED"


class TooManyRequests(RequestError):
    """A limit was reached; `after` says in how many seconds to try again."""

    code = "LIMITED"
    retryable = True

    def __init__(self, message: str, *, after: float = 1.0) -> None:
        super().__init__(message)
        self.after = after


class NotFound(RequestError):
    """No such thing, or none that the scope may see: the two are answered alike."""

    code = "NO_DATA"


class Conflict(RequestError):
    """Something else was written since the caller read it; `version` is the current one, 0 for none."""

    code = "CONFLICT"

    def __init__(self, message: str, *, version: int = 0) -> None:
        super().__init__(message)
        self.version = version


class PreconditionFailed(Conflict):
    """The version that a request names with `If-Match` is not the current one."""

    code = "PRECONDITION_FAILED"


class UnknownPage(NotFound, ValueError):
    """No such page of a document, or none that the scope may see."""


class SourceError(ContextError):
    """A store or a service let us down."""

    code = "UNAVAILABLE"
    retryable = True


class SourceTimeout(SourceError):
    """It did not answer in time."""


class SourceUnavailable(SourceError):
    """It refused, or is not there."""


class Overloaded(SourceUnavailable):
    """It has all the work that it takes; what was asked was not looked at."""


class MissingLibrary(SourceUnavailable, ImportError):
    """A package needs a system library that is not installed; the message names the Debian package."""

    retryable = False


class StoreDamaged(SourceUnavailable):
    """A database cannot be read as it was written; the message names it and the way back."""

    retryable = False


class Outdated(SourceError):
    """What was read is no longer so; nothing was written."""


class StoreLocked(SourceError):
    """Another process holds the embedded store."""


class StoreUnwritable(SourceError):
    """The disk is full or the folder is read-only; nothing was acknowledged."""

    retryable = False


class ContractError(ContextError):
    """A plug-in, or this package, broke a promise."""


class BrokenPromise(ContractError):
    """A built context failed its own validation."""


class RedactionFailed(ContractError):
    """A redactor raised; the item it was given must not be shown."""


class TamperedWeights(ContractError):
    """A model file is not the one that was pinned."""


class ReplayMismatch(ContractError):
    """A capsule did not rebuild the same bytes."""


ERROR_TYPES = {
    "UNAUTHORIZED": "authentication_error",
    "FORBIDDEN": "permission_error",
    "LIMITED": "rate_limit_error",
    "UNAVAILABLE": "server_error",
    "INTERNAL": "server_error",
}
"""The types that SDKs know, by code; every other code is an `invalid_request_error`."""


class CommandError(ContextError):
    """A slash command gave no context; `to_dict` is what is answered instead of one."""

    def __init__(self, message: str, *, tech: str = "", version: str = "", correlation_id: str = "") -> None:
        super().__init__(message)
        self.tech = tech or message
        self.version = version
        self.correlation_id = correlation_id

    def to_dict(self) -> dict[str, dict[str, str | bool]]:
        """The error and its `meta`, as every route answers them."""
        return {
            "error": {
                "code": self.code,
                "user_message": str(self),
                "tech_message": self.tech,
                "retryable": self.retryable,
                "message": str(self),
                "type": ERROR_TYPES.get(self.code, "invalid_request_error"),
            },
            "meta": {"version": self.version, "correlation_id": self.correlation_id},
        }


class CommandRefused(CommandError, InvalidRequest):
    """A command that cannot be understood, or whose context would break a rule."""


class NothingFound(CommandError, NotFound):
    """No document was found, however far the search was widened; a later one may find some."""

    retryable = True


class CommandUnavailable(CommandError, SourceError):
    """A store let the command down."""


class CommandFailed(CommandError, ContractError):
    """A promise was broken, or nobody foresaw what happened; that is the cause, and another try may do better."""

    retryable = True


_EXTRA_OF_MODULE = {
    "PIL": "documents",
    "bs4": "documents",
    "mammoth": "documents",
    "markdownify": "documents",
    "openpyxl": "documents",
    "oxmsg": "documents",
    "pptx": "documents",
    "pypdfium2": "documents",
    "fastapi": "service",
    "httptools": "service",
    "starlette": "service",
    "uvicorn": "service",
    "onnx": "minilm",
    "tokenizers": "minilm",
}


def explain_missing_module(missing: ImportError) -> str:
    """The message of a failed import, with the extra that installs the module where there is one."""
    module = (missing.name or "").partition(".")[0]
    if extra := _EXTRA_OF_MODULE.get(module):
        return f'{module} is not installed: pip install "contexture-ai[{extra}]"'
    return str(missing)
