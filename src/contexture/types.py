"""Frozen values shared by all layers: who asks, what is stored, what may enter a prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec import field as field_of

from contexture.errors import InvalidRequest

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Scalar: TypeAlias = str | int | float | bool
Vector: TypeAlias = npt.NDArray[np.float32]
Matrix: TypeAlias = npt.NDArray[np.float32]
Message: TypeAlias = dict[str, Any]

PUBLIC = "public"


def _check_names(what: str, names: object) -> None:
    """Refuse a single text where several are meant: it would be read letter by letter."""
    if not isinstance(names, tuple):
        raise InvalidRequest(f"{what} must be a tuple of names, not {names!r}")


def content_hash(text: str) -> str:
    """The SHA-256 of `text`, hex; lone surrogates are hashed as they stand."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """Who asks. Taken by every port and builder.

    Scope.local()                                             # a single user
    Scope(tenant="acme", user="anna", groups=("sales",))      # may read user:anna, group:sales, public
    """

    tenant: str
    user: str
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.tenant and isinstance(self.tenant, str) and self.user and isinstance(self.user, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise InvalidRequest(f"a scope needs a tenant and a user, not {self.tenant!r} and {self.user!r}")
        _check_names("groups", self.groups)

    @classmethod
    def local(cls) -> Scope:
        """The only user of a store on their own machine."""
        return cls(tenant="local", user="local")

    @property
    def principals(self) -> tuple[str, ...]:
        """The names under which a record's `acl` may admit this scope."""
        return (f"user:{self.user}", *(f"group:{name}" for name in self.groups), PUBLIC)


class Record(Struct, frozen=True, kw_only=True):
    """A stored thing: memory, article, page, block.

    `acl` lists the principals that may read it (`user:anna`, `group:sales`, `public` for
    everyone in the tenant); an empty one admits nobody. `session` and `position` order
    records such as dialogue turns. `payload` holds the fields filters may name.
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
            raise InvalidRequest(f"id, text and title of record {self.id!r} must be texts")
        _check_names("acl", self.acl)

    @property
    def hash(self) -> str:
        """Content hash of the text, which citations carry."""
        return content_hash(self.text)


# Values with `gc=False` are made by the hundred in a build, and hold nothing that could hold them.


class Span(Struct, frozen=True, gc=False):
    """Characters `start` to `end` (exclusive) of a text, found to be `label`."""

    start: int
    end: int
    label: str
    score: float = 1.0


class Passage(Struct, frozen=True, kw_only=True, eq=False):
    """A searchable piece of a record with everything computed once, at ingestion.

    `start` and `end` are offsets in the record's text; `sentences` and `redactions` are offsets
    in the passage itself. `terms` are BM25 weights without IDF, which depends on who asks.
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
class Prepared:
    """A record ready to be written; `rules` names the rule set that found its redactions.

    `matrices` are rows of vectors for the record as a whole, by name, read back with `Index.matrices`.
    """

    record: Record
    passages: tuple[Passage, ...]
    redactions: tuple[Span, ...]
    title_redactions: tuple[Span, ...]
    rules: str
    matrices: Mapping[str, Matrix] = field(default_factory=dict[str, Matrix])


# --- filters -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equals:
    """The field holds this value, or, for a list field, one of its items does."""

    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The field holds one of these values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The field is a number or a time within these bounds; absent bounds do not bind."""

    field: str
    gte: float | datetime | None = None
    gt: float | datetime | None = None
    lte: float | datetime | None = None
    lt: float | datetime | None = None


@dataclass(frozen=True, slots=True)
class Contains:
    """The field is a text that contains this piece, letter for letter."""

    field: str
    piece: str


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds; no parts always hold."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds; no parts never hold."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold; a missing field therefore passes."""

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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Query:
    """What to look for in one collection.

    `terms` are stemmed term ids for BM25; `vectors` are named dense queries. Each channel proposes
    its own best `k`; of all proposals the best `pool` by reciprocal rank are returned, or all of
    them when `pool` is None. Scores are fused above the index.
    """

    collection: str
    terms: tuple[int, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    where: Filter | None = None
    k: int = 100
    pool: int | None = None


class Hit(Struct, frozen=True, kw_only=True, eq=False):
    """One passage found, with its raw scores per channel (`bm25`, or a vector's name).

    `ranks` holds only the channels that returned the passage among their best; `scores` holds
    every channel that can score it. `record` is the stored record without its text; `hash` is
    the content hash of that text. `matched` is how many of the query's terms the passage holds, or
    None from an index that does not say.
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


class Changes(Struct, frozen=True, kw_only=True):
    """Records of a collection that were written or removed, by id, and how many passages a scope may read in it."""

    ids: tuple[str, ...]
    passages: int


# --- names -------------------------------------------------------------------------------


class Mention(Struct, frozen=True):
    """A named thing at characters `start` to `end` of a text; `name` is how a dictionary would list it."""

    start: int
    end: int
    kind: str
    name: str


class Bond(Struct, frozen=True):
    """Two mentions, by their places in a list, that the sentences from `start` to `end` tie; `label` says how.

    `weight` is 1 for one sentence, and less for two that follow each other.
    """

    head: int
    tail: int
    start: int
    end: int
    label: str = ""
    weight: float = 1.0


class Extracted(Struct, frozen=True, kw_only=True):
    """The named things of one record whose text hashes to `hash`, what ties them, and under which keys to find them."""

    record_id: str
    hash: str
    mentions: tuple[Mention, ...]
    bonds: tuple[Bond, ...]
    keys: tuple[str, ...]


# --- candidates --------------------------------------------------------------------------


class Citation(Struct, frozen=True, kw_only=True, gc=False):
    """Where a piece of prompt came from, resolvable back to the stored record."""

    collection: str
    record_id: str
    title: str
    start: int
    end: int
    hash: str
    page: int | None = None


class Form(StrEnum):
    """How much of a candidate a variant carries."""

    FULL = "full"
    EXTRACT = "extract"
    TRUNCATED = "truncated"
    TITLE = "title"


class Variant(Struct, frozen=True, kw_only=True, gc=False):
    """One way to show a candidate: its text, what it costs, what it is worth."""

    form: Form
    text: str
    tokens: int
    value: float
    spans: tuple[tuple[int, int], ...] = ()


class Candidate(Struct, frozen=True, kw_only=True, gc=False):
    """A piece that may enter this prompt, with its signals and score.

    `key` is what makes two candidates the same thing (usually the record id). Offsets in
    `sentences` and `redactions` are relative to `text`; `origins` says where each sentence stands
    in the stored record, and `weights`, where a source knows, how well each answers the question.
    `redactions` is None when the text has not been scanned by the rules in force; `redacted` is
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
    time: datetime | None = None
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
        """The stored record it comes from; its key where there is none."""
        return self.citation.record_id if self.citation else self.key


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A named part of the prompt and its claim on the budget.

    `floor` is a soft reservation, lent to others when unused; `cap` is never exceeded;
    a `floor` of 0 with `enabled=False` leaves the section out.
    """

    name: str
    floor: int = 0
    cap: int | None = None
    weight: float = 1.0
    enabled: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How many tokens a prompt may spend.

    Budget(total=8_000)                    # sections share by relevance
    Budget(total=8_000, reserve=1_000)     # keep room for the answer
    """

    total: int
    reserve: int = 0
    sections: tuple[Section, ...] = ()

    @property
    def available(self) -> int:
        """What the prompt itself may spend."""
        return self.total - self.reserve


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltContext:
    """A finished prompt: its messages, what it cost, where it came from, and why."""

    build_id: str
    messages: tuple[Message, ...]
    text: str
    tokens: int
    token_counts: Mapping[str, int]
    citations: tuple[Citation, ...]
    encoding: str
    exact: bool
    timings: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)
