"""Contexture: the context builder for LLM applications."""

from contexture.builders.query.build import QueryContext
from contexture.builders.query.request import QueryRequest
from contexture.config import Settings
from contexture.engine import Contexture, SearchResult, SyncContexture, open_sync, replay
from contexture.engine import open_store as open  # noqa: A004 - `contexture.open` reads as it should
from contexture.errors import ContextError, RequestError, SourceError
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

__all__ = [
    "And",
    "AnyOf",
    "Budget",
    "BuiltContext",
    "Citation",
    "Collection",
    "Contains",
    "ContextError",
    "Contexture",
    "Equals",
    "FieldType",
    "Not",
    "Or",
    "QueryContext",
    "QueryRequest",
    "Range",
    "Record",
    "RequestError",
    "Scope",
    "SearchResult",
    "Section",
    "Settings",
    "SourceError",
    "SyncContexture",
    "open",
    "open_sync",
    "replay",
]
