"""Promises of fusing, scoring, ranking and deduplicating."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from contexture.ledger import Reason, State, Trace
from contexture.pipeline.candidates import (
    drop_duplicate_keys,
    drop_near_duplicates,
    jaccard,
    keep_above_floor,
    keep_top_k,
    max_hash_distance,
    rank_candidates,
)
from contexture.pipeline.scoring import (
    composite_score,
    fuse_channels,
    linear_decay,
    recency,
    reciprocal_rank_sum,
    structural_proximity,
    weighted_means,
)
from contexture.testing.strategies import times
from contexture.text.simhash import hamming_distance, make_shingles, min_similarity, shingles, simhash
from contexture.types import ChannelCandidates
from support.strategies import candidate_lists, scores

NAMES = st.sampled_from("abcdefgh")
CHANNELS = st.dictionaries(NAMES, st.dictionaries(st.integers(0, 12), st.sampled_from((0.25, 0.5, 1.0))), max_size=4)
SIGNALS = st.dictionaries(NAMES, st.floats(0, 1))


def keys(passages):
    """Keys in another order than the passages."""
    return {passage: (f"r{passage * 7 % 13}", passage) for passage in passages}


def fuse_plainly(channels, k, pool):
    """Fusion by its definition: rank every channel, add reciprocal ranks, and keep the best."""
    key = keys(range(13))
    ranked = {name: sorted(found, key=lambda each: (-found[each], key[each]))[:k] for name, found in channels.items()}
    ranks = {
        passage: {name: found.index(passage) + 1 for name, found in ranked.items() if passage in found}
        for passage in {passage for found in ranked.values() for passage in found}
    }
    best = sorted(ranks, key=lambda each: (-reciprocal_rank_sum(ranks[each].values()), key[each]))
    return {passage: ranks[passage] for passage in best[:pool]}


@given(channels=CHANNELS, k=st.integers(1, 14), pool=st.none() | st.integers(1, 14))
def test_fusion_is_what_its_definition_says(channels, k, pool):
    """The best `pool` passages by the sum of reciprocal ranks; equal scores and equal sums go to the smaller key."""
    assert fuse_plainly(channels, k, pool) == fuse_channels(ChannelCandidates(k, channels, keys), pool=pool)


@given(channels=CHANNELS, k=st.integers(1, 14), pool=st.integers(1, 14), seed=st.randoms(use_true_random=False))
def test_fusion_does_not_depend_on_the_order_of_candidates(channels, k, pool, seed):
    """The same channels and passages in another order fuse to the same pool."""
    shuffled = {
        name: dict(seed.sample(list(found.items()), len(found)))
        for name, found in seed.sample(list(channels.items()), len(channels))
    }

    assert fuse_channels(ChannelCandidates(k, channels, keys), pool=pool) == fuse_channels(
        ChannelCandidates(k, shuffled, keys), pool=pool
    )


@given(signals=SIGNALS, weights=st.dictionaries(NAMES, st.floats(0.01, 1)))
def test_a_blend_lies_within_its_signals(signals, weights):
    """A weighted mean never leaves the range of the signals it blends."""
    (blended,) = weighted_means([signals], weights)
    named = [signals.get(name, 0.0) for name in weights] or [0.0]

    assert min(named) - 1e-9 <= blended <= max(named) + 1e-9


@given(earlier=times(), later=times(), now=times())
def test_decay_never_rises_with_age(earlier, later, now):
    """The older of two times never decays less, by either rule, and both stay within 0 and 1."""
    earlier, later = sorted((earlier, later))

    for decay in (recency, linear_decay):
        assert 0 <= decay(earlier, now) <= decay(later, now) <= 1


@given(time=times())
def test_a_time_without_zone_is_utc(time):
    """Naive times are read as UTC."""
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert recency(time, now) == recency(time.replace(tzinfo=None), now)


@given(distance=st.integers(0, 100))
def test_structural_distance_stays_in_range(distance):
    """Structural closeness is 1 at the focus, falls with distance and stops at 0."""
    assert 0 <= structural_proximity(distance + 1) <= structural_proximity(distance) <= structural_proximity(0) == 1


@given(signals=SIGNALS, weights=SIGNALS)
def test_parts_add_up_to_the_score(signals, weights):
    """The parts that a ledger shows sum to the composite score, one per weight."""
    scored = composite_score(signals, weights)

    assert abs(sum(scored.parts.values()) - scored.score) < 1e-9
    assert set(weights) == set(scored.parts)


@given(candidates=candidate_lists(), k=st.integers(-1, 15))
def test_top_k_judges_exactly_the_rest(candidates, k):
    """What `keep_top_k` keeps and what it drops add up, and nothing dropped outranks what is kept."""
    trace = Trace()
    kept = keep_top_k(candidates, k, trace)
    ledger = trace.finish(())

    assert rank_candidates(candidates)[: max(0, k)] == kept
    assert {c.id for c in candidates} == {c.id for c in kept} | {entry.id for entry in ledger.entries}
    assert len(candidates) == len(kept) + ledger.count(State.DROPPED)


@given(candidates=candidate_lists(), floor=scores())
def test_the_floor_itself_passes(candidates, floor):
    """Exactly the candidates that score less than the floor are dropped, with that reason."""
    trace = Trace()
    kept = keep_above_floor(candidates, floor, trace)

    assert [c for c in rank_candidates(candidates) if c.score >= floor] == kept
    assert {c.id for c in candidates if c.score < floor} == {e.id for e in trace.finish(()).entries}


@given(candidates=candidate_lists())
def test_one_candidate_stays_per_key(candidates):
    """Each key keeps its best candidate, ties by id, and every loser names its winner."""
    trace = Trace()
    kept = drop_duplicate_keys(candidates, trace)
    winners = {candidate.key: candidate for candidate in kept}

    assert {candidate.key for candidate in candidates} == set(winners)
    assert all(rank_candidates(c for c in candidates if c.key == key)[0] is best for key, best in winners.items())
    losers = {entry.id: entry.of for entry in trace.finish(()).entries}
    assert {c.id: winners[c.key].id for c in candidates if c not in kept} == losers


@given(candidates=candidate_lists(), threshold=st.sampled_from((0.5, 0.85, 1.0)))
def test_no_two_kept_texts_nearly_coincide(candidates, threshold):
    """No kept pair passes both the hash filter and the Jaccard threshold, and no text is kept twice."""
    kept = drop_near_duplicates(candidates, Trace(), threshold=threshold)

    for left, right in combinations(kept, 2):
        close = hamming_distance(simhash(left.text), simhash(right.text)) <= max_hash_distance(threshold)
        assert left.text != right.text
        assert not (close and jaccard(shingles(left.text), shingles(right.text)) >= threshold)


@given(candidates=candidate_lists(), threshold=st.sampled_from((0.5, 0.85)))
def test_a_dropped_text_repeats_a_better_kept_one(candidates, threshold):
    """Each near duplicate names a kept candidate that outranks it and that it really resembles."""
    trace = Trace()
    kept = {candidate.id: candidate for candidate in drop_near_duplicates(candidates, trace, threshold=threshold)}
    order = [candidate.id for candidate in rank_candidates(candidates)]
    given_by_id = {candidate.id: candidate for candidate in candidates}

    for entry in trace.finish(c for c in candidates if c.id not in kept).entries:
        loser, winner = given_by_id[entry.id], kept[entry.of]
        assert order.index(winner.id) < order.index(loser.id)
        similarity = jaccard(shingles(loser.text), shingles(winner.text))
        assert loser.text == winner.text if entry.reason is Reason.DUPLICATE else similarity >= threshold


@given(
    words=st.lists(st.sampled_from(["a", "b", "c", "aa", "ab"]), max_size=12),
    at=st.integers(0, 12),
    change=st.lists(st.sampled_from("abcxy"), max_size=3),
    gone=st.integers(0, 3),
    gaps=st.tuples(*[st.sampled_from([" ", "  ", "\n", " \n", "\u2003"])] * 2),
)
def test_what_two_texts_surely_share_is_no_more_than_they_do(words, at, change, gone, gaps):
    """The bound told by how texts begin and end alike never exceeds the similarity of their shingles."""
    changed = [*words[:at], *change, *words[at + gone :]]
    surely = min_similarity(gaps[0].join(words), gaps[1].join(changed))

    assert surely <= jaccard(make_shingles(words), make_shingles(changed))


def test_texts_with_one_change_surely_share_the_rest():
    """A long text and its copy with one word changed are told alike by their ends."""
    words = [f"word{number}" for number in range(100)]

    assert min_similarity(" ".join(words), " ".join([*words[:50], "changed", *words[51:]])) > 0.9
