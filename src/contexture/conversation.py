"""Frozen values of conversations: memories and what recall finds, session events, replies, health, policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from contexture.types import Message, Span

THRESHOLD = 0.5
"""Calibrated similarity below which a memory is not recalled unless the caller says otherwise."""


class HealthState(StrEnum):
    """How well a service is doing, as a builder needs to know it."""

    NORMAL = "normal"
    DEGRADED = "degraded"
    DOWN = "down"


class MemoryKind(StrEnum):
    """What sort of thing is remembered: a fact, or something that happened."""

    SEMANTIC = "semantic"
    EPISODIC = "episodic"


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Something to remember.

    `id` is given by the service when it is empty. Two writes with one `idempotency_key` are one memory.
    `readers` are the principals that may recall it; empty means the user who wrote it. `injected` names the
    memories that stood in the prompt this text came from, so that what was recalled is not remembered again.
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
    """What to look for among the memories a scope may read.

    An empty `session_id` or `persona_id` does not bind; neither does a given one exclude memories that
    belong to no session or persona, or to another session: they bind through `sessions` and `personas`.
    """

    query: str
    now: datetime
    top_k: int = 8
    threshold: float = THRESHOLD
    session_id: str = ""
    persona_id: str = ""
    namespace: str = "wm"
    universe: str = ""
    sessions: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    kinds: tuple[MemoryKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters `start` to `end` of a memory, and how well they answer the query."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """A memory that recall found, whole, with what was computed when it was written.

    `score` is the relevance from 0 to 1 and `signals` what it is made of; `pieces` are its best parts, best
    first. `redactions` is None when nobody has scanned the text, as in the answer of a remote service; it
    otherwise holds for the rule set `rules`.
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
    pieces: tuple[Piece, ...] = ()
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
class Event:
    """One thing that happened in a session; events are appended and never changed.

    `position` is given by the store. Appending an event whose `id` the session already has does nothing.
    """

    id: str
    message: Message
    time: datetime
    position: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ReplyState(StrEnum):
    """What became of a message so far."""

    ACCEPTED = "accepted"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredReply:
    """What became of a message, kept under the id that its sender gave it.

    `body` is JSON: the answer of a complete one, the error of one that failed.
    """

    message_id: str
    session_id: str
    state: ReplyState
    time: datetime
    body: bytes = b""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A message as a bus delivers it; `place` says where on the bus it lies, and is the same when it comes again."""

    body: bytes
    place: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What a policy says to an action."""

    allowed: bool
    reason: str = ""
