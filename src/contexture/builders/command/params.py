"""What a command asks for once every default is filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from contexture.builders.command.experiments import Arm
from contexture.builders.command.parsed import ParsedCommand
from contexture.builders.command.request import CommandRequest
from contexture.builders.command.windows import Window
from contexture.builders.command.words import BOUNDS, Command, Key

T = TypeVar("T")

FALLBACK_QUERY = "latest news"
TTL_DAYS = 90

_WINDOW, _K = Window.DAY, 6
_TOKENS, _CENTS, _SECONDS = 4_096, 60, 18.0
FLOORS = {"max_tokens": 2_048, "budget_cents": 25, "timeout_s": 8}
"""No command works with less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Params:
    """A command's parameters; what was not asked for is None."""

    window: Window
    lang: str
    sources: tuple[str, ...] | None
    topic: str | None
    entity: str | None
    domains: tuple[str, ...] | None
    query: str | None
    k_final: int
    rerank_enabled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What executing a command may spend."""

    max_tokens: int
    budget_cents: int
    timeout_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphPlan:
    """How a graph is to be made; entities and relations are found when the command is executed."""

    enabled: bool
    build_policy: str
    hop_limit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPlan:
    """What memory is to be asked for or told, under which keys."""

    enabled: bool
    semantic_keys: tuple[str, ...] | None


def params_of(parsed: ParsedCommand, request: CommandRequest, arm: Arm) -> Params:
    """The arguments, then the user's language, then the arm, then the surroundings, then our own defaults."""
    defaults, low_high = request.defaults, BOUNDS[Key.K]
    k = first(parsed.k, arm.k_final, defaults.k_final, _K)
    wanted = first(parsed.rerank, arm.rerank, defaults.rerank_enabled, True)
    return Params(
        window=first(parsed.window, defaults.window, _WINDOW),
        lang=first(parsed.lang, request.speaks, defaults.lang, "auto"),
        sources=parsed.sources or None,
        topic=parsed.topic,
        entity=parsed.entity,
        domains=parsed.domains or None,
        query=parsed.query or parsed.text or None,
        k_final=min(max(k, low_high[0]), low_high[1]),
        rerank_enabled=request.flags.enable_rerank and wanted,
    )


def search_text(parsed: ParsedCommand) -> str:
    """What to search for: the query, else topic or entity with whatever text stands beside it, else any news."""
    subject = parsed.topic or parsed.entity or ""
    return parsed.query or f"{subject} {parsed.text}".strip() or FALLBACK_QUERY


def limits_of(request: CommandRequest) -> Limits:
    """The limits of the surroundings, none below its floor."""
    given = request.defaults
    return Limits(
        max_tokens=max(first(given.max_tokens, _TOKENS), FLOORS["max_tokens"]),
        budget_cents=max(first(given.budget_cents, _CENTS), FLOORS["budget_cents"]),
        timeout_s=max(first(given.timeout_s, _SECONDS), float(FLOORS["timeout_s"])),
    )


def graph_plan(parsed: ParsedCommand) -> GraphPlan:
    """A graph only for the command that asks one."""
    if parsed.command is not Command.GRAPH:
        return GraphPlan(enabled=False, build_policy="cached_only", hop_limit=1)
    return GraphPlan(enabled=True, build_policy=parsed.policy or "on_demand", hop_limit=parsed.hops or 2)


def memory_plan(command: Command, params: Params) -> MemoryPlan:
    """Keys from query and topic, only for commands about memory."""
    if not command.remembers:
        return MemoryPlan(enabled=False, semantic_keys=None)
    named = (params.query, params.topic)
    return MemoryPlan(enabled=True, semantic_keys=tuple(dict.fromkeys(name for name in named if name)))


def first(*given: T | None) -> T:
    """The first value that is not None; the last one must be given."""
    return next(value for value in given if value is not None)
