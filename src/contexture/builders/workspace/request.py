"""What a workspace context is asked for: the query, where the user is, the budget, and what the user prefers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta, Struct

from contexture.errors import InvalidRequest
from contexture.workspace import BlockType

_ID = Annotated[str, Meta(min_length=1, max_length=1_000)]
_IDS = Annotated[tuple[_ID, ...], Meta(max_length=1_000)]
_SHARE = Annotated[int, Meta(ge=0, le=10_000_000)]


class RequestType(StrEnum):
    """What the answer is for; it decides which sections borrow first."""

    ASSIST = "assist"
    CHAT = "chat"
    SEARCH = "search"
    AUTOMATE = "automate"


class Focus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Where the user is: a block, a page, a database, or several of these."""

    block_id: _ID | None = None
    page_id: _ID | None = None
    database_id: _ID | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Every id named, the narrowest first."""
        named = (self.block_id, self.page_id, self.database_id)
        return tuple(dict.fromkeys(each for each in named if each is not None))


class TokenBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How many tokens a context may spend, and what each section may count on.

    TokenBudget(total=4_000)                              # shares of the configuration
    TokenBudget(total=3_000, focus=2_500, activity=0)     # 0 leaves a section out
    TokenBudget(total=3_000, caps={"semantic": 500})      # never more than this

    Shares are floors that are lent when they are not used; together they may exceed the total, and are then scaled
    down alike. None takes the configuration's.
    """

    total: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    focus: _SHARE | None = None
    semantic: _SHARE | None = None
    relations: _SHARE | None = None
    activity: _SHARE | None = None
    history: _SHARE | None = None
    system: _SHARE | None = None
    caps: Mapping[str, _SHARE] = msgspec.field(default_factory=dict[str, int])


class TimeRange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Blocks modified from `start` to `end`; both need a zone."""

    start: Annotated[datetime, Meta(tz=True)] | None = None
    end: Annotated[datetime, Meta(tz=True)] | None = None


class ContextHints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What the application knows beside the query.

    `max_depth` is how many levels of the tree are walked around the focus. What is excluded is excluded with
    everything below it.
    """

    prioritize_types: tuple[BlockType, ...] = ()
    time_range: TimeRange | None = None
    include_blocks: _IDS = ()
    exclude_blocks: _IDS = ()
    max_depth: Annotated[int, Meta(ge=0, le=50)] | None = None


class ConversationMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One message of the conversation so far."""

    role: Annotated[str, Meta(pattern="^(user|assistant|system|tool)$")]
    content: str
    timestamp: datetime | None = None


class Preferences(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What holds for every request of a user: types they care for, their language, and where their day begins."""

    prioritize_types: tuple[BlockType, ...] = ()
    language: Annotated[str, Meta(pattern="^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$")] | None = None
    timezone: Annotated[str, Meta(max_length=64)] = "UTC"


class User(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Who asks, as the application knows them; what they may read is decided by the scope alone."""

    id: Annotated[str, Meta(max_length=1_000)] | None = None
    name: Annotated[str, Meta(max_length=1_000)] | None = None
    preferences: Preferences = Preferences()


class ContextRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A request for a context of the workspace.

    ContextRequest(query="Summarize this page", focus=Focus(page_id="page-123"))
    """

    query: Annotated[str, Meta(max_length=1_000_000)]
    focus: Focus | None = None
    type: RequestType = RequestType.CHAT
    user: User = User()
    conversation_history: tuple[ConversationMessage, ...] = ()
    token_budget: TokenBudget = TokenBudget()
    hints: ContextHints = ContextHints()

    @property
    def zone(self) -> ZoneInfo:
        """Where the user's day begins."""
        name = self.user.preferences.timezone
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as failure:
            raise InvalidRequest(f"unknown time zone {name!r}; say one such as 'Europe/Berlin'") from failure


def request_of(given: ContextRequest | Mapping[str, Any]) -> ContextRequest:
    """The request an object says, in camelCase; what is missing, unknown or out of range is named."""
    if not isinstance(given, ContextRequest | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidRequest(f"a request must be an object, not {type(given).__name__}")
    plain = msgspec.to_builtins(given) if isinstance(given, ContextRequest) else _without_none(dict(given))
    try:
        asked = msgspec.convert(plain, ContextRequest)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"the request cannot be read: {_said(failure)}") from failure
    if not asked.query.strip():
        raise InvalidRequest("the query is empty")
    _ = asked.zone
    return asked


def _without_none(given: dict[str, Any]) -> dict[str, Any]:
    """What is null on the wire was not said."""
    return {name: value for name, value in given.items() if value is not None}


def _said(failure: msgspec.ValidationError) -> str:
    return str(failure).replace("`$.", "`").replace("Object contains unknown field", "unknown field")
