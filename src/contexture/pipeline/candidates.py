"""Candidates before packing.

They are collected from all sources concurrently, ranked, cut by score and count, and deduplicated. Every drop is
recorded in the trace.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contexture.errors import RequestError, SourceTimeout
from contexture.ledger import Reason, Trace
from contexture.text.simhash import Shingle, make_shingles, min_similarity
from contexture.types import Candidate

FetchCandidates = Callable[[], Awaitable[Sequence[Candidate]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateSource:
    """A source of candidates, and its timeout."""

    ask: FetchCandidates
    timeout_seconds: float


async def collect_candidates(
    sources: Mapping[str, CandidateSource], *, deadline: float, trace: Trace
) -> list[Candidate]:
    """Candidates of all sources, in the order the sources are named.

    Sources run concurrently, each within its own timeout and all within `deadline` seconds. A `RequestError`, which
    the caller can fix, is raised; every other failure is recorded in `trace` as a degradation of that source.
    """
    found = await asyncio.gather(
        *(_ask_source(name, source, min(source.timeout_seconds, deadline), trace) for name, source in sources.items())
    )
    return [candidate for each in found for candidate in each]


async def _ask_source(name: str, source: CandidateSource, patience: float, trace: Trace) -> Sequence[Candidate]:
    try:
        async with asyncio.timeout(patience):
            return await source.ask()
    except RequestError:
        raise
    except TimeoutError:
        trace.add_degradation(name, SourceTimeout(f"no answer within {patience:g} s"))
    except Exception as failure:  # noqa: BLE001 - the fan-out: whatever a source raises, the others still count
        trace.add_degradation(name, failure)
    return ()


def rank_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best score first; equal scores by id, so that the result does not depend on the input order."""
    return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.id))


def keep_top_k(candidates: Sequence[Candidate], k: int, trace: Trace) -> list[Candidate]:
    """The best `k`, ranked; the others are dropped as `BEYOND_TOP_K`. A negative `k` keeps none."""
    order = rank_candidates(candidates)
    kept = max(0, k)
    for rank, candidate in enumerate(order[kept:], start=kept + 1):
        trace.drop(candidate, Reason.BEYOND_TOP_K, note=f"rank {rank}, limit {kept}")
    return order[:kept]


def keep_above_floor(candidates: Iterable[Candidate], floor: float, trace: Trace) -> list[Candidate]:
    """Candidates that score at least `floor`, ranked; the others are dropped as `BELOW_FLOOR`."""
    order = rank_candidates(candidates)
    for candidate in order:
        if candidate.score < floor:
            trace.drop(candidate, Reason.BELOW_FLOOR, note=f"score {candidate.score:.3f}, floor {floor:.3f}")
    return [candidate for candidate in order if candidate.score >= floor]


_HASH_BITS = 64
_SLACK_DEVIATIONS = 3.0  # standard deviations of slack, so that hardly any true pair is missed by chance
_ROUNDING = 1e-9
_ROWS_PER_BLOCK = 512  # rows compared at once; bounds memory, not the result


def drop_duplicate_keys(candidates: Iterable[Candidate], trace: Trace) -> list[Candidate]:
    """The best-scored candidate of every key, ties by id, in the order given.

    The others are dropped as duplicates of it. An id given twice counts as one candidate: the better
    copy is kept, and the ledger has one entry for it.
    """
    given = list(candidates)
    best: dict[str, Candidate] = {}
    judged: set[str] = set()
    for candidate in rank_candidates(given):
        winner = best.setdefault(candidate.key, candidate)
        if candidate.id not in judged and winner is not candidate:
            trace.drop(candidate, Reason.DUPLICATE, of=winner.id)
        judged.add(candidate.id)
    winners = {id(candidate) for candidate in best.values()}
    return [candidate for candidate in given if id(candidate) in winners]


def drop_near_duplicates(candidates: Sequence[Candidate], trace: Trace, *, threshold: float = 0.85) -> list[Candidate]:
    """Candidates that are not near duplicates of a better-ranked one that is kept, in the order given.

    Two texts are near duplicates when the Jaccard similarity of their three-word shingles reaches
    `threshold`. When all candidates have a stored simhash, only pairs whose 64-bit hashes are within
    `max_hash_distance(threshold)` bits are compared; otherwise all pairs that share enough shingles. Identical texts
    are always detected.
    """
    order = rank_candidates(candidates)
    texts = _ShingledTexts(order)
    hashed = all(candidate.simhash for candidate in order)
    close = _find_close_hashes(order, max_hash_distance(threshold)) if hashed else texts.find_similar_pairs(threshold)
    first: dict[str, int] = {}
    keeper: dict[int, int] = {}  # position of a dropped candidate to that of the kept one it repeats
    for at, candidate in enumerate(order):
        twin = first.setdefault(candidate.text, at)
        new = twin == at
        of = _find_original(at, close.get(at, ()), keeper, texts, threshold) if new else keeper.get(twin, twin)
        if of is not None:
            same = candidate.text == order[of].text
            trace.drop(candidate, Reason.DUPLICATE if same else Reason.NEAR_DUPLICATE, of=order[of].id)
            keeper[at] = of
    gone = {id(order[at]) for at in keeper}
    return [candidate for candidate in candidates if id(candidate) not in gone]


def jaccard(left: frozenset[Shingle], right: frozenset[Shingle]) -> float:
    """Shared shingles over all shingles; 0 when there are none."""
    shared = len(left & right)
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def max_hash_distance(threshold: float) -> int:
    """How many bits the hashes of two texts may differ when their Jaccard similarity is `threshold`.

    Jaccard similarity J of equally long texts corresponds to a cosine of 2J/(1+J) between their votes; each bit then
    differs with probability angle/pi. The bound is the mean plus three standard deviations.
    """
    chance = math.acos(min(1.0, max(-1.0, 2 * threshold / (1 + threshold)))) / math.pi
    return min(
        _HASH_BITS, math.ceil(_HASH_BITS * chance + _SLACK_DEVIATIONS * math.sqrt(_HASH_BITS * chance * (1 - chance)))
    )


class _ShingledTexts:
    """The case-folded texts and shingles of candidates by position, computed lazily."""

    def __init__(self, order: Sequence[Candidate]) -> None:
        self._order = order
        self._without_case: dict[int, str] = {}
        self._sets: dict[int, frozenset[Shingle]] = {}

    def find_similar_pairs(self, threshold: float) -> dict[int, list[int]]:
        """For each position, the better-ranked positions whose texts may reach the threshold (prefix filtering).

        In any fixed order of all shingles, two texts that share many have a shared one near the front of both, so only
        those prefixes are compared.
        """
        holders: dict[Shingle, list[int]] = {}
        found: dict[int, list[int]] = {}
        for at in range(len(self._order)):
            front = _prefix_shingles(self._shingles(at), threshold)
            close = {other for shingle in front for other in holders.get(shingle, ())}
            if close:
                found[at] = sorted(close)
            for shingle in front:
                holders.setdefault(shingle, []).append(at)
        return found

    def are_similar(self, left: int, right: int, threshold: float) -> bool:
        """Whether two texts reach a Jaccard similarity; texts with one change are detected without shingles."""
        if min_similarity(self._fold_case(left), self._fold_case(right)) >= threshold:
            return True
        return jaccard(self._shingles(left), self._shingles(right)) >= threshold

    def _fold_case(self, at: int) -> str:
        if at not in self._without_case:
            self._without_case[at] = self._order[at].text.casefold()
        return self._without_case[at]

    def _shingles(self, at: int) -> frozenset[Shingle]:
        if at not in self._sets:
            self._sets[at] = make_shingles(self._fold_case(at).split())
        return self._sets[at]


def _prefix_shingles(own: frozenset[Shingle], threshold: float) -> list[Shingle]:
    """The prefix of a text's shingles: two texts whose similarity reaches the threshold share one of them."""
    shared = math.ceil(threshold * len(own) - _ROUNDING)  # fewer shared ones stay below the threshold
    return sorted(own)[: max(0, len(own) - max(0, shared) + 1)]


def _find_original(
    at: int, better: Sequence[int], dropped: Container[int], texts: _ShingledTexts, threshold: float
) -> int | None:
    """The best-ranked kept candidate of which the one `at` is a near duplicate."""
    return next((other for other in better if other not in dropped and texts.are_similar(other, at, threshold)), None)


def _find_close_hashes(order: Sequence[Candidate], bits: int) -> dict[int, list[int]]:
    """For each position, the better positions whose hashes are at most `bits` apart."""
    hashes = np.array([candidate.simhash for candidate in order], dtype=np.uint64)
    found: dict[int, list[int]] = {}
    for start in range(0, len(order), _ROWS_PER_BLOCK):
        for worse, better in _close_pairs(hashes, start, bits):
            found.setdefault(worse, []).append(better)
    return found


def _close_pairs(hashes: npt.NDArray[np.uint64], start: int, bits: int) -> Iterable[tuple[int, int]]:
    rows = hashes[start : start + _ROWS_PER_BLOCK]
    near = np.bitwise_count(rows[:, None] ^ hashes[: start + len(rows)]) <= bits
    worse, better = np.nonzero(np.tril(near, k=start - 1))
    return zip((worse + start).tolist(), better.tolist(), strict=True)
