"""Immutable types of conversations: memories and recall results, session events, replies, health, policy."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from contexture.types import Message, Span

RECALL_THRESHOLD = 0.5
"""Calibrated similarity below which a memory is not recalled unless the caller says otherwise."""

MEMORIES_COLLECTION = "memories"
"""The collection of memories in a store, and in citations."""

SUMMARY_TYPE = "session_summary"
"""The type of memories that summarize the trimmed history of a session."""


class HealthState(StrEnum):
    """How well a service is doing, as a builder needs to know it."""

    NORMAL = "normal"
    DEGRADED = "degraded"
    DOWN = "down"


class MemoryKind(StrEnum):
    """The kind of a memory: a fact (semantic) or an event (episodic)."""

    SEMANTIC = "semantic"
    EPISODIC = "episodic"


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """A memory to store.

    An empty `id` is assigned by the service. Two writes with one `idempotency_key` are one memory.
    `readers` are the principals that may recall it; empty means the user who wrote it. `injected` lists the ids of
    memories that were in the prompt this text came from, so that an echo of a recalled memory is not stored again.
    """

    text: str
    id: str = ""
    kind: MemoryKind = MemoryKind.EPISODIC
    type: str = "memory"
    namespace: str = "wm"
    universe: str = ""
    session_id: str = ""
    persona_id: str = ""
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    ttl_seconds: float | None = None
    time: datetime | None = None
    idempotency_key: str = ""
    readers: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """A query over the memories a scope may read.

    `session_id` and `persona_id` only rank matching memories higher; they do not exclude memories of other sessions or
    personas, or of none. `sessions`, `personas`, `tags` and `kinds` are filters when not empty.
    Up to `neighbours` messages before and after each memory in its session may join the answer, with lower scores.
    `unclipped` accepts more than `top_k` from a service that returns them, because the caller ranks them again.
    """

    query: str
    now: datetime
    top_k: int = 8
    threshold: float = RECALL_THRESHOLD
    session_id: str = ""
    persona_id: str = ""
    namespace: str = "wm"
    universe: str = ""
    sessions: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    kinds: tuple[MemoryKind, ...] = ()
    neighbours: int = 0
    unclipped: bool = False


def newer_first(score: float, time: datetime | None, memory_id: str) -> tuple[float, float, str]:
    """The sort key of recalled memories: best score first, of equal scores the newer, then by id."""
    return (-score, math.inf if time is None else -time.timestamp(), memory_id)


@dataclass(frozen=True, slots=True)
class MemoryPiece:
    """A passage of a memory, characters `start` to `end`, and how well it matches the query."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """A recalled memory with its full text and the facts computed when it was written.

    `score` is the relevance from 0 to 1 and `signals` its components; `pieces` are the matching passages, best
    first. `redactions` is None when the text was not scanned, as in the answer of a remote service; otherwise it is
    valid for the rule set `rules`.
    """

    id: str
    text: str
    score: float
    time: datetime | None = None
    label: str = ""
    kind: MemoryKind = MemoryKind.EPISODIC
    type: str = "memory"
    lang: str = ""
    hash: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    signals: Mapping[str, float] = field(default_factory=dict[str, float])
    pieces: tuple[MemoryPiece, ...] = ()
    sentences: tuple[tuple[int, int], ...] = ()
    redactions: tuple[Span, ...] | None = None
    rules: str = ""
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    simhash: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Feedback:
    """How useful one recalled memory was: -1 harmful, 0 neutral, 1 it answered the question."""

    memory_id: str
    score: float
    time: datetime
    session_id: str = ""
    query: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionEvent:
    """One event of a session; events are append-only.

    `position` is assigned by the store. Appending an event whose `id` the session already has does nothing.
    """

    id: str
    message: Message
    time: datetime
    position: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ReplyState(StrEnum):
    """The state of a message and its reply."""

    ACCEPTED = "accepted"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredReply:
    """The state of a message and its reply, stored under the id given by the sender.

    `body` is JSON: the answer if the state is complete, the error if it is failed. `references` name the memories and
    events that the body repeats; they are written with the reply and not read back.
    """

    message_id: str
    session_id: str
    state: ReplyState
    time: datetime
    body: bytes = b""
    references: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A message delivered by a bus; `place` is its position on the bus, the same on redelivery."""

    body: bytes
    place: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A policy's decision on an action."""

    allowed: bool
    reason: str = ""


def record_reference(collection: str, record_id: str, text_hash: str = "") -> str:
    """The name under which copies of a record's text are found: its collection, its id, and perhaps its hash."""
    return f"{collection}/{record_id}#{text_hash}" if text_hash else f"{collection}/{record_id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureTarget:
    """Whose copies a store erases, in the tenant of the scope that erases.

    Copies of `records`, named by `record_reference`, are erased for every user but those who have another record of
    that name to themselves (`private`, by user), and so are those of `versions`, which are named with the hashes of
    their texts. The others concern the user of the scope alone: `own_records`, which only
    the user may read, which the scope may not read, or which are deleted already; whole `sessions`; single `events`;
    what was built in `touched_sessions`; everything of the user; and texts for which `matches` is true.
    """

    records: frozenset[str] = frozenset()
    private: frozenset[tuple[str, str]] = frozenset()
    versions: frozenset[str] = frozenset()
    own_records: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    touched_sessions: frozenset[str] = frozenset()
    whole_user: bool = False
    matches: Callable[[str], bool] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedEvent:
    """A session event with the user and the session it belongs to."""

    user: str
    session_id: str
    event: SessionEvent


MAX_STATEMENTS = 8
"""The most memories that are made of one message."""


def statement_keys(message: str) -> tuple[str, ...]:
    """The idempotency keys of the memories that may be made of a message: its id, and the id with a number."""
    return (message, *(f"{message}#{number}" for number in range(2, MAX_STATEMENTS + 1)))


def message_of(key: str) -> str:
    """The id of the message that a memory with this idempotency key was made of."""
    return key.partition("#")[0]


CORRECTS_KEY = "corrects"
"""Metadata of a memory: the ids of the memories that it corrects."""

JOINED = "joined"
"""Signal of a recalled memory that joins a better one beside it in its session: the score of that one."""

RECALLED_KEY = "recalled"
"""Metadata of an answer's event: the ids of the memories that were in its prompt."""
