"""Sessions, the outbox, the models that answer, and the processing of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from contexture.adapters.llm import registry as models
from contexture.adapters.llm.extractive import NAME as EXTRACTIVE
from contexture.adapters.outbox.outbox import Outbox
from contexture.adapters.outbox.rows import Item
from contexture.adapters.replies.sqlite import SqliteReplies, StoredReplies
from contexture.adapters.sessions.sqlite import SqliteSessions, StoredSessions
from contexture.answer.process import ChatRecipe
from contexture.answer.route import Route
from contexture.config import Settings, keep_vendors_offline
from contexture.ports import ChatModel, Clock, MemoryService
from contexture.wiring.spans import traced

if TYPE_CHECKING:
    from contexture.adapters.postgres.pool import Pool


def sessions(settings: Settings, pool: Pool | None = None) -> StoredSessions:
    """The sessions, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.sessions.postgres import PostgresSessions

        return PostgresSessions(pool)
    return SqliteSessions(settings.home / "sessions.sqlite")


def replies(settings: Settings, pool: Pool | None = None) -> StoredReplies:
    """What became of messages that carry an id, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.replies.postgres import PostgresReplies

        return PostgresReplies(pool, days=settings.reply_days)
    return SqliteReplies(settings.home / "replies.sqlite", days=settings.reply_days)


def outbox(settings: Settings, memory: MemoryService, clock: Clock, pool: Pool | None = None) -> Outbox:
    """What sees to it that memories arrive, in the store's folder or its database."""
    if pool is not None:
        from contexture.adapters.outbox.postgres import outbox_tables

        return Outbox(outbox_tables(pool), memory, clock=clock, on_parked=_report)
    return Outbox(settings.home / "outbox.sqlite", memory, clock=clock, on_parked=_report)


def chat_model(name: str) -> ChatModel:
    """The model of this name."""
    keep_vendors_offline()
    return models.load(name)


def chat_route(settings: Settings) -> Route:
    """The model that answers, its fallbacks, and at last extracts, which never fail."""
    names = dict.fromkeys((settings.chat_model or EXTRACTIVE, *settings.chat_fallbacks, EXTRACTIVE))
    return Route({name: traced(name, chat_model(name), settings) for name in names})


def summarizer(settings: Settings) -> ChatModel | None:
    """The model that summarises what a prompt has no room for; None leaves that to extracts."""
    name = settings.summary_model
    return traced(name, chat_model(name), settings) if name else None


def chat_recipe(settings: Settings) -> ChatRecipe:
    """How messages are answered."""
    return ChatRecipe(
        system=settings.chat_system,
        history_events=settings.history_events,
        max_tokens=settings.chat_max_tokens,
        namespace=settings.memory_namespace,
        universe=settings.memory_universe,
        quoting=EXTRACTIVE,
    )


def _report(parked: Item) -> None:
    structlog.get_logger().error(
        "a memory was refused too often and is parked", key=parked.memory.idempotency_key, failure=parked.failure
    )
