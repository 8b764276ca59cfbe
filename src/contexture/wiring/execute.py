"""The graph and the execution of commands, from settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from contexture.adapters.graph.phrases import CapitalisedPhrases
from contexture.adapters.graph.sqlite import SqliteGraphCache, StoredGraph
from contexture.adapters.tokens.models import counter_for
from contexture.answer.commands.job import MemoryPlace
from contexture.answer.commands.prices import PRICES, Price, price_behind
from contexture.answer.commands.write import Writer
from contexture.config import Settings
from contexture.errors import SourceError
from contexture.graph.store import GraphStore
from contexture.news.store import Removed
from contexture.ports import EntityRecognizer, GraphCache, Index, Redactor
from contexture.types import Scope
from contexture.wiring.chat import chat_model
from contexture.wiring.spans import traced

if TYPE_CHECKING:
    from contexture.adapters.postgres.pool import Pool


def graph_cache(settings: Settings, pool: Pool | None = None) -> StoredGraph:
    """What was extracted from articles, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.graph.postgres import PostgresGraphCache

        return PostgresGraphCache(pool)
    return SqliteGraphCache(settings.home / "graph.sqlite")


def recognizer(settings: Settings) -> EntityRecognizer:
    """What finds names: models where they are installed, capitalised phrases otherwise."""
    if settings.graph_names == "phrases":
        return CapitalisedPhrases()
    try:
        from contexture.adapters.graph.models import NameModels
    except ImportError:
        if settings.graph_names == "models":
            raise
        return CapitalisedPhrases()
    return NameModels()


def graph_store(settings: Settings, index: Index, cache: GraphCache, scanner: Redactor) -> GraphStore:
    """Entities and relations of the articles."""
    return GraphStore(
        index=index,
        cache=cache,
        recognizer=recognizer(settings),
        fallback=CapitalisedPhrases(),
        redactor=scanner,
    )


def forgets(graph: GraphStore) -> Removed:
    """Lets the graph forget removed articles; they are never shown again even where that fails."""

    async def forget(scope: Scope, ids: Sequence[str]) -> None:
        try:
            await graph.forget(scope, ids)
        except SourceError as failure:
            structlog.get_logger().warning("names of removed articles are still kept", reason=str(failure))

    return forget


def command_writer(settings: Settings) -> Writer:
    """The models that write answers to commands, at their prices; none when none is configured."""
    models = {routed: chat_model(name) for routed, name in settings.command_llms.items()}
    listed = {routed: price_behind(name, models[routed]) for routed, name in settings.command_llms.items()}
    given = {routed: Price(*price) for routed, price in settings.command_prices.items()}
    watched = {routed: traced(settings.command_llms[routed], model, settings) for routed, model in models.items()}
    return Writer(models=watched, counter=counter_for(settings.model), prices={**PRICES, **listed, **given})


def memory_place(settings: Settings) -> MemoryPlace:
    """Where commands remember."""
    return MemoryPlace(
        namespace=settings.memory_namespace,
        universe=settings.memory_universe,
        threshold=settings.memory_threshold,
    )
