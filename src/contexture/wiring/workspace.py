"""The builder for workspaces, from settings."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from contexture.adapters.metrics.workspace import CacheMetrics, WorkspaceMetrics
from contexture.adapters.tokens.models import counter_for
from contexture.builders.workspace.build import WorkspaceContextBuilder
from contexture.builders.workspace.config import ContextConfig, config_of
from contexture.config import Settings
from contexture.ports import ChatModel, Clock, Redactor, Secrets
from contexture.retrieval.search import HybridSearch
from contexture.types import Scope
from contexture.wiring.core import operator
from contexture.workspace import BlockStore


def workspace_builder(  # noqa: PLR0913 - every part it works with, by name
    settings: Settings,
    blocks: BlockStore,
    finder: HybridSearch,
    *,
    scanner: Redactor,
    secrets: Secrets,
    clock: Clock,
    speaker: Scope,
    registry: CollectorRegistry,
    summarizer: ChatModel | None = None,
) -> WorkspaceContextBuilder:
    """The builder for workspaces, collected and cut as the settings say."""
    return WorkspaceContextBuilder(
        store=blocks,
        search=finder,
        token_counter=counter_for(settings.model),
        redactor=scanner,
        clock=clock,
        secrets=secrets,
        config=workspace_config(settings),
        operator=operator(settings),
        summarizer=summarizer,
        deadline=settings.timeout_seconds,
        model=settings.model,
        speaker=speaker,
        metrics=WorkspaceMetrics(registry),
    )


def cache_metrics(registry: CollectorRegistry, finder: HybridSearch) -> CacheMetrics:
    """Says how often a search was answered from memory."""

    def read() -> tuple[int, int]:
        stats = finder.cache_stats()
        return stats.hits, stats.misses

    return CacheMetrics(registry, read)


def workspace_config(settings: Settings) -> ContextConfig:
    """The configuration with what `CONTEXTURE_WORKSPACE` changes of it."""
    return config_of(settings.workspace)
