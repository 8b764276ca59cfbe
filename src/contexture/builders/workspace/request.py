"""The request for a workspace context, and the redacted `ContextPlan` made from it, which a capsule stores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta, Struct

from contexture.builders.workspace.config import ContextConfig, Truncation
from contexture.builders.workspace.result import COLLECTED_SECTIONS, SectionType
from contexture.capsule import Capsule, convert_part
from contexture.errors import InvalidRequest
from contexture.json_objects import NOT_BLANK, parse_object
from contexture.pipeline.knapsack import Packer
from contexture.workspace import BlockType

_ID = Annotated[str, Meta(min_length=1, max_length=1_000)]
_IDS = Annotated[tuple[_ID, ...], Meta(max_length=1_000)]
_SHARE = Annotated[int, Meta(ge=0, le=10_000_000)]
_CAPPED = [str(section) for section in (SectionType.HISTORY, *COLLECTED_SECTIONS)]


class RequestType(StrEnum):
    """The purpose of the request; it decides which sections get unused tokens first."""

    ASSIST = "assist"
    CHAT = "chat"
    SEARCH = "search"
    AUTOMATE = "automate"


class Focus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Where the user is: a block, a page, a database, or several of these."""

    block_id: Annotated[_ID | None, Meta(description="Id of a block.")] = None
    page_id: Annotated[_ID | None, Meta(description="Id of the block that is the root of a page.")] = None
    database_id: Annotated[_ID | None, Meta(description="Id of the block of a database.")] = None

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids that are given, the narrowest first."""
        named = (self.block_id, self.page_id, self.database_id)
        return tuple(dict.fromkeys(each for each in named if each is not None))


class TokenBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The token budget of a context and the reserved share of each section.

    TokenBudget(total=4_000)                              # shares of the configuration
    TokenBudget(total=3_000, focus=2_500, activity=0)     # 0 leaves a section out
    TokenBudget(total=3_000, caps={"semantic": 500})      # never more than this

    Shares are floors; other sections may use what is left of them. If together they exceed the total, all are scaled
    down by the same factor. None uses the configuration's default.
    """

    total: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None, Meta(description="Tokens of the whole context.")
    ] = None
    focus: Annotated[_SHARE | None, Meta(description="Tokens for the focus.")] = None
    semantic: Annotated[_SHARE | None, Meta(description="Tokens for what is found by meaning.")] = None
    relations: Annotated[_SHARE | None, Meta(description="Tokens for linked blocks.")] = None
    activity: Annotated[_SHARE | None, Meta(description="Tokens for recent activity.")] = None
    history: Annotated[_SHARE | None, Meta(description="Tokens for the conversation.")] = None
    system: Annotated[_SHARE | None, Meta(description="Tokens for the instructions.")] = None
    caps: Annotated[
        Mapping[str, _SHARE],
        Meta(
            description="Most tokens of a section, by its name.", extra_json_schema={"propertyNames": {"enum": _CAPPED}}
        ),
    ] = msgspec.field(default_factory=dict[str, int])


class TimeRange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Blocks modified from `start` to `end`; both need a time zone."""

    start: Annotated[Annotated[datetime, Meta(tz=True)] | None, Meta(description="First time.")] = None
    end: Annotated[Annotated[datetime, Meta(tz=True)] | None, Meta(description="Last time.")] = None


class ContextHints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Hints of the application in addition to the query.

    `max_depth` is how many levels of the tree are read around the focus. Excluding a block also excludes everything
    below it.
    """

    prioritize_types: Annotated[tuple[BlockType, ...], Meta(description="Block types to prefer.")] = ()
    time_range: Annotated[TimeRange | None, Meta(description="Only blocks modified in this time.")] = None
    include_blocks: Annotated[_IDS, Meta(description="Ids of blocks to include.")] = ()
    exclude_blocks: Annotated[_IDS, Meta(description="Ids of blocks to leave out, with all below them.")] = ()
    max_depth: Annotated[
        Annotated[int, Meta(ge=0, le=50)] | None, Meta(description="Levels of the tree to read around the focus.")
    ] = None


class ConversationMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One message of the conversation so far."""

    role: Annotated[str, Meta(pattern="^(user|assistant|system|tool)$", description="Who says it.")]
    content: Annotated[str, Meta(description="What is said.")]
    timestamp: Annotated[
        Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})] | None,
        Meta(description="When it was said."),
    ] = None


class Preferences(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Preferences of a user for all requests: block types to prioritize, language and time zone."""

    prioritize_types: Annotated[tuple[BlockType, ...], Meta(description="Block types to prefer.")] = ()
    language: Annotated[
        Annotated[str, Meta(pattern="^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$")] | None,
        Meta(description="Language tag, such as `en` or `ru-RU`."),
    ] = None
    timezone: Annotated[str, Meta(max_length=64, description="Time zone, such as `Europe/Berlin`.")] = "UTC"


class User(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The user as the application knows them; only the scope decides what they may read."""

    id: Annotated[Annotated[str, Meta(max_length=1_000)] | None, Meta(description="Must match the caller.")] = None
    name: Annotated[Annotated[str, Meta(max_length=1_000)] | None, Meta(description="Name of the user.")] = None
    preferences: Annotated[Preferences, Meta(description="Preferences for all requests.")] = Preferences()


class ContextRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A request for a workspace context.

    ContextRequest(query="Summarize this page", focus=Focus(page_id="page-123"))
    """

    query: Annotated[
        str,
        Meta(
            max_length=1_000_000,
            description="What the user asks for; not blank.",
            examples=["Summarize this page"],
            extra_json_schema=NOT_BLANK,
        ),
    ]
    focus: Annotated[
        Focus | None,
        Meta(description="What the user looks at: a block, a page, a database, or several of these."),
    ] = None
    type: Annotated[
        RequestType,
        Meta(description="The purpose of the request, `chat` if left out.", examples=["assist"]),
    ] = RequestType.CHAT
    user: Annotated[User, Meta(description="The user; `id` must be the caller's own.")] = User()
    conversation_history: Annotated[
        tuple[ConversationMessage, ...],
        Meta(description="Messages so far, oldest first.", examples=[[{"role": "user", "content": "Hello"}]]),
    ] = ()
    token_budget: Annotated[
        TokenBudget,
        Meta(description="The total, a share for each section, and caps.", examples=[{"total": 4_000}]),
    ] = TokenBudget()
    hints: Annotated[
        ContextHints,
        Meta(description="Types, times and blocks to prefer or to leave out.", examples=[{"maxDepth": 2}]),
    ] = ContextHints()

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of the user; raises `InvalidRequest` when it is unknown."""
        name = self.user.preferences.timezone
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as failure:
            raise InvalidRequest(f"unknown time zone {name!r}; say one such as 'Europe/Berlin'") from failure


def parse_request(given: ContextRequest | Mapping[str, Any]) -> ContextRequest:
    """Parse a camelCase object into a request.

    Raises `InvalidRequest` naming the field that is missing, unknown or out of range.
    """
    plain = msgspec.to_builtins(given) if isinstance(given, ContextRequest) else given
    asked = parse_object(ContextRequest, plain, what="a request")
    if not asked.query.strip():
        raise InvalidRequest("the query is empty")
    _ = asked.zone
    return asked


SECTION_WEIGHTS: Mapping[RequestType, Mapping[str, float]] = {
    RequestType.ASSIST: {SectionType.FOCUS: 2.0},
    RequestType.CHAT: {},
    RequestType.SEARCH: {SectionType.SEMANTIC: 2.0},
    RequestType.AUTOMATE: {SectionType.FOCUS: 2.0, SectionType.RELATIONS: 1.5},
}
"""By purpose, the weights of sections that get more of the unused tokens than their relevance gives them."""


class ConversationLine(Struct, frozen=True, kw_only=True):
    """One redacted message of the conversation; `at` is its index in the request."""

    at: int
    role: str
    text: str


class DocumentNode(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One block of a document: `parent` is the index of the node it belongs to, `level` that of a heading as shown.

    Blocks below one that `nests` are indented. A `subpage` is shown as its title and one line. The `anchor` is where
    the user is.
    """

    key: str
    parent: int = -1
    indent: int = 0
    level: int = 0
    subpage: bool = False
    nests: bool = False
    anchor: bool = False


class DocumentPlan(Struct, frozen=True, kw_only=True):
    """The tree of a document, in document order, and its section; `cut` when more of it exists than was read."""

    section: str
    nodes: tuple[DocumentNode, ...]
    cut: bool = False


class SurroundingPlan(Struct, frozen=True, kw_only=True):
    """A list, section or page around hits of a search; `hits` are those of its blocks that may stand by themselves.

    `partial` says that it may also be shown in part, as a page that is a hit itself.
    """

    document: DocumentPlan
    hits: tuple[str, ...] = ()
    partial: bool = False


class PlannedFact(Struct, frozen=True, kw_only=True):
    """A computed statement: `total` blocks match, of which `keys` are candidates; `details` are lines below it."""

    label: str
    total: int
    keys: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


LAYOUT_VERSION = 2
"""The rules of documents and lists; a capsule of version 1 is replayed as it was built."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextPlan:
    """What a context is composed from besides candidates; redacted, stored in the capsule.

    `shorter` are model summaries by candidate id. `documents` are shown as one text each, before other blocks.
    `surroundings` replace their hits when there is room. `facts` were computed by the planner. A path is shown above a
    block if its length is at most `path_share` of the block's, or always if that is 0. A capsule that does not name its
    own fence and layout has the first ones.
    """

    query: str
    kind: RequestType
    system: str
    total: int
    floors: Mapping[str, int]
    caps: Mapping[str, int]
    history: tuple[ConversationLine, ...]
    timestamp: str
    collectors: tuple[str, ...]
    focus: Mapping[str, str | None]
    truncation: Truncation = field(default_factory=Truncation)
    packer: Packer = Packer.OPTIMAL
    near_duplicate: float = 0.9
    sharpness: float = 4.0
    shorter: Mapping[str, str] = field(default_factory=dict[str, str])
    documents: tuple[DocumentPlan, ...] = ()
    surroundings: tuple[SurroundingPlan, ...] = ()
    facts: tuple[PlannedFact, ...] = ()
    short_paths: bool = False
    path_share: float = 0.0
    fence_version: int = 1
    layout_version: int = 1

    @property
    def is_compact(self) -> bool:
        """Whether what a document says about itself is bounded, and lists around hits may repeat themselves."""
        return self.layout_version >= LAYOUT_VERSION

    @property
    def sections(self) -> tuple[SectionType, ...]:
        """The collected sections that are shown."""
        return tuple(section for section in COLLECTED_SECTIONS if self.floors[section] > 0)


def section_floors(request: ContextRequest, config: ContextConfig) -> dict[str, int]:
    """Guaranteed tokens per section; 0 leaves it out. If they exceed the total, all are scaled down by one factor."""
    said, default = request.token_budget, config.token_budget
    total = total_budget(request, config)
    floors = {
        SectionType.SYSTEM: _or_default(said.system, default.system),
        SectionType.HISTORY: _or_default(said.history, default.history),
        SectionType.FOCUS: _or_default(said.focus, default.focus),
        SectionType.SEMANTIC: _or_default(said.semantic, default.semantic),
        SectionType.RELATIONS: _or_default(said.relations, default.relations),
        SectionType.ACTIVITY: _or_default(said.activity, default.activity),
    }
    claimed = sum(floors.values())
    if claimed <= total:
        return {str(name): floor for name, floor in floors.items()}
    return {str(name): max(1, floor * total // claimed) if floor else 0 for name, floor in floors.items()}


def total_budget(request: ContextRequest, config: ContextConfig) -> int:
    """The token budget of the context."""
    return _or_default(request.token_budget.total, config.token_budget.total)


def section_caps(request: ContextRequest) -> dict[str, int]:
    """Hard token limits per section; raises `InvalidRequest` for an unknown section."""
    caps = dict(request.token_budget.caps)
    if unknown := sorted(set(caps) - set(_CAPPED)):
        raise InvalidRequest(f"there is no section {unknown[0]!r} to cap; there are {', '.join(_CAPPED)}")
    return caps


def _or_default(said: int | None, default: int) -> int:
    return default if said is None else said


CAPSULE_KIND = "workspace"


def read_context_plan(capsule: Capsule) -> ContextPlan:
    """The plan a workspace capsule was composed from."""
    return convert_part(capsule.request, ContextPlan, "a workspace context")
