"""mem0: texts added as they are, without a model to infer from them, and searched for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tiktoken
from benchmarks.peers.contestant import Answer, plain_prompt
from benchmarks.peers.material import POOL, Asked, Document, Rows, read
from mem0 import Memory
from mem0.embeddings.base import EmbeddingBase

_READER = "reader"


class Known(EmbeddingBase):
    """Looks vectors up by text, without the white space around it, which is taken off before embedding."""

    def __init__(self, rows: dict[str, Rows]) -> None:
        super().__init__()
        self.rows = {text.strip(): row for text, row in rows.items()}

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The known row of a text."""
        del memory_action
        return self.rows[text.strip()].tolist()


class Mem0:
    """Its default store, Qdrant's local mode; the model it insists on is never called."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        given = read(folder)
        place = {"path": str(scratch / "qdrant"), "embedding_model_dims": given.asked.shape[1]}
        unused = {"provider": "openai", "config": {"api_key": "not-a-key"}}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": place},
                "llm": unused,
                "embedder": unused,
                "history_db_path": str(scratch / "history.db"),
            }
        )
        self._memory.embedding_model = self._known = Known(given.by_text)
        self._encoding = tiktoken.encoding_for_model("gpt-4o")

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Add one text after the other, which is the only way it takes them."""
        questions = self._known.rows
        self._known.rows = {each.text.strip(): row for each, row in zip(documents, vectors, strict=True)}
        for each in documents:
            self._memory.add(each.text, user_id=_READER, metadata={"record": each.id}, infer=False)
        self._known.rows = questions
        return 0.0

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """The reader's memories, without a threshold."""
        del vector
        found = self._memory.search(asked.text, top_k=POOL, filters={"user_id": _READER}, threshold=0.0)["results"]
        texts = [each["memory"] for each in found]
        ids = [each["metadata"]["record"] for each in found]
        return Answer(ids, plain_prompt(texts, asked.text, self._count))

    def _count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))
