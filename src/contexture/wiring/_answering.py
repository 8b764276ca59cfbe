"""From settings: chat models, sessions, replies, the outbox, the graph, and the execution of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from contexture import ports
from contexture.adapters.conversation.outbox import Outbox
from contexture.adapters.conversation.outbox_table import OutboxItem
from contexture.adapters.conversation.sqlite import SqliteReplies, SqliteSessions, StoredReplies, StoredSessions
from contexture.adapters.graph.phrases import CapitalisedPhrases
from contexture.adapters.graph.sqlite import SqliteGraphCache, StoredGraphCache
from contexture.adapters.installed_packages import import_native
from contexture.adapters.llm.extractive import NAME as EXTRACTIVE
from contexture.adapters.llm.extractive import CompareFunction, ExtractiveModel
from contexture.adapters.token_counters import counter_for
from contexture.answer._chat_turn import StatementExtractor
from contexture.answer.chat import ChatRecipe
from contexture.answer.commands.job import MemoryLocation
from contexture.answer.commands.writer import PRICES, AnswerWriter, Price, resolve_price
from contexture.answer.route import ModelRoute
from contexture.config import Settings, keep_vendors_offline
from contexture.erasure.erase import OwnerLookup
from contexture.errors import SourceError
from contexture.graph.store import GraphStore
from contexture.pages.store import match_label
from contexture.pipeline.fence import MaterialRole
from contexture.types import Receipt, Record, Scope
from contexture.wiring import plugins
from contexture.wiring._services import traced_model

if TYPE_CHECKING:
    from contexture.adapters.postgres.pool import PostgresPool


def sessions(settings: Settings, pool: PostgresPool | None = None) -> StoredSessions:
    """Open the sessions, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.conversation.postgres import PostgresSessions

        return PostgresSessions(pool)
    return SqliteSessions(settings.home / "sessions.sqlite")


def replies(settings: Settings, pool: PostgresPool | None = None) -> StoredReplies:
    """Open the stored replies to messages with an id, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.conversation.postgres import PostgresReplies

        return PostgresReplies(pool, days=settings.reply_days)
    return SqliteReplies(settings.home / "replies.sqlite", days=settings.reply_days)


def outbox(
    settings: Settings, memory: ports.MemoryWriter, clock: ports.Clock, pool: PostgresPool | None = None
) -> Outbox:
    """Open the outbox, which delivers memories reliably, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.conversation.postgres import outbox_tables

        return Outbox(outbox_tables(pool), memory, clock=clock, on_parked=_log_parked, on_damaged=_log_damaged)
    return Outbox(settings.home / "outbox.sqlite", memory, clock=clock, on_parked=_log_parked, on_damaged=_log_damaged)


def chat_model(name: str) -> ports.ChatModel:
    """Load the model of this name."""
    keep_vendors_offline()
    return plugins.load_chat_model(name)


def chat_route(settings: Settings, compare: CompareFunction | None = None) -> ModelRoute:
    """Create the route: the configured model, its fallbacks, and last the extractive model, which never fails.

    With `compare` the extractive model also matches by meaning.
    """

    def load(name: str) -> ports.ChatModel:
        return ExtractiveModel(compare, match_label) if name == EXTRACTIVE else chat_model(name)

    names = dict.fromkeys((settings.chat_model or EXTRACTIVE, *settings.chat_fallbacks, EXTRACTIVE))
    return ModelRoute({name: traced_model(name, load(name), settings) for name in names})


def missing_model_libraries(settings: Settings) -> dict[str, str]:
    """Return by the name of a configured model what to install so that it can be loaded."""
    names = (
        settings.chat_model,
        *settings.chat_fallbacks,
        settings.summary_model,
        settings.memory_model,
        *settings.command_llms.values(),
    )
    missing: dict[str, str] = {}
    for name in names:
        try:
            if name.partition(":")[0] == "local":
                import_native("xllamacpp", feature="the local model", extra="local")
        except ImportError as failure:  # also a `MissingLibrary`
            missing[name] = str(failure)
    return missing


def summarizer(settings: Settings) -> ports.ChatModel | None:
    """Return the model that summarises history that does not fit a prompt; None means extracts are used."""
    name = settings.summary_model
    return traced_model(name, chat_model(name), settings) if name else None


def statement_extractor(settings: Settings) -> StatementExtractor | None:
    """Return what splits messages into statements to remember; None means whole sentences are remembered."""
    name = settings.memory_model
    return StatementExtractor(model=traced_model(name, chat_model(name), settings)) if name else None


def chat_recipe(settings: Settings) -> ChatRecipe:
    """Return the settings for answering messages."""
    return ChatRecipe(
        system=settings.chat_system,
        history_events=settings.history_events,
        max_tokens=settings.chat_max_tokens,
        namespace=settings.memory_namespace,
        universe=settings.memory_universe,
        quoting=EXTRACTIVE,
        show_own_data=settings.show_own_data,
        with_sources=settings.chat_sources == "everything",
        completions_with_sources=settings.completion_sources == "everything",
    )


def _log_parked(parked: OutboxItem) -> None:
    structlog.get_logger().error(
        "a memory was refused too often and is parked", key=parked.memory.idempotency_key, failure=parked.failure
    )


def _log_damaged(reason: str) -> None:
    structlog.get_logger().error("a part of the outbox is damaged", reason=reason)


def graph_cache(settings: Settings, pool: PostgresPool | None = None) -> StoredGraphCache:
    """Open the cache of entities extracted from articles, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.graph.postgres import PostgresGraphCache

        return PostgresGraphCache(pool)
    return SqliteGraphCache(settings.home / "graph.sqlite")


def entity_recognizer(settings: Settings) -> ports.EntityRecognizer:
    """Return the entity recognizer: models if they are installed, otherwise capitalised phrases."""
    if settings.graph_names == "phrases":
        return CapitalisedPhrases()
    try:
        from contexture.adapters.graph.ner_models import NerModels
    except ImportError:
        if settings.graph_names == "models":
            raise
        return CapitalisedPhrases()
    return NerModels()


def graph_store(settings: Settings, index: ports.Index, cache: ports.GraphCache, scanner: ports.Redactor) -> GraphStore:
    """Create the store of entities and relations of the articles."""
    return GraphStore(
        index=index,
        cache=cache,
        recognizer=entity_recognizer(settings),
        fallback=CapitalisedPhrases(),
        redactor=scanner,
    )


def article_removal_hook(graph: GraphStore, erase_copies: ports.RemovalListener) -> ports.RemovalListener:
    """Return a callback that removes copies of removed articles; a failure of the graph is logged, not raised."""

    async def forget(scope: Scope, records: Sequence[Record]) -> Receipt:
        receipt = await erase_copies(scope, records)
        try:
            await graph.forget(scope, [record.id for record in records])
        except SourceError as failure:
            structlog.get_logger().warning("names of removed articles are still kept", reason=str(failure))
        return receipt

    return forget


def command_writer(settings: Settings) -> AnswerWriter:
    """Return the models that write answers to commands, with their prices; empty if none is configured."""
    models = {routed: chat_model(name) for routed, name in settings.command_llms.items()}
    listed = {routed: resolve_price(name, models[routed]) for routed, name in settings.command_llms.items()}
    given = {routed: Price(*price) for routed, price in settings.command_prices.items()}
    watched = {routed: traced_model(settings.command_llms[routed], model, settings) for routed, model in models.items()}
    return AnswerWriter(
        models=watched,
        counter=counter_for(settings.counted_model),
        prices={**PRICES, **listed, **given},
        counters={routed: counter_for(name) for routed, name in settings.command_llms.items()},
        material_role=MaterialRole(settings.material_role),
    )


def memory_place(settings: Settings) -> MemoryLocation:
    """Return where commands store memories."""
    return MemoryLocation(
        namespace=settings.memory_namespace,
        universe=settings.memory_universe,
        threshold=settings.memory_threshold,
    )


def out_of_reach(settings: Settings) -> tuple[str, ...]:
    """Name the copies of texts that no store of this process holds, for receipts."""
    found = ["backups, until they are replaced", "capsules, answers and exports that were saved to files"]
    if settings.database:
        found.append("rows of PostgreSQL until it vacuums, and its log archives")
        found.append("ids, without texts, in PostgreSQL's list of the records that recent writes touched")
    if settings.in_qdrant:
        found.append("segments of Qdrant until it optimizes them, and its snapshots")
    if settings.memory_url:
        found.append("memories of the remote memory service that were not named by id")
    if settings.bus:
        found.append("messages on the bus, until its retention ends")
    if any(
        name.startswith("litellm:") for name in (settings.chat_model, settings.summary_model, settings.memory_model)
    ):
        found.append("prompts that were sent to hosted models")
    return tuple(found)


def import_texts_eraser(settings: Settings) -> Callable[[Sequence[str]], int]:
    """Return a function that removes what imports remember of the texts of blocks."""
    from contexture.ingestion.blocks.history import ImportHistory
    from contexture.ingestion.blocks.importer import IMPORTS_FOLDER

    return lambda ids: ImportHistory(settings.home / IMPORTS_FOLDER).forget_texts(frozenset(ids))


async def scrub_index(index: ports.Index, collections: Sequence[str]) -> Sequence[str]:
    """Remove deleted texts from the files of an index that writes files; returns what stays, and until when."""
    return await index.scrub(collections) if isinstance(index, ports.ScrubbableIndex) else ()


def private_id_owners(index: ports.Index) -> OwnerLookup:
    """Return who has a private record of an id; nobody in an index in which an id is unique for everybody."""

    async def list_owners(tenant: str, collection: str, ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        return await index.list_owners(tenant, collection, ids) if isinstance(index, ports.PrivateIds) and ids else {}

    return list_owners
