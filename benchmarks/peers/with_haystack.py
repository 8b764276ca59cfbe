"""Haystack: BM25 and embeddings of its in-memory store, joined by reciprocal rank, in one pipeline up to the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contestant import Answer
from benchmarks.peers.material import INSTRUCTION, POOL, TOKENS, Asked, Document, Rows
from haystack import Document as Stored
from haystack import Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.components.joiners import DocumentJoiner
from haystack.components.rankers import LostInTheMiddleRanker
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.token_counters import TiktokenCounter

WORDS = TOKENS * 3 // 4
"""Three words for four tokens, as is often said of English."""

_TEMPLATE = f"{INSTRUCTION}\n\n{{% for each in documents %}}{{{{ each.content }}}}\n\n{{% endfor %}}{{{{ question }}}}"


@component
class Counted:
    """Keeps documents, best first, while their tokens add up to the budget."""

    def __init__(self, left: int) -> None:
        self._counter = TiktokenCounter()
        self._counter.warm_up()
        self._left = left

    @component.output_types(documents=list[Stored])
    def run(self, documents: list[Stored]) -> dict[str, Any]:
        """The documents that fit."""
        left, kept = self._left, list[Stored]()
        for each in documents:
            left -= self._counter.count([ChatMessage.from_user(f"{each.content}\n\n")])
            if left < 0:
                break
            kept.append(each)
        return {"documents": kept}


class Words:
    """Cut by a number of words."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        del folder, scratch
        self._store = InMemoryDocumentStore()
        self._pipeline = Pipeline()
        self._pipeline.add_component("bm25", InMemoryBM25Retriever(self._store, top_k=POOL))
        self._pipeline.add_component("embedding", InMemoryEmbeddingRetriever(self._store, top_k=POOL))
        self._pipeline.add_component("joiner", DocumentJoiner(join_mode="reciprocal_rank_fusion", top_k=POOL))
        self._pipeline.add_component("cut", self._cut())
        self._pipeline.add_component("prompt", PromptBuilder(_TEMPLATE, required_variables="*"))
        for start, end in (
            ("bm25", "joiner"),
            ("embedding", "joiner"),
            ("joiner", "cut"),
            ("cut.documents", "prompt.documents"),
        ):
            self._pipeline.connect(start, end)

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Write every document."""
        self._store.write_documents(
            [
                Stored(id=each.id, content=each.text, embedding=row.tolist())
                for each, row in zip(documents, vectors, strict=True)
            ]
        )
        return 0.0

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """Run the pipeline."""
        given = {
            "bm25": {"query": asked.text},
            "embedding": {"query_embedding": vector.tolist()},
            "prompt": {"question": asked.text},
        }
        told = self._pipeline.run(given, include_outputs_from={"joiner"})
        return Answer([each.id for each in told["joiner"]["documents"]], told["prompt"]["prompt"])

    def _cut(self) -> Any:
        return LostInTheMiddleRanker(word_count_threshold=WORDS)


class Tokens(Words):
    """Cut by exact counts, with room left for the question and the instruction."""

    def _cut(self) -> Any:
        return Counted(TOKENS - 100)
