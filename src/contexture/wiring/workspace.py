"""The builder for workspaces, from settings."""

from __future__ import annotations

from contexture.adapters.tokens.models import counter_for
from contexture.builders.workspace.build import WorkspaceContextBuilder
from contexture.builders.workspace.config import ContextConfig, config_of
from contexture.config import Settings
from contexture.ports import ChatModel, Clock, Redactor, Secrets
from contexture.retrieval.search import HybridSearch
from contexture.types import Scope
from contexture.wiring.core import operator
from contexture.workspace import BlockStore


def workspace_builder(
    settings: Settings,
    blocks: BlockStore,
    finder: HybridSearch,
    *,
    scanner: Redactor,
    secrets: Secrets,
    clock: Clock,
    speaker: Scope,
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
    )


def workspace_config(settings: Settings) -> ContextConfig:
    """The configuration with what `CONTEXTURE_WORKSPACE` changes of it."""
    return config_of(settings.workspace)
