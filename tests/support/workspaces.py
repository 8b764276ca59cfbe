"""A workspace builder over doubles: blocks in memory, the embedded index filled from them, hybrid search over it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.token_counters import counter_for
from contexture.blocks.records import BLOCKS, FactsComputer, block_to_record
from contexture.builders.workspace.build import WorkspaceContextBuilder
from contexture.builders.workspace.config import ContextConfig
from contexture.ports import ChatModel, Redactor, Secrets, TokenCounter
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch, ResultCache
from contexture.testing.doubles import FixedClock, HashEmbedder, WordRedactor
from contexture.testing.in_memory_blocks import InMemoryBlockStore
from contexture.types import Scope
from contexture.workspace import Activity, Block, BlockLink, BlockStore

HIDDEN = "swordfish"
"""The word that the redactor finds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceParts:
    """What a workspace bench is made of; every part has a small deterministic default.

    Without `facts` it is as if blocks had been written by other rules: everything is computed in builds.
    """

    counter: TokenCounter = field(default_factory=lambda: counter_for("o200k_base"))
    redactor: Redactor = field(default_factory=lambda: WordRedactor((HIDDEN,)))
    clock: FixedClock = field(default_factory=FixedClock)
    config: ContextConfig = field(default_factory=ContextConfig)
    secrets: Secrets | None = None
    summarizer: ChatModel | None = None
    cache: int = 64
    facts: bool = True
    tenant: str = "local"
    english: HashEmbedder = field(default_factory=lambda: HashEmbedder(48, "hash-en"))

    @property
    def encoders(self) -> Encoders:
        """English has its own embedder; everything else shares the other."""
        return Encoders(specialists={"en": self.english}, generalist=HashEmbedder(32, "hash-any"))


class WorkspaceBench:
    """Blocks go in, contexts come out; only the store of blocks and the embedders are doubles."""

    def __init__(self, index: EmbeddedIndex, parts: WorkspaceParts) -> None:
        self.index = index
        self.parts = parts
        self.blocks = InMemoryBlockStore(tenant=parts.tenant)
        encoders = parts.encoders
        self._preparer = Preparer(encoders=encoders, counters=[parts.counter], redactor=parts.redactor)
        self.search = HybridSearch(
            index=index, encoders=encoders, cache=ResultCache(parts.cache), journal=index, spaces=index
        )
        self.builder = self.builder_over(self.blocks)

    def builder_over(self, store: BlockStore) -> WorkspaceContextBuilder:
        """A builder that reads blocks from this store."""
        return WorkspaceContextBuilder(
            store=store,
            search=self.search,
            token_counter=self.parts.counter,
            redactor=self.parts.redactor,
            clock=self.parts.clock,
            secrets=self.parts.secrets,
            config=self.parts.config,
            summarizer=self.parts.summarizer,
            model="o200k_base",
        )

    async def load(
        self, blocks: Sequence[Block], links: Sequence[BlockLink] = (), activity: Sequence[Activity] = ()
    ) -> WorkspaceContextBuilder:
        """Write the blocks to the store and to the index; returns the builder over them."""
        stale = InMemoryBlockStore(blocks, tenant=self.parts.tenant).stale()
        reader = FactsComputer(self.parts.redactor, [self.parts.counter])
        facts = {each.id: told for each in stale if self.parts.facts and (told := reader.compute(each)) is not None}
        self.blocks = InMemoryBlockStore(blocks, links, activity, tenant=self.parts.tenant, facts=facts)
        records = [record for each in stale if (record := block_to_record(each)) is not None]
        writer = Scope(tenant=self.parts.tenant, user="root")
        # The writer must be able to see what it overwrites.
        await self.index.upsert(writer, BLOCKS.name, await self._preparer.prepare(records))
        self.builder = self.builder_over(self.blocks)
        return self.builder


@asynccontextmanager
async def workspace_bench(folder: Path, parts: WorkspaceParts | None = None) -> AsyncGenerator[WorkspaceBench]:
    """A bench over an embedded index in `folder`."""
    chosen = parts or WorkspaceParts()
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=chosen.encoders.vectors, threads=1))
    try:
        await index.create(Scope(tenant=chosen.tenant, user="root"), BLOCKS)
        yield WorkspaceBench(index, chosen)
    finally:
        await index.close()
