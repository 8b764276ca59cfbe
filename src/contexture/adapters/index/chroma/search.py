"""Search of one tenant's records in a collection: BM25 in process, vectors by Chroma, within one scope."""

from collections.abc import Mapping, Sequence

import numpy as np

from contexture.adapters.index.chroma.client import ChromaCollection
from contexture.adapters.index.chroma.filters import ChromaWhere, compile_where
from contexture.adapters.index.chroma.items import access_key
from contexture.adapters.index.chroma.mirror import MirrorSnapshot
from contexture.adapters.index.chroma.store import ChromaStore
from contexture.adapters.index.filter_columns import Mask
from contexture.adapters.index.filters import field_types
from contexture.adapters.index.hits import collect_hits
from contexture.adapters.index.record_store import PassageRow
from contexture.adapters.index.scoring import TermWeights, idf_weights
from contexture.types import BM25, Hit, PassageKey, Query, Scope, Vector

_DECIMALS = 6  # scores are rounded, because Chroma's distances and our dot products differ in later digits


def search(store: ChromaStore, scope: Scope, query: Query) -> list[Hit]:
    """The passages that `query.fuse` chooses from the best of every channel, with all their scores; blocks."""
    board = store.load_mirror(scope, query.collection).snapshot
    if not board.records:
        return []
    view = ScopedChromaSearch(store, scope, query, board)
    hits, _ = collect_hits(view, query, view.load_passages)
    return hits


class ScopedChromaSearch:
    """One query on one tenant's records in a collection, restricted to what the scope may read."""

    def __init__(self, store: ChromaStore, scope: Scope, query: Query, board: MirrorSnapshot) -> None:
        self._store = store
        self._scope = scope
        self._query = query
        self._snapshot = board
        visible = board.visible_mask(scope)
        passing = visible & board.filter_mask(
            query.where, field_types(store.require_collection(scope, query.collection))
        )
        self._visible: Mask = visible[board.record_numbers]
        self._mask: Mask = passing[board.record_numbers]

    def find_candidates(
        self, weights: TermWeights, vectors: Mapping[str, Vector], k: int
    ) -> dict[str, dict[int, float]]:
        """By channel, at least its best `k` passages and all that tie with the last; BM25 comes first."""
        words = {BM25: self._snapshot.search_lexical(weights, self._mask, k)} if weights.terms else {}
        return words | {name: self._search_dense(name, vector, k) for name, vector in vectors.items()}

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        places = (self._snapshot.passages[pid] for pid in pids)
        items = [kept.passage_id(ordinal) for kept, ordinal in places if name in kept.vectors[ordinal]]
        if not items:
            return {}
        ids, rows = self._vector_collection(name).vectors(items, len(vector))
        scores = np.round((rows @ vector).astype(np.float64), _DECIMALS).tolist()
        return {self._snapshot.passage_numbers[item]: score for item, score in zip(ids, scores, strict=True)}

    def passage_keys(self, pids: Sequence[int]) -> dict[int, PassageKey]:
        """Keys that break ties: passage numbers are already in the order of record id and ordinal."""
        return {pid: ("", pid) for pid in pids}

    def load_passages(self, pids: Sequence[int]) -> list[PassageRow]:
        """Passages with their texts; passages of records replaced since the snapshot are left out."""
        places = {pid: self._snapshot.passages[pid] for pid in pids}
        worded = sorted({kept.item_id for kept, ordinal in places.values() if kept.facts[ordinal].end})
        texts = self._store.record_collection(self._scope, self._query.collection).documents(worded) if worded else {}
        return [
            PassageRow(
                pid,
                0,
                kept.record.id,
                kept.header,
                kept.hash,
                kept.rules,
                ordinal,
                text[facts.start : facts.end],
                facts,
            )
            for pid, (kept, ordinal) in places.items()
            for facts in (kept.facts[ordinal],)
            if (text := texts.get(kept.item_id) if facts.end else "") is not None
        ]

    def weigh_terms(self, terms: Sequence[int]) -> TermWeights:
        """BM25 weights of these terms over what the scope may read, whatever the filter."""
        return idf_weights(terms, self._snapshot.document_frequencies(terms, self._visible), int(self._visible.sum()))

    def _search_dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages, at least; if Chroma returns too few, the others are compared in this process."""
        among = np.flatnonzero(self._mask & self._snapshot.vector_mask(name))
        if not len(among):
            return {}
        found = self._query_chroma(name, vector, k, len(among)) if len(among) > self._store.exact_limit else {}
        if len(found) < min(k, len(among)):
            missing = [pid for pid in among.tolist() if pid not in found]
            found = {**found, **self.similarities(name, vector, missing)}
        return found

    def _query_chroma(self, name: str, vector: Vector, k: int, among: int) -> dict[int, float]:
        """Chroma's nearest readable passages; asks for more while passages may tie with the last, or too few pass."""
        box, where = self._vector_collection(name), self._compile_where()
        total, n = box.count(), min(k + 1, among)
        while True:
            answer = box.query_nearest(vector, min(n, total), where)
            numbers = ((self._snapshot.passage_numbers.get(item), score) for item, score in answer)
            found = {pid: round(score, _DECIMALS) for pid, score in numbers if pid is not None and self._mask[pid]}
            edge = sorted(found.values(), reverse=True)[k - 1] if len(found) >= k else -np.inf
            if len(answer) < n or n >= total or (len(found) >= k and round(answer[-1][1], _DECIMALS) < edge):
                return found
            n *= 4

    def _compile_where(self) -> ChromaWhere | None:
        readable = self._snapshot.readable_acls(self._scope)
        everything = len(readable) == len(self._snapshot.acl_numbers)
        classes = None if everything else sorted({access_key(acl) for acl in readable})
        fields = self._store.filterable_fields(self._scope, self._query.collection, self._snapshot.oldest_seq)
        return compile_where(classes, self._query.where, fields)

    def _vector_collection(self, name: str) -> ChromaCollection:
        return self._store.vector_collection(self._scope, self._query.collection, name)
