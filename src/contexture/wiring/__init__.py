"""The only place where a name in the settings becomes an object."""

from contexture.wiring.access import close_policy, policy, secrets
from contexture.wiring.blocks import block_store, block_writer
from contexture.wiring.bus import bus, worker_retries
from contexture.wiring.chat import chat_model, chat_recipe, chat_route, outbox, replies, sessions, summarizer
from contexture.wiring.command import command_builder
from contexture.wiring.core import (
    SystemClock,
    encoders,
    index,
    operator,
    preparer,
    query_builder,
    redactor,
    search,
)
from contexture.wiring.execute import command_writer, forgets, graph_cache, graph_store, memory_place
from contexture.wiring.memory import local_memory, memory_health, memory_service
from contexture.wiring.news import feed_parser, feed_wire, news_store
from contexture.wiring.pages import page_store
from contexture.wiring.qdrant import qdrant_server
from contexture.wiring.research import alike, ask_recipe, research_builder
from contexture.wiring.shared import api_keys, beside, builds, pool_of
from contexture.wiring.spans import spans, traced
from contexture.wiring.turn import TurnParts, turn_builder
from contexture.wiring.visual import page_encoder, placed, visual_pages
from contexture.wiring.workspace import cache_metrics, workspace_builder

__all__ = [
    "SystemClock",
    "TurnParts",
    "alike",
    "api_keys",
    "ask_recipe",
    "beside",
    "block_store",
    "block_writer",
    "builds",
    "bus",
    "cache_metrics",
    "chat_model",
    "chat_recipe",
    "chat_route",
    "close_policy",
    "command_builder",
    "command_writer",
    "encoders",
    "feed_parser",
    "feed_wire",
    "forgets",
    "graph_cache",
    "graph_store",
    "index",
    "local_memory",
    "memory_health",
    "memory_place",
    "memory_service",
    "news_store",
    "operator",
    "outbox",
    "page_encoder",
    "page_store",
    "placed",
    "policy",
    "pool_of",
    "preparer",
    "qdrant_server",
    "query_builder",
    "redactor",
    "replies",
    "research_builder",
    "search",
    "secrets",
    "sessions",
    "spans",
    "summarizer",
    "traced",
    "turn_builder",
    "visual_pages",
    "worker_retries",
    "workspace_builder",
]
