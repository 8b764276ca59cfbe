"""What is remembered of messages that a prompt has no room for any more."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from contexture.builders.turn.messages import words_of
from contexture.builders.turn.request import Turn
from contexture.conversation import Memory
from contexture.errors import ContextError, SourceError
from contexture.pipeline.fence import DATA_NOTICE, fence
from contexture.ports import ChatModel, MemoryService
from contexture.types import Message, Scope

K = TypeVar("K")
V = TypeVar("V")

LONGEST = 1_024
TYPE = "session_summary"
TAGS = (TYPE, "auto", "context_builder")

_BETWEEN = " | "
_TOKENS = 256
_SOURCE = 16_384
_REMEMBERED = 1_024
_TASK = (
    "Summarize this part of a conversation in at most 120 words, in its own language. Keep names, decisions, numbers "
    "and open questions. Answer with the summary alone."
)


class SummarySink(Protocol):
    """Takes memories to be stored; once `put` returns they will be, at least once."""

    async def put(self, scope: Scope, *memories: Memory) -> None:
        """Take them; a memory whose idempotency key is known already is not taken twice."""
        ...


@dataclass(frozen=True, slots=True)
class StraightToMemory:
    """A sink without a safety net: what memory does not take at once is lost."""

    memory: MemoryService

    async def put(self, scope: Scope, *memories: Memory) -> None:
        """Remember them."""
        await self.memory.remember(scope, memories)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trim:
    """Messages that were trimmed away, redacted, and the key under which the same trim is known again.

    `upto` is how many of the oldest messages the prompt leaves out, those that earlier trims told included.
    """

    removed: tuple[Message, ...]
    upto: int
    key: str
    trimmed_from: int
    trimmed_to: int
    now: datetime
    session_id: str = ""
    persona_id: str = ""


def key_of(scope: Scope, turn: Turn, removed: int) -> str:
    """The idempotency key of one trim: the tenant, the session and the messages that went."""
    trimmed = (scope.tenant, turn.session_id, turn.history[:removed])
    return f"trim-{hashlib.sha256(msgspec.json.encode(trimmed, order='deterministic')).hexdigest()[:40]}"


def extractive(messages: Sequence[Message]) -> str:
    """`role: text | role: text`, oldest first, at most 1,024 characters."""
    parts: list[str] = []
    length = 0
    for message in messages:
        text = words_of(message.get("content")).strip()
        if text and length <= LONGEST:
            parts.append(f"{message['role']}: {text}")
            length += len(parts[-1]) + len(_BETWEEN)
    return _BETWEEN.join(parts)[:LONGEST].rstrip()


def memory_of(trim: Trim, text: str, namespace: str, universe: str) -> Memory:
    """The memory of a trim."""
    return Memory(
        text=text,
        type=TYPE,
        session_id=trim.session_id,
        persona_id=trim.persona_id,
        namespace=namespace,
        universe=universe,
        tags=TAGS,
        time=trim.now,
        idempotency_key=trim.key,
        metadata={
            "trimmed_from": trim.trimmed_from,
            "trimmed_to": trim.trimmed_to,
            "timestamp": trim.now.isoformat(),
            "source": TYPE,
        },
    )


class Summaries:
    """Summarises trims and hands them on, off the path of the request.

    With a model the summary is in its words; when it fails, the summary is an extract and `on_lost` hears of it.
    A trim that could not be handed on is tried again by the next turn that makes it.
    """

    def __init__(
        self,
        sink: SummarySink,
        *,
        model: ChatModel | None = None,
        namespace: str = "wm",
        universe: str = "",
        on_lost: Callable[[ContextError], None] = lambda _: None,
    ) -> None:
        self._sink = sink
        self._model = model
        self._place = (namespace, universe)
        self._on_lost = on_lost
        self._known: dict[tuple[Scope, str], None] = {}
        self._told: dict[tuple[Scope, str], tuple[int, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hand_on(self, scope: Scope, trim: Trim) -> bool:
        """Start storing a summary; False when this trim has been handed on already, or says nothing."""
        if (scope, trim.key) in self._known or not extractive(trim.removed):
            return False
        _note(self._known, (scope, trim.key), None)
        _note(self._told, (scope, trim.session_id), (trim.upto, trim.key))
        task = asyncio.create_task(self._store(scope, trim), name="contexture-summary")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def told(self, scope: Scope, turn: Turn) -> int:
        """How many of the oldest messages of this history the last summary of the conversation went up to."""
        upto, key = self._told.get((scope, turn.session_id), (0, ""))
        return upto if 0 < upto <= len(turn.history) and key_of(scope, turn, upto) == key else 0

    async def settle(self) -> None:
        """Wait until everything handed on has arrived at the sink."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _store(self, scope: Scope, trim: Trim) -> None:
        try:
            await self._sink.put(scope, memory_of(trim, await self._text(trim.removed), *self._place))
        except ContextError as failure:
            self._known.pop((scope, trim.key), None)
            self._told.pop((scope, trim.session_id), None)
            self._on_lost(failure)

    async def _text(self, removed: Sequence[Message]) -> str:
        if self._model is None:
            return extractive(removed)
        try:
            answer = await self._model.complete(_request(removed), max_tokens=_TOKENS)
        except SourceError as failure:
            self._on_lost(failure)
            return extractive(removed)
        return answer.strip()[:LONGEST].rstrip() or extractive(removed)


def _request(removed: Sequence[Message]) -> list[Message]:
    lines = "\n".join(f"{message['role']}: {words_of(message.get('content'))}" for message in removed)
    return [
        {"role": "system", "content": f"{_TASK} {DATA_NOTICE}"},
        {"role": "user", "content": f"[1] (conversation)\n{fence(lines[-_SOURCE:])}"},
    ]


def _note(kept: dict[K, V], key: K, value: V) -> None:
    """Keep the newest entries only."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _REMEMBERED:
        kept.pop(next(iter(kept)))
