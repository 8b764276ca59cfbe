"""Everything a person may read as candidates for one question: memories, records, pages, articles and blocks.

Each kind is searched as its own builder searches it. `rate_candidates` then puts all kinds on one scale.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from msgspec.structs import replace

from contexture.builders.clean import Cleaner
from contexture.conversation import MEMORIES_COLLECTION, Recall
from contexture.errors import RequestError, SourceError, SourceUnavailable, UnknownCollection
from contexture.memory.candidates import make_candidates
from contexture.news.articles import ARTICLES, ArticleFinder, FoundArticle, NewsQuestion
from contexture.pages.records import PAGES
from contexture.pages.values import FoundPage, PageFinder
from contexture.pages.visual import VISUAL_PAGES
from contexture.pipeline.candidates import CandidateSource, collect_candidates
from contexture.pipeline.fence import safe_label
from contexture.pipeline.scoring import RELEVANCE
from contexture.ports import Index, MemoryService
from contexture.retrieval.candidates import candidate_from_passage
from contexture.retrieval.ranking import SEMANTIC, passage_terms
from contexture.retrieval.search import FoundPassage, HybridSearch
from contexture.text.language import detect_language
from contexture.text.terms import question_terms
from contexture.types import Candidate, Scope


class SourceKind(StrEnum):
    """A kind of source, and the section of the prompt that shows it."""

    MEMORIES = "memories"
    RECORDS = "records"
    PAGES = "pages"
    NEWS = "news"
    WORKSPACE = "workspace"


BLOCKS_COLLECTION = "blocks"
SOURCE_COLLECTIONS: Mapping[SourceKind, str] = {
    SourceKind.MEMORIES: MEMORIES_COLLECTION,
    SourceKind.PAGES: PAGES.name,
    SourceKind.NEWS: ARTICLES.name,
    SourceKind.WORKSPACE: BLOCKS_COLLECTION,
}
"""The collection of each kind; every other collection holds records."""

_OTHER_COLLECTIONS = frozenset({*SOURCE_COLLECTIONS.values(), VISUAL_PAGES.name})
_PASSAGES = 24  # of each collection
_PAGES, _ARTICLES, _MEMORIES = 8, 8, 24
_MEMORY_THRESHOLD = 0.3  # the prompt has a threshold of its own, for all kinds
_MAX_NAME_CHARS = 80
_OWN_SHARE = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePorts:
    """Where the kinds of sources are found; `namespace` and `universe` select the memories."""

    index: Index
    search: HybridSearch
    pages: PageFinder
    news: ArticleFinder
    memory: MemoryService
    namespace: str = "wm"
    universe: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceQuestion:
    """A question with known secrets masked, who asks it and when, and the kinds of sources to search."""

    text: str
    scope: Scope
    now: datetime
    kinds: Sequence[SourceKind]
    session_id: str = ""
    persona_id: str = ""


class SourceFinder:
    """Finds candidates of every kind that a scope may read; each kind is a section."""

    def __init__(self, ports: SourcePorts, *, deadline: float = 10.0) -> None:
        self._ports = ports
        self._deadline = deadline

    async def find(self, asked: SourceQuestion, cleaner: Cleaner) -> list[Candidate]:
        """The candidates of all kinds on one scale, known secrets masked, not yet redacted.

        Kinds are searched concurrently; one that fails or takes longer than the deadline is a degradation.
        """
        search = {
            SourceKind.MEMORIES: self._recall,
            SourceKind.RECORDS: self._search_records,
            SourceKind.PAGES: self._search_pages,
            SourceKind.NEWS: self._search_news,
            SourceKind.WORKSPACE: self._search_blocks,
        }
        sources = {
            str(kind): CandidateSource(
                ask=lambda kind=kind: search[kind](asked, cleaner), timeout_seconds=self._deadline
            )
            for kind in SourceKind
            if kind in asked.kinds
        }
        found = await collect_candidates(sources, deadline=self._deadline, trace=cleaner.trace)
        return rate_candidates(found, asked.text)

    async def find_empty(self, scope: Scope, kinds: Sequence[SourceKind]) -> frozenset[SourceKind]:
        """Those of the kinds of which the scope can read nothing at all."""
        names = await self._list_record_collections(scope) if SourceKind.RECORDS in kinds else ()
        places = {kind: names if kind is SourceKind.RECORDS else (SOURCE_COLLECTIONS[kind],) for kind in kinds}
        held = await asyncio.gather(*(self._has_any(scope, where) for where in places.values()))
        return frozenset(kind for kind, any_ in zip(places, held, strict=True) if not any_)

    async def _has_any(self, scope: Scope, collections: Sequence[str]) -> bool:
        for name in collections:
            try:
                if await self._ports.index.scroll(scope, name, limit=1):
                    return True
            except UnknownCollection:
                continue
            except SourceError:
                return True  # not known to be empty
        return False

    async def _recall(self, asked: SourceQuestion, cleaner: Cleaner) -> Sequence[Candidate]:
        query = Recall(
            query=asked.text,
            now=asked.now,
            top_k=_MEMORIES,
            threshold=_MEMORY_THRESHOLD,
            session_id=asked.session_id,
            persona_id=asked.persona_id,
            namespace=self._ports.namespace,
            universe=self._ports.universe,
        )
        try:
            found = await self._ports.memory.recall(asked.scope, query)
        except RequestError as refusal:  # who asks cannot fix a request that memory rejects
            raise SourceUnavailable(f"the memory service refused: {refusal}") from refusal
        rules, mask = cleaner.redactor.rules, cleaner.mask
        made = make_candidates(found, now=asked.now, rules=rules, mask=mask, dated=True)
        return [_place(each, SourceKind.MEMORIES, score=each.signals[RELEVANCE]) for each in made]

    async def _search_records(self, asked: SourceQuestion, cleaner: Cleaner) -> Sequence[Candidate]:
        names = await self._list_record_collections(asked.scope)
        found = await asyncio.gather(*(self._search(asked, name, cleaner) for name in names))
        return [
            _place(each, SourceKind.RECORDS, label=_date_label(each, cleaner), prefix=f"{name}/")
            for name, passages in zip(names, found, strict=True)
            for each in _to_candidates(passages, name, cleaner)
        ]

    async def _search_blocks(self, asked: SourceQuestion, cleaner: Cleaner) -> Sequence[Candidate]:
        found = await self._search(asked, BLOCKS_COLLECTION, cleaner)
        candidates = _to_candidates(found, BLOCKS_COLLECTION, cleaner)
        return [
            _place(each, SourceKind.WORKSPACE, label=_make_label(_describe_block(passage), cleaner))
            for passage, each in zip(found, candidates, strict=True)
        ]

    async def _search_pages(self, asked: SourceQuestion, cleaner: Cleaner) -> Sequence[Candidate]:
        found = await self._ports.pages.find(
            asked.scope, asked.text, k=_PAGES, text=True, visual=False, trace=cleaner.trace
        )
        return [
            _place(each, SourceKind.PAGES, label=_make_label(_describe_page(page), cleaner), score=score)
            for page in found
            for each, score in _weigh_passages(page, cleaner)
        ]

    async def _search_news(self, asked: SourceQuestion, cleaner: Cleaner) -> Sequence[Candidate]:
        question = NewsQuestion(text=asked.text)
        found = await self._ports.news.find(asked.scope, question, k=_ARTICLES, rerank=True, trace=cleaner.trace)
        return [
            _place(
                cleaner.mask_candidate(each), SourceKind.NEWS, label=_make_label(_describe_article(article), cleaner)
            )
            for article in found
            for each in article.candidates
        ]

    async def _search(self, asked: SourceQuestion, collection: str, cleaner: Cleaner) -> Sequence[FoundPassage]:
        try:
            return await self._ports.search.search(
                asked.scope, collection, asked.text, pool=_PASSAGES, trace=cleaner.trace, now=asked.now
            )
        except UnknownCollection:  # nothing of this kind was ever written
            return ()

    async def _list_record_collections(self, scope: Scope) -> Sequence[str]:
        names = [each.name for each in await self._ports.index.collections(scope)]
        return sorted(name for name in names if name not in _OTHER_COLLECTIONS)


def rate_candidates(found: Sequence[Candidate], question: str) -> list[Candidate]:
    """The candidates with scores that are comparable between sections, in the order given.

    The relevance of a candidate is `1 - (1 - semantic)(1 - coverage)`: its calibrated similarity, and the share of the
    question's words that it or its title contains, where words that fewer candidates contain count more. It makes up
    60 % of the score. The rest is the section's own order: the candidate's own score, scaled so that the best of the
    section has the highest relevance of the section.
    """
    coverage = _measure_coverage(found, question)
    own = [_own_relevance(each, share) for each, share in zip(found, coverage, strict=True)]
    best: dict[str, tuple[float, float]] = {}
    for each, relevance in zip(found, own, strict=True):
        score, high = best.get(each.section, (0.0, 0.0))
        best[each.section] = max(score, each.score), max(high, relevance)

    def rate(candidate: Candidate, relevance: float) -> Candidate:
        score, high = best[candidate.section]
        scaled = high * max(0.0, candidate.score) / score if score > 0 else 0.0
        total = _OWN_SHARE * scaled + (1 - _OWN_SHARE) * relevance
        signals = {**candidate.signals, "own": candidate.score, RELEVANCE: relevance}
        return replace(candidate, score=round(total, 9), signals=signals)

    return [rate(each, relevance) for each, relevance in zip(found, own, strict=True)]


def _own_relevance(candidate: Candidate, coverage: float) -> float:
    if SEMANTIC not in candidate.signals and RELEVANCE in candidate.signals:  # rated by a remote memory service
        return max(candidate.signals[RELEVANCE], coverage)
    return 1 - (1 - min(1.0, candidate.signals.get(SEMANTIC, 0.0))) * (1 - coverage)


def _measure_coverage(found: Sequence[Candidate], question: str) -> list[float]:
    """By candidate, the weighted share of the question's words that its text or title contains."""
    words = question_terms(question, detect_language(question))
    held = [passage_terms(each.text, each.lang) | passage_terms(each.title, each.lang) for each in found]
    having = [{at for at, ids in enumerate(words) if not terms.isdisjoint(ids)} for terms in held]
    counts = [sum(at in each for each in having) for at in range(len(words))]
    weights = [math.log1p(len(found) / count) if count else 0.0 for count in counts]
    known = [weight for weight in weights if weight]
    usual = sum(known) / len(known) if known else 1.0
    worth = [weight or usual for weight in weights]  # a word that nothing contains counts as much as others
    total = sum(worth)
    return [sum(worth[at] for at in each) / total if total else 0.0 for each in having]


def _to_candidates(found: Sequence[FoundPassage], collection: str, cleaner: Cleaner) -> list[Candidate]:
    return [candidate_from_passage(each, collection, cleaner.redactor.rules, cleaner.mask) for each in found]


def _place(
    candidate: Candidate, kind: SourceKind, *, label: str | None = None, score: float | None = None, prefix: str = ""
) -> Candidate:
    """The candidate in the section of its kind, under an id that no other kind uses."""
    return replace(
        candidate,
        id=f"{kind}:{prefix}{candidate.id}",
        key=f"{kind}:{prefix}{candidate.key}",
        section=kind.value,
        label=candidate.label if label is None else label,
        score=candidate.score if score is None else score,
    )


def _weigh_passages(page: FoundPage, cleaner: Cleaner) -> list[tuple[Candidate, float]]:
    """The passages of a page, each with its share of the score of the page."""
    best = max((each.score for each in page.candidates), default=0.0)
    weight = page.score / best if best > 0 else 0.0
    return [(cleaner.mask_candidate(each), each.score * weight) for each in page.candidates]


def _make_label(text: str, cleaner: Cleaner) -> str:
    """A label with known secrets masked, before it is shortened, which may cut a secret, and after."""
    return cleaner.mask.mask(safe_label(cleaner.mask.mask(text)))


def _date_label(candidate: Candidate, cleaner: Cleaner) -> str:
    name = candidate.label or candidate.title
    if candidate.time is None or not name:
        return candidate.label
    return _make_label(f"{name[:_MAX_NAME_CHARS]}, {_show_day(candidate.time)}", cleaner)


def _describe_page(page: FoundPage) -> str:
    return f"{page.filename[:_MAX_NAME_CHARS]}, page {page.page}"


def _describe_article(found: FoundArticle) -> str:
    article = found.article
    day = "" if article.published is None or found.dated_by_loading else _show_day(article.published)
    origin = ", ".join(filter(None, (day, article.source)))
    return ": ".join(filter(None, (origin, article.title)))


def _describe_block(found: FoundPassage) -> str:
    record = found.hit.record
    due, done = record.payload.get("due"), record.payload.get("done")
    state = {True: "done", False: "open"}.get(done) if isinstance(done, bool) else None
    named = [record.title[:_MAX_NAME_CHARS] or "workspace", record.kind.replace("_", " ")]
    return ", ".join([*named, *([f"due {str(due)[:10]}"] if due else []), *([state] if state else [])])


def _show_day(time: datetime) -> str:
    return (time if time.tzinfo is None else time.astimezone(UTC)).date().isoformat()
