"""A store full of made-up records, and the real search and builder over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from benchmarks.corpus import FIELDS, Owned, records
from benchmarks.timing import Numbers, Progress, clocked
from benchmarks.vectors import Synthetic

from contexture.adapters.embedders.cache import CachedEmbedder
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.token_counters import counter_for
from contexture.builders.query.build import QueryContextBuilder
from contexture.config import Settings
from contexture.ports import Embedder, Index, Journal, VectorSpaces
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import EnsuredCollection, Preparer
from contexture.retrieval.search import HybridSearch, ResultCache
from contexture.types import Collection, PreparedRecord, Record, Scope, Span
from contexture.wiring import plugins
from contexture.wiring._core import SystemClock

NAME = "documents"
MODEL = "gpt-4o"
THREADS: int = Settings.model_fields["embedder_threads"].default
EXACT = 1 << 40


class SearchedIndex(Index, Journal, VectorSpaces, Protocol):
    """An index that is searched as it is shipped, in a folder or in a database."""


class Pay(Enum):
    """Which models really embed a question."""

    NOTHING = frozenset[str]()
    MINILM = frozenset(["minilm"])
    SHIPPED = frozenset(["minilm", "use"])


@dataclass(frozen=True, slots=True)
class Clean:
    """Finds nothing, under the name of the rules in force: made-up texts hold no personal data."""

    rules: str

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """No spans."""
        del text, lang
        return ()


class Models:
    """The shipped embedders, loaded on first use and shared by all measurements."""

    def __init__(self, folder: Path) -> None:
        self._cached = {
            name: CachedEmbedder(plugins.load_embedder(name, threads=THREADS), folder / "embeddings.sqlite")
            for name in sorted(Pay.SHIPPED.value)
        }

    def encoders(self, pay: Pay = Pay.NOTHING) -> Encoders:
        """Encoders that answer with synthetic vectors and pay for the models named."""
        stand_ins: dict[str, Embedder] = {
            name: Synthetic(real, pay=name in pay.value) for name, real in self._cached.items()
        }
        return Encoders(specialists={"en": stand_ins["minilm"]}, generalist=stand_ins["use"])

    def close(self) -> None:
        """Release the embedding file."""
        for each in self._cached.values():
            each.close()


class Writer:
    """Prepares and writes records; the clock runs while the store works and stands while they are prepared."""

    def __init__(self, index: SearchedIndex, models: Models) -> None:
        self._index = index
        self._preparer = Preparer(
            encoders=models.encoders(),
            counters=[counter_for(MODEL)],
            redactor=Clean(default_redactor().rules),
        )
        self._made = EnsuredCollection(index, Collection(name=NAME, fields=FIELDS))
        self.seconds = 0.0

    async def write(self, block: Sequence[Owned]) -> None:
        """Write a block, one call for each tenant in it."""
        for scope in dict.fromkeys(owned.scope for owned in block):
            await self.upsert(scope, await self.prepare(scope, [each.record for each in block if each.scope == scope]))

    async def prepare(self, scope: Scope, records: Sequence[Record]) -> Sequence[PreparedRecord]:
        """Prepare records; the clock stands."""
        await self._made.ensure(scope)
        return await self._preparer.prepare(records)

    async def upsert(self, scope: Scope, prepared: Sequence[PreparedRecord]) -> None:
        """Write prepared records; the clock runs."""
        _, seconds = await clocked(lambda: self._index.upsert(scope, NAME, prepared))
        self.seconds += seconds


async def opened(folder: Path, models: Models) -> EmbeddedIndex:
    """The store in `folder`."""
    return await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=models.encoders().vectors))


async def filled(folder: Path, models: Models, size: int, progress: Progress) -> Numbers:
    """Make a store of `size` records in `folder` and say how long the store took."""
    index = await opened(folder, models)
    writer = Writer(index, models)
    done = 0
    for block in records(size):
        await writer.write(block)
        done += len(block)
        progress(f"write {size:,} records", done, size)
    _, optimize = await clocked(index.optimize)
    await index.close()
    return {"ingest_per_s": size / writer.seconds, "optimize_s": optimize}


def searcher(index: SearchedIndex, encoders: Encoders, *, remembered: int = 0) -> HybridSearch:
    """Hybrid search as it is shipped; by default no answer is remembered."""
    return HybridSearch(index=index, encoders=encoders, cache=ResultCache(remembered), journal=index, spaces=index)


def builder(search: HybridSearch) -> QueryContextBuilder:
    """The query builder as it is shipped."""
    return QueryContextBuilder(
        search=search,
        counter=counter_for(MODEL),
        redactor=default_redactor(),
        clock=SystemClock(),
        model=MODEL,
    )
