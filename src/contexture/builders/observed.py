"""Every build as a span: of which kind, how it ended, and never what was asked or found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from contexture.ledger import Ledger, State
from contexture.ports import Spans
from contexture.types import Scalar

P = ParamSpec("P")


class Watched(Protocol):
    """What builds, and where it tells of it."""

    @property
    def spans(self) -> Spans:
        """Who is told."""
        ...


class Built(Protocol):
    """What every build has."""

    @property
    def ledger(self) -> Ledger:
        """What became of each candidate."""
        ...


W = TypeVar("W", bound=Watched)
B = TypeVar("B", bound=Built)

OPERATION = "build_context"


def observed(
    kind: str,
) -> Callable[[Callable[Concatenate[W, P], Awaitable[B]]], Callable[Concatenate[W, P], CoroutineType[Any, Any, B]]]:
    """Let each call of a method be a span called `build_context KIND`."""

    def around(
        method: Callable[Concatenate[W, P], Awaitable[B]],
    ) -> Callable[Concatenate[W, P], CoroutineType[Any, Any, B]]:
        @wraps(method)
        async def run(self: W, *args: P.args, **kwargs: P.kwargs) -> B:
            with self.spans.span(OPERATION, kind, {"contexture.build.kind": kind}) as note:
                built = await method(self, *args, **kwargs)
                note(_outcome(built.ledger))
                return built

        return run

    return around


def _outcome(ledger: Ledger) -> dict[str, Scalar]:
    counts: dict[str, Scalar] = {f"contexture.candidates.{state}": ledger.count(state) for state in State}
    return {**counts, "contexture.degradations": len(ledger.degradations)}
