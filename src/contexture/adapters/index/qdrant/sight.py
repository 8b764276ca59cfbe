"""What one scope may see of a collection in Qdrant: Qdrant proposes, and what the truth holds decides."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from qdrant_client import models

from contexture.adapters.index import codec
from contexture.adapters.index.codes import View, products, quantised
from contexture.adapters.index.parts import BM25
from contexture.adapters.index.qdrant.box import Box
from contexture.adapters.index.qdrant.client import LEXICAL
from contexture.adapters.index.qdrant.points import sent
from contexture.adapters.index.scoring import Weights
from contexture.adapters.index.truth import Stored
from contexture.types import Vector

_SPARE = 28  # proposals beyond those wanted, so that ties and near ties seldom take a second question
_MORE = 4
_EFFORT = 2  # passages looked at in the graph for each one that is asked for
_SLACK = 4e-3  # by which Qdrant's similarity, of vectors in a byte a number, may differ from ours; .0015 was seen

Scored = Callable[[Mapping[int, float]], Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class Channel:
    """One way of finding: the question to Qdrant, what its proposals are worth to us, and how far the two differ."""

    query: models.SparseVector | list[float]
    using: str
    scored: Scored
    slack: float


@dataclass(frozen=True, slots=True)
class Boundary:
    """What is asked together with every question."""

    where: models.Filter
    allowed: frozenset[int]
    tenant: str
    exact: bool


class RemoteSight:
    """Passages that Qdrant proposes, each tested against the truth and scored from what it holds."""

    def __init__(self, box: Box, boundary: Boundary, stored: Callable[[Sequence[int]], Sequence[Stored]]) -> None:
        self._box = box
        self._boundary = boundary
        self._read = stored
        self._known: dict[int, Stored | None] = {}

    def proposals(self, weights: Weights, vectors: Mapping[str, Vector], k: int) -> dict[str, dict[int, float]]:
        """Each channel's best `k` passages, with every passage that ties with the last; words come first."""
        channels = {BM25: _words(weights)} if weights.terms else {}
        channels |= {name: self._meaning(name, vector) for name, vector in vectors.items()}
        best: dict[str, dict[int, float]] = {name: {} for name in channels}
        limit = k + _SPARE
        while channels:
            found = self._ask(channels, limit)
            for name, proposed in found.items():
                scores = channels[name].scored({pid: proposed[pid] for pid in proposed if self._permitted(pid)})
                best[name] = _foremost(scores, k)
                if len(proposed) < limit or _settled(scores, proposed, k, channels[name].slack):
                    del channels[name]
            limit *= _MORE
        return best

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        self._learn(pids)
        halves = {pid: self._packed(pid).get(name, b"") for pid in pids}
        known = {pid: half for pid, half in halves.items() if half}
        if not known:
            return {}
        numbers = np.frombuffer(b"".join(known.values()), np.float16).astype(np.float32)
        codes, scales = quantised(numbers.reshape(len(known), -1))
        view = View(codes, np.empty((0, 0), np.uint8), scales, np.arange(len(known)))
        return dict(zip(known, products(view, vector, None).tolist(), strict=True))

    def places(self, pids: Sequence[int]) -> Mapping[int, tuple[str, int]]:
        """Record id and ordinal of passages, by which ties are broken."""
        self._learn(pids)
        known = {pid: self._known[pid] for pid in pids}
        return {pid: stored.place if stored else ("", 0) for pid, stored in known.items()}

    def _meaning(self, name: str, vector: Vector) -> Channel:
        slack = _SLACK * max(1.0, float(vector @ vector))
        return Channel(sent(vector), name, lambda found: self.similarities(name, vector, list(found)), slack)

    def _ask(self, channels: Mapping[str, Channel], limit: int) -> dict[str, dict[int, float]]:
        requests = {name: self._request(channel, limit) for name, channel in channels.items()}
        found = self._box.ask(requests, self._boundary.tenant)
        self._learn([pid for proposed in found.values() for pid in proposed])
        return found

    def _request(self, channel: Channel, limit: int) -> models.QueryRequest:
        dense = channel.using != LEXICAL
        params = self._box.params(exact=self._boundary.exact, effort=_EFFORT * limit) if dense else None
        return models.QueryRequest(
            query=channel.query, using=channel.using, filter=self._boundary.where, limit=limit, params=params
        )

    def _permitted(self, pid: int) -> bool:
        """Whether a passage is there and may be read, whatever Qdrant says: it may be behind."""
        stored = self._known[pid]
        return stored is not None and stored.access in self._boundary.allowed

    def _learn(self, pids: Sequence[int]) -> None:
        """Read from the truth what is not known yet; a passage that is gone is known to be."""
        new = sorted({pid for pid in pids if pid not in self._known})
        if new:
            self._known.update(dict.fromkeys(new))
            self._known.update((stored.pid, stored) for stored in self._read(new))

    def _packed(self, pid: int) -> Mapping[str, bytes]:
        stored = self._known[pid]
        return codec.packed_vectors(stored.vectors) if stored else {}


def _words(weights: Weights) -> Channel:
    """By words both sides add the same whole numbers, so Qdrant's scores are ours."""
    terms = sorted(weights.terms)
    query = models.SparseVector(indices=terms, values=[float(weights.terms[term]) for term in terms])
    return Channel(query, LEXICAL, dict, 0.0)


def _settled(scores: Mapping[int, float], proposed: Mapping[int, float], k: int, slack: float) -> bool:
    """Whether nothing that was not proposed can be among the best `k`, or tie with the last of them."""
    return len(scores) >= k and min(proposed.values()) + slack < _floor(scores, k)


def _foremost(scores: Mapping[int, float], k: int) -> dict[int, float]:
    floor = _floor(scores, k)
    return {pid: score for pid, score in scores.items() if score >= floor}


def _floor(scores: Mapping[int, float], k: int) -> float:
    """The `k`-th best score."""
    return heapq.nlargest(k, scores.values())[-1] if len(scores) >= k else -math.inf
