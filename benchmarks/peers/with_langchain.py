"""LangChain: BM25 and a vector store fused by its ensemble retriever, trimmed by its own message trimmer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import tiktoken
from benchmarks.peers.contestant import Answer
from benchmarks.peers.material import INSTRUCTION, POOL, TOKENS, Asked, Document, Rows, read
from langchain_classic.retrievers import EnsembleRetriever
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document as Stored
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

_WORD = re.compile(r"\w+")


class Known(Embeddings):
    """Looks vectors up by text."""

    def __init__(self, rows: dict[str, list[float]]) -> None:
        self.rows = rows

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One known row per text."""
        return [self.rows[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The known row of a question."""
        return self.rows[text]


class InMemory:
    """What a tutorial gives you: the in-memory store and the approximate counter."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        del scratch
        self._questions = {text: row.tolist() for text, row in read(folder).by_text.items()}

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Fill both indexes."""
        stored = [Stored(page_content=each.text, id=each.id, metadata={"id": each.id}) for each in documents]
        rows = {each.text: row.tolist() for each, row in zip(documents, vectors, strict=True)}
        store = self._store(stored, Known(rows))
        store.embeddings.rows = self._questions  # what was only needed for loading is let go of
        lexical = BM25Retriever.from_documents(stored, preprocess_func=_words, k=POOL)
        semantic = store.as_retriever(search_kwargs={"k": POOL})
        self._retriever = EnsembleRetriever(retrievers=[lexical, semantic], weights=[0.5, 0.5])
        return 0.0

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """Retrieve with both, keep the first messages that fit."""
        del vector
        found = self._retriever.invoke(asked.text)
        head = SystemMessage(f"{INSTRUCTION}\n\n{asked.text}")
        messages = [head, *(HumanMessage(each.page_content) for each in found)]
        kept = trim_messages(messages, max_tokens=TOKENS, strategy="first", token_counter=self._count)
        return Answer([each.metadata["id"] for each in found], "\n\n".join(str(each.content) for each in kept))

    def _store(self, stored: list[Stored], known: Known) -> VectorStore:
        return InMemoryVectorStore.from_documents(stored, known)

    def _count(self, messages: list[BaseMessage]) -> int:
        return count_tokens_approximately(messages)


class Faiss(InMemory):
    """A faster store and an exact counter."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        super().__init__(folder, scratch)
        self._encoding = tiktoken.encoding_for_model("gpt-4o")

    def _store(self, stored: list[Stored], known: Known) -> VectorStore:
        from langchain_community.vectorstores import FAISS

        return FAISS.from_documents(stored, known)

    def _count(self, messages: list[BaseMessage]) -> int:
        return len(self._encoding.encode_ordinary("\n\n".join(str(each.content) for each in messages)))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
