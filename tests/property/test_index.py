"""Promises of the embedded index that one example cannot show."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.codec import (
    extract_facts,
    pack_facts,
    pack_spans,
    pack_vectors,
    unpack_facts,
    unpack_spans,
    unpack_vectors,
)
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.index.record_store import StoreChange
from contexture.adapters.index.scoring import idf_weights
from contexture.adapters.index.search_ports import ScopedSearcher
from contexture.testing.index_records import (
    COLLECTION,
    EAST,
    NAME,
    NORTH,
    VECTORS,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.text.terms import bm25_weights, extract_terms
from contexture.types import PreparedRecord, Query, Record, Scope, Span

LAX = [HealthCheck.function_scoped_fixture]
EXAMPLES = count()
WORDS = ("zebra", "walrus", "giraffe", "lynx")
OPTIONS = EmbeddedOptions(vectors=VECTORS, threads=1)


@pytest.fixture
async def index(new_folder: Callable[[], Path]) -> AsyncIterator[EmbeddedIndex]:
    """An empty store."""
    opened = await EmbeddedIndex.open(new_folder(), OPTIONS)
    yield opened
    await opened.close()


def texts() -> st.SearchStrategy[str]:
    """A line or two of a few words."""
    return st.lists(st.sampled_from((*WORDS, "\n")), min_size=1, max_size=8).map(" ".join)


@dataclass(frozen=True)
class Step:
    """A write of these records, or a removal of these ids."""

    texts: dict[str, str]
    remove: bool


STEPS = st.lists(
    st.builds(Step, st.dictionaries(st.sampled_from("abcdef"), texts(), max_size=4), st.booleans()), max_size=8
)


@settings(max_examples=60, suppress_health_check=LAX)
@given(steps=STEPS, asked=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), k=st.integers(1, 8))
async def test_the_index_is_a_model_with_bm25(
    steps: list[Step], asked: list[str], k: int, index: EmbeddedIndex
) -> None:
    """After any writes and removals it holds what a dictionary would, and ranks by BM25 computed by hand."""
    scope, model = Scope(tenant=f"t{next(EXAMPLES)}", user="anna"), dict[str, str]()
    await index.create(scope, COLLECTION)
    for step in steps:
        if step.remove:
            assert len(model.keys() & step.texts.keys()) == await index.delete(scope, NAME, list(step.texts))
            model = {name: text for name, text in model.items() if name not in step.texts}
        else:
            await index.upsert(
                scope, NAME, [prepare_record(make_record(name, text)) for name, text in step.texts.items()]
            )
            model |= step.texts

    assert model == {record.id: record.text for record in await index.scroll(scope, NAME)}
    found = await index.search(scope, make_query(" ".join(asked), k=k))
    expected = by_hand(model, asked)[:k]
    ranked = sorted(found, key=lambda hit: hit.ranks["bm25"])
    assert [place for _, *place in expected] == [[hit.record.id, hit.ordinal] for hit in ranked]
    assert all(
        math.isclose(hit.scores["bm25"], -score, rel_tol=1e-6)
        for hit, (score, *_) in zip(ranked, expected, strict=True)
    )


def by_hand(model: dict[str, str], asked: Sequence[str]) -> list[tuple[float, str, int]]:
    """Every passage that shares a word with the question, best first, ties by id and place.

    Weights and inverse document frequencies count in 256ths, so that sums are exact.
    """
    passages = [
        (name, ordinal, bm25_weights(line))
        for name, text in model.items()
        for ordinal, line in enumerate(line for line in text.split("\n") if line.strip())
    ]
    wanted = set(extract_terms(" ".join(asked)))
    idf = {}
    for term in wanted:
        holders = sum(term in weights for *_, weights in passages)
        idf[term] = max(round(256 * math.log(1 + (len(passages) - holders + 0.5) / (holders + 0.5))), 1)
    scored = [
        (-sum(idf[term] * round(256 * weights.get(term, 0.0)) for term in wanted) / 65_536, name, ordinal)
        for name, ordinal, weights in passages
        if wanted & weights.keys()
    ]
    return sorted(scored)


@settings(max_examples=15, suppress_health_check=LAX)
@given(steps=STEPS)
async def test_reopening_changes_nothing(steps: list[Step], new_folder: Callable[[], Path]) -> None:
    """Closed and opened again, optimised or not, warm or not, a store gives the same answers."""
    folder, scope = new_folder(), Scope.local()
    index = await EmbeddedIndex.open(folder, OPTIONS)
    await index.create(scope, COLLECTION)
    for step in steps:
        if step.remove:
            await index.delete(scope, NAME, list(step.texts))
        else:
            await index.upsert(
                scope, NAME, [prepare_record(make_record(name, text)) for name, text in step.texts.items()]
            )
    before = await answers(index, scope)
    await index.warm()
    await index.optimize()
    optimised = await answers(index, scope)
    await index.close()
    index = await EmbeddedIndex.open(folder, OPTIONS)
    after = await answers(index, scope)
    await index.close()

    assert before == optimised == after


async def answers(index: EmbeddedIndex, scope: Scope) -> list[object]:
    """What a store answers to a few questions, scores included."""
    asked = (make_query("zebra walrus", k=3), make_query(vector=EAST, k=2), make_query("lynx", vector=NORTH))
    found = [await index.search(scope, each) for each in asked]
    hits = [[(hit.record, hit.ordinal, hit.text, hit.scores, hit.ranks) for hit in each] for each in found]
    return [*hits, list(await index.scroll(scope, NAME)), index.count(NAME)]


async def test_removed_records_take_no_place_among_the_best(index: EmbeddedIndex) -> None:
    """A question asked again after the two best of seven records were deleted finds the other five."""
    scope = Scope.local()
    await index.create(scope, COLLECTION)
    await index.upsert(scope, NAME, [prepare_record(make_record(f"r{at}", "zebra"), spread(at)) for at in range(7)])
    asked = make_query(vector=spread(0), k=5)
    hits = await index.search(scope, asked)
    best = sorted(hits, key=lambda hit: min(hit.ranks.values()))[:2]
    gone = {hit.record.id for hit in best}
    await index.delete(scope, NAME, sorted(gone))

    assert sorted({f"r{at}" for at in range(7)} - gone) == sorted(record_ids(await index.search(scope, asked)))


def spread(at: int) -> np.ndarray:
    """Unit vectors in different directions."""
    return np.array([math.cos(at), math.sin(at), 0, 0], np.float32)


async def test_warming_touches_only_what_there_is(new_folder: Callable[[], Path]) -> None:
    """Empty collections, records without terms and vectors of another layout are passed over."""
    folder = new_folder()
    index = await EmbeddedIndex.open(folder, OPTIONS)
    await index.create(Scope.local(), COLLECTION)
    await index.warm()
    await index.upsert(Scope.local(), NAME, [prepare_record(make_record("a", "the and of"))])
    await index.warm()
    await index.close()
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors={"another": 3}, threads=1))
    await index.warm()
    await index.close()


@pytest.mark.parametrize("groups", [1, 5, 20, 35, 40])
async def test_any_number_of_reader_groups_can_be_told_apart(groups: int, index: EmbeddedIndex) -> None:
    """Few or many, allowed or hidden: a scope finds exactly the records of its groups."""
    tenant = f"t{next(EXAMPLES)}"
    everyone = Scope(tenant=tenant, user="root")
    await index.create(everyone, COLLECTION)
    await index.upsert(
        everyone, NAME, [prepare_record(make_record(f"r{at:02}", acl=(f"group:g{at}",))) for at in range(40)]
    )
    asker = Scope(tenant=tenant, user="anna", groups=tuple(f"g{at}" for at in range(groups)))
    expected = [f"r{at:02}" for at in range(groups)]

    assert expected == record_ids(await index.search(asker, make_query("zebra")))
    assert expected == record_ids(await index.search(asker, make_query(vector=EAST)))


@given(
    spans=st.lists(st.builds(Span, st.integers(0, 9), st.integers(10, 99), st.text(max_size=5), st.floats(0, 1))),
    text=texts(),
)
def test_bytes_keep_what_they_were_given(spans: list[Span], text: str) -> None:
    """Spans, facts and vectors come out as they went in, vectors to half precision."""
    (passage, *_) = prepare_record(Record(id="r", text=f"zebra {text}", acl=())).passages
    facts = unpack_facts(pack_facts(extract_facts(passage)))

    assert tuple(spans) == unpack_spans(pack_spans(tuple(spans)))
    assert (passage.start, passage.end, passage.simhash) == (facts.start, facts.end, facts.simhash)
    assert np.array_equal(EAST, unpack_vectors(pack_vectors(passage))["dense"])


def test_a_term_nobody_may_see_has_no_weight() -> None:
    """IDF is over the permitted passages; a term in none of them does not count, one in all of them counts little."""
    weights = idf_weights([1, 2, 3], {1: 1, 2: 10}, 10).terms

    assert {1, 2} == set(weights)
    assert weights[1] > weights[2] > 0


async def anna_with_a_zebra(index: EmbeddedIndex) -> tuple[Scope, PreparedRecord]:
    """Somebody in a tenant of her own, and the one record that she alone may read."""
    anna = Scope(tenant=f"t{next(EXAMPLES)}", user="anna")
    mine = prepare_record(make_record("mine", text="zebra and much else besides", acl=("user:anna",)))
    await index.create(anna, COLLECTION)
    await index.upsert(anna, NAME, [mine])
    return anna, mine


@pytest.mark.parametrize("newcomer", ["elsewhere", "here"])
async def test_what_is_written_while_a_search_is_under_way_is_not_shown_to_those_it_is_hidden_from(
    newcomer: str, index: EmbeddedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that has gathered what it may read is overtaken by a write with readers nobody had before."""
    anna, _ = await anna_with_a_zebra(index)
    other = Scope(tenant=anna.tenant if newcomer == "here" else f"{anna.tenant} of others", user="boris")
    await index.create(other, COLLECTION)
    sight, written = index._open_view, list[str]()

    def overtaken(asked: Query, access: ScopeAccess) -> ScopedSearcher:
        if not written:
            written.append("secret")
            index._upsert(other, NAME, [prepare_record(make_record("secret", text="zebra", acl=("user:boris",)))])
        return sight(asked, access)

    monkeypatch.setattr(index, "_open_view", overtaken)

    assert ["mine"] == record_ids(await index.search(anna, make_query("zebra", k=1)))
    assert ["secret"] == written
    assert ["secret"] == record_ids(await index.search(other, make_query("zebra")))


@pytest.mark.parametrize("change", ["hidden one removed", "own one rewritten"])
async def test_a_search_that_a_write_overtakes_misses_nothing(
    change: str, index: EmbeddedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a write is in the truth and not yet in the parts, what the asker has is still found."""
    anna, mine = await anna_with_a_zebra(index)
    boris = Scope(tenant=anna.tenant, user="boris")
    await index.upsert(boris, NAME, [prepare_record(make_record("his", acl=("user:boris",)))])
    await index.search(anna, make_query("zebra"))  # what may be read is known from now on
    follow, still, waiting, found = (
        index._search_backend.apply_change,
        index._with_writes_paused,
        threading.Event(),
        list[list[str]](),
    )

    def search() -> None:
        found.append(record_ids(index._search(anna, make_query("zebra", k=1))))
        waiting.set()

    def late(tenant: str, name: str, done: StoreChange) -> None:
        searching.start()
        assert waiting.wait(60)
        follow(tenant, name, done)

    def noted() -> AbstractContextManager[object]:
        waiting.set()
        return still()

    searching = threading.Thread(target=search)
    monkeypatch.setattr(index._search_backend, "apply_change", late)
    monkeypatch.setattr(index, "_with_writes_paused", noted)
    await (index.delete(boris, NAME, ["his"]) if change.startswith("hidden") else index.upsert(anna, NAME, [mine]))
    searching.join(60)

    assert [["mine"]] == found
