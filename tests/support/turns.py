"""A turn builder over doubles, and conversations to build prompts for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from contexture.adapters.token_counters import counter_for
from contexture.builders._tokens import CountText
from contexture.builders.telemetry import NoTurnTelemetry, TurnTelemetry
from contexture.builders.turn.build import TurnContextBuilder
from contexture.builders.turn.request import TurnRecipe
from contexture.builders.turn.summary import HistorySummarizer
from contexture.conversation import HealthState, Memory, Recalled
from contexture.ports import Clock, MemoryService, Redactor, Secrets, TokenCounter
from contexture.testing.doubles import NOON, FixedClock, ScriptedMemory, WordRedactor
from contexture.types import Message, Scope

HIDDEN = "swordfish"
"""The word that the redactor of `TurnBench` finds, unless another one is given."""


@dataclass(slots=True)
class KeptSummaries:
    """A sink that keeps what it is given, and raises the failures of its script first."""

    failures: Sequence[Exception | None] = ()
    kept: list[tuple[Scope, Memory]] = field(default_factory=list[tuple[Scope, Memory]])
    calls: int = 0

    async def put(self, scope: Scope, *memories: Memory) -> None:
        """Keep them."""
        at, self.calls = self.calls, self.calls + 1
        failure = self.failures[at] if at < len(self.failures) else None
        if failure is not None:
            raise failure
        self.kept.extend((scope, memory) for memory in memories)


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """These values by key."""

    values: dict[str, str]

    def known_values(self) -> dict[str, str]:
        """Every key with its value."""
        return self.values


@dataclass(kw_only=True, slots=True)
class TurnBench:
    """What a turn builder is made of; every part has a small deterministic default."""

    memory: MemoryService = field(default_factory=ScriptedMemory)
    counter: TokenCounter | CountText = field(default_factory=lambda: counter_for("o200k_base"))
    redactor: Redactor = field(default_factory=lambda: WordRedactor((HIDDEN,)))
    clock: Clock = field(default_factory=FixedClock)
    metrics: TurnTelemetry = field(default_factory=NoTurnTelemetry)
    recipe: TurnRecipe = field(default_factory=TurnRecipe)
    state: HealthState = HealthState.NORMAL
    secrets: Secrets | None = None
    summaries: HistorySummarizer | None = None
    on_degraded: Callable[[float], None] = lambda _: None
    deadline: float = 10.0

    def builder(self) -> TurnContextBuilder:
        """The builder of these parts."""
        return TurnContextBuilder(
            memory=self.memory,
            token_counter=self.counter,
            redactor=self.redactor,
            clock=self.clock,
            metrics=self.metrics,
            health_provider=lambda: self.state,
            on_degraded=self.on_degraded,
            secrets=self.secrets,
            summaries=self.summaries,
            recipe=self.recipe,
            deadline=self.deadline,
        )


def memories(*texts: str, score: float = 0.9) -> list[Recalled]:
    """Memories of noon, each scored a little lower than the one before."""
    return [
        Recalled(id=f"m-{at}", text=text, score=max(0.5, score - 0.01 * at), time=NOON, label="note")
        for at, text in enumerate(texts)
    ]


def chat(exchanges: int, words: int = 20) -> list[Message]:
    """A conversation of so many exchanges; every message has its own words."""
    return [
        {"role": role, "content": " ".join(f"{role}{at}w{word}" for word in range(words))}
        for at in range(exchanges)
        for role in ("user", "assistant")
    ]


def tool_exchange(call_id: str, arguments: str = "{}", result: str = "done") -> list[Message]:
    """An assistant's call of a tool, and its result."""
    call: dict[str, Any] = {
        "id": call_id,
        "type": "function",
        "function": {"name": "look", "arguments": arguments},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]
