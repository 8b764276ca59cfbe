"""The builder for chat turns, from settings."""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry

from contexture.adapters.metrics.prometheus import TurnMetrics
from contexture.adapters.tokens.models import counter_for
from contexture.builders.turn.build import TurnContextBuilder
from contexture.builders.turn.request import TurnRecipe
from contexture.builders.turn.summary import Summaries, SummarySink
from contexture.config import Settings
from contexture.errors import ContextError
from contexture.pipeline.packers import Packer
from contexture.ports import ChatModel, Clock, Health, MemoryService, Redactor, Secrets
from contexture.types import Scope
from contexture.wiring.core import operator


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnParts:
    """What a turn builder works with, beside the settings."""

    memory: MemoryService
    health: Health
    redactor: Redactor
    secrets: Secrets
    clock: Clock
    registry: CollectorRegistry
    speaker: Scope
    sink: SummarySink | None = None
    summarizer: ChatModel | None = None


def turn_builder(settings: Settings, parts: TurnParts) -> TurnContextBuilder:
    """The builder for chat turns, its health provider tied to what the memory client reports."""
    recipe = turn_recipe(settings)
    metrics = TurnMetrics(parts.registry)
    return TurnContextBuilder(
        memory=parts.memory,
        token_counter=counter_for(settings.model),
        redactor=parts.redactor,
        clock=parts.clock,
        metrics=metrics,
        health_provider=parts.health.state,
        on_degraded=_warn,
        secrets=parts.secrets,
        summaries=_summaries(parts, recipe, metrics),
        recipe=recipe,
        operator=operator(settings),
        deadline=settings.timeout_seconds,
        model=settings.model,
        speaker=parts.speaker,
    )


def _summaries(parts: TurnParts, recipe: TurnRecipe, metrics: TurnMetrics) -> Summaries | None:
    def lost(failure: ContextError) -> None:
        metrics.inc_degradation(type(failure).__name__)
        structlog.get_logger().warning("a session summary was not made as asked", reason=type(failure).__name__)

    if parts.sink is None:
        return None
    place = {"namespace": recipe.namespace, "universe": recipe.universe}
    return Summaries(parts.sink, model=parts.summarizer, on_lost=lost, **place)


def turn_recipe(settings: Settings) -> TurnRecipe:
    """How turns become prompts, as the settings say."""
    return TurnRecipe(
        packer=Packer(settings.packer),
        max_tokens=settings.turn_max_tokens,
        top_k=settings.memory_top_k,
        top_k_degraded=settings.memory_top_k_degraded,
        threshold=settings.memory_threshold,
        degraded_seconds=settings.degraded_seconds,
        near_duplicate=settings.turn_near_duplicate,
        neighbour_lift=settings.turn_neighbour_lift,
        namespace=settings.memory_namespace,
        universe=settings.memory_universe,
    )


def _warn(seconds: float) -> None:
    """The monitor has heard of the failure from the client; people hear of it here."""
    structlog.get_logger().warning(
        "memory could not be asked; fewer memories are recalled for a while", seconds=seconds
    )
