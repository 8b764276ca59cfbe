"""A whole engine over doubles: the embedded index, hybrid search and the query builder in one folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.token_counters import counter_for
from contexture.builders.query.build import QueryContextBuilder
from contexture.builders.query.request import QueryRecipe
from contexture.ports import Clock, Embedder, Index, Redactor, Reranker, TokenCounter
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import EnsuredCollection, Preparer
from contexture.retrieval.search import HybridSearch, ResultCache, SearchOptions
from contexture.testing.doubles import FixedClock, HashEmbedder, WordRedactor
from contexture.testing.index_records import COLLECTION, VECTORS
from contexture.types import Collection, FieldType, Record, Scope

NAME = "documents"
FIELDS = {"tags": FieldType.KEYWORD, "rating": FieldType.NUMBER, "pinned": FieldType.FLAG, "seen": FieldType.TIME}
HIDDEN = "swordfish"
"""The word that the workbench's redactor finds, unless another redactor is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a workbench is made of; every part has a small deterministic default."""

    english: Embedder = field(default_factory=lambda: HashEmbedder(16, "hash-en"))
    foreign: Embedder = field(default_factory=lambda: HashEmbedder(12, "hash-any"))
    redactor: Redactor = field(default_factory=lambda: WordRedactor((HIDDEN,)))
    counter: TokenCounter = field(default_factory=lambda: counter_for("o200k_base"))
    clock: Clock = field(default_factory=FixedClock)
    model: str = "o200k_base"
    recipe: QueryRecipe = field(default_factory=QueryRecipe)
    options: SearchOptions = field(default_factory=SearchOptions)
    reranker: Reranker | None = None
    cache: int = 0
    passage: int = 120
    deadline: float = 10.0

    @property
    def encoders(self) -> Encoders:
        """English has its own embedder; everything else shares the other."""
        return Encoders(specialists={"en": self.english}, generalist=self.foreign)


class Workbench:
    """Records go in, contexts come out; every layer between is the real one."""

    def __init__(self, index: Index, parts: Parts) -> None:
        encoders = parts.encoders
        self.index = index
        self.made = EnsuredCollection(index, Collection(name=NAME, fields=FIELDS))
        self.preparer = Preparer(
            encoders=encoders, counters=[parts.counter], redactor=parts.redactor, target=parts.passage
        )
        telling = index if isinstance(index, EmbeddedIndex) else None
        self.search = HybridSearch(
            index=index,
            encoders=encoders,
            options=parts.options,
            cache=ResultCache(parts.cache),
            journal=telling,
            spaces=telling,
            reranker=parts.reranker,
        )
        self.builder = QueryContextBuilder(
            search=self.search,
            counter=parts.counter,
            redactor=parts.redactor,
            clock=parts.clock,
            model=parts.model,
            recipe=parts.recipe,
            deadline=parts.deadline,
        )

    async def add(self, scope: Scope, records: Sequence[Record]) -> int:
        """Prepare and write the records."""
        await self.made.ensure(scope)
        return await self.index.upsert(scope, NAME, await self.preparer.prepare(records))


@asynccontextmanager
async def opened(folder: Path, options: EmbeddedOptions | None = None) -> AsyncGenerator[EmbeddedIndex]:
    """An embedded index in `folder` for records made by hand, in which the local user has their collection."""
    index = await EmbeddedIndex.open(folder, options or EmbeddedOptions(vectors=VECTORS, threads=1))
    try:
        await index.create(Scope.local(), COLLECTION)
        yield index
    finally:
        await index.close()


@asynccontextmanager
async def workbench(folder: Path, parts: Parts | None = None) -> AsyncGenerator[Workbench]:
    """A workbench over an embedded index in `folder`, with one collection that has a field of every type.

    The local user has it, and every tenant for whom records are added.
    """
    chosen = parts or Parts()
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=chosen.encoders.vectors, threads=1))
    try:
        bench = Workbench(index, chosen)
        await bench.made.ensure(Scope.local())
        yield bench
    finally:
        await index.close()
