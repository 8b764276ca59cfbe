"""Contexture: the context builder for LLM applications."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contexture.answer.chat_types import ChatRequest, ChatResult
    from contexture.answer.commands.answer import CommandAnswer
    from contexture.answer.commands.execute import ExecuteCommand
    from contexture.answer.research import ResearchAnswer, ResearchQuestion
    from contexture.blocks.workspace import Workspace
    from contexture.builders.command.build import CommandContextBuilder
    from contexture.builders.command.request import CommandRequest
    from contexture.builders.command.result import CommandContext
    from contexture.builders.query.request import QueryRequest
    from contexture.builders.query.result import QueryContext
    from contexture.builders.research.build import ResearchContextBuilder
    from contexture.builders.research.result import ResearchContext, SourceDocument
    from contexture.builders.turn.build import TurnContextBuilder
    from contexture.builders.turn.request import Turn
    from contexture.builders.turn.result import TurnContext
    from contexture.builders.workspace.build import WorkspaceContextBuilder
    from contexture.builders.workspace.request import ContextRequest
    from contexture.builders.workspace.result import ContextPayload
    from contexture.config import Settings
    from contexture.engine import Contexture, replay
    from contexture.engine import open_store as open  # noqa: A004 - `contexture.open` reads as it should
    from contexture.erasure.request import ForgetRequest, Receipt
    from contexture.errors import CommandError, ContextError, RequestError, SourceError
    from contexture.news.articles import Article, FoundArticle, NewsQuestion
    from contexture.news.store import NewsStore
    from contexture.retrieval.candidates import SearchResult
    from contexture.sync import SyncContexture, open_sync
    from contexture.types import (
        And,
        AnyOf,
        Budget,
        BuiltContext,
        Citation,
        Collection,
        Contains,
        Equals,
        FieldType,
        Not,
        Or,
        Range,
        Record,
        Scope,
        Section,
    )
    from contexture.workspace import Block, BlockType

__all__ = [
    "And",
    "AnyOf",
    "Article",
    "Block",
    "BlockType",
    "Budget",
    "BuiltContext",
    "ChatRequest",
    "ChatResult",
    "Citation",
    "Collection",
    "CommandAnswer",
    "CommandContext",
    "CommandContextBuilder",
    "CommandError",
    "CommandRequest",
    "Contains",
    "ContextError",
    "ContextPayload",
    "ContextRequest",
    "Contexture",
    "Equals",
    "ExecuteCommand",
    "FieldType",
    "ForgetRequest",
    "FoundArticle",
    "NewsQuestion",
    "NewsStore",
    "Not",
    "Or",
    "QueryContext",
    "QueryRequest",
    "Range",
    "Receipt",
    "Record",
    "RequestError",
    "ResearchAnswer",
    "ResearchContext",
    "ResearchContextBuilder",
    "ResearchQuestion",
    "Scope",
    "SearchResult",
    "Section",
    "Settings",
    "SourceDocument",
    "SourceError",
    "SyncContexture",
    "Turn",
    "TurnContext",
    "TurnContextBuilder",
    "Workspace",
    "WorkspaceContextBuilder",
    "open",
    "open_sync",
    "replay",
]

# Names are imported when they are used, so that `contexture --help` loads neither models nor the index.
_HOMES = {
    "Article": "contexture.news.articles",
    "Block": "contexture.workspace",
    "BlockType": "contexture.workspace",
    "ChatRequest": "contexture.answer.chat_types",
    "ChatResult": "contexture.answer.chat_types",
    "CommandAnswer": "contexture.answer.commands.answer",
    "CommandContext": "contexture.builders.command.result",
    "CommandContextBuilder": "contexture.builders.command.build",
    "CommandError": "contexture.errors",
    "CommandRequest": "contexture.builders.command.request",
    "ContextError": "contexture.errors",
    "ContextPayload": "contexture.builders.workspace.result",
    "ContextRequest": "contexture.builders.workspace.request",
    "Contexture": "contexture.engine",
    "ExecuteCommand": "contexture.answer.commands.execute",
    "ForgetRequest": "contexture.erasure.request",
    "FoundArticle": "contexture.news.articles",
    "NewsQuestion": "contexture.news.articles",
    "NewsStore": "contexture.news.store",
    "QueryContext": "contexture.builders.query.result",
    "QueryRequest": "contexture.builders.query.request",
    "Receipt": "contexture.erasure.request",
    "RequestError": "contexture.errors",
    "ResearchAnswer": "contexture.answer.research",
    "ResearchContext": "contexture.builders.research.result",
    "ResearchContextBuilder": "contexture.builders.research.build",
    "ResearchQuestion": "contexture.answer.research",
    "SearchResult": "contexture.retrieval.candidates",
    "Settings": "contexture.config",
    "SourceDocument": "contexture.builders.research.result",
    "SourceError": "contexture.errors",
    "SyncContexture": "contexture.sync",
    "Turn": "contexture.builders.turn.request",
    "TurnContext": "contexture.builders.turn.result",
    "TurnContextBuilder": "contexture.builders.turn.build",
    "Workspace": "contexture.blocks.workspace",
    "WorkspaceContextBuilder": "contexture.builders.workspace.build",
    "open": "contexture.engine",
    "open_sync": "contexture.sync",
    "replay": "contexture.engine",
}


def __getattr__(name: str) -> Any:
    """A public name, imported from where it is defined."""
    if name not in __all__:
        raise AttributeError(f"module 'contexture' has no attribute {name!r}")
    home = import_module(_HOMES.get(name, "contexture.types"))
    return getattr(home, "open_store" if name == "open" else name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
