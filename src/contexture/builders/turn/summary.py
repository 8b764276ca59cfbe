"""Summaries of trimmed history.

Made off the request path, by a model or as an extract, and stored as memories at least once.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from contexture.builders.turn.request import Turn, plain_text
from contexture.conversation import SUMMARY_TYPE, Memory
from contexture.errors import ContextError, SourceError
from contexture.pipeline.fence import DATA_NOTICE, PromptFence
from contexture.ports import ChatModel, MemoryService
from contexture.types import Message, Scope

K = TypeVar("K")
V = TypeVar("V")

MAX_SUMMARY_CHARS = 1_024
SUMMARY_TAGS = (SUMMARY_TYPE, "auto", "context_builder")

_SEPARATOR = " | "
_MAX_SUMMARY_TOKENS = 256
_MAX_SOURCE_CHARS = 16_384
_MAX_REMEMBERED_TRIMS = 1_024
_SUMMARY_INSTRUCTION = (
    "Summarize this part of a conversation in at most 120 words, in its own language. Keep names, decisions, numbers "
    "and open questions. Answer with the summary alone."
)


class SummarySink(Protocol):
    """Destination of memories; once `put` returns, they are stored at least once, now or later."""

    async def put(self, scope: Scope, *memories: Memory) -> None:
        """Accept memories for storage; one whose idempotency key is known already is skipped."""
        ...


@dataclass(frozen=True, slots=True)
class DirectSummarySink:
    """A sink without an outbox: a memory that the service rejects is lost."""

    memory: MemoryService

    async def put(self, scope: Scope, *memories: Memory) -> None:
        """Store the memories in the memory service."""
        await self.memory.remember(scope, memories)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrimmedHistory:
    """Redacted messages trimmed from a prompt, and the idempotency key of this trim.

    `upto` is how many of the oldest messages the prompt leaves out, including those covered by earlier summaries.
    """

    removed: tuple[Message, ...]
    upto: int
    key: str
    trimmed_from: int
    trimmed_to: int
    now: datetime
    session_id: str = ""
    persona_id: str = ""


def trim_key(scope: Scope, turn: Turn, removed: int) -> str:
    """The idempotency key of a trim: a hash of tenant, session and the removed messages."""
    trimmed = (scope.tenant, turn.session_id, turn.history[:removed])
    return f"trim-{hashlib.sha256(msgspec.json.encode(trimmed, order='deterministic')).hexdigest()[:40]}"


def extract_summary(messages: Sequence[Message]) -> str:
    """`role: text | role: text`, oldest first, at most 1,024 characters."""
    parts: list[str] = []
    length = 0
    for message in messages:
        text = plain_text(message.get("content")).strip()
        if text and length <= MAX_SUMMARY_CHARS:
            parts.append(f"{message['role']}: {text}")
            length += len(parts[-1]) + len(_SEPARATOR)
    return _SEPARATOR.join(parts)[:MAX_SUMMARY_CHARS].rstrip()


def make_summary_memory(trim: TrimmedHistory, text: str, namespace: str, universe: str) -> Memory:
    """The memory that stores the summary of a trim."""
    return Memory(
        text=text,
        type=SUMMARY_TYPE,
        session_id=trim.session_id,
        persona_id=trim.persona_id,
        namespace=namespace,
        universe=universe,
        tags=SUMMARY_TAGS,
        time=trim.now,
        idempotency_key=trim.key,
        metadata={
            "trimmed_from": trim.trimmed_from,
            "trimmed_to": trim.trimmed_to,
            "timestamp": trim.now.isoformat(),
            "source": SUMMARY_TYPE,
        },
    )


class HistorySummarizer:
    """Summarizes trimmed history in background tasks and puts the summaries into a sink.

    With a model the summary is abstractive; when the model fails it is an extract and `on_lost` is called. A trim that
    could not be stored is submitted again by the next turn that trims the same messages.
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

    def submit(self, scope: Scope, trim: TrimmedHistory) -> bool:
        """Start summarizing and storing a trim; False when this trim was submitted before or has no text."""
        if (scope, trim.key) in self._known or not extract_summary(trim.removed):
            return False
        _remember_newest(self._known, (scope, trim.key), None)
        _remember_newest(self._told, (scope, trim.session_id), (trim.upto, trim.key))
        task = asyncio.create_task(self._store(scope, trim), name="contexture-summary")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def count_summarized(self, scope: Scope, turn: Turn) -> int:
        """How many of the oldest messages of this history the last summary of the conversation covers."""
        upto, key = self._told.get((scope, turn.session_id), (0, ""))
        return upto if 0 < upto <= len(turn.history) and trim_key(scope, turn, upto) == key else 0

    async def settle(self) -> None:
        """Wait until every submitted trim is stored in the sink or has failed."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _store(self, scope: Scope, trim: TrimmedHistory) -> None:
        try:
            await self._sink.put(scope, make_summary_memory(trim, await self._summarize(trim.removed), *self._place))
        except ContextError as failure:
            self._known.pop((scope, trim.key), None)
            self._told.pop((scope, trim.session_id), None)
            self._on_lost(failure)

    async def _summarize(self, removed: Sequence[Message]) -> str:
        if self._model is None:
            return extract_summary(removed)
        try:
            answer = await self._model.complete(_summary_messages(removed), max_tokens=_MAX_SUMMARY_TOKENS)
        except SourceError as failure:
            self._on_lost(failure)
            return extract_summary(removed)
        return answer.strip()[:MAX_SUMMARY_CHARS].rstrip() or extract_summary(removed)


def _summary_messages(removed: Sequence[Message]) -> list[Message]:
    fence = PromptFence()
    lines = [f"{message['role']}: {plain_text(message.get('content'))}" for message in removed]
    newest = "\n".join(map(fence.block_after_label, lines))[-_MAX_SOURCE_CHARS:]
    return [
        {"role": "system", "content": f"{_SUMMARY_INSTRUCTION} {DATA_NOTICE}"},
        {"role": "user", "content": fence.inline(f"[1] (conversation)\n{newest}")},
    ]


def _remember_newest(kept: dict[K, V], key: K, value: V) -> None:
    """Insert as newest and evict the oldest entry beyond the limit."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _MAX_REMEMBERED_TRIMS:
        kept.pop(next(iter(kept)))
