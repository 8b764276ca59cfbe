"""Promises of exact search over vectors in memory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contexture.adapters.index import quantized_vectors, scanner
from contexture.adapters.index.append_array import AppendArray
from contexture.adapters.index.codec import pack_vectors
from contexture.adapters.index.filter_columns import FilterColumns
from contexture.adapters.index.filters import field_types, record_matches
from contexture.adapters.index.quantized_vectors import (
    QuantizedVectors,
    dot_products,
    dot_products_at,
    pack_signs,
    prefilter_by_signs,
    quantize,
)
from contexture.adapters.index.record_store import StoredVectors
from contexture.adapters.index.scanner import VectorScanner
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


def scanner_of(rows: Sequence[tuple[int, int | None]]) -> VectorScanner:
    """A scanner that holds these passages, with ids from 10 in steps of 3."""
    found = VectorScanner({"v": SIZE}, None)
    found.fill(
        StoredVectors(10 + 3 * at, access, packed(None if seed is None else unit(seed)), (f"r{at}", 0))
        for at, (access, seed) in enumerate(rows)
    )
    return found


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
    scanner = scanner_of(rows)
    scanner.apply((), (), [10 + 3 * at for at in removed if at < len(rows)])
    asked = unit(99)
    scores = {
        10 + 3 * at: float(dot(unit(seed), asked))
        for at, (access, seed) in enumerate(rows)
        if access in allowed and seed is not None and at not in removed
    }
    last = sorted(scores.values(), reverse=True)[k - 1] if len(scores) >= k else -np.inf

    found = scanner.view(allowed, None).search_dense("v", asked, k)

    assert {pid: score for pid, score in scores.items() if score >= last} == found


@settings(max_examples=80)
@given(rows=collections(), removed=st.sets(st.integers(0, 59)), k=st.integers(1, 12))
def test_a_removal_ends_what_was_cached_before_it(
    rows: list[tuple[int, int | None]], removed: set[int], k: int
) -> None:
    """A view taken after a removal finds what a scanner finds that was never asked before."""
    asked_before, never_asked = scanner_of(rows), scanner_of(rows)
    allowed, gone = frozenset({1, 2, 3, 4}), [10 + 3 * at for at in removed if at < len(rows)]
    asked_before.view(allowed, None)
    for each in (asked_before, never_asked):
        each.apply((), (), gone)

    found, expected = (each.view(allowed, None).search_dense("v", unit(99), k) for each in (asked_before, never_asked))

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
    alone = scanner_of(rows).view(frozenset({1, 2, 3, 4}), None).search_dense("v", unit(99), k)
    crowded = scanner_of([*rows, *hidden]).view(frozenset({1, 2, 3, 4}), None).search_dense("v", unit(99), k)

    assert alone == crowded


@settings(max_examples=60)
@given(rows=collections(), hidden=st.lists(st.tuples(st.just(5), st.integers(0, 30)), max_size=60), k=st.integers(1, 9))
def test_hidden_passages_leave_no_trace_where_signs_choose(
    rows: list[tuple[int, int | None]], hidden: list[tuple[int, int]], k: int
) -> None:
    """Which passages are compared as bytes, and how many, depends on nothing the scope may not read."""
    with pytest.MonkeyPatch.context() as few:
        few.setattr(scanner, "_FULL_SCAN_LIMIT", 10)
        few.setattr(scanner, "_MIN_RESCORED", 5)
        few.setattr(scanner, "_RESCORED_PER_RESULT", 1)
        alone = scanner_of(rows).view(frozenset({1, 2, 3, 4}), None).search_dense("v", unit(99), k)
        crowded = scanner_of([*rows, *hidden]).view(frozenset({1, 2, 3, 4}), None).search_dense("v", unit(99), k)

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
    scanner = scanner_of([(1, seed) for seed in range(1_000)])
    look = scanner.view(frozenset({1}), None)
    everything = look.search_dense("v", unit(99), 1_000)

    best = dict(sorted(everything.items(), key=lambda item: -item[1])[:5])

    assert best == look.search_dense("v", unit(99), 5)


@given(st.lists(st.integers(0, 40), max_size=40))
def test_single_products_are_those_of_the_sweep(seeds: list[int]) -> None:
    """Scores of chosen passages equal those of a scan; passages without a vector have none."""
    rows = [(1, None if seed % 5 == 0 else seed) for seed in seeds]
    look = scanner_of(rows).view(frozenset({1}), None)
    every = look.search_dense("v", unit(3), len(rows) + 1)

    assert every == look.similarities("v", unit(3), [10 + 3 * at for at in range(len(rows))] + [1_000_000])


def test_products_of_nothing_are_nothing() -> None:
    """An empty view and an empty wish have no products."""
    empty = QuantizedVectors(SIZE).view

    assert 0 == len(dot_products(empty, unit(1), None)) == len(dot_products_at(empty, unit(1), [1])[0])


def test_a_look_does_not_see_what_is_written_later() -> None:
    """A search that is under way answers from the moment it began."""
    scanner = scanner_of([(1, 1)])
    look = scanner.view(frozenset({1}), None)
    scanner.apply([StoredVectors(40, 1, packed(unit(2)), ("late", 0))], (), ())

    assert [10] == list(look.search_dense("v", unit(1), 9)) == list(look.similarities("v", unit(1), [10, 40]))


def test_places_are_known_as_far_as_the_look_goes() -> None:
    """Record id and ordinal come from memory; a passage from after the look has none yet."""
    look = scanner_of([(1, 1), (1, None)]).view(frozenset({1}), None)

    assert {13: ("r1", 0), 10: ("r0", 0), 99: ("", 0)} == look.passage_keys([13, 10, 99])


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


@settings(max_examples=300)
@given(where=filters(), kept=record_lists(), cut=st.integers(0, 12))
def test_columns_say_what_the_filter_says(where: Filter, kept: list[Record], cut: int) -> None:
    """Testing a filter on all records at once equals testing it on each, also while more are being added."""
    columns = FilterColumns(FIELDS)
    columns.append(kept[:cut])
    columns.append(kept[cut:])
    seen = min(cut, len(kept))

    assert [record_matches(where, record, FIELDS) for record in kept[:seen]] == columns.filter_mask(
        where, seen
    ).tolist()
    assert [record_matches(where, record, FIELDS) for record in kept] == columns.filter_mask(where, len(kept)).tolist()


@settings(max_examples=100)
@given(where=filters(), kept=record_lists())
def test_columns_are_made_when_a_filter_names_them(where: Filter, kept: list[Record]) -> None:
    """Fields added one after the other answer like those that were there from the start."""
    columns = FilterColumns({})
    for name in sorted(columns.missing_columns(where)):
        further = FilterColumns({name: FIELDS[name]})
        further.append(kept)
        columns = columns.merge(further)

    assert not columns.missing_columns(where)
    assert [record_matches(where, record, FIELDS) for record in kept] == columns.filter_mask(where, len(kept)).tolist()
