"""Promises of the exact search index of one partition: words, vectors, permissions and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contexture.adapters.index import collection_index, postings, quantized_vectors
from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.append_array import AppendArray
from contexture.adapters.index.codec import PassageFacts, pack_vectors
from contexture.adapters.index.collection_index import CollectionIndex, ScopedView
from contexture.adapters.index.filter_columns import FilterColumns, filter_fields
from contexture.adapters.index.filters import field_types, record_matches
from contexture.adapters.index.postings import PostingList, Postings, WeightedList, find_best, score_positions
from contexture.adapters.index.quantized_vectors import (
    QuantizedVectors,
    dot_products,
    dot_products_at,
    pack_signs,
    prefilter_by_signs,
    quantize,
)
from contexture.adapters.index.record_store import IndexedPassage, PassageRow
from contexture.testing.index_records import COLLECTION, make_record, prepare_record
from contexture.testing.strategies import filters, record_lists
from contexture.types import Filter, Record

FIELDS = field_types(COLLECTION)
SIZE = 8


def unit(seed: int) -> np.ndarray:
    """A unit vector that a number stands for."""
    numbers = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
    return numbers / np.linalg.norm(numbers)


def packed(vector: np.ndarray | None) -> bytes:
    """A passage's vectors as they are stored."""
    item = prepare_record(make_record("x"), unit(0)[:4])
    vectors = {} if vector is None else {"v": vector}
    return pack_vectors(type(item.passages[0])(**{**_fields(item.passages[0]), "vectors": vectors}))


def _fields(passage: Any) -> dict[str, Any]:
    return {name: getattr(passage, name) for name in type(passage).__slots__}


@st.composite
def collections(draw: st.DrawFn) -> list[tuple[int, int | None]]:
    """Passages, each with its access class and the seed of its vector, or none; some vectors repeat."""
    return draw(st.lists(st.tuples(st.integers(1, 4), st.none() | st.integers(0, 30)), max_size=60))


def index_of(rows: Sequence[tuple[int, int | None]]) -> CollectionIndex:
    """An index that holds these passages, with ids from 10 in steps of 3."""
    found = CollectionIndex({"v": SIZE}, lambda _: iter(()), lambda _: {})
    found.fill(
        IndexedPassage(10 + 3 * at, access, b"", b"", packed(None if seed is None else unit(seed)))
        for at, (access, seed) in enumerate(rows)
    )
    return found


def passage(pid: int, access: int, vector: np.ndarray, terms: Mapping[int, float] | None = None) -> PassageRow:
    """A written passage."""
    held = terms or {}
    facts = PassageFacts(
        start=0,
        end=1,
        sentences=(),
        redactions=[],
        tokens={},
        simhash=0,
        terms=np.array(list(held), np.uint32).tobytes(),
        weights=np.array(list(held.values()), np.float32).tobytes(),
    )
    return PassageRow(pid, access, f"r{pid}", b"", "", "", 0, "", facts, packed(vector))


def view_of(index: CollectionIndex, allowed: frozenset[int]) -> ScopedView:
    """What a scope sees that may read these access classes."""
    return index.scoped_view(ScopeAccess(allowed=allowed, readable=allowed, hidden=None), None)


@settings(max_examples=80)
@given(
    rows=collections(),
    allowed=st.frozensets(st.integers(1, 5)),
    removed=st.sets(st.integers(0, 59)),
    k=st.integers(1, 12),
)
def test_a_scan_is_a_sort_of_what_may_be_seen(
    rows: list[tuple[int, int | None]], allowed: frozenset[int], removed: set[int], k: int
) -> None:
    """The best `k` by score and whatever ties with the last: no removed, hidden or vectorless passage among them."""
    index = index_of(rows)
    index.apply((), [10 + 3 * at for at in removed if at < len(rows)])
    asked = unit(99)
    scores = {
        10 + 3 * at: float(dot(unit(seed), asked))
        for at, (access, seed) in enumerate(rows)
        if access in allowed and seed is not None and at not in removed
    }
    last = sorted(scores.values(), reverse=True)[k - 1] if len(scores) >= k else -np.inf

    found = view_of(index, allowed).search_dense("v", asked, k)

    assert {pid: score for pid, score in scores.items() if score >= last} == found


@settings(max_examples=80)
@given(rows=collections(), removed=st.sets(st.integers(0, 59)), k=st.integers(1, 12))
def test_a_removal_ends_what_was_cached_before_it(
    rows: list[tuple[int, int | None]], removed: set[int], k: int
) -> None:
    """A view taken after a removal finds what an index finds that was never asked before."""
    asked_before, never_asked = index_of(rows), index_of(rows)
    allowed, gone = frozenset({1, 2, 3, 4}), [10 + 3 * at for at in removed if at < len(rows)]
    view_of(asked_before, allowed)
    for each in (asked_before, never_asked):
        each.apply((), gone)

    found, expected = (view_of(each, allowed).search_dense("v", unit(99), k) for each in (asked_before, never_asked))

    assert expected == found
    assert len(rows) - len(gone) == len(asked_before)


def dot(left: np.ndarray, right: np.ndarray) -> np.float32:
    """The product the long way: both as bytes, summed as whole numbers, scaled."""
    (a, s), (b, t) = quantize(left.astype(np.float16).astype(np.float32)[None]), quantize(right[None])
    return np.float32(int((a[0].astype(int) * b[0].astype(int)).sum())) * s[0] * t[0]


@settings(max_examples=60)
@given(rows=collections(), hidden=st.lists(st.tuples(st.just(5), st.integers(0, 30)), max_size=20), k=st.integers(1, 9))
def test_hidden_passages_leave_no_trace(
    rows: list[tuple[int, int | None]], hidden: list[tuple[int, int]], k: int
) -> None:
    """With passages of a class the scope may not read, every score is the same to the last bit."""
    alone = view_of(index_of(rows), frozenset({1, 2, 3, 4})).search_dense("v", unit(99), k)
    crowded = view_of(index_of([*rows, *hidden]), frozenset({1, 2, 3, 4})).search_dense("v", unit(99), k)

    assert alone == crowded


@settings(max_examples=60)
@given(rows=collections(), hidden=st.lists(st.tuples(st.just(5), st.integers(0, 30)), max_size=60), k=st.integers(1, 9))
def test_hidden_passages_leave_no_trace_where_signs_choose(
    rows: list[tuple[int, int | None]], hidden: list[tuple[int, int]], k: int
) -> None:
    """Which passages are compared as bytes, and how many, depends on nothing the scope may not read."""
    with pytest.MonkeyPatch.context() as few:
        few.setattr(collection_index, "_FULL_SCAN_LIMIT", 10)
        few.setattr(collection_index, "_MIN_RESCORED", 5)
        few.setattr(collection_index, "_RESCORED_PER_RESULT", 1)
        alone = view_of(index_of(rows), frozenset({1, 2, 3, 4})).search_dense("v", unit(99), k)
        crowded = view_of(index_of([*rows, *hidden]), frozenset({1, 2, 3, 4})).search_dense("v", unit(99), k)

    assert alone == crowded


def test_signs_lose_hardly_any_of_the_best() -> None:
    """Among 20,000 vectors around 200 topics the best ten by signs and bytes are the best ten by bytes."""
    draw = np.random.default_rng(5)
    topics = draw.standard_normal((200, 64))
    vectors = (topics[draw.integers(200, size=20_000)] + draw.standard_normal((20_000, 64))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    held = QuantizedVectors(64)
    held.append(np.arange(len(vectors)), vectors)
    asked = vectors[:50]

    best = [set(np.argsort(-dot_products(held.view, vector, None))[:10].tolist()) for vector in asked]
    chosen = [set(prefilter_by_signs(held.view, vector, None, 2_000, None).tolist()) for vector in asked]

    assert sum(len(one & some) for one, some in zip(best, chosen, strict=True)) >= 495


@given(seeds=st.lists(st.integers(0, 30), min_size=1, max_size=40), wanted=st.integers(1, 50))
def test_signs_choose_as_many_as_are_wanted(seeds: list[int], wanted: int) -> None:
    """At least so many vectors are compared again, or all there are, and none that differs more than one left out."""
    held = QuantizedVectors(SIZE)
    held.append(np.arange(len(seeds)), np.stack([unit(seed) for seed in seeds]))

    chosen = prefilter_by_signs(held.view, unit(99), None, wanted, None)

    apart = np.bitwise_count(held.view.signs[:, 0] ^ pack_signs(quantize(unit(99)[None, :])[0])[0, 0])
    assert len(chosen) >= min(wanted, len(seeds))
    assert set(chosen.tolist()) == set(np.flatnonzero(apart <= apart[chosen].max()).tolist())


@given(kept=st.lists(st.booleans(), min_size=1, max_size=60), wanted=st.integers(1, 70))
def test_a_helper_and_pieces_change_no_choice_by_signs(kept: list[bool], wanted: int) -> None:
    """However the vectors are divided, those that the mask lets through are chosen as if there were no others."""
    held, seen = QuantizedVectors(SIZE), QuantizedVectors(SIZE)
    held.append(np.arange(len(kept)), np.stack([unit(seed) for seed in range(len(kept))]))
    mask = np.array(kept)
    slots = np.flatnonzero(mask)
    if len(slots):
        seen.append(slots, np.stack([unit(int(seed)) for seed in slots]))
    with pytest.MonkeyPatch.context() as small, ThreadPoolExecutor(1) as helpers:
        small.setattr(quantized_vectors, "_PARALLEL_SIGN_BYTES", 1)
        small.setattr(quantized_vectors, "_SIGN_CHUNK", 7)
        chosen = prefilter_by_signs(held.view, unit(99), mask, wanted, helpers)

    alone = slots[prefilter_by_signs(seen.view, unit(99), None, wanted, None)] if len(slots) else slots
    assert alone.tolist() == chosen.tolist()


def test_a_helper_changes_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a sweep in another thread gives the same numbers."""
    monkeypatch.setattr(quantized_vectors, "_PARALLEL_CODE_BYTES", 1)
    held = QuantizedVectors(SIZE)
    held.append(np.arange(101), np.stack([unit(seed) for seed in range(101)]))
    with ThreadPoolExecutor(1) as helpers:
        assert np.array_equal(dot_products(held.view, unit(7), None), dot_products(held.view, unit(7), helpers))


def test_many_blocks_are_searched_like_one() -> None:
    """The shortcut over blocks of scores finds what a full sort finds."""
    index = index_of([(1, seed) for seed in range(1_000)])
    look = view_of(index, frozenset({1}))
    everything = look.search_dense("v", unit(99), 1_000)

    best = dict(sorted(everything.items(), key=lambda item: -item[1])[:5])

    assert best == look.search_dense("v", unit(99), 5)


@given(st.lists(st.integers(0, 40), max_size=40))
def test_single_products_are_those_of_the_sweep(seeds: list[int]) -> None:
    """Scores of chosen passages equal those of a scan; passages without a vector have none."""
    rows = [(1, None if seed % 5 == 0 else seed) for seed in seeds]
    look = view_of(index_of(rows), frozenset({1}))
    every = look.search_dense("v", unit(3), len(rows) + 1)

    assert every == look.similarities("v", unit(3), [10 + 3 * at for at in range(len(rows))] + [1_000_000])


def test_products_of_nothing_are_nothing() -> None:
    """An empty view and an empty wish have no products."""
    empty = QuantizedVectors(SIZE).view

    assert 0 == len(dot_products(empty, unit(1), None)) == len(dot_products_at(empty, unit(1), [1])[0])


def test_a_look_does_not_see_what_is_written_later() -> None:
    """A search that is under way answers from the moment it began."""
    index = index_of([(1, 1)])
    look = view_of(index, frozenset({1}))
    index.apply([passage(40, 1, unit(2))], ())

    assert [10] == list(look.search_dense("v", unit(1), 9)) == list(look.similarities("v", unit(1), [10, 40]))


def test_the_zero_vector_is_far_from_everything() -> None:
    """A vector of zeros has a code, and its products are 0."""
    code, scale = quantize(np.zeros((1, SIZE), np.float32))

    assert (0, 0.0) == (int(np.abs(code).sum()), float(scale[0]))


@given(st.lists(st.lists(st.integers(-9, 9), max_size=9), max_size=9))
def test_growing_arrays_keep_what_was_appended(parts: list[list[int]]) -> None:
    """Any number of appends is one array, and an older view stays as it was."""
    array, views = AppendArray(np.int64), list[tuple[np.ndarray, list[int]]]()
    for part in parts:
        array.append(np.array(part, np.int64))
        views.append((array.view, array.view.tolist()))

    assert [each for part in parts for each in part] == array.view.tolist()
    assert all(view.tolist() == then for view, then in views)


@settings(max_examples=200)
@given(where=filters(), kept=record_lists(), cut=st.integers(0, 12), some=st.sets(st.integers(0, 11)))
def test_columns_say_what_the_filter_says(where: Filter, kept: list[Record], cut: int, some: set[int]) -> None:
    """A filter on all records at once, or on some, equals a test of each, also while more are being added."""
    columns = FilterColumns(FIELDS)
    columns.append(kept[:cut])
    columns.append(kept[cut:])
    seen = min(cut, len(kept))
    passing = [record_matches(where, record, FIELDS) for record in kept]
    at = np.array(sorted(number for number in some if number < len(kept)), np.int32)

    assert passing[:seen] == columns.filter_mask(where, slice(seen)).tolist()
    assert passing == columns.filter_mask(where, slice(len(kept))).tolist()
    assert [passing[number] for number in at] == columns.filter_mask(where, at).tolist()


@settings(max_examples=100)
@given(where=filters(), kept=record_lists())
def test_columns_are_made_when_a_filter_names_them(where: Filter, kept: list[Record]) -> None:
    """Fields added one after the other answer like those that were there from the start."""
    columns = FilterColumns({})
    for name in sorted(filter_fields(where)):
        further = FilterColumns({name: FIELDS[name]})
        further.append(kept)
        columns = columns.merge(further)

    assert [record_matches(where, record, FIELDS) for record in kept] == columns.filter_mask(
        where, slice(len(kept))
    ).tolist()


# --- words ---

TERMS = st.lists(st.dictionaries(st.integers(0, 6), st.integers(1, 1_023), max_size=5), max_size=40)


def lists_of(held: Postings, weights: Mapping[int, int], before: int) -> list[WeightedList]:
    """The posting lists of a query."""
    return [WeightedList(weight, held.view.find(term, before)) for term, weight in weights.items()]


@settings(max_examples=150)
@given(
    passages=TERMS,
    weights=st.dictionaries(st.integers(0, 7), st.integers(1, 4_000), min_size=1),
    visible=st.sets(st.integers(0, 39)),
    k=st.integers(1, 6),
    merged=st.booleans(),
)
def test_words_are_a_sort_of_whole_sums(
    passages: list[dict[int, int]], weights: dict[int, int], visible: set[int], k: int, *, merged: bool
) -> None:
    """The best `k` sums in the mask and all that tie with the last, whatever is sorted, merged or left unread."""
    size = len(passages)
    sums = {
        at: sum(weights.get(term, 0) * value for term, value in terms.items())
        for at, terms in enumerate(passages)
        if at in visible
    }
    sums = {at: total for at, total in sums.items() if total}
    last = sorted(sums.values(), reverse=True)[k - 1] if len(sums) >= k else 0
    held = Postings()
    with pytest.MonkeyPatch.context() as small:
        for name, value in {"_MAX_TAIL": 6, "_MAX_MERGED": 40, "_MERGE_BLOCK": 4, "_MIN_PRUNED": 0}.items():
            small.setattr(postings, name, value)
        for at, terms in enumerate(passages):
            keys = np.array(list(terms), np.uint32)
            held.append(keys, np.full(len(keys), at, np.int32), np.array(list(terms.values()), np.uint16))
            held.settle()
        if merged:
            held.merge()
        mask = np.array([at in visible for at in range(size)], np.bool_)
        lists = lists_of(held, weights, size)
        found, scores = find_best(lists, mask, size, k)
        few = np.flatnonzero(mask).astype(np.int32)

        assert {at: total for at, total in sums.items() if total >= last} == dict(
            zip(found.tolist(), scores.tolist(), strict=True)
        )
        assert [sums.get(at, 0) for at in few.tolist()] == score_positions(lists, few).tolist()


@given(passages=TERMS, keys=st.sets(st.integers(0, 7)), before=st.integers(0, 41), limit=st.integers(0, 41))
def test_positions_of_several_keys_are_the_union_of_their_lists(
    passages: list[dict[int, int]], keys: set[int], before: int, limit: int
) -> None:
    """In ascending order and below a bound; too many are not read at all."""
    held = Postings()
    for at, terms in enumerate(passages):
        key = np.array(list(terms)[:1], np.uint32)
        held.append(key, np.full(len(key), at, np.int32), np.ones(len(key), np.uint16))
        if at == len(passages) // 2:
            held.seal()
    expected = [at for at, terms in enumerate(passages) if set(list(terms)[:1]) & keys]
    found = held.view.find_positions(keys, before, limit)

    assert (found is None) == (len(expected) > limit)
    assert found is None or [at for at in expected if at < before] == found.tolist()


def test_a_posting_list_ends_where_the_view_ends() -> None:
    """What is written after a view was taken is not in the lists it reads."""
    held = Postings()
    held.append(np.array([7, 7], np.uint32), np.array([0, 1], np.int32), np.array([3, 4], np.uint16))
    held.seal()
    held.append(np.array([7], np.uint32), np.array([2], np.int32), np.array([5], np.uint16))

    found: list[PostingList] = [held.view.find(7, before) for before in (1, 2, 3)]

    assert [[3], [3, 4], [3, 4, 5]] == [each.values.tolist() for each in found]


# --- cost ---


def test_a_reader_of_little_is_compared_with_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among 5,000 passages of others, one vector is multiplied and one position scored, after any number of writes."""
    work: list[int] = []
    products, scored = collection_index.dot_products, collection_index.score_positions
    monkeypatch.setattr(
        collection_index, "dot_products", lambda view, *rest: work.append(len(view.slots)) or products(view, *rest)
    )
    monkeypatch.setattr(
        collection_index, "score_positions", lambda lists, at: work.append(len(at)) or scored(lists, at)
    )
    index = index_of([(2, 1)] * 2_500)
    index.apply([passage(100_000, 1, unit(1), {7: 1.0})], ())
    index.apply([passage(200_000 + at, 3, unit(2), {7: 1.0}) for at in range(2_500)], ())
    view = view_of(index, frozenset({1}))
    weights = view.weigh_terms([7]).terms

    assert [100_000] == list(view.search_dense("v", unit(1), 5)) == list(view.search_lexical(weights, 5))
    assert work
    assert {1} == set(work)


def test_changes_that_were_loaded_already_are_left_out() -> None:
    """A write that was committed before an index was read, and is applied after, changes nothing."""
    index = index_of([(1, 1), (1, 2)])
    index.apply([passage(13, 1, unit(2)), passage(16, 1, unit(3))], [10, 10])
    index.apply((), [10])

    assert ([10, 13, 16], 1) == (index.pids.tolist(), index.removed)
    assert {13, 16} == set(view_of(index, frozenset({1})).search_dense("v", unit(1), 5))
