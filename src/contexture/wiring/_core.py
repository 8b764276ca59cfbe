"""From settings: clock, embedders, index, redaction, search, page encoders and the builder for plain queries."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.adapters.pages.regions import RegionEncoder
from contexture.adapters.token_counters import ENCODINGS, counter_for
from contexture.builders.query.build import QueryContextBuilder
from contexture.builders.query.request import QueryRecipe
from contexture.config import IndexOptions, Settings, keep_vendors_offline
from contexture.documents import PageEncoder
from contexture.errors import UnknownAdapter
from contexture.pages.records import PAGES
from contexture.pages.visual import VISUAL_PAGES, VisualOptions, VisualPages
from contexture.pipeline.fence import MaterialRole
from contexture.pipeline.knapsack import Packer
from contexture.pipeline.redaction import Hashed, Masked, Placeholders, RedactionOperator
from contexture.ports import (
    Clock,
    Embedder,
    Index,
    Journal,
    Redactor,
    Secrets,
    TokenCounter,
    VectorBacklog,
    VectorSpaces,
)
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch, ResultCache, SearchOptions
from contexture.text.language import detect_language
from contexture.wiring import _store as store
from contexture.wiring import plugins

_DEFAULT_ENCODING = "o200k_base"


_ENGLISH_EMBEDDERS = ("granite", "minilm")


class SystemClock:
    """The system time."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        return datetime.now(UTC)


def encoders(settings: Settings) -> Encoders:
    """Create the embedders by language, each behind a cache in the store's folder.

    Passages that another shipped embedder of English embedded are still found: it is loaded when a collection has some.
    """
    former = [_cached_embedder(name, settings) for name in _ENGLISH_EMBEDDERS if name != settings.embedder]
    return Encoders(
        specialists={"en": _cached_embedder(settings.embedder, settings)},
        generalist=_cached_embedder(settings.embedder_multilingual, settings),
        former={"en": former},
    )


async def index(settings: Settings, embedders: Encoders) -> Index:
    """Open the index of the store, in its folder, in a database or in an index of another package."""
    seen = page_encoder(settings, embedders).vectors
    return await store.open_index(IndexOptions(vectors={**embedders.vectors, **seen}, settings=settings))


def redactor(settings: Settings) -> Redactor:
    """Create the redactor, which finds personal data and secrets."""
    return plugins.load_redactor(settings)


def operator(settings: Settings) -> Callable[[], RedactionOperator]:
    """Return a factory of redaction operators; each build gets a new one."""
    if settings.redaction_operator == "mask":
        return Masked
    if settings.redaction_operator == "hash":
        salt = _read_salt(settings.home / store.SALT_FILE)
        return lambda: Hashed(salt=salt)
    return Placeholders


def preparer(settings: Settings, embedders: Encoders, scanner: Redactor) -> Preparer:
    """Create the preparer, which computes everything derived from a record when it is written."""
    return Preparer(
        encoders=embedders,
        counters=[_ingestion_counter(settings)],
        redactor=scanner,
        max_readers=settings.max_readers,
    )


def _ingestion_counter(settings: Settings) -> TokenCounter:
    """The counter of the tokens that are stored with a text, so that a build for the configured model counts nothing.

    The tokens of another model are counted during its builds, and so are estimates.
    """
    counter = counter_for(settings.counted_model)
    return counter if counter.encoding in ENCODINGS else counter_for(_DEFAULT_ENCODING)


def search(settings: Settings, store: Index, embedders: Encoders) -> HybridSearch:
    """Create the hybrid search over the index."""
    return HybridSearch(
        index=store,
        encoders=embedders,
        options=SearchOptions(
            floor=settings.search_floor, lag=settings.cache_lag, optional=frozenset({settings.collection})
        ),
        cache=ResultCache(settings.cache_size),
        journal=store if isinstance(store, Journal) else None,
        spaces=store if isinstance(store, VectorSpaces) else None,
        backlog=store if isinstance(store, VectorBacklog) else None,
        reranker=plugins.load_reranker(settings.reranker) if settings.reranker else None,
    )


def query_builder(
    settings: Settings, finder: HybridSearch, scanner: Redactor, clock: Clock, known: Secrets | None = None
) -> QueryContextBuilder:
    """Create the builder for plain queries."""
    return QueryContextBuilder(
        search=finder,
        counter=counter_for(settings.counted_model),
        redactor=scanner,
        clock=clock,
        model=settings.counted_model,
        secrets=known,
        recipe=QueryRecipe(packer=Packer(settings.packer), material_role=MaterialRole(settings.material_role)),
        operator=operator(settings),
        deadline=settings.timeout_seconds,
    )


def _cached_embedder(name: str, settings: Settings) -> Embedder:
    keep_vendors_offline()
    inner = plugins.load_embedder(name, threads=settings.embedder_threads)
    return CachedEmbedder(inner, settings.home / "embeddings.sqlite")


def _read_salt(path: Path) -> bytes:
    """Return the store's salt, created once, so that equal values have equal hashes in every build."""
    if not path.exists() or not path.stat().st_size:  # empty if its creation was interrupted
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(16))
    return path.read_bytes()


def page_encoder(settings: Settings, embedders: Encoders) -> PageEncoder:
    """Create the encoder that embeds pages; a model is loaded on first use. Raises `UnknownAdapter`."""
    name = settings.page_encoder
    kind, _, model = name.partition(":")
    if name == "regions":
        return RegionEncoder(embedders, detect_language)
    if kind == "colpali" and model:
        from contexture.adapters.pages.colpali import ColPaliEncoder

        return ColPaliEncoder(model, threads=settings.embedder_threads)
    raise UnknownAdapter(
        f"no page encoder is called {name!r}; the known ones are regions, colpali:MODEL and colpali:FOLDER"
    )


def routed_index(settings: Settings, store: Index, embedders: Encoders) -> Index:
    """Return the store's index, or one that stores pages elsewhere, if the settings say so."""
    if not settings.pages_index:
        return store
    from contexture.adapters.index.chroma.index import ChromaIndex, ChromaOptions
    from contexture.adapters.index.routed import RoutedIndex

    vectors = {**embedders.vectors, **page_encoder(settings, embedders).vectors}
    pages = ChromaIndex(settings.pages_index, ChromaOptions(vectors=vectors))
    return RoutedIndex(store, {PAGES.name: pages, VISUAL_PAGES.name: pages})


def visual_pages(settings: Settings, store: Index, encoder: PageEncoder) -> VisualPages:
    """Create the search over page images."""
    return VisualPages(index=store, encoder=encoder, options=VisualOptions(floor=settings.search_floor))
