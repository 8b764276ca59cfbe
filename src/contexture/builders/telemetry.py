"""Telemetry of builds: one span per build, a stopwatch, and the metrics that the turn and workspace builders report.

Spans and metrics never contain a tenant, a user or a text.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from types import CoroutineType, MappingProxyType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from contexture.ledger import Ledger, State
from contexture.ports import Tracer
from contexture.types import Scalar

P = ParamSpec("P")


class HasSpans(Protocol):
    """An object that reports spans."""

    @property
    def spans(self) -> Tracer:
        """The tracer that records the spans."""
        ...


class HasLedger(Protocol):
    """A build result with a ledger."""

    @property
    def ledger(self) -> Ledger:
        """The verdict on each candidate, and the degradations."""
        ...


W = TypeVar("W", bound=HasSpans)
B = TypeVar("B", bound=HasLedger)

SPAN_OPERATION = "build_context"


def build_span(
    kind: str,
) -> Callable[[Callable[Concatenate[W, P], Awaitable[B]]], Callable[Concatenate[W, P], CoroutineType[Any, Any, B]]]:
    """Decorator: each call of the method is a span named `build_context KIND`, with candidate counts by state."""

    def around(
        method: Callable[Concatenate[W, P], Awaitable[B]],
    ) -> Callable[Concatenate[W, P], CoroutineType[Any, Any, B]]:
        @wraps(method)
        async def run(self: W, *args: P.args, **kwargs: P.kwargs) -> B:
            with self.spans.span(SPAN_OPERATION, kind, {"contexture.build.kind": kind}) as note:
                built = await method(self, *args, **kwargs)
                note(_ledger_attributes(built.ledger))
                return built

        return run

    return around


def _ledger_attributes(ledger: Ledger) -> dict[str, Scalar]:
    counts: dict[str, Scalar] = {f"contexture.candidates.{state}": ledger.count(state) for state in State}
    return {**counts, "contexture.degradations": len(ledger.degradations)}


Timer: TypeAlias = Callable[[], AbstractContextManager[None]]


TOTAL_PHASE = "total"
_INNER_SECONDS: ContextVar[list[float] | None] = ContextVar("inner_seconds", default=None)


class Stopwatch:
    """Seconds per phase of one build; a replay does not compare them.

    Phases may be nested: the outer one does not count the seconds of an inner one, except for `TOTAL_PHASE`. A phase
    that has one of `timers` is timed by it too, with everything inside.
    """

    def __init__(self, timers: Mapping[str, Timer] = MappingProxyType({})) -> None:
        self.seconds: dict[str, float] = {}
        self._timers = timers

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Time one phase; use as a context manager. The seconds are there once it has ended."""
        outer, inner = _INNER_SECONDS.get(), list[float]()
        entered = _INNER_SECONDS.set(inner)  # seen by the tasks that are started inside
        start = time.perf_counter()
        try:
            with self._timers.get(name, nullcontext)():
                yield
        finally:
            _INNER_SECONDS.reset(entered)
        spent = time.perf_counter() - start
        self.seconds[name] = spent if name == TOTAL_PHASE else max(0.0, spent - sum(inner))
        if outer is not None:
            outer.append(spent)


class TurnTelemetry(Protocol):
    """Metrics port of the turn builder: phase timers and counters; never given a tenant, a user or a text."""

    def time_total(self) -> AbstractContextManager[None]:
        """Timer of a whole build."""
        ...

    def time_retrieval(self, state: str) -> AbstractContextManager[None]:
        """Timer of memory recall, labelled with the health state of the memory service."""
        ...

    def time_salience(self) -> AbstractContextManager[None]:
        """Timer of scoring."""
        ...

    def time_ranking(self) -> AbstractContextManager[None]:
        """Timer of ranking and of dropping what is beyond the top k."""
        ...

    def time_redaction(self) -> AbstractContextManager[None]:
        """Timer of redaction."""
        ...

    def time_tokenisation(self) -> AbstractContextManager[None]:
        """Timer of token counting and fitting into the limit."""
        ...

    def time_prompt(self) -> AbstractContextManager[None]:
        """Timer of assembling the messages."""
        ...

    def record_tokens(self, *, before_budget: int, after_budget: int, after_redaction: int, prompt_tokens: int) -> None:
        """Record the token counts of the last prompt, before and after fitting."""
        ...

    def record_use(self, *, snippets: int, utilization: float) -> None:
        """Record how many memories the last prompt contains, and the share of its token limit that it uses."""
        ...

    def inc_prompt(self) -> None:
        """Count one built prompt."""
        ...

    def inc_snippets(self, *, stage: str, count: int) -> None:
        """Count memories by stage: `final` for those in prompts, `summary` for those submitted to memory."""
        ...

    def inc_degradation(self, reason: str) -> None:
        """Count one degradation; `reason` is the kind of failure."""
        ...


class NoTurnTelemetry:
    """A `TurnTelemetry` that does nothing."""

    def time_total(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_retrieval(self, state: str) -> AbstractContextManager[None]:
        """Nothing is timed."""
        del state
        return nullcontext()

    def time_salience(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_ranking(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_redaction(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_tokenisation(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_prompt(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def record_tokens(self, *, before_budget: int, after_budget: int, after_redaction: int, prompt_tokens: int) -> None:
        """Nothing is kept."""

    def record_use(self, *, snippets: int, utilization: float) -> None:
        """Nothing is kept."""

    def inc_prompt(self) -> None:
        """Nothing is counted."""

    def inc_snippets(self, *, stage: str, count: int) -> None:
        """Nothing is counted."""

    def inc_degradation(self, reason: str) -> None:
        """Nothing is counted."""


def turn_timers(telemetry: TurnTelemetry, state: str) -> Mapping[str, Timer]:
    """The metrics timer of each phase of a turn; `state` is the health state of the memory service."""
    return {
        "total": telemetry.time_total,
        "retrieval": lambda: telemetry.time_retrieval(state),
        "salience": telemetry.time_salience,
        "ranking": telemetry.time_ranking,
        "redaction": telemetry.time_redaction,
        "tokenisation": telemetry.time_tokenisation,
        "prompt": telemetry.time_prompt,
    }


class WorkspaceTelemetry(Protocol):
    """Metrics port of the workspace builder; never given a tenant, a user or a text."""

    def record(
        self, *, seconds: Mapping[str, float], tokens: int, budget: int, blocks: Mapping[str, int], lost: Sequence[str]
    ) -> None:
        """Record seconds by phase, tokens used of the budget, blocks by final state, and the sources that failed."""
        ...


class NoWorkspaceTelemetry:
    """A `WorkspaceTelemetry` that does nothing."""

    def record(
        self, *, seconds: Mapping[str, float], tokens: int, budget: int, blocks: Mapping[str, int], lost: Sequence[str]
    ) -> None:
        """Nothing is kept."""
