"""txtai: its embeddings database with a sparse index beside the dense one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tiktoken
from benchmarks.peers.contestant import Answer, plain_prompt
from benchmarks.peers.material import POOL, Asked, Document, Rows, read
from txtai import Embeddings


class Txtai:
    """Hybrid search with content stored."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        del scratch
        self._rows = read(folder).by_text

        def known(texts: Sequence[str]) -> Rows:
            return np.stack([self._rows[text] for text in texts])

        self._base = Embeddings(method="external", transform=known, hybrid=True, content=True)
        self._encoding = tiktoken.encoding_for_model("gpt-4o")

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Index everything at once."""
        questions = self._rows
        self._rows = {**questions, **{each.text: row for each, row in zip(documents, vectors, strict=True)}}
        self._base.index((each.id, each.text, None) for each in documents)
        self._rows = questions  # what was only needed for loading is let go of
        return 0.0

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """The best of both indexes."""
        del vector
        found = self._base.search(asked.text, POOL)
        texts = [each["text"] for each in found]
        return Answer([each["id"] for each in found], plain_prompt(texts, asked.text, self._count))

    def _count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))
