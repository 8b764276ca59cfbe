"""LlamaIndex: a vector index and BM25 fused by reciprocal rank, packed by the helper behind its synthesizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import tiktoken
from benchmarks.peers.contestant import Answer
from benchmarks.peers.material import POOL, TOKENS, Asked, Document, Rows
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.llms import MockLLM
from llama_index.core.prompts.default_prompts import DEFAULT_TEXT_QA_PROMPT
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.retrievers.bm25 import BM25Retriever


class Simple:
    """The default store and the default tokenizer."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        del folder, scratch
        self._helper = PromptHelper(context_window=TOKENS, num_output=0, tokenizer=self._tokenizer())

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Fill both indexes."""
        nodes = [
            TextNode(id_=each.id, text=each.text, embedding=row.tolist())
            for each, row in zip(documents, vectors, strict=True)
        ]
        width = vectors.shape[1]
        index = VectorStoreIndex(nodes, embed_model=MockEmbedding(width), storage_context=self._storage(width))
        lexical = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=POOL)
        self._retriever = QueryFusionRetriever(
            [index.as_retriever(similarity_top_k=POOL), lexical],
            llm=MockLLM(),
            similarity_top_k=POOL,
            num_queries=1,
            mode="reciprocal_rerank",
            use_async=False,
        )
        return 0.0

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """Retrieve with both; the first of the prompts that the texts are packed into counts."""
        found = self._retriever.retrieve(QueryBundle(asked.text, embedding=vector.tolist()))
        template = DEFAULT_TEXT_QA_PROMPT.partial_format(query_str=asked.text)
        packed = self._helper.repack(template, [each.node.get_content() for each in found])
        return Answer([each.node.node_id for each in found], template.format(context_str=packed[0]))

    def _storage(self, width: int) -> StorageContext | None:
        del width
        return None

    def _tokenizer(self) -> Callable[[str], list[int]] | None:
        return None


class Faiss(Simple):
    """A faster store and the model's tokenizer."""

    def _storage(self, width: int) -> StorageContext | None:
        import faiss
        from llama_index.vector_stores.faiss import FaissVectorStore

        return StorageContext.from_defaults(vector_store=FaissVectorStore(faiss.IndexFlatIP(width)))

    def _tokenizer(self) -> Callable[[str], list[int]] | None:
        return tiktoken.encoding_for_model("gpt-4o").encode_ordinary
