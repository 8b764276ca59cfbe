"""What is answered when a command gives no context."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from contexture.builders.command.ladder import Step
from contexture.builders.command.request import version_of
from contexture.errors import (
    CommandError,
    CommandFailed,
    CommandRefused,
    CommandUnavailable,
    ContextError,
    NothingFound,
    RequestError,
    SourceError,
)
from contexture.types import Scope

NOTHING = "No documents found for query"
UNFORESEEN = "Something went wrong on our side. Please try again, and give the correlation id when you report it."


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """Errors of one command, all under one correlation id, which the same request at the same time has again."""

    version: str
    correlation_id: str

    def nothing(self, steps: Sequence[Step]) -> NothingFound:
        """No documents, and everything that was tried, in order."""
        tried = ", ".join(step.done for step in steps) or "none"
        tech = f"Retrieval returned 0 documents after auto-recovery. Steps: {tried}"
        return NothingFound(NOTHING, tech=tech, version=self.version, correlation_id=self.correlation_id)

    def told(self, failure: ContextError) -> CommandError:
        """Any failure as the command's answer."""
        kind = CommandFailed
        if isinstance(failure, RequestError):
            kind = CommandRefused
        elif isinstance(failure, SourceError):
            kind = CommandUnavailable
        tech = f"the command gave no context, {type(failure).__name__}: {failure}"
        return kind(str(failure), tech=tech, version=self.version, correlation_id=self.correlation_id)

    def unforeseen(self, failure: Exception) -> CommandFailed:
        """What nobody foresaw; only its type is told, because its words may hold anything."""
        tech = f"the command failed, {type(failure).__name__}"
        return CommandFailed(UNFORESEEN, tech=tech, version=self.version, correlation_id=self.correlation_id)


@contextmanager
def answering(given: object, scope: Scope, now: datetime) -> Generator[Answers]:
    """Whatever fails inside becomes the answer to this request, with the failure as its cause.

    A part that is not installed is named as everywhere, by an `ImportError`.
    """
    answer = answers(given, scope, now, version_of(given))
    try:
        yield answer
    except (CommandError, ImportError):
        raise
    except ContextError as failure:
        raise answer.told(failure) from failure
    except Exception as failure:  # a command answers even to what nobody foresaw; the cause is raised with it
        raise answer.unforeseen(failure) from failure


def answers(given: object, scope: Scope, now: datetime, version: str) -> Answers:
    """The answers to a request, however malformed it is."""
    said = sorted(map(repr, cast("Mapping[object, object]", given).items())) if isinstance(given, Mapping) else given
    named = f"{said!r}\0{scope.tenant}\0{scope.user}\0{now.isoformat()}"
    number = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return Answers(version=version, correlation_id=f"ctx-error-{number}")
