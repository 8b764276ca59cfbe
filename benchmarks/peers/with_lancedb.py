"""LanceDB on its own: hybrid search over a table on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lancedb
import pyarrow as pa
import tiktoken
from benchmarks.peers.contestant import Answer, plain_prompt
from benchmarks.peers.material import POOL, Asked, Document, Rows
from lancedb.rerankers import RRFReranker


class Lance:
    """A table with a full-text index; vectors are compared one by one, as is advised at this size."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        del folder
        self._base = lancedb.connect(scratch / "lance")
        self._fuse = RRFReranker()
        self._encoding = tiktoken.encoding_for_model("gpt-4o")

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Write the table and its index."""
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        columns = {
            "id": pa.array([each.id for each in documents]),
            "text": pa.array([each.text for each in documents]),
            "vector": rows,
        }
        self._table = self._base.create_table("documents", pa.table(columns))
        self._table.create_fts_index("text")
        return 0.0

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """Hybrid search, fused by reciprocal rank."""
        search = self._table.search(query_type="hybrid").vector(vector).text(asked.text).distance_type("cosine")
        found = search.rerank(self._fuse).select(["id", "text"]).limit(POOL).to_list()
        texts = [each["text"] for each in found]
        return Answer([each["id"] for each in found], plain_prompt(texts, asked.text, self._count))

    def _count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))
