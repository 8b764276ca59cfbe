"""The in-process memory service.

Stores memories in an index, recalls them by hybrid search with a relevance from 0 to 1, and removes expired ones.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from contexture.conversation import JOINED, Feedback, Memory, MemoryPiece, Recall, Recalled, newer_first
from contexture.errors import InvalidRequest, NotFound, Outdated, SourceError, SourceUnavailable
from contexture.ledger import Trace
from contexture.memory.records import (
    ALIAS_KIND,
    MEMORIES,
    POSITION,
    TURN,
    assume_utc,
    check_memories,
    find_place,
    is_alive,
    memory_kind,
    memory_metadata,
    plan_writes,
    required_ids,
    stored_alias_ids,
)
from contexture.pipeline.scoring import RELEVANCE
from contexture.ports import Clock, Index, TokenCounter
from contexture.retrieval.message_context import MessageContexts
from contexture.retrieval.prepare import EnsuredCollection, Preparer, prepared_characters
from contexture.retrieval.ranking import BM25, SEMANTIC, word_coverage
from contexture.retrieval.search import UNEMBEDDED, FoundPassage, HybridSearch
from contexture.retrieval.text_facts import attach_text_facts, read_text_facts
from contexture.text.language import detect_language
from contexture.text.questions import asks_about_self
from contexture.text.supersession import find_attribute_words
from contexture.text.terms import question_terms
from contexture.text.unicode import repair_text
from contexture.types import And, AnyOf, Equals, Filter, Hit, Not, PreparedRecord, Range, Record, Scope

_T = TypeVar("_T")

MAX_TOP_K = 100
"""Highest `top_k` of one recall."""

_COLLECTION = MEMORIES.name
_PASSAGES_PER_MEMORY = 4  # passages fetched for each memory wanted, because a long one may have several matches
_MAX_ANCHORS = 16  # memories whose neighbours are looked for
_NEWEST_DAYS = (7, 60, 730, 36_500)  # periods in which the newest memories are looked for
_MIN_TOP_K = 8  # a smaller `top_k` does not make the search smaller
_PURGE_BATCH = 500
_MAX_TRIES = 5


class LocalMemory:
    """Implements the `MemoryService` port over one index; writes are serialized by a lock, recalls do not wait.

    All facts that a build needs about a memory are computed when it is written. Each write also removes a few expired
    memories of its scope.
    """

    def __init__(
        self,
        *,
        index: Index,
        preparer: Preparer,
        search: HybridSearch,
        clock: Clock,
        counters: Sequence[TokenCounter] = (),
    ) -> None:
        self._index = index
        self._contexts = MessageContexts(index, preparer.vectors)
        self._preparer = preparer
        self._search = search
        self._clock = clock
        self._counters = tuple(counters)
        self._sweep = ExpirySweep(index)
        self._tenant_locks = WeakValueDictionary[str, asyncio.Lock]()
        self._made = EnsuredCollection(index, MEMORIES)

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order.

        A memory with a known idempotency key is not stored again and gets the id of the stored one. Raises
        `InvalidRequest` for a memory that cannot be stored.
        """
        await self._compute(lambda: check_memories(memories), memories)
        for at, memory in enumerate(memories):
            self._preparer.check_readers(f"memories[{at}]", memory.readers)
        async with self._write_lock(scope):
            await self._made.ensure(scope)
            now = self._clock.now()
            needed = await self._compute(lambda: required_ids(memories, scope), memories)
            stored = await self._get(scope, needed, now)
            plan = await self._compute(lambda: plan_writes(memories, scope, stored, now), memories)
            if plan.fresh:
                await self._index.upsert(scope, _COLLECTION, await self._prepare(scope, plan.fresh))
                with suppress(SourceError):  # the memories are stored; the next write sweeps again
                    await self._delete(scope, await self._sweep.find_expired(scope, now))
        return plan.ids

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best `query.top_k` memories at or above the threshold, best first, expired ones left out.

        A question for everything about the user, without a threshold, is filled with the newest. Behind them come their
        neighbours, if the query asks for them. When the embedder fails, only lexical search is
        used; when that finds nothing, raises `SourceUnavailable`.
        """
        _check_recall(query)
        if not query.top_k or not query.query.strip():
            return ()
        if not await self._made.exists(scope):
            return ()
        trace = Trace()
        pool = _PASSAGES_PER_MEMORY * max(query.top_k, _MIN_TOP_K)
        found = await self._search.search(
            scope,
            _COLLECTION,
            query.query,
            where=_build_filter(query),
            pool=pool,
            related=" ".join(find_attribute_words(query.query)),
            trace=trace,
            now=query.now,
        )
        fitting = [each for each in found if is_alive(each.hit.record, query.now)]
        best = [memory for memory in rate_memories(fitting, query) if memory.score >= query.threshold][: query.top_k]
        lost = [each for each in trace.finish(()).degradations if each.source != UNEMBEDDED]
        if lost and not best:
            raise SourceUnavailable(f"memories could not be searched by meaning: {lost[0].reason}")
        if not query.threshold and asks_about_self(query.query):
            best = [*best, *await self._find_newest(scope, query, {each.record.id for each in best})][: query.top_k]
        return await self._load_whole(scope, [*best, *await self._find_neighbours(scope, query, best)])

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Rank one memory slightly higher or lower from now on; raises `NotFound` when the scope cannot read it.

        A user's opinion of a memory is the mean of their feedback; a second feedback with the same time is ignored.
        """
        if not -1 <= given.score <= 1:
            raise InvalidRequest(f"`score` must lie between -1 and 1, not {given.score!r}")
        async with self._write_lock(scope):
            await self._made.ensure(scope)
            for _ in range(_MAX_TRIES):
                with suppress(Outdated):  # another process has replaced or removed it in the meantime
                    await self._apply_feedback(scope, given)
                    return
            await self._apply_feedback(scope, given)

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove the memories the scope may read; returns how many of them had not expired."""
        async with self._write_lock(scope):
            if not await self._made.exists(scope):
                return 0
            found = [record for record in await self._index.get(scope, _COLLECTION, ids) if record.kind != ALIAS_KIND]
            await self._delete(scope, found)
        now = self._clock.now()
        return len({record.id for record in found if is_alive(record, now)})

    async def purge(self, scope: Scope) -> int:
        """Remove all expired memories that the scope may read; returns how many were removed."""
        gone = 0
        async with self._write_lock(scope):
            if not await self._made.exists(scope):
                return 0
            expired = Range(field="expires", lte=assume_utc(self._clock.now()))
            while found := await self._index.scroll(scope, _COLLECTION, where=expired, limit=_PURGE_BATCH):
                await self._delete(scope, found)
                gone += sum(record.kind != ALIAS_KIND for record in found)
        return gone

    def _write_lock(self, scope: Scope) -> asyncio.Lock:
        """The lock of a tenant's writes: those of others do not wait while a batch is embedded."""
        found = self._tenant_locks.get(scope.tenant)
        if found is None:
            found = self._tenant_locks[scope.tenant] = asyncio.Lock()
        return found

    async def _apply_feedback(self, scope: Scope, given: Feedback) -> None:
        record = (await self._get(scope, [given.memory_id], self._clock.now())).get(given.memory_id)
        if record is None or record.kind == ALIAS_KIND:
            raise NotFound(f"no memory {given.memory_id!r} can be read here")
        heard = _add_opinion(record, f"user:{scope.user}", given)
        if heard is not record:
            await self._index.upsert(scope, _COLLECTION, await self._prepare(scope, [heard]), unchanged=[record])

    async def _get(self, scope: Scope, ids: Sequence[str], now: datetime) -> dict[str, Record]:
        found = await self._index.get(scope, _COLLECTION, ids) if ids else ()
        return {record.id: record for record in found if is_alive(record, now)}

    async def _compute(self, work: Callable[[], _T], memories: Sequence[Memory]) -> _T:
        return await self._preparer.thread.run(work, memories, lambda memory: len(memory.text))

    async def _prepare(self, scope: Scope, records: Sequence[Record]) -> list[PreparedRecord]:
        contexts = await self._contexts.find(scope, _COLLECTION, records)
        ready = await self._preparer.prepare(records, contexts)
        return await self._preparer.thread.map(
            lambda item: attach_text_facts(item, self._counters), ready, prepared_characters
        )

    async def _delete(self, scope: Scope, records: Sequence[Record]) -> None:
        """Delete the records, and the aliases of their idempotency keys unless those point to other memories by now."""
        ids = {record.id for record in records}
        keyed = [record for record in records if record.payload.get("key")]
        aliases = {alias for record in keyed for alias in stored_alias_ids(record, scope)}
        found = await self._index.get(scope, _COLLECTION, sorted(aliases - ids)) if aliases - ids else ()
        ids |= {alias.id for alias in found if alias.payload.get("of") in ids}
        if ids:
            await self._index.delete(scope, _COLLECTION, sorted(ids))

    async def _find_newest(self, scope: Scope, query: Recall, known: Container[str]) -> list[RatedMemory]:
        """Memories other than the known ones, newest first, whatever they say."""
        found: dict[str, Hit] = {}
        for days in _NEWEST_DAYS:
            since = Range(field="time", gte=assume_utc(query.now) - timedelta(days=days))
            hits = await self._contexts.find_any(
                scope, _COLLECTION, And((_build_filter(query), since)), _PASSAGES_PER_MEMORY * MAX_TOP_K
            )
            found = {hit.record.id: hit for hit in hits if is_alive(hit.record, query.now)}
            if len(found) >= query.top_k:
                break
        newest = sorted(found.values(), key=lambda hit: newer_first(0.0, hit.record.time, hit.record.id))
        return [
            RatedMemory(record=hit.record, hash=hit.hash, score=0.0, signals={}, pieces=())
            for hit in newest
            if hit.record.id not in known
        ]

    async def _find_neighbours(self, scope: Scope, query: Recall, best: Sequence[RatedMemory]) -> list[RatedMemory]:
        """The messages beside the best ones in their sessions, as `query.neighbours` says; none when they fail."""
        known = {each.record.id for each in best}
        found: dict[str, RatedMemory] = {}
        for field in (POSITION, TURN):
            wanted: dict[tuple[str, int], float] = {}
            for anchor in best[:_MAX_ANCHORS] if query.neighbours else ():
                session, at = find_place(anchor.record, field)
                beside = range(at - query.neighbours, at + query.neighbours + 1) if session else ()
                wanted.update({(session, near): anchor.score for near in beside if (session, near) not in wanted})
            with suppress(SourceError):  # the memories beside them are still worth showing
                for hit in await self._contexts.find_at(scope, _COLLECTION, wanted, _build_filter(query), field=field):
                    score = wanted.get(find_place(hit.record, field))
                    if score and hit.record.id not in known and is_alive(hit.record, query.now):
                        found[hit.record.id] = RatedMemory(
                            record=hit.record, hash=hit.hash, score=score, signals={JOINED: score}, pieces=()
                        )
        return sorted(found.values(), key=lambda each: newer_first(each.score, each.record.time, each.record.id))

    async def _load_whole(self, scope: Scope, best: Sequence[RatedMemory]) -> tuple[Recalled, ...]:
        stored = await self._index.get(scope, _COLLECTION, [memory.record.id for memory in best]) if best else ()
        texts = {record.id: record for record in stored}
        return tuple(to_recalled(memory, texts[memory.record.id]) for memory in best if memory.record.id in texts)


def _check_recall(query: Recall) -> None:
    if not 0 <= query.top_k <= MAX_TOP_K:
        raise InvalidRequest(f"`top_k` must lie between 0 and {MAX_TOP_K}, not {query.top_k}")
    if not (0 <= query.threshold <= 1 and math.isfinite(query.threshold)):
        raise InvalidRequest(f"`threshold` must lie between 0 and 1, not {query.threshold!r}")


def _build_filter(query: Recall) -> Filter:
    """The filter of the index query: records that do not pass it are never fetched.

    Expiry is rounded down to the full minute, so that searches repeated within a minute hit the cache; the caller drops
    memories that expired since.
    """
    minute = assume_utc(query.now).replace(second=0, microsecond=0)
    chosen: dict[str, Sequence[str]] = {
        "session": query.sessions,
        "persona": query.personas,
        "tags": query.tags,
        "kind": [str(kind) for kind in query.kinds],
    }
    return And(
        (
            Equals("namespace", repair_text(query.namespace)),
            Equals("universe", repair_text(query.universe)),
            Not(Range(field="expires", lte=minute)),
            *(AnyOf(name, tuple(map(repair_text, values))) for name, values in chosen.items() if values),
        )
    )


def _add_opinion(record: Record, principal: str, given: Feedback) -> Record:
    """The record with one more opinion; the same object when this opinion is already counted."""
    opinions = dict(record.payload.get("feedback", {}))
    mean, count, last = opinions.get(principal, (0.0, 0, ""))
    time = assume_utc(given.time).isoformat()
    if last == time:
        return record
    opinions[principal] = [(mean * count + given.score) / (count + 1), count + 1, time]
    return replace(record, payload={**record.payload, "feedback": opinions})


COVERAGE = "coverage"
HYBRID = "hybrid"

_HYBRID_SHARE = 0.4
_MAX_SCORE = 1.0

HINT_WEIGHTS: Mapping[str, float] = {"importance": 0.05, "feedback": 0.05, "session": 0.03, "persona": 0.02}
"""The most that each hint adds to a relevance; the first two may also subtract that much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RatedMemory:
    """A memory that was found, its score, the signals behind the score, and its passages, best first."""

    record: Record
    hash: str
    score: float
    signals: Mapping[str, float]
    pieces: tuple[MemoryPiece, ...]


def rate_memories(found: Sequence[FoundPassage], query: Recall) -> list[RatedMemory]:
    """The memories to which the passages belong, best first, of equals the newer; a score is a relevance from 0 to 1.

    A passage has two absolute signals: its calibrated similarity, and its coverage, the share of the question's terms
    that it contains. `1 - (1 - semantic)(1 - coverage)` is low only when both are low; it makes up 60 % of the
    relevance. The score of hybrid search makes up 40 %: it orders close matches better, but rates its best match high
    even when nothing is related. Unrelated memories score below .45, so a threshold of .5 separates them.
    """
    words = _add_synonyms(query.query)
    passages: dict[str, list[tuple[float, FoundPassage, Mapping[str, float]]]] = {}
    for each in found:
        signals = _passage_signals(each, words)
        passages.setdefault(each.hit.record.id, []).append((signals[RELEVANCE], each, signals))
    memories = [_rate_memory(sorted(group, key=_passage_order), query) for group in passages.values()]
    return sorted(memories, key=lambda found: newer_first(found.score, found.record.time, found.record.id))


def _add_synonyms(question: str) -> tuple[frozenset[int], ...]:
    """The ids of each word of a question; of one that names an attribute, those of all words for it."""
    lang = detect_language(question)
    words = question_terms(question, lang)
    for attribute in find_attribute_words(question):
        ids = frozenset[int]().union(*question_terms(attribute, "en"), *question_terms(attribute, "ru"))
        words = tuple(dict.fromkeys(word | ids if word & ids else word for word in words))
    return words


def mean_feedback(record: Record) -> float:
    """The mean feedback on a memory, from -1 to 1: the mean over users of each user's mean."""
    given: Mapping[str, Sequence[float]] = record.payload.get("feedback", {})
    means = [each[0] for each in given.values()]
    return sum(means) / len(means) if means else 0.0


def _passage_signals(found: FoundPassage, words: Sequence[frozenset[int]]) -> dict[str, float]:
    coverage = word_coverage(found.hit, words) if found.signals[BM25] > 0 else 0.0
    either = 1 - (1 - found.signals.get(SEMANTIC, 0.0)) * (1 - coverage)
    relevance = _HYBRID_SHARE * min(found.score, _MAX_SCORE) + (1 - _HYBRID_SHARE) * either
    return {**found.signals, COVERAGE: coverage, HYBRID: found.score, RELEVANCE: relevance}


def _rate_memory(group: Sequence[tuple[float, FoundPassage, Mapping[str, float]]], query: Recall) -> RatedMemory:
    relevance, best, signals = group[0]
    hints = _hint_scores(best.hit.record, query)
    return RatedMemory(
        record=best.hit.record,
        hash=best.hit.hash,
        score=min(_MAX_SCORE, max(0.0, relevance + sum(hints.values()))),
        signals={**signals, **hints},
        pieces=tuple(
            MemoryPiece(found.hit.passage.start, found.hit.passage.end, min(_MAX_SCORE, score))
            for score, found, _ in group
        ),
    )


def _hint_scores(record: Record, query: Recall) -> dict[str, float]:
    """What each hint adds to the score of a memory."""
    strength = {
        "importance": 2 * record.payload.get("importance", 0.5) - 1,
        "feedback": mean_feedback(record),
        "session": float(bool(query.session_id) and record.session == query.session_id),
        "persona": float(bool(query.persona_id) and record.payload.get("persona") == query.persona_id),
    }
    return {name: most * strength[name] for name, most in HINT_WEIGHTS.items()}


def _passage_order(passage: tuple[float, FoundPassage, Mapping[str, float]]) -> tuple[float, int]:
    return (-passage[0], passage[1].hit.ordinal)


def to_recalled(found: RatedMemory, record: Record) -> Recalled:
    """A memory as recall returns it: score and passages from the search, text and facts from the stored record."""
    facts = read_text_facts(record)
    return Recalled(
        id=record.id,
        text=record.text,
        score=found.score,
        time=record.time,
        label=record.source,
        kind=memory_kind(record),
        type=record.payload.get("type", "memory"),
        lang=record.lang,
        hash=found.hash,
        metadata=memory_metadata(record),
        signals=found.signals,
        pieces=found.pieces,
        sentences=facts.sentences,
        redactions=facts.redactions,
        rules=facts.rules,
        tokens=facts.tokens,
        simhash=facts.simhash,
    )


SWEEP_BATCH = 512
"""Records read in one sweep; it takes a few milliseconds."""

SWEEP_INTERVAL = timedelta(minutes=1)
"""Minimum time between two sweeps of a scope."""

_MAX_SCOPES = 1_024


class ExpirySweep:
    """Finds expired memories a batch at a time, cycling through the memories of each scope."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._places: dict[Scope, tuple[datetime, str]] = {}

    async def find_expired(self, scope: Scope, now: datetime) -> list[Record]:
        """The expired memories in the next batch of the scope; none within `SWEEP_INTERVAL` of the last sweep."""
        last, after = self._places.get(scope, (None, ""))
        if last is not None and timedelta() <= now - last < SWEEP_INTERVAL:
            return []
        seen = await self._index.scroll(scope, MEMORIES.name, after=after, limit=SWEEP_BATCH)
        self._places.pop(scope, None)
        self._places[scope] = (now, seen[-1].id if len(seen) == SWEEP_BATCH else "")
        if len(self._places) > _MAX_SCOPES:  # evicts the least recently swept scope, which then starts again
            self._places.pop(next(iter(self._places)))
        return [record for record in seen if not is_alive(record, now)]
