"""Searching one tenant's part of a collection: words in process, vectors by Chroma, both over what may be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from contexture.adapters.index.chroma.client import Box
from contexture.adapters.index.chroma.items import access_of
from contexture.adapters.index.chroma.mirror import Board
from contexture.adapters.index.chroma.store import Store
from contexture.adapters.index.chroma.where import Where, chroma_where
from contexture.adapters.index.columns import Mask
from contexture.adapters.index.filters import field_types
from contexture.adapters.index.hits import Place, hits_of, pooled
from contexture.adapters.index.scoring import Weights, bm25_scores, idf_weights
from contexture.adapters.index.truth import Row
from contexture.types import Hit, Query, Scope, Vector

BM25 = "bm25"

_DECIMALS = 6  # Chroma's distances and our products differ beyond


def search(store: Store, scope: Scope, query: Query) -> list[Hit]:
    """The best passages of every channel; blocking."""
    board = store.mirror(scope, query.collection).board
    return Look(store, scope, query, board).hits() if board.records else []


class Look:
    """A collection as one scope may see it through one query."""

    def __init__(self, store: Store, scope: Scope, query: Query, board: Board) -> None:
        self._store = store
        self._scope = scope
        self._query = query
        self._board = board
        visible = board.visible(scope)
        passing = visible & board.passing(query.where, field_types(store.known(scope, query.collection)))
        self._seen: Mask = visible[board.owner]
        self._mask: Mask = passing[board.owner]

    def hits(self) -> list[Hit]:
        """What the channels propose, pooled, each with all its scores."""
        weights = self._weights()
        proposed: dict[str, Mapping[int, float]] = {}
        if weights.terms:
            proposed[BM25] = self._board.lexical(weights, self._mask, self._query.k)
        for name, vector in self._query.vectors.items():
            proposed[name] = self._dense(name, vector)
        ranks = pooled(proposed, self._query.k, self._query.pool, _places)
        rows = self._rows(sorted(ranks))
        columns: dict[str, Mapping[int, float]] = {}
        matched: Mapping[int, int] = {}
        if weights.terms:
            lexical = bm25_scores(rows, weights)
            columns[BM25], matched = lexical.scores, lexical.matched
        for name, vector in self._query.vectors.items():
            missing = [pid for pid in ranks if pid not in proposed[name]]
            columns[name] = {**proposed[name], **self._compared(name, vector, missing)}
        return hits_of(rows, columns, ranks, matched)

    def _weights(self) -> Weights:
        """Statistics of exactly the passages that the scope may read."""
        terms = list(dict.fromkeys(self._query.terms))
        return idf_weights(terms, self._board.frequencies(terms, self._seen), int(self._seen.sum()))

    def _dense(self, name: str, vector: Vector) -> Mapping[int, float]:
        """The best `k` passages; whatever Chroma leaves out of a short answer is compared here."""
        among = np.flatnonzero(self._mask & self._board.having(name))
        if not len(among):
            return {}
        found = self._nearest(name, vector, len(among)) if len(among) > self._store.exact_limit else {}
        if len(found) < min(self._query.k, len(among)):
            missing = [pid for pid in among.tolist() if pid not in found]
            found = {**found, **self._compared(name, vector, missing)}
        return found

    def _nearest(self, name: str, vector: Vector, among: int) -> dict[int, float]:
        """Chroma's nearest passages, more of them as long as some tie with the last or may not be seen."""
        box, where, k = self._box(name), self._where(), self._query.k
        total, n = box.count(), min(k + 1, among)
        while True:
            answer = box.nearest(vector, min(n, total), where)
            numbers = ((self._board.numbers.get(item), score) for item, score in answer)
            found = {pid: round(score, _DECIMALS) for pid, score in numbers if pid is not None and self._mask[pid]}
            edge = sorted(found.values(), reverse=True)[k - 1] if len(found) >= k else -np.inf
            if len(answer) < n or n >= total or (len(found) >= k and round(answer[-1][1], _DECIMALS) < edge):
                return found
            n *= 4

    def _compared(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        places = (self._board.passages[pid] for pid in pids)
        items = [kept.passage(ordinal) for kept, ordinal in places if name in kept.vectors[ordinal]]
        if not items:
            return {}
        ids, rows = self._box(name).vectors(items, len(vector))
        scores = np.round((rows @ vector).astype(np.float64), _DECIMALS).tolist()
        return {self._board.numbers[item]: score for item, score in zip(ids, scores, strict=True)}

    def _where(self) -> Where | None:
        readable = self._board.readable(self._scope)
        everything = len(readable) == len(self._board.readers)
        classes = None if everything else sorted({access_of(acl) for acl in readable})
        fields = self._store.filterable(self._scope, self._query.collection, self._board.oldest)
        return chroma_where(classes, self._query.where, fields)

    def _rows(self, pids: Sequence[int]) -> list[Row]:
        """Passages with their texts; one whose record was replaced meanwhile is left out."""
        places = {pid: self._board.passages[pid] for pid in pids}
        worded = sorted({kept.item for kept, ordinal in places.values() if kept.facts[ordinal].end})
        texts = self._store.records(self._scope, self._query.collection).documents(worded) if worded else {}
        return [
            Row(
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
            if (text := texts.get(kept.item) if facts.end else "") is not None
        ]

    def _box(self, name: str) -> Box:
        return self._store.dense(self._scope, self._query.collection, name)


def _places(pids: Sequence[int]) -> dict[int, Place]:
    """Numbers of passages are in the order in which ties are broken."""
    return {pid: ("", pid) for pid in pids}
