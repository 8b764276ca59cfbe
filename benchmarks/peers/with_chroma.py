"""Chroma on its own, in process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import chromadb
import tiktoken
from benchmarks.peers.contestant import Answer, plain_prompt
from benchmarks.peers.material import POOL, Asked, Document, Rows
from chromadb.config import Settings


class Chroma:
    """A collection in memory, compared by cosine."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        del folder, scratch
        self._client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
        self._collection = self._client.create_collection(
            "documents", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
        self._encoding = tiktoken.encoding_for_model("gpt-4o")

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Add documents in the largest batches it takes."""
        most = self._client.get_max_batch_size()
        for at in range(0, len(documents), most):
            some = documents[at : at + most]
            self._collection.add(
                ids=[each.id for each in some],
                documents=[each.text for each in some],
                embeddings=vectors[at : at + most],
            )
        return 0.0

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """The nearest documents."""
        found = self._collection.query(query_embeddings=[vector], n_results=POOL, include=["documents"])
        texts = (found["documents"] or [[]])[0]
        return Answer(found["ids"][0], plain_prompt(texts, asked.text, self._count))

    def _count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))
