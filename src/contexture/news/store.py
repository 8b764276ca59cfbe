"""The news: articles go into the index in passages, and come out of it as articles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from contexture.errors import InvalidRequest
from contexture.ledger import Trace
from contexture.news.articles import Added, Article, FoundArticle, NewsQuestion, Other, check
from contexture.news.domains import domain_of
from contexture.news.newest import anything, asks_for_anything, by_age, last_part, published_since
from contexture.news.records import ARTICLES, UNDATED, article_of, aware, moved, record_of, same
from contexture.news.stories import by_ranks, grouped, retold, stories
from contexture.news.twins import outdone
from contexture.ports import Index
from contexture.retrieval.candidates import candidate_of
from contexture.retrieval.made import Made
from contexture.retrieval.prepare import Preparer, mended
from contexture.retrieval.search import Found, HybridSearch
from contexture.types import And, AnyOf, Filter, Not, Query, Range, Record, Scope

__all__ = ["Added", "Article", "FoundArticle", "NewsQuestion", "NewsStore", "Other"]

Removed = Callable[[Scope, Sequence[str]], Awaitable[None]]
"""Told of articles that were removed, so that what was read in them can be forgotten too."""

MOST = 100
"""Articles that one search may ask for."""

_NAME = ARTICLES.name
_PASSAGES = 4  # looked at for each article wanted: a long one has several that match
_LEAST = 8  # fewer are not worth a smaller search
_WIDER = 4  # times as many passages when copies crowd the others out
_POOL = 1_600
_SAMPLE = 128  # passages among which the newest articles are looked for at once
_MINUTE = timedelta(minutes=1)


class NewsStore:
    """Articles over one index; tenant, permissions and every filter are part of the query to it.

    Every copy of a story is stored; which of them is shown is decided among those that a question admits and the
    scope may read. So what is hidden changes nothing, and when the copy shown is removed, the next best is.
    `vectors` are names and lengths of vectors such that every passage carries one of them.
    """

    def __init__(
        self,
        *,
        index: Index,
        preparer: Preparer,
        search: HybridSearch,
        rules: str,
        vectors: Mapping[str, int],
        plain: HybridSearch | None = None,
        on_removed: Removed | None = None,
    ) -> None:
        self._index = index
        self._preparer = preparer
        self._search = search
        self._plain = plain or search
        self._rules = rules
        self._anything = anything(vectors)
        self._on_removed = on_removed
        self._made = Made(index, ARTICLES)

    async def add(self, scope: Scope, articles: Sequence[Article], *, now: datetime) -> Added:
        """Write all of them or none; of two with one id the last is written, and what is known is left alone."""
        check(articles)
        await self._made.by(scope)
        records = {article.article_id: record_of(article, now) for article in articles}
        stored = {record.id: record for record in await self._index.get(scope, _NAME, list(records))}
        fresh = [each for each in records.values() if each.id not in stored or not same(stored[each.id], each)]
        if fresh:
            await self._index.upsert(scope, _NAME, await self._preparer.prepare(fresh))
        collapsed = [record.id for record in fresh if await outdone(self._index, scope, record)]
        return Added(added=len(fresh), collapsed=len(collapsed), unchanged=len(records) - len(fresh))

    async def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove those the scope may read; returns how many there were."""
        if not await self._made.has(scope):
            return 0
        # An id alone must not touch what others keep: what was read in an article is forgotten with the article.
        readable = [record.id for record in await self._index.get(scope, _NAME, list(dict.fromkeys(ids)))]
        gone = await self._index.delete(scope, _NAME, readable) if readable else 0
        if gone and self._on_removed is not None:
            await self._on_removed(scope, readable)
        return gone

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[Article]:
        """Those of `ids` that exist and that the scope may read, whole, in the order asked for; `also` is empty."""
        if not await self._made.has(scope):
            return ()
        return tuple(article_of(record) for record in await self._index.get(scope, _NAME, ids))

    async def find(
        self, scope: Scope, question: NewsQuestion, *, k: int, rerank: bool, trace: Trace
    ) -> Sequence[FoundArticle]:
        """The best `k` articles that match, best first, ties by id; copies of one story are one article.

        A question for news that names no subject matches everything, and the newest come first. Otherwise scores
        decide with `rerank`, those of the reranker too where there is one, and ranks without it. A failing
        embedder or reranker degrades the answer and is named in `trace`.
        """
        if not 1 <= k <= MOST:
            raise InvalidRequest(f"`k` must lie between 1 and {MOST}, not {k}")
        if not mended(question.text).strip():
            return ()
        if not await self._made.has(scope):
            return ()
        if asks_for_anything(question.text):
            return await self._newest(scope, question, k)
        pool = _PASSAGES * max(k, _LEAST)
        while True:
            found = await self._passages(scope, question, pool, trace, rerank=rerank)
            told = self._stories(found, question)
            if len(told) >= k or len(found) < pool or pool >= _POOL:
                return tuple(told[:k])
            pool *= _WIDER

    async def _newest(self, scope: Scope, question: NewsQuestion, k: int) -> tuple[FoundArticle, ...]:
        """The newest `k` articles, filled up with those of which nobody knows when they were published."""
        dated = await self._latest(scope, question, k, Not(UNDATED))
        more = await self._latest(scope, question, k, UNDATED) if len(dated) < k else ()
        other = (each for each in more if all(retold(known, each) is None for known in dated))
        return (*dated, *other)[:k]

    async def _latest(self, scope: Scope, question: NewsQuestion, k: int, which: Filter) -> tuple[FoundArticle, ...]:
        """The newest `k` of these; a look at the end of a long window is often enough."""
        end = last_part(question)
        told = () if end is None else await self._sampled(scope, end, k, which)
        return told if len(told) >= k else await self._sampled(scope, question, k, which)

    async def _sampled(self, scope: Scope, question: NewsQuestion, k: int, which: Filter) -> tuple[FoundArticle, ...]:
        """The newest `k` of these: each sample of what is admitted shows from when on there are enough of them.

        So the time to look at shrinks until all that was published in it is seen. Where most of that are copies, more
        is looked at.
        """
        pool, enough, narrowed = max(_SAMPLE, _PASSAGES * k), 2 * k, question
        while True:
            where = And((which, *admitted(narrowed)))
            query = Query(collection=_NAME, vectors=self._anything, where=where, k=pool, pool=pool)
            hits = await self._index.search(scope, query)
            seen = [hit for hit in hits if _inside(hit.record, narrowed)]
            since = narrowed.since if len(hits) < pool else published_since(seen, enough)
            if since not in (None, narrowed.since):
                narrowed = replace(narrowed, since=since)
                continue
            told = self._stories(by_age(seen), narrowed)
            done = len(hits) < pool and (len(told) >= k or narrowed.since == question.since)
            if done or pool > _POOL:
                return tuple(told[:k])
            pool, enough, narrowed = pool * _WIDER, enough * _WIDER, question

    async def _passages(
        self, scope: Scope, question: NewsQuestion, pool: int, trace: Trace, *, rerank: bool
    ) -> Sequence[Found]:
        search = self._search if rerank else self._plain
        parts = admitted(question)
        where = And(parts) if parts else None
        found = await search.search(scope, _NAME, question.text, where=where, pool=pool, trace=trace)
        return found if rerank else by_ranks(found)

    def _stories(self, found: Sequence[Found], question: NewsQuestion) -> list[FoundArticle]:
        fitting = [each for each in found if _inside(each.hit.record, question)]
        return stories(grouped([(each.hit.record, candidate_of(each, _NAME, self._rules)) for each in fitting]))


def admitted(question: NewsQuestion) -> tuple[Filter, ...]:
    """What the index must hold to, all of it: nothing else is ever fetched.

    The window is rounded to whole minutes, outwards, so that searches repeated within a minute are answered from the
    cache; the rest of the minute is taken off what is found.
    """
    chosen = {"lang": question.langs, "domains": tuple(map(domain_of, question.sources))}
    parts: list[Filter] = [AnyOf(name, tuple(map(mended, values))) for name, values in chosen.items() if values]
    since = None if question.since is None else _minute(question.since)
    before = None if question.before is None else moved(_minute(question.before), _MINUTE)
    if since or before:
        parts.append(Range(field="time", gte=since, lt=before))
    return tuple(parts)


def _inside(record: Record, question: NewsQuestion) -> bool:
    if record.time is None:
        return True
    after = question.since is None or aware(record.time) >= aware(question.since)
    return after and (question.before is None or aware(record.time) < aware(question.before))


def _minute(time: datetime) -> datetime:
    return aware(time).replace(second=0, microsecond=0)
