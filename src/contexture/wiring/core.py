"""The engine: index, embedders, redaction, search and the builder for plain queries, from settings."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from contexture.adapters.embedders import registry as embedders
from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.adapters.index.over_truth import IndexOverTruth
from contexture.adapters.index.shelf import EmbeddedOptions
from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.redaction.noop import NoopRedactor
from contexture.adapters.rerankers import registry as rerankers
from contexture.adapters.tokens.models import counter_for
from contexture.builders.query.build import QueryContextBuilder
from contexture.builders.query.request import QueryRecipe
from contexture.config import Settings, keep_vendors_offline
from contexture.pipeline.operators import Hashed, Masked, Operator, Placeholders
from contexture.pipeline.packers import Packer
from contexture.ports import Clock, Embedder, Index, Redactor, Secrets
from contexture.retrieval.cache import ResultCache
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch, SearchOptions
from contexture.wiring import shared
from contexture.wiring.visual import page_encoder

COUNTED = ("o200k_base", "cl100k_base")
"""Encodings counted at ingestion, so that a build need not."""


class SystemClock:
    """The time of this machine."""

    def now(self) -> datetime:
        """The current time, in UTC."""
        return datetime.now(UTC)


def encoders(settings: Settings) -> Encoders:
    """The embedders by language, each behind a cache in the store's folder."""
    return Encoders(
        specialists={"en": _cached(settings.embedder, settings)},
        generalist=_cached(settings.embedder_multilingual, settings),
    )


async def index(settings: Settings, speakers: Encoders) -> IndexOverTruth:
    """The index of the store, in its folder or in a database."""
    seen = page_encoder(settings, speakers).vectors
    options = EmbeddedOptions(
        vectors={**speakers.vectors, **seen}, threads=settings.search_threads, exact_limit=settings.exact_limit
    )
    return await shared.opened(settings, options)


def redactor(settings: Settings) -> Redactor:
    """What finds personal data and secrets."""
    if settings.redaction == "none":
        return NoopRedactor()
    return default_redactor(entities=settings.redaction_entities, ner=settings.redaction_ner)


def operator(settings: Settings) -> Callable[[], Operator]:
    """What stands for a finding; a fresh one for every build."""
    if settings.redaction_operator == "mask":
        return Masked
    if settings.redaction_operator == "hash":
        salt = _salt(settings.home / shared.SALT)
        return lambda: Hashed(salt=salt)
    return Placeholders


def preparer(speakers: Encoders, scanner: Redactor) -> Preparer:
    """What computes everything about a record when it is written."""
    return Preparer(encoders=speakers, counters=[counter_for(name) for name in COUNTED], redactor=scanner)


def search(settings: Settings, store: Index, speakers: Encoders) -> HybridSearch:
    """Hybrid search over the index."""
    telling = store if isinstance(store, IndexOverTruth) else None
    return HybridSearch(
        index=store,
        encoders=speakers,
        options=SearchOptions(floor=settings.search_floor, lag=settings.cache_lag),
        cache=ResultCache(settings.cache_size),
        journal=telling,
        spaces=telling,
        reranker=rerankers.load(settings.reranker) if settings.reranker else None,
    )


def query_builder(
    settings: Settings, finder: HybridSearch, scanner: Redactor, clock: Clock, known: Secrets | None = None
) -> QueryContextBuilder:
    """The builder for plain queries."""
    return QueryContextBuilder(
        search=finder,
        counter=counter_for(settings.model),
        redactor=scanner,
        clock=clock,
        model=settings.model,
        secrets=known,
        recipe=QueryRecipe(packer=Packer(settings.packer)),
        operator=operator(settings),
        deadline=settings.timeout_seconds,
    )


def _cached(name: str, settings: Settings) -> Embedder:
    keep_vendors_offline()
    inner = embedders.load(name, threads=settings.embedder_threads)
    return CachedEmbedder(inner, settings.home / "embeddings.sqlite")


def _salt(path: Path) -> bytes:
    """The store's own salt, made once, so that equal values hash alike in every build."""
    if not path.exists() or not path.stat().st_size:  # empty when whoever made it was cut short
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(16))
    return path.read_bytes()
