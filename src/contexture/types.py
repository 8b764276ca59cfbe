"""Frozen value types shared by all layers: scopes, records, passages, filters, queries, candidates, budgets, keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Required, TypeAlias, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct
from msgspec import field as field_of
from msgspec.structs import force_setattr
from typing_extensions import TypedDict  # pydantic reads typing's own only from Python 3.12 on

from contexture.errors import InvalidRequest
from contexture.results import JsonResult, Timestamp

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Scalar: TypeAlias = str | int | float | bool
Vector: TypeAlias = npt.NDArray[np.float32]
Matrix: TypeAlias = npt.NDArray[np.float32]
Message: TypeAlias = dict[str, Any]
ChatRole: TypeAlias = Literal["system", "developer", "user", "assistant", "tool", "function"]

PUBLIC = "public"


_PRINCIPAL_KINDS = ("user:", "group:")


def check_principal(what: str, name: str) -> None:
    """Raise `InvalidRequest` unless `name` is `public`, `user:NAME` or `group:NAME`."""
    if name != PUBLIC and not any(name.startswith(kind) and len(name) > len(kind) for kind in _PRINCIPAL_KINDS):
        raise InvalidRequest(
            f"{what} names the reader {name!r}, which is nobody; write 'user:NAME', 'group:NAME' or '{PUBLIC}'"
        )


class ContentPart(TypedDict, total=False):
    """One part of a message's content, as in chat APIs; a part may have further fields."""

    type: Required[Annotated[str, Meta(description="Type of the part, such as `text` or `image_url`.")]]
    text: Annotated[str, Meta(description="Its text, where it has one.")]


class FunctionCall(TypedDict, total=False):
    """The function that a tool call names, and its arguments."""

    name: Required[Annotated[str, Meta(description="Name of the function.")]]
    arguments: Annotated[str, Meta(description="Its arguments, as JSON in a text.")]


class ToolCall(TypedDict, total=False):
    """A call of a tool by the assistant, as in chat APIs; a call may have further fields."""

    id: Required[Annotated[str, Meta(description="Identifies the call; its result names it as `tool_call_id`.")]]
    type: Annotated[str, Meta(description="`function`.")]
    function: Required[FunctionCall]


class ChatMessage(TypedDict, total=False):
    """One message of a conversation in the form of chat APIs.

    Every message has a content, but for one of the assistant with tool calls, and one of a tool names its call.
    """

    role: Required[Annotated[ChatRole, Meta(description="Who says it.")]]
    content: Annotated[str | list[ContentPart] | None, Meta(description="A text, or a list of parts.")]
    name: Annotated[str, Meta(description="Name of the participant or the function.")]
    tool_calls: Annotated[list[ToolCall], Meta(description="Calls that the assistant makes.")]
    tool_call_id: Annotated[str, Meta(description="The call that a message of a tool answers.")]


def _read_names(what: str, names: object) -> tuple[str, ...]:
    """Return a list of names as a tuple; raises `InvalidRequest` for a text, which would be read by characters."""
    if not isinstance(names, tuple | list):
        raise InvalidRequest(f"{what} must be a tuple of names, not {names!r}")
    return tuple(cast("Sequence[str]", names))


def content_hash(text: str) -> str:
    """SHA-256 of `text` in hexadecimal; lone surrogates are hashed as they are instead of raising."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The tenant, user and groups that a call is made for; every port and builder takes one.

    Scope.local()                                             # a single user
    Scope(tenant="acme", user="anna", groups=("sales",))      # may read user:anna, group:sales, public
    """

    tenant: str
    user: str
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.tenant and isinstance(self.tenant, str) and self.user and isinstance(self.user, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise InvalidRequest(f"a scope needs a tenant and a user, not {self.tenant!r} and {self.user!r}")
        object.__setattr__(self, "groups", _read_names("groups", self.groups))

    @classmethod
    def local(cls) -> Scope:
        """The scope of a single user with a store on their own machine."""
        return cls(tenant="local", user="local")

    @property
    def principals(self) -> tuple[str, ...]:
        """The principals of this scope: a record is readable when its `acl` lists one of them."""
        return (f"user:{self.user}", *(f"group:{name}" for name in self.groups), PUBLIC)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadersScope(Scope):
    """A scope with the readers of a whole batch: what is derived from records is written for all of their readers."""

    readers: tuple[str, ...]

    @property
    def principals(self) -> tuple[str, ...]:
        """All principals that may read, or could read before, one of the records."""
        return self.readers


class Record(Struct, frozen=True, kw_only=True):
    """A stored record: a memory, an article, a page or a block.

    `acl` lists the principals that may read it (`user:anna`, `group:sales`, `public` for
    everyone in the tenant); with an empty `acl` nobody may. `session` and `position` order
    records such as dialogue turns. `payload` holds the fields that filters can use.
    """

    id: str
    text: str
    acl: tuple[str, ...]
    title: str = ""
    kind: str = "document"
    lang: str = ""
    source: str = ""
    time: datetime | None = None
    session: str = ""
    position: int | None = None
    payload: Mapping[str, Any] = field_of(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not (isinstance(self.id, str) and isinstance(self.text, str) and isinstance(self.title, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise InvalidRequest(f"id, text and title of record {self.id!r} must be strings")
        if not isinstance(self.acl, tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - same
            force_setattr(self, "acl", _read_names("acl", self.acl))

    @property
    def hash(self) -> str:
        """Content hash of the text, as stored in citations."""
        return content_hash(self.text)


# `gc=False`: a build creates hundreds of these values, and none can be part of a reference cycle.


class Span(Struct, frozen=True, gc=False):
    """Characters `start` to `end` (exclusive) of a text, recognized as `label`."""

    start: int
    end: int
    label: str
    score: float = 1.0


class Passage(Struct, frozen=True, kw_only=True, eq=False):
    """A searchable piece of a record, with everything that is computed once, at ingestion.

    `start` and `end` are offsets in the record's text; `sentences` and `redactions` are offsets
    in the passage itself. `terms` are BM25 weights without IDF, because IDF depends on what the scope may read.
    """

    start: int
    end: int
    sentences: tuple[tuple[int, int], ...]
    redactions: tuple[Span, ...]
    tokens: Mapping[str, int]
    simhash: int
    terms: Mapping[int, float]
    vectors: Mapping[str, Vector]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PreparedRecord:
    """A record ready to be written to an index; `rules` is the version of the rules that found its redactions.

    `matrices` are rows of vectors for the record as a whole, by name, read back with `Index.matrices`. The passages of
    an `unembedded` record get their vectors later, from the index's backlog; see `VectorBacklog`.
    """

    record: Record
    passages: tuple[Passage, ...]
    redactions: tuple[Span, ...]
    title_redactions: tuple[Span, ...]
    rules: str
    matrices: Mapping[str, Matrix] = field(default_factory=dict[str, Matrix])
    unembedded: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UnembeddedPassage:
    """A stored passage without vectors: its number in the index, its record, and its offsets in the record's text."""

    number: int
    record: Record
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UnembeddedBatch:
    """Passages without vectors of one tenant's collection, the longest waiting first.

    `waiting` is the number of passages of all tenants that wait, these included.
    """

    tenant: str
    collection: str
    passages: tuple[UnembeddedPassage, ...]
    waiting: int


# --- filters -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equals:
    """The field equals this value; a list field matches when one of its items does."""

    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The field equals one of these values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The field is a number or a time within these bounds; a bound that is None is not checked."""

    field: str
    gte: float | datetime | None = None
    gt: float | datetime | None = None
    lte: float | datetime | None = None
    lt: float | datetime | None = None


@dataclass(frozen=True, slots=True)
class Contains:
    """The field is a text that contains `piece` as an exact substring."""

    field: str
    piece: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts match; without parts, everything matches."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part matches; without parts, nothing matches."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not match; a record without the field therefore matches."""

    part: Filter


Filter: TypeAlias = Equals | AnyOf | Range | Contains | And | Or | Not


class FieldType(StrEnum):
    """What a filterable payload field holds; lists of these are allowed for KEYWORD."""

    KEYWORD = "keyword"
    NUMBER = "number"
    TIME = "time"
    FLAG = "flag"


@dataclass(frozen=True, kw_only=True, slots=True)
class Collection:
    """A named set of records and the payload fields that filters may use."""

    name: str
    fields: Mapping[str, FieldType] = field(default_factory=dict[str, FieldType])


# --- search ------------------------------------------------------------------------------


BM25 = "bm25"
"""The channel of words; every other one is a vector space."""

PassageKey: TypeAlias = tuple[str, int]
"""Record id and ordinal of a passage, or any pair in the same order; the smaller one wins a tie."""

PassageKeyLookup: TypeAlias = Callable[[Sequence[int]], Mapping[int, PassageKey]]

ChannelScores: TypeAlias = Mapping[str, Mapping[int, float]]
"""By channel, the scores of passages."""

ChannelRanks: TypeAlias = Mapping[int, Mapping[str, int]]
"""By passage, its rank in each channel that proposes it, from 1."""


@dataclass(frozen=True, slots=True)
class ChannelCandidates:
    """What the channels of one search propose, before any passage is read.

    `scores` holds, by channel, at least its best `k` passages, where ties go to the smaller key. Passages are numbers
    that mean something within this search only. `passage_keys` looks up their keys; it may leave out passages that were
    removed meanwhile.
    """

    k: int
    scores: ChannelScores
    passage_keys: PassageKeyLookup


Fusion: TypeAlias = Callable[[ChannelCandidates], ChannelRanks]
"""Chooses the passages that a search returns, each with its rank per channel."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Query:
    """A search in one collection.

    `terms` are stemmed term ids for BM25; `vectors` are named dense queries. Each channel finds
    its own best `k` passages, and `fuse` chooses which of them all are returned. `fuse` is pure: the index may call it
    in any thread, and again if a write overtook the search.
    """

    collection: str
    terms: tuple[int, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    where: Filter | None = None
    k: int = 100
    fuse: Fusion


class Hit(Struct, frozen=True, kw_only=True, eq=False):
    """A passage found by a search, with its raw scores per channel (`bm25`, or a vector's name).

    `ranks` holds only the channels that returned the passage among their best; `scores` holds
    every channel that can score it. `record` is the stored record without its text; `hash` is
    the content hash of that text. `matched` is how many of the query's terms the passage contains, or
    None when the index does not report it. `term_scores` are the parts of a message's `bm25` by term.
    """

    record: Record
    hash: str
    ordinal: int
    text: str
    passage: Passage
    title_redactions: tuple[Span, ...]
    rules: str
    scores: Mapping[str, float]
    ranks: Mapping[str, int]
    matched: int | None = None
    term_scores: Mapping[int, float] | None = None


class CollectionChanges(Struct, frozen=True, kw_only=True):
    """Ids of the records of a collection that were written or removed, and how many passages of it a scope may read."""

    ids: tuple[str, ...]
    passages: int


# --- names -------------------------------------------------------------------------------


class Mention(Struct, frozen=True):
    """A named entity at characters `start` to `end` of a text; `name` is its dictionary form."""

    start: int
    end: int
    kind: str
    name: str


class MentionBond(Struct, frozen=True):
    """A relation between two mentions; `head` and `tail` are their indexes in a list of mentions.

    `start` and `end` are the offsets of the sentences that relate them, and `label` names the relation. `weight` is 1
    when both are in one sentence, and less when they are in two consecutive sentences.
    """

    head: int
    tail: int
    start: int
    end: int
    label: str = ""
    weight: float = 1.0


class ExtractedMentions(Struct, frozen=True, kw_only=True):
    """The mentions of one record, their relations and lookup keys; `hash` is the content hash of the record's text."""

    record_id: str
    hash: str
    mentions: tuple[Mention, ...]
    bonds: tuple[MentionBond, ...]
    keys: tuple[str, ...]


# --- candidates --------------------------------------------------------------------------


class Citation(Struct, frozen=True, kw_only=True, gc=False):
    """The stored record and character range that a piece of a prompt comes from."""

    collection: str
    record_id: str
    title: str
    start: int
    end: int
    hash: Annotated[str, Meta(description="SHA-256 of the whole stored text.")]
    page: int | None = None


class Form(StrEnum):
    """How much of a candidate a variant carries."""

    FULL = "full"
    EXTRACT = "extract"
    TRUNCATED = "truncated"
    TITLE = "title"


class Variant(Struct, frozen=True, kw_only=True, gc=False):
    """One way to show a candidate: its text, its cost in tokens, and its value to the packer."""

    form: Form
    text: str
    tokens: int
    value: float
    spans: tuple[tuple[int, int], ...] = ()


class Candidate(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of text that may be included in a prompt, with its signals and score.

    Candidates with the same `key` (usually the record id) are duplicates. Offsets in `sentences` and
    `redactions` are relative to `text`; `origins` are the offsets of each sentence in the stored
    record, and `weights`, when the source provides them, say how well each sentence answers the question.
    `redactions` is None when the text has not been scanned by the current rules; `redacted` is
    True once they are applied.
    """

    id: str
    key: str
    text: str
    section: str = "context"
    title: str = ""
    label: str = ""
    kind: str = "document"
    lang: str = ""
    source: str = ""
    time: Timestamp | None = None
    score: float = 0.0
    signals: Mapping[str, float] = field_of(default_factory=dict[str, float])
    sentences: tuple[tuple[int, int], ...] = ()
    origins: tuple[tuple[int, int], ...] = ()
    weights: tuple[float, ...] = ()
    redactions: tuple[Span, ...] | None = None
    title_redactions: tuple[Span, ...] | None = None
    redacted: bool = False
    tokens: Mapping[str, int] = field_of(default_factory=dict[str, int])
    simhash: int = 0
    citation: Citation | None = None

    @property
    def record_id(self) -> str:
        """The id of the stored record it comes from; `key` when it has no citation."""
        return self.citation.record_id if self.citation else self.key


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A named part of the prompt and its share of the token budget.

    `floor` is a soft reservation: other sections may use what is left of it. `cap` is never exceeded.
    A `floor` of 0 with `enabled=False` leaves the section out.
    """

    name: str
    floor: int = 0
    cap: int | None = None
    weight: float = 1.0
    enabled: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The token budget of a prompt.

    Budget(total=8_000)                    # sections share by relevance
    Budget(total=8_000, reserve=1_000)     # keep room for the answer
    """

    total: int
    reserve: int = 0
    sections: tuple[Section, ...] = ()

    @property
    def available(self) -> int:
        """The tokens that the prompt itself may use."""
        return self.total - self.reserve


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltContext:
    """A finished prompt: its messages and text, token counts, citations and timings."""

    build_id: str
    messages: tuple[Message, ...]
    text: str
    tokens: int
    token_counts: Mapping[str, int]
    citations: tuple[Citation, ...]
    encoding: str
    exact: bool
    timings: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)


class Right(StrEnum):
    """What a key may be used for, within what its owner may do."""

    READ = "read"
    ASK = "ask"
    WRITE = "write"
    ACT_FOR = "act_for"
    """Naming another user of the tenant, on whose behalf a gateway calls; `admin` does not include it."""
    ADMIN = "admin"


DEFAULT_RIGHTS = frozenset({Right.READ, Right.ASK, Right.WRITE})
"""Rights of a key created without explicit rights, and of keys created before rights existed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """A key as its owner may see it: everything but the secret, which is kept nowhere."""

    id: str
    name: str
    scope: Scope
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    rights: frozenset[Right] = DEFAULT_RIGHTS

    def is_active(self, now: datetime) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


_MAX_RECEIPT_IDS = 1_000  # ids of one place that a receipt lists


class ErasedCopies(TypedDict):
    """What was removed from one place; `ids` lists at most 1,000 of them."""

    place: str
    count: int
    ids: list[str]


class MatchedText(TypedDict):
    """A text that is forgotten with a subject; redacted."""

    place: str
    id: str
    text: str


class ReceiptJson(TypedDict):
    """What was deleted or forgotten, or would be with `preview`."""

    receipt_id: str
    subject: str
    preview: bool
    time: Timestamp
    removed: list[ErasedCopies]
    rebuilt_summaries: int
    matched: list[MatchedText]
    out_of_reach: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt(JsonResult):
    """What was removed from which place, what matched, and what is out of reach; every deletion answers with one.

    `removed` lists the things themselves under their collection, and copies of their texts under other names. `matched`
    holds the texts that a subject matched, for a preview; a receipt of what was forgotten holds none.
    """

    receipt_id: str
    subject: str
    preview: bool
    time: datetime
    removed: Mapping[str, Sequence[str]]
    rebuilt_summaries: int = 0
    matched: tuple[tuple[str, str, str], ...] = ()
    out_of_reach: tuple[str, ...] = ()

    @classmethod
    def of_deletion(cls, time: datetime, removed: Mapping[str, Sequence[str]], out_of_reach: Sequence[str]) -> Receipt:
        """The receipt of a deletion, without places where nothing was."""
        return cls(
            receipt_id=f"delete-{uuid4().hex[:12]}",
            subject="records",
            preview=False,
            time=time,
            removed={place: tuple(ids) for place, ids in removed.items() if ids},
            out_of_reach=tuple(out_of_reach),
        )

    def add(self, place: str, ids: Sequence[str]) -> Receipt:
        """The receipt with these ids of a place too, in front."""
        if not ids:
            return self
        both = (*ids, *self.removed.get(place, ()))
        return replace(self, removed={place: tuple(dict.fromkeys(both)), **_without(self.removed, place)})

    def merge(self, other: Receipt) -> Receipt:
        """One receipt of two deletions."""
        merged = self
        for place, ids in other.removed.items():
            merged = merged.add(place, ids)
        return replace(merged, out_of_reach=tuple(dict.fromkeys((*self.out_of_reach, *other.out_of_reach))))

    def count_of(self, place: str) -> int:
        """How many things were removed from one place."""
        return len(self.removed.get(place, ()))

    @property
    def count(self) -> int:
        """How many things were removed, over all places."""
        return sum(len(ids) for ids in self.removed.values())

    def json_form(self) -> ReceiptJson:
        """The receipt with counts."""
        return {
            "receipt_id": self.receipt_id,
            "subject": self.subject,
            "preview": self.preview,
            "time": self.time,
            "removed": [
                {"place": place, "count": len(ids), "ids": list(ids[:_MAX_RECEIPT_IDS])}
                for place, ids in self.removed.items()
            ],
            "rebuilt_summaries": self.rebuilt_summaries,
            "matched": [{"place": place, "id": name, "text": text} for place, name, text in self.matched],
            "out_of_reach": list(self.out_of_reach),
        }


def _without(removed: Mapping[str, Sequence[str]], place: str) -> dict[str, Sequence[str]]:
    return {name: ids for name, ids in removed.items() if name != place}
