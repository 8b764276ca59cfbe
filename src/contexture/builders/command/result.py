"""What a command builder returns, `CommandContext`, and the `CommandError` it raises instead."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from contexture.builders.command.collect import RecoveryStep
from contexture.builders.command.render import CommandDocument
from contexture.builders.command.request import (
    MEMORY_TTL_DAYS,
    AbTest,
    CommandLimits,
    CommandModels,
    CommandParams,
    GraphPlan,
    MemoryPlan,
    read_version,
)
from contexture.builders.command.syntax import Command, ParsedCommand, Window
from contexture.capsule import Capsule
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
from contexture.ledger import Degradation, Ledger
from contexture.types import Citation, Message, Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieval:
    """The documents, and the parameters of the last search that found any of them."""

    docs: tuple[CommandDocument, ...]
    window: Window
    lang: str
    sources: tuple[str, ...] | None
    rerank_enabled: bool

    @property
    def k_final(self) -> int:
        """How many documents there are."""
        return len(self.docs)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandContext:
    """Everything needed to execute a command, the ledger that explains it, and the capsule that rebuilds it.

    `asked` is the parsed command with known secrets masked but personal data not redacted: it is for the code that
    executes the command and is never shown. Everything else is redacted. `messages` show the fenced documents to a
    model.
    """

    command: Command
    params: CommandParams
    retrieval: Retrieval
    graph: GraphPlan
    memory: MemoryPlan
    models: CommandModels
    limits: CommandLimits
    version: str
    ab_test: AbTest
    recovery: tuple[RecoveryStep, ...]
    messages: tuple[Message, ...]
    tokens: int
    ledger: Ledger
    capsule: Capsule
    now: datetime
    asked: ParsedCommand = field(repr=False)
    timings: dict[str, float] = field(default_factory=dict[str, float], compare=False)

    @property
    def build_id(self) -> str:
        """The id of the build, which is also the correlation id."""
        return self.capsule.build_id

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations of this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citation of each document's snippet, in document order."""
        return tuple(found for each in self.retrieval.docs if (found := each.citation))

    def to_dict(self) -> dict[str, Any]:
        """The context as a JSON object, without timings, so that equal builds give equal objects."""
        return {
            "command": self.command.value,
            "params": params_to_json(self.params),
            "retrieval": _retrieval_to_json(self.retrieval),
            "graph": {
                "enabled": self.graph.enabled,
                "entities": None,
                "relations": None,
                "build_policy": self.graph.build_policy,
                "hop_limit": self.graph.hop_limit,
            },
            "memory": _memory_to_json(self.memory),
            "models": {"primary": self.models.primary, "fallback": list(self.models.fallback)},
            "limits": limits_to_json(self.limits),
            "telemetry": {"correlation_id": self.build_id, "version": self.version},
            "ab_test": {"experiment": self.ab_test.experiment, "arm": self.ab_test.arm},
            "recovery": [{"rung": step.rung, "done": step.done, "found": step.found} for step in self.recovery],
            "degradations": self.degradations,
            "ledger": self.ledger.entries,
            "citations": self.citations,
            "messages": self.messages,
            "tokens": self.tokens,
            "digest": self.capsule.digest,
        }


def limits_to_json(limits: CommandLimits) -> dict[str, float]:
    """Limits as a JSON object; whole seconds are whole numbers."""
    seconds = limits.timeout_s
    return {
        "max_tokens": limits.max_tokens,
        "budget_cents": limits.budget_cents,
        "timeout_s": int(seconds) if seconds.is_integer() else seconds,
    }


def params_to_json(params: CommandParams) -> dict[str, Any]:
    """Parameters as a JSON object."""
    return {
        "window": params.window.value,
        "lang": params.lang,
        "sources": _list_or_none(params.sources),
        "topic": params.topic,
        "entity": params.entity,
        "domains": _list_or_none(params.domains),
        "query": params.query,
        "k_final": params.k_final,
        "flags": {"rerank_enabled": params.rerank_enabled},
    }


def _retrieval_to_json(found: Retrieval) -> dict[str, Any]:
    return {
        "docs": [each.to_dict() for each in found.docs],
        "window": found.window.value,
        "lang": found.lang,
        "sources": _list_or_none(found.sources),
        "k_final": found.k_final,
        "rerank_enabled": found.rerank_enabled,
    }


def _memory_to_json(plan: MemoryPlan) -> dict[str, Any]:
    keys = plan.semantic_keys
    return {
        "enabled": plan.enabled,
        "episodic": None,
        "semantic_keys": None if keys is None else [{"key": key, "ttl_days": MEMORY_TTL_DAYS} for key in keys],
    }


def _list_or_none(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


NOTHING_FOUND_MESSAGE = "No documents found for query"
UNEXPECTED_ERROR_MESSAGE = (
    "Something went wrong on our side. Please try again, and give the correlation id when you report it."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandErrorFactory:
    """Makes the errors of one command.

    All have the same correlation id, which is derived from request, scope and time.
    """

    version: str
    correlation_id: str

    def nothing_found(self, steps: Sequence[RecoveryStep]) -> NothingFound:
        """`NothingFound`, listing every recovery step tried."""
        tried = ", ".join(step.done for step in steps) or "none"
        tech = f"Retrieval returned 0 documents after auto-recovery. Steps: {tried}"
        return NothingFound(NOTHING_FOUND_MESSAGE, tech=tech, version=self.version, correlation_id=self.correlation_id)

    def from_error(self, failure: ContextError) -> CommandError:
        """A `ContextError` converted to the matching `CommandError`."""
        kind = CommandFailed
        if isinstance(failure, RequestError):
            kind = CommandRefused
        elif isinstance(failure, SourceError):
            kind = CommandUnavailable
        tech = f"the command gave no context, {type(failure).__name__}: {failure}"
        return kind(str(failure), tech=tech, version=self.version, correlation_id=self.correlation_id)

    def from_unexpected(self, failure: Exception) -> CommandFailed:
        """An unexpected exception as `CommandFailed`.

        Only its type is reported, because its message may contain anything.
        """
        tech = f"the command failed, {type(failure).__name__}"
        return CommandFailed(
            UNEXPECTED_ERROR_MESSAGE, tech=tech, version=self.version, correlation_id=self.correlation_id
        )


@contextmanager
def command_error_boundary(given: object, scope: Scope, now: datetime) -> Generator[CommandErrorFactory]:
    """Raise every exception inside as the `CommandError` of this request, with the original as its cause.

    `ImportError` passes through: it names a part that is not installed.
    """
    answer = make_error_factory(given, scope, now, read_version(given))
    try:
        yield answer
    except (CommandError, ImportError):
        raise
    except ContextError as failure:
        raise answer.from_error(failure) from failure
    except Exception as failure:  # callers get a `CommandError` for unexpected errors too; the original is its cause
        raise answer.from_unexpected(failure) from failure


def make_error_factory(given: object, scope: Scope, now: datetime, version: str) -> CommandErrorFactory:
    """The error factory for a request, which may be malformed.

    The correlation id is a hash of request, scope and time.
    """
    said = sorted(map(repr, cast("Mapping[object, object]", given).items())) if isinstance(given, Mapping) else given
    named = f"{said!r}\0{scope.tenant}\0{scope.user}\0{now.isoformat()}"
    number = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return CommandErrorFactory(version=version, correlation_id=f"ctx-error-{number}")
