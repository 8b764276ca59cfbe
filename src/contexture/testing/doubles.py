"""Doubles of the ports: small, deterministic, offline."""

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import SourceUnavailable
from contexture.text.terms import extract_terms
from contexture.types import Matrix, Message, Scope, Span, Vector

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FixedClock:
    """A clock that always shows the same time."""

    moment: datetime = NOON

    def now(self) -> datetime:
        """The fixed time."""
        return self.moment


class HashEmbedder:
    """A bag of stemmed terms hashed into a few dimensions: texts that share words are similar.

    await HashEmbedder(dimensions=16).embed(["the pump leaks"])
    """

    def __init__(self, dimensions: int = 16, name: str = "hash-1") -> None:
        self._dimensions = dimensions
        self._name = name

    @property
    def name(self) -> str:
        """The name given."""
        return self._name

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit row per text; a text without words points in a direction of its own."""
        rows = [self._row(text) for text in texts]
        return np.array(rows, np.float32).reshape(len(rows), self._dimensions)

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines below 0 become 0; the others are similarities already."""
        return np.clip(cosine, 0.0, 1.0)

    def _row(self, text: str) -> Vector:
        row = np.zeros(self._dimensions, np.float32)
        for term in extract_terms(text) or [0]:
            row[term % self._dimensions] += 1.0 if term & 0x100 else -1.0
        if not row.any():
            row[0] = 1.0
        return (row / math.sqrt(float(row @ row))).astype(np.float32)


class FailingEmbedder(HashEmbedder):
    """An embedder whose service is down, from the start or after `healthy` good answers."""

    def __init__(self, dimensions: int = 16, name: str = "hash-1", healthy: int = 0) -> None:
        super().__init__(dimensions, name)
        self._left = healthy

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Vectors while it is healthy, then `SourceUnavailable`."""
        if self._left <= 0:
            raise SourceUnavailable("the embedding service is down")
        self._left -= 1
        return await super().embed(texts)


@dataclass(frozen=True, slots=True)
class WordRedactor:
    """Finds these words, letter for letter, wherever they stand."""

    words: tuple[str, ...]
    rules: str = "words-1"

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """A span for each occurrence, the leftmost first."""
        del lang
        spans: list[Span] = []
        at = 0
        while (found := self._next(text, at)) is not None:
            spans.append(found)
            at = found.end
        return spans

    def _next(self, text: str, at: int) -> Span | None:
        places = [(text.find(word, at), word) for word in self.words]
        start, word = min((place for place in places if place[0] >= 0), default=(-1, ""))
        return None if start < 0 else Span(start, start + len(word), "WORD")


@dataclass(frozen=True, slots=True)
class FailingRedactor:
    """Raises on texts that contain `poison`, and finds nothing in the others."""

    poison: str
    rules: str = "failing-1"

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """No spans, or a `RuntimeError`."""
        del lang
        if self.poison in text:
            raise RuntimeError(f"cannot read {text!r}")
        return ()


class WordCounter:
    """Counts words as tokens and two tokens per message: sums that can be checked by eye."""

    encoding = "words"
    exact = True

    def count(self, text: str) -> int:
        """How many runs of characters that are not white space there are."""
        return len(text.split())

    def count_messages(self, messages: Sequence[Message]) -> int:
        """The words of every content, and two for each message."""
        return sum(2 + self.count(str(message.get("content") or "")) for message in messages)

    def prefix(self, text: str, limit: int) -> str:
        """The text up to the end of its word number `limit`."""
        at = 0
        for word in text.split()[: max(0, limit)]:
            at = text.index(word, at) + len(word)
        return text if limit >= self.count(text) else text[:at]


@dataclass(slots=True)
class ScriptedChatModel:
    """Returns these answers in turn, raises the errors among them, and records the prompts in `asked`."""

    answers: Sequence[str | Exception]
    name: str = "scripted"
    asked: list[Sequence[Message]] = field(default_factory=list[Sequence[Message]])

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """The next answer."""
        del max_tokens
        if len(self.asked) >= len(self.answers):
            raise SourceUnavailable("the script has no further answer")
        answer = self.answers[len(self.asked)]
        self.asked.append(messages)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """The next answer, word by word."""
        answer = await self.complete(messages, max_tokens=max_tokens)
        for at, word in enumerate(answer.split(" ")):
            yield word if at == 0 else f" {word}"


@dataclass(frozen=True, slots=True)
class OverlapReranker:
    """Scores a text by the share of the query's terms it holds."""

    name: str = "overlap"

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One share per text."""
        wanted = set(extract_terms(query))
        return [len(wanted & set(extract_terms(text))) / max(len(wanted), 1) for text in texts]


@dataclass(frozen=True, slots=True)
class FailingReranker:
    """A reranker whose service is down."""

    name: str = "failing"

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Never scores."""
        del query, texts
        raise SourceUnavailable("the reranking service is down")


@dataclass(slots=True)
class ScriptedMemory:
    """Returns these memories, raises these failures first, in turn, and records every call.

    memory = ScriptedMemory(recalls=[Recalled(id="m-1", text="likes tea", score=0.9)])
    """

    recalls: Sequence[Recalled] = ()
    failures: Sequence[Exception | None] = ()
    asked: list[Recall] = field(default_factory=list[Recall])
    remembered: list[Memory] = field(default_factory=list[Memory])
    feedback_given: list[Feedback] = field(default_factory=list[Feedback])
    forgotten: list[str] = field(default_factory=list[str])
    calls: int = 0

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Ids by number, unless a memory has its own."""
        del scope
        self._step()
        first = len(self.remembered)
        self.remembered.extend(memories)
        return [memory.id or f"m-{first + at}" for at, memory in enumerate(memories)]

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The memories of the script at or above the threshold, at most as many as asked for."""
        del scope
        self.asked.append(query)
        self._step()
        return [found for found in self.recalls if found.score >= query.threshold][: query.top_k]

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Record it; nothing else changes."""
        del scope
        self._step()
        self.feedback_given.append(given)

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Record the ids; every id counts as forgotten."""
        del scope
        self._step()
        self.forgotten.extend(ids)
        return len(ids)

    def _step(self) -> None:
        at, self.calls = self.calls, self.calls + 1
        failure = self.failures[at] if at < len(self.failures) else None
        if failure is not None:
            raise failure
