"""Fusion, ranking and deduplication by example."""

from __future__ import annotations

import numpy as np
import pytest

from contexture.errors import InvalidRequest
from contexture.ledger import Reason, State, Trace
from contexture.pipeline.candidates import (
    drop_duplicate_keys,
    drop_near_duplicates,
    jaccard,
    keep_above_floor,
    keep_top_k,
    max_hash_distance,
)
from contexture.pipeline.scoring import fuse_channels, reciprocal_rank_sum, weighted_means
from contexture.text.simhash import shingles, simhash
from contexture.types import Candidate, ChannelCandidates

PARAGRAPH = (
    "The city council met on Monday to discuss the new budget for roads and schools. After three hours of debate the "
    "members agreed to raise spending on public transport, and to leave the property tax as it stands this year. "
    "A second reading is planned for the autumn, when the final numbers from the treasury are known to everyone."
)


def candidate(name, score=0.5, **rest):
    """A candidate that is its own key."""
    return Candidate(**{"id": name, "key": name, "text": f"text of {name}", "score": score, **rest})


WORDS_AND_MEANING = {"words": {1: 3.0, 2: 2.0, 3: 1.0}, "meaning": {3: 0.9, 2: 0.8, 4: 0.7}}


def no_keys(passages):
    """Passages that were all removed."""
    return {}


def test_reciprocal_ranks_are_added():
    """A rank is worth 1 / (60 + rank)."""
    assert 0.0 == reciprocal_rank_sum([])
    assert pytest.approx(1 / 61 + 1 / 63) == reciprocal_rank_sum([1, 3])


def test_fusion_without_a_pool_keeps_the_best_of_every_channel():
    """Every passage among the best `k` of a channel is there, with its rank in each channel that has it."""
    ranks = fuse_channels(ChannelCandidates(2, WORDS_AND_MEANING, no_keys))

    assert {1: {"words": 1}, 2: {"words": 2, "meaning": 2}, 3: {"meaning": 1}} == ranks


def test_the_pool_holds_the_best_of_all_channels():
    """Passages ranked well by two channels come before those ranked best by one."""
    ranks = fuse_channels(ChannelCandidates(3, WORDS_AND_MEANING, no_keys), pool=2)

    assert {2: {"words": 2, "meaning": 2}, 3: {"words": 3, "meaning": 1}} == ranks


def test_keys_are_looked_up_only_for_passages_that_tie():
    """Ties within a channel go to the smaller key; who does not tie is not looked up."""
    asked = []

    def keys(passages):
        asked.append(list(passages))
        return {passage: (f"r{9 - passage}", 0) for passage in passages}

    ranks = fuse_channels(ChannelCandidates(2, {"words": {1: 2.0, 2: 1.0, 3: 1.0}}, keys))

    assert {1: {"words": 1}, 3: {"words": 2}} == ranks
    assert [[2, 3]] == asked


def test_passages_without_a_key_are_ranked_all_the_same():
    """One that was removed while it was found ties with others at the edge of the pool."""
    assert 1 == len(fuse_channels(ChannelCandidates(5, {"words": {1: 1.0}, "meaning": {2: 1.0}}, no_keys), pool=1))


def test_an_empty_pool_is_refused():
    """A pool holds at least one passage."""
    with pytest.raises(InvalidRequest, match="at least 1 passage, not 0"):
        fuse_channels(ChannelCandidates(2, WORDS_AND_MEANING, no_keys), pool=0)


def test_blend_without_weight_is_zero():
    """No weights, or weights of 0, blend to 0."""
    assert (0.0, 0.0) == (*weighted_means([{"a": 1.0}], {}), *weighted_means([{"a": 1.0}], {"a": 0.0}))


def test_cuts_say_why():
    """The ledger tells a candidate beyond the limit from one below the floor."""
    trace = Trace()
    kept = keep_top_k(
        keep_above_floor([candidate("a", 0.9), candidate("b", 0.2), candidate("c", 0.8)], 0.5, trace), 1, trace
    )
    ledger = trace.finish(())

    assert ["a"] == [c.id for c in kept]
    assert {"b": Reason.BELOW_FLOOR, "c": Reason.BEYOND_TOP_K} == {e.id: e.reason for e in ledger.entries}
    assert "rank 2, limit 1" == ledger.find("c").note


def test_one_id_from_two_sources_is_one_candidate():
    """The better copy of an id stays, and the ledger is free to judge it once."""
    trace = Trace()
    kept = drop_duplicate_keys([candidate("a", 0.2), candidate("a", 0.7)], trace)

    assert [0.7] == [c.score for c in kept]
    assert 0 == trace.finish(()).count(State.DROPPED)


def test_a_lightly_edited_copy_is_a_near_duplicate():
    """A long text with one changed word repeats the better-ranked original; the order given stays."""
    trace = Trace()
    edited = candidate("edited", 0.4, text=PARAGRAPH.replace("Monday", "Tuesday"))
    given = [edited, candidate("other", 0.1), candidate("original", 0.9, text=PARAGRAPH)]
    kept = drop_near_duplicates(given, trace)

    assert ["other", "original"] == [c.id for c in kept]
    assert (Reason.NEAR_DUPLICATE, "original") == (trace.finish(()).entries[0].reason, trace.finish(()).entries[0].of)


def test_only_what_stays_can_be_repeated():
    """A text that resembles only a dropped one stays: similarity is not handed down."""
    words = PARAGRAPH.split()
    texts = [" ".join(words), " ".join(["x", *words[1:-4], "y"]), " ".join(["z", "w", "v", *words[4:-7], "y"])]
    given = [candidate(name, score, text=text) for name, score, text in zip("abc", (0.9, 0.8, 0.7), texts, strict=True)]
    similar = [jaccard(shingles(texts[left]), shingles(texts[right])) for left, right in ((0, 1), (1, 2), (0, 2))]
    limit = min(similar[:2])

    assert similar[2] < limit
    assert ["a", "c"] == [c.id for c in drop_near_duplicates(given, Trace(), threshold=limit)]


def test_stored_hashes_are_trusted_but_identical_texts_need_none():
    """A wrong stored hash hides a near duplicate, never an exact copy; without a hash the words decide."""
    right, far = simhash(PARAGRAPH), simhash(PARAGRAPH) ^ (2**64 - 1)
    first, bare = candidate("a", 0.9, text=PARAGRAPH, simhash=right), candidate("a", 0.9, text=PARAGRAPH)
    exact = drop_near_duplicates([first, candidate("b", text=PARAGRAPH, simhash=far)], Trace())
    edited = candidate("b", text=PARAGRAPH.replace("Monday", "Tuesday"), simhash=far)
    near, worded = drop_near_duplicates([first, edited], Trace()), drop_near_duplicates([bare, edited], Trace())

    assert (1, 2, 1) == (len(exact), len(near), len(worded))


def test_duplicates_are_found_across_blocks():
    """More candidates than are compared at once are still all compared."""
    others = [candidate(f"{at:04}", 0.9, text=f"word{at} only{at} here{at} now{at}") for at in range(600)]
    edited = candidate("z", 0.1, text=PARAGRAPH.replace("Monday", "Tuesday"))
    kept = drop_near_duplicates([candidate("a", 0.5, text=PARAGRAPH), *others, edited], Trace())

    assert 601 == len(kept)
    assert "z" not in {c.id for c in kept}


def test_the_hash_filter_rarely_hides_a_true_pair():
    """Of paragraphs with a few words changed that reach the threshold, the filter passes nearly all."""
    random = np.random.default_rng(7)
    words = PARAGRAPH.split() * 3
    missed = 0
    for _ in range(200):
        changed = list(words)
        for at in random.integers(0, len(words), size=3):
            changed[at] = f"changed{at}"
        texts = {"a": " ".join(words), "b": " ".join(changed)}
        pair = [candidate(name, text=text, simhash=simhash(text)) for name, text in texts.items()]
        missed += len(drop_near_duplicates(pair, Trace(), threshold=0.85)) - 1

    assert missed <= 4


def test_the_hash_filter_leaves_room_for_chance():
    """At a similarity of .85, where 8 bits differ on average, hashes may differ by three standard deviations more."""
    assert 17 == max_hash_distance(0.85)


def test_the_reach_of_the_hash_filter():
    """Only equal hashes pass for identity, and everything does when nothing need be shared."""
    assert (0, 64) == (max_hash_distance(1.0), max(max_hash_distance(0.0), 64))
    assert max_hash_distance(0.85) < max_hash_distance(0.5)
