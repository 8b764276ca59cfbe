"""A store full of made-up news: the made-up corpus as articles of one year, and searches over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.corpus import SCOPE, Owned, questions, records, warm_up
from benchmarks.store import MODEL, Clean, Models, Pay, opened, searcher
from benchmarks.timing import Numbers, Progress, clocked, each, summary

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.token_counters import counter_for
from contexture.ledger import Trace
from contexture.news.articles import ARTICLES, Article, NewsQuestion, article_to_record
from contexture.news.store import NewsStore
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import EnsuredCollection, Preparer

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""The clock of every measurement."""

SOURCES = 20
_K = 10
_ADDED, _NEW_SEED = 100, 7
_SPAN = timedelta(days=365)
_FIRST, _LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2025, 12, 30, tzinfo=UTC)
WINDOWS: Mapping[str, NewsQuestion] = {
    "day": NewsQuestion(text="", since=NOW - timedelta(days=1)),
    "week_one_source": NewsQuestion(text="", since=NOW - timedelta(days=7), sources=("source-03.example",)),
    "year": NewsQuestion(text="", since=NOW - _SPAN),
}


def articles(count: int, *, seed: int = 0) -> Iterator[list[tuple[Owned, Article]]]:
    """The first `count` articles, block by block, each with the record it was made of and who writes it.

    Their dates are spread evenly over the year before `NOW`; one in ten is Russian, and one in ten is hidden from
    `corpus.SCOPE`.
    """
    for block in records(count, seed=seed):
        yield [(owned, _article(owned)) for owned in block]


async def filled_news(folder: Path, models: Models, size: int, progress: Progress) -> Numbers:
    """Make a store of `size` articles in `folder` and say how long the store took."""
    index = await opened(folder, models)
    made = EnsuredCollection(index, ARTICLES)
    preparer = _preparer(models.encoders())
    seconds, done = 0.0, 0
    for block in articles(size):
        for scope in dict.fromkeys(owned.scope for owned, _ in block):
            mine = [article_to_record(article, NOW) for owned, article in block if owned.scope == scope]
            prepared = await preparer.prepare(mine)
            await made.ensure(scope)
            seconds += (await clocked(lambda s=scope, p=prepared: index.upsert(s, ARTICLES.name, p)))[1]
        done += len(block)
        progress(f"write {size:,} articles", done, size)
    await index.optimize()
    await index.close()
    return {"articles_per_s": size / seconds}


def news(index: EmbeddedIndex, encoders: Encoders) -> NewsStore:
    """The news store as it is shipped; no answer is remembered."""
    return NewsStore(
        index=index,
        preparer=_preparer(encoders),
        search=searcher(index, encoders),
        rules=default_redactor().rules,
        vectors=encoders.generalist_vectors,
    )


async def finding(folder: Path, models: Models, asked: int, progress: Progress) -> Numbers:
    """Unseen questions in windows of a day, of a week of one source, and of a year."""
    index = await opened(folder, models)
    store = news(index, models.encoders(Pay.NOTHING))
    numbers: Numbers = {}
    for done, (name, window) in enumerate(WINDOWS.items()):
        progress("find articles", done, len(WINDOWS))
        numbers |= await _found(store, name, window, questions(asked, seed=51 + done))
    await index.close()
    progress("find articles", len(WINDOWS), len(WINDOWS))
    return numbers


async def adding(folder: Path, models: Models, progress: Progress) -> Numbers:
    """One article after the other through `NewsStore.add`, which looks for copies of each; embedding costs nothing."""
    index = await opened(folder, models)
    store = news(index, models.encoders(Pay.NOTHING))
    block = next(articles(_ADDED, seed=_NEW_SEED))
    fresh = {article.article_id: replace(article, article_id=f"new-{article.article_id}") for _, article in block}
    progress("add articles", 0, 1)
    times = await each(list(fresh), lambda name: store.add(SCOPE, [fresh[name]], now=NOW))
    await index.close()
    progress("add articles", 1, 1)
    return summary("article_add_one", times)


async def _found(store: NewsStore, name: str, window: NewsQuestion, texts: Sequence[str]) -> Numbers:
    async def ask(text: str) -> None:
        question = NewsQuestion(text=text, since=window.since, sources=window.sources)
        await store.find(SCOPE, question, k=_K, rerank=True, trace=Trace())

    await each(warm_up(len(texts)), ask)
    return summary(f"articles_{name}", await each(texts, ask))


def _article(owned: Owned) -> Article:
    record = owned.record
    written = record.time or _FIRST
    age = _SPAN * ((_LAST - written) / (_LAST - _FIRST))
    return Article(
        article_id=record.id,
        title=record.title,
        text=record.text,
        url=f"https://www.{record.source}.example/{record.id}",
        published=NOW - max(age, timedelta()),
        lang=record.lang,
        readers=record.acl,
    )


def _preparer(encoders: Encoders) -> Preparer:
    counters = [counter_for(MODEL)]
    return Preparer(encoders=encoders, counters=counters, redactor=Clean(default_redactor().rules))
