"""The news store: articles are indexed by passage and found as articles, with copies of one story collapsed.

Questions that ask for the latest news and name no subject are ranked by age.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nsmallest
from itertools import chain

import numpy as np
from msgspec.structs import replace as changed

from contexture.errors import InvalidRequest
from contexture.ledger import Trace
from contexture.news import duplicates
from contexture.news.articles import (
    ARTICLES,
    UNDATED_FILTER,
    AddedArticles,
    Article,
    ArticleCopy,
    FoundArticle,
    NewsQuestion,
    article_source,
    article_to_record,
    asks_for_latest,
    assume_utc,
    check_articles,
    is_unchanged,
    is_undated,
    normalize_domain,
    record_to_article,
    shift_time,
)
from contexture.news.boilerplate import RepeatedLines
from contexture.pipeline.scoring import fuse_channels
from contexture.ports import Index, RemovalListener, VectorBacklog, keep_copies
from contexture.retrieval.candidates import candidate_from_passage, candidate_from_record
from contexture.retrieval.prepare import EnsuredCollection, Preparer
from contexture.retrieval.search import FoundPassage, HybridSearch
from contexture.text.terms import extract_terms
from contexture.text.unicode import repair_text
from contexture.types import (
    PUBLIC,
    And,
    AnyOf,
    Candidate,
    Equals,
    Filter,
    Hit,
    Not,
    PreparedRecord,
    Query,
    Range,
    Receipt,
    Record,
    Scope,
    Vector,
)

__all__ = [
    "RECENCY",
    "AddedArticles",
    "Article",
    "ArticleCopy",
    "FoundArticle",
    "NewsQuestion",
    "NewsStore",
    "find_cutoff",
    "narrow_to_recent",
    "neutral_vectors",
    "rank_by_age",
]


MAX_RESULTS = 100
"""Highest `k` of one search, in articles."""

_COLLECTION = ARTICLES.name
_PASSAGES_PER_ARTICLE = 4  # passages fetched for each article wanted, because a long one may have several matches
_MIN_ARTICLES = 8  # a smaller `k` does not make the search smaller
_POOL_GROWTH = 4  # factor by which the pool grows when copies leave too few articles
_MAX_POOL = 1_600
_SAMPLE_SIZE = 128  # passages of one sample when looking for the newest articles
_SCROLL_LIMIT = 1_000
_MINUTE = timedelta(minutes=1)
_LEARNED_ARTICLES = 200  # stored articles of a source from which its repeated lines are learned
_MAX_SOURCES = 256  # sources whose lines are kept in memory

_LinesKey = tuple[str, str, frozenset[str]]  # tenant, source and readers


class NewsStore:
    """Stores articles in one index; tenant, permissions and every filter are part of the index query.

    Every copy of a story is stored; the one shown is chosen at search time among those that pass the question's filters
    and that the scope may read. So hidden copies have no effect, and when the shown copy is removed, the next best
    replaces it. `vectors` are names and lengths of vectors such that every passage carries one of them; large batches
    get theirs later if the index has a `backlog`.
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
        backlog: VectorBacklog | None = None,
        on_removed: RemovalListener = keep_copies,
    ) -> None:
        self._index = index
        self._backlog = backlog
        self._preparer = preparer
        self._search = search
        self._plain = plain or search
        self._rules = rules
        self._anything = neutral_vectors(vectors)
        self._on_removed = on_removed
        self._made = EnsuredCollection(index, ARTICLES)
        self._lines: OrderedDict[_LinesKey, RepeatedLines] = OrderedDict()

    async def add(self, scope: Scope, articles: Sequence[Article], *, now: datetime) -> AddedArticles:
        """Write all articles or none; the last of those with equal ids wins, unchanged articles are not rewritten.

        Raises `InvalidRequest` for an article that cannot be stored.
        """
        thread = self._preparer.thread
        await thread.run(lambda: check_articles(articles), articles, _text_length)
        for article in articles:
            self._preparer.check_readers(f"article {article.article_id!r}", article.readers)
        await self._made.ensure(scope)
        lines = await self._learn_lines(scope, articles)
        made = await thread.map(
            lambda article: article_to_record(article, now, lines[_lines_key(scope, article)].__contains__),
            articles,
            _text_length,
        )
        records = {record.id: record for record in made}
        stored = {record.id: record for record in await self._index.get(scope, _COLLECTION, list(records))}
        fresh = [each for each in records.values() if each.id not in stored or not is_unchanged(stored[each.id], each)]
        if fresh:
            await self._index.upsert(scope, _COLLECTION, await self._preparer.prepare(fresh))
        collapsed = [record.id for record in fresh if await duplicates.has_better_copy(self._index, scope, record)]
        return AddedArticles(added=len(fresh), collapsed=len(collapsed), unchanged=len(records) - len(fresh))

    async def _learn_lines(self, scope: Scope, articles: Sequence[Article]) -> Mapping[_LinesKey, RepeatedLines]:
        """The repeated lines of the articles' sources, these articles included.

        They are learned from articles that every reader of an article may read too: hidden ones have no effect.
        """
        found: dict[_LinesKey, RepeatedLines] = {}
        for key in dict.fromkeys(_lines_key(scope, article) for article in articles):
            found[key] = self._lines.pop(key, None) or await self._read_lines(scope, key)
            self._lines[key] = found[key]
        while len(self._lines) > _MAX_SOURCES:
            self._lines.popitem(last=False)

        def learn(article: Article) -> None:
            known = found[_lines_key(scope, article)]
            known.learn(article.article_id, article.title, article.text, extract_terms(article_source(article)))

        await self._preparer.thread.map(learn, articles, _text_length)
        return found

    async def _read_lines(self, scope: Scope, key: _LinesKey) -> RepeatedLines:
        _, source, readers = key
        known, ignored = RepeatedLines(), extract_terms(source)
        where = Equals("source", source)
        stored = await self._index.scroll(scope, _COLLECTION, where=where, limit=_LEARNED_ARTICLES) if source else ()
        for record in stored:
            if PUBLIC in record.acl or frozenset(record.acl) >= readers:
                known.learn(record.id, record.title, record.text, ignored)
        return known

    async def remove(self, scope: Scope, ids: Sequence[str]) -> Receipt:
        """Remove the articles the scope may read; the receipt lists them and the copies that were removed."""
        if not await self._made.exists(scope):
            return await self._on_removed(scope, ())
        # Only readable ones reach the listener: data extracted from an article the scope cannot read must stay.
        readable = await self._index.get(scope, _COLLECTION, list(dict.fromkeys(ids)))
        gone = [record.id for record in readable]
        if gone:
            await self._index.delete(scope, _COLLECTION, gone)
        for key in [key for key in self._lines if key[0] == scope.tenant]:
            del self._lines[key]  # learned again from what is still stored
        return (await self._on_removed(scope, readable)).add(_COLLECTION, gone)

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[Article]:
        """Those of `ids` that exist and that the scope may read, with text, in the order asked for; `also` is empty."""
        if not await self._made.exists(scope):
            return ()
        return tuple(record_to_article(record) for record in await self._index.get(scope, _COLLECTION, ids))

    async def find(
        self, scope: Scope, question: NewsQuestion, *, k: int, rerank: bool, trace: Trace
    ) -> Sequence[FoundArticle]:
        """The best `k` articles that match, best first, ties by id; copies of one story are one article.

        A question for news that names no subject matches everything, newest first. Otherwise articles are ordered by
        score with `rerank`, which includes the reranker if there is one, and by reciprocal rank without it. A failing
        embedder or reranker is recorded in `trace` as a degradation. Raises `InvalidRequest` when `k` is out of range.
        """
        if not 1 <= k <= MAX_RESULTS:
            raise InvalidRequest(f"`k` must lie between 1 and {MAX_RESULTS}, not {k}")
        if not repair_text(question.text).strip():
            return ()
        if not await self._made.exists(scope):
            return ()
        if asks_for_latest(question.text):
            return await self._find_newest(scope, question, k)
        pool = _PASSAGES_PER_ARTICLE * max(k, _MIN_ARTICLES)
        while True:
            found = await self._search_passages(scope, question, pool, trace, rerank=rerank)
            articles = self._to_articles(found, question)
            if len(articles) >= k or len(found) < pool or pool >= _MAX_POOL:
                return tuple(articles[:k])
            pool *= _POOL_GROWTH

    async def _find_newest(self, scope: Scope, question: NewsQuestion, k: int) -> tuple[FoundArticle, ...]:
        """The newest `k` articles, filled up with articles whose publication date is unknown."""
        waiting = 0 if self._backlog is None else await self._backlog.count_unembedded(scope, _COLLECTION)
        find = self._scan_newest if waiting else self._find_latest
        dated = await find(scope, question, k, Not(UNDATED_FILTER))
        more = await find(scope, question, k, UNDATED_FILTER) if len(dated) < k else ()
        other = (each for each in more if all(duplicates.merge_duplicate(known, each) is None for known in dated))
        return (*dated, *other)[:k]

    async def _find_latest(
        self, scope: Scope, question: NewsQuestion, k: int, which: Filter
    ) -> tuple[FoundArticle, ...]:
        """The newest `k` articles that pass `which`; searches the end of a long window first, often enough."""
        end = narrow_to_recent(question)
        newest = () if end is None else await self._sample_newest(scope, end, k, which)
        return newest if len(newest) >= k else await self._sample_newest(scope, question, k, which)

    async def _sample_newest(
        self, scope: Scope, question: NewsQuestion, k: int, which: Filter
    ) -> tuple[FoundArticle, ...]:
        """The newest `k` articles that pass `which`, found by sampling.

        Each sample shows a time since which enough articles were published, so the window shrinks until one sample
        covers everything published in it. When most of that are copies, the sample grows.
        """
        pool, enough, narrowed = max(_SAMPLE_SIZE, _PASSAGES_PER_ARTICLE * k), 2 * k, question
        while True:
            where = And((which, *build_filters(narrowed)))
            query = Query(
                collection=_COLLECTION,
                vectors=self._anything,
                where=where,
                k=pool,
                fuse=partial(fuse_channels, pool=pool),
            )
            hits = await self._index.search(scope, query)
            seen = [hit for hit in hits if _is_in_window(hit.record, narrowed)]
            since = narrowed.since if len(hits) < pool else find_cutoff(seen, enough)
            if since not in (None, narrowed.since):
                narrowed = replace(narrowed, since=since)
                continue
            articles = self._to_articles(rank_by_age(seen), narrowed)
            done = len(hits) < pool and (len(articles) >= k or narrowed.since == question.since)
            if done or pool > _MAX_POOL:
                return tuple(articles[:k])
            pool, enough, narrowed = pool * _POOL_GROWTH, enough * _POOL_GROWTH, question

    async def _scan_newest(
        self, scope: Scope, question: NewsQuestion, k: int, which: Filter
    ) -> tuple[FoundArticle, ...]:
        """The newest `k` articles that pass `which`, found by reading all of them.

        Some passages have no vectors yet, and so no sample would contain them.
        """
        enough = max(_SAMPLE_SIZE, _PASSAGES_PER_ARTICLE * k)
        while True:
            newest = await self._read_newest(scope, question, enough, which)
            articles = duplicates.collapse_duplicates(duplicates.group_by_article(_score_records_by_age(newest)))[:k]
            if len(articles) >= k or len(newest) < enough or enough > _MAX_POOL:
                break
            enough *= _POOL_GROWTH
        stored = {record.id: record for record in newest}
        cut = await self._preparer.cut([stored[each.article.article_id] for each in articles])
        return tuple(
            replace(found, candidates=self._all_candidates(each, found.score))
            for found, each in zip(articles, cut, strict=True)
        )

    async def _read_newest(self, scope: Scope, question: NewsQuestion, most: int, which: Filter) -> list[Record]:
        """The newest articles of a question that pass `which`, `most` of them, ties by id."""
        where, after = And((which, *build_filters(question))), ""
        newest: list[Record] = []
        while page := await self._index.scroll(scope, _COLLECTION, where=where, after=after, limit=_SCROLL_LIMIT):
            fitting = (record for record in page if _is_in_window(record, question))
            newest = nsmallest(most, chain(newest, fitting), key=lambda each: (-_timestamp(each.time), each.id))
            after = page[-1].id
        return newest

    def _all_candidates(self, prepared: PreparedRecord, score: float) -> tuple[Candidate, ...]:
        """All passages of an article, as a search that finds them returns them."""
        record = prepared.record
        return tuple(
            candidate_from_passage(
                FoundPassage(
                    hit=Hit(
                        record=record,
                        hash=record.hash,
                        ordinal=ordinal,
                        text=record.text[passage.start : passage.end],
                        passage=passage,
                        title_redactions=prepared.title_redactions,
                        rules=prepared.rules,
                        scores={},
                        ranks={},
                    ),
                    score=score,
                    signals={RECENCY: score},
                ),
                _COLLECTION,
                self._rules,
            )
            for ordinal, passage in enumerate(prepared.passages)
        )

    async def _search_passages(
        self, scope: Scope, question: NewsQuestion, pool: int, trace: Trace, *, rerank: bool
    ) -> Sequence[FoundPassage]:
        search = self._search if rerank else self._plain
        parts = build_filters(question)
        where = And(parts) if parts else None
        found = await search.search(scope, _COLLECTION, question.text, where=where, pool=pool, trace=trace)
        return found if rerank else duplicates.rank_by_rrf(found)

    def _to_articles(self, found: Sequence[FoundPassage], question: NewsQuestion) -> list[FoundArticle]:
        fitting = [each for each in found if _is_in_window(each.hit.record, question)]
        return duplicates.collapse_duplicates(
            duplicates.group_by_article(
                [(each.hit.record, candidate_from_passage(each, _COLLECTION, self._rules)) for each in fitting]
            )
        )


def _lines_key(scope: Scope, article: Article) -> _LinesKey:
    return scope.tenant, article_source(article), frozenset(article.readers)


def _text_length(article: Article) -> int:
    return len(article.text)


def build_filters(question: NewsQuestion) -> tuple[Filter, ...]:
    """The index filters of a question: records that do not pass them are never fetched.

    The time window is rounded outwards to whole minutes, so that searches repeated within a minute hit the cache;
    results outside the exact window are dropped afterwards.
    """
    chosen = {"lang": question.langs, "domains": tuple(map(normalize_domain, question.sources))}
    parts: list[Filter] = [AnyOf(name, tuple(map(repair_text, values))) for name, values in chosen.items() if values]
    since = None if question.since is None else _floor_to_minute(question.since)
    before = None if question.before is None else shift_time(_floor_to_minute(question.before), _MINUTE)
    if since or before:
        parts.append(Range(field="time", gte=since, lt=before))
    return tuple(parts)


def _is_in_window(record: Record, question: NewsQuestion) -> bool:
    if record.time is None:
        return True
    after = question.since is None or assume_utc(record.time) >= assume_utc(question.since)
    return after and (question.before is None or assume_utc(record.time) < assume_utc(question.before))


def _floor_to_minute(time: datetime) -> datetime:
    return assume_utc(time).replace(second=0, microsecond=0)


RECENCY = "recency"
"""The signal that orders passages when they are ranked by age.

It is 1 for the newest, decays with each day behind the newest, and is 0 when the date is unknown.
"""

_DECAY_DAYS = 30.0
_SECONDS_PER_DAY = 86_400.0
_MIN_WINDOW = timedelta(days=2)  # commands search a day ahead, to tolerate wrong clocks
_WINDOW_PARTS = 32


def neutral_vectors(vectors: Mapping[str, int]) -> dict[str, Vector]:
    """Vectors without a preference: a search with them returns what passes the filter, without an embedder."""
    return {name: np.full(size, 1 / math.sqrt(size), np.float32) for name, size in vectors.items()}


def rank_by_age(hits: Sequence[Hit]) -> list[FoundPassage]:
    """Passages from the newest article to the oldest, in order within an article, scored by age behind the newest.

    Articles dated by their loading time come last.
    """
    newest = max((_timestamp(hit.record.time) for hit in hits), default=0.0)
    scored = [(hit, _score_by_age(hit.record, newest)) for hit in hits]
    found = [FoundPassage(hit=hit, score=score, signals={RECENCY: score}) for hit, score in scored]
    return sorted(found, key=lambda each: (-each.score, each.hit.record.id, each.hit.ordinal))


def find_cutoff(hits: Sequence[Hit], enough: int) -> datetime | None:
    """A time since which at least `enough` articles were published, or None when there are fewer."""
    times = sorted({hit.record.id: _timestamp(hit.record.time) for hit in hits}.values(), reverse=True)
    return datetime.fromtimestamp(times[enough - 1], UTC) if len(times) >= enough else None


def narrow_to_recent(question: NewsQuestion) -> NewsQuestion | None:
    """The question limited to the end of its time window; None when the window has no end or is short already.

    The length depends only on the question, so that hidden records have no effect.
    """
    if question.before is None:
        return None
    before = assume_utc(question.before)
    span = (
        _MIN_WINDOW
        if question.since is None
        else max(_MIN_WINDOW, (before - assume_utc(question.since)) / _WINDOW_PARTS)
    )
    since = shift_time(before, -span)
    whole = since is None or (question.since is not None and since <= assume_utc(question.since))
    return None if whole else replace(question, since=since)


def _score_records_by_age(newest: Sequence[Record]) -> list[tuple[Record, Candidate]]:
    """Articles, given newest first, each with a candidate that stands for its passages and has their score."""
    first = _timestamp(newest[0].time) if newest else 0.0
    return [
        (record, changed(candidate_from_record(record, _COLLECTION), score=_score_by_age(record, first)))
        for record in newest
    ]


def _score_by_age(record: Record, newest: float) -> float:
    behind = newest - _timestamp(record.time)
    return 0.0 if is_undated(record) else math.exp(-behind / _SECONDS_PER_DAY / _DECAY_DAYS)


def _timestamp(time: datetime | None) -> float:
    return assume_utc(time).timestamp() if time else 0.0
