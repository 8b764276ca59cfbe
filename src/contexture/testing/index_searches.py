"""Searches, scrolling, refused calls, and rows of vectors stored with a record; part of `IndexConformance`."""
# ruff: noqa: S101 - a conformance suite asserts

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import cast
from uuid import uuid4

import numpy as np
import pytest

from contexture.errors import InvalidRequest, RequestError, UnknownCollection, UnknownField
from contexture.ports import Index
from contexture.testing.index_records import (
    AWKWARD_IDS,
    COLLECTION,
    EAST,
    NAME,
    NORTH,
    NOT_UNICODE,
    VECTOR,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.types import (
    And,
    AnyOf,
    ChannelCandidates,
    ChannelRanks,
    Collection,
    Contains,
    Equals,
    FieldType,
    Filter,
    Matrix,
    Not,
    Or,
    PreparedRecord,
    Range,
    Record,
    Scope,
    Vector,
)

REFUSED_FILTERS: tuple[tuple[Filter, type[RequestError]], ...] = (
    (Equals("colour", "red"), UnknownField),
    (AnyOf("colour", ()), UnknownField),
    (Contains("colour", "r"), UnknownField),
    (Range(field="colour", gte=1), UnknownField),
    (Not(And((Or((Equals("colour", "red"),)),))), UnknownField),
    (Equals("tags", 1), InvalidRequest),
    (Equals("rating", "high"), InvalidRequest),
    (Equals("rating", True), InvalidRequest),
    (Equals("rating", float("nan")), InvalidRequest),
    (Equals("rating", 10**400), InvalidRequest),
    (Equals("pinned", 1), InvalidRequest),
    (Equals("time", "2026-01-01"), InvalidRequest),
    (AnyOf("tags", ("red", 1)), InvalidRequest),
    (Contains("rating", "1"), InvalidRequest),
    (Range(field="rating", gte=datetime(2026, 1, 1, tzinfo=UTC)), InvalidRequest),
    (Range(field="rating", lt=float("inf")), InvalidRequest),
    (Range(field="time", gte=1.0), InvalidRequest),
    (Range(field="tags", gte=1), InvalidRequest),
    (Equals("tags", NOT_UNICODE), InvalidRequest),
    (Contains("tags", NOT_UNICODE), InvalidRequest),
    (cast("Filter", "red"), InvalidRequest),
    (AnyOf("tags", cast("tuple[str]", ["red"])), InvalidRequest),
    (reduce(lambda part, _: Not(part), range(100), cast("Filter", Equals("tags", "red"))), InvalidRequest),
)


class IndexSearchTests:
    """Searches rank, filter and refuse as the port says."""

    async def test_equal_scores_are_ranked_by_id(self, store: Index, scope: Scope) -> None:
        """Ties go to the smaller id and then to the earlier passage, whatever was written first."""
        for name in ("c", "a", "b"):
            await store.upsert(scope, NAME, [prepare_record(make_record(name, "zebra\n\nzebra"), EAST)])
        for asked, channel in ((make_query("zebra", k=3), "bm25"), (make_query(vector=EAST, k=3), VECTOR)):
            found = await store.search(scope, asked)
            ranked = sorted((hit.ranks[channel], hit.record.id, hit.ordinal) for hit in found)

            assert ranked == [(1, "a", 0), (2, "a", 1), (3, "b", 0)]

    async def test_every_channel_returns_its_best(self, store: Index, scope: Scope) -> None:
        """The answer is the union of the channels; a hit is scored by every channel that can score it."""
        words, vector = (
            prepare_record(make_record("words", "zebra"), NORTH),
            prepare_record(make_record("vector", "walrus"), EAST),
        )
        await store.upsert(scope, NAME, [words, vector])
        found = {hit.record.id: hit for hit in await store.search(scope, make_query("zebra", vector=EAST, k=1))}

        assert (dict(found["words"].ranks), dict(found["vector"].ranks)) == ({"bm25": 1}, {VECTOR: 1})
        assert found["words"].scores["bm25"] > 0 == found["vector"].scores["bm25"]
        assert found["words"].scores[VECTOR] < found["vector"].scores[VECTOR] == pytest.approx(1.0, abs=1e-2)

    async def test_a_passage_without_a_vector_is_not_near_anything(self, store: Index, scope: Scope) -> None:
        """The dense channel leaves it out, the lexical one finds it and gives no similarity."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra"), None)])

        assert record_ids(await store.search(scope, make_query(vector=EAST))) == []
        assert [{"bm25"}] == [set(hit.scores) for hit in await store.search(scope, make_query("zebra", vector=EAST))]

    async def test_rarer_words_weigh_more(self, store: Index, scope: Scope) -> None:
        """Of two records that share one word with the question, the one with the rarer word is better."""
        texts = {"a": "zebra", "b": "walrus", "c": "zebra", "d": "zebra"}
        await store.upsert(scope, NAME, [prepare_record(make_record(name, text)) for name, text in texts.items()])
        found = await store.search(scope, make_query("zebra walrus"))

        assert max(found, key=lambda hit: hit.scores["bm25"]).record.id == "b"

    async def test_a_query_without_channels_finds_nothing(self, store: Index, scope: Scope) -> None:
        """No terms and no vectors, or only unknown terms, give no hits."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra"))])

        assert record_ids(await store.search(scope, make_query())) == []
        assert record_ids(await store.search(scope, make_query("walrus"))) == []

    async def test_k_may_be_larger_than_the_store(self, store: Index, scope: Scope) -> None:
        """Asking for more than there is gives what there is."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra"))])

        assert record_ids(await store.search(scope, make_query("zebra", vector=EAST, k=10**9))) == ["a"]

    async def test_fusion_chooses_what_is_returned(self, store: Index, scope: Scope) -> None:
        """`fuse` gets the best of every channel; the answer is what it chooses, with its ranks and all scores."""
        texts = {"a": ("zebra", EAST), "b": ("zebra zebra", NORTH), "c": ("walrus", EAST)}
        await store.upsert(
            scope, NAME, [prepare_record(make_record(name, text), vector) for name, (text, vector) in texts.items()]
        )
        given: list[ChannelCandidates] = []

        def keep_least_similar(found: ChannelCandidates) -> ChannelRanks:
            given.append(found)
            return {min(found.scores[VECTOR], key=found.scores[VECTOR].__getitem__): {"mine": 7}}

        asked = replace(make_query("zebra", vector=EAST, k=3), fuse=keep_least_similar)
        (hit,) = await store.search(scope, asked)

        assert (hit.record.id, dict(hit.ranks), set(hit.scores)) == ("b", {"mine": 7}, {"bm25", VECTOR})
        assert given[-1].k == asked.k
        assert {channel: len(scores) for channel, scores in given[-1].scores.items()} == {"bm25": 2, VECTOR: 3}

    async def test_fusion_may_choose_nothing(self, store: Index, scope: Scope) -> None:
        """No passage chosen gives no hits."""

        def choose_nothing(_: ChannelCandidates) -> ChannelRanks:
            return {}

        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra"))])
        asked = replace(make_query("zebra", vector=EAST), fuse=choose_nothing)

        assert list(await store.search(scope, asked)) == []

    async def test_ties_at_the_edge_of_the_pool_go_to_the_smaller_id(self, store: Index, scope: Scope) -> None:
        """Passages ranked well by two channels come before those ranked best by one, whatever was written first."""
        both = [prepare_record(make_record(name, "zebra"), EAST) for name in "ba"]
        single = [
            prepare_record(make_record("words", "zebra zebra"), NORTH),
            prepare_record(make_record("vector", "walrus"), EAST),
        ]
        await store.upsert(scope, NAME, [*single, *both])

        assert record_ids(await store.search(scope, make_query("zebra", vector=EAST, k=3, pool=2))) == ["a", "b"]
        assert record_ids(await store.search(scope, make_query("zebra", vector=EAST, k=3, pool=1))) == ["a"]
        everything = record_ids(await store.search(scope, make_query("zebra", vector=EAST, k=3, pool=99)))
        assert everything == ["a", "b", "vector", "words"]

    async def test_scroll_walks_in_id_order(self, store: Index, scope: Scope) -> None:
        """Pages of any size, each starting behind the last, give every record once, by code point."""
        names = sorted([*AWKWARD_IDS, "B", "Ж", "\uffff", "\U0001f642"])
        await store.upsert(scope, NAME, [prepare_record(make_record(name)) for name in reversed(names)])
        walked: list[str] = []
        while page := await store.scroll(scope, NAME, after=walked[-1] if walked else "", limit=3):
            walked += [record.id for record in page]

        assert names == walked

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_scroll_refuses_an_empty_page(self, store: Index, scope: Scope, limit: int) -> None:
        """A page holds at least one record."""
        with pytest.raises(InvalidRequest):
            await store.scroll(scope, NAME, limit=limit)

    async def test_scroll_refuses_a_start_that_is_not_unicode(self, store: Index, scope: Scope) -> None:
        """A start that no id can be is an error."""
        with pytest.raises(InvalidRequest):
            await store.scroll(scope, NAME, after=NOT_UNICODE)

    @pytest.mark.parametrize(("where", "error"), REFUSED_FILTERS, ids=lambda value: ascii(value)[:48])
    async def test_an_invalid_filter_is_refused(
        self, store: Index, scope: Scope, where: Filter, error: type[RequestError]
    ) -> None:
        """Unknown fields and values of another type are named, by search and scroll alike."""
        with pytest.raises(error):
            await store.search(scope, make_query("zebra", where=where))
        with pytest.raises(error):
            await store.scroll(scope, NAME, where=where)

    @pytest.mark.parametrize(
        ("vectors", "k"),
        [
            ({"no-such-vector": EAST}, 5),
            ({VECTOR: np.ones(3, np.float32)}, 5),
            ({VECTOR: np.full(4, np.nan, np.float32)}, 5),
            ({VECTOR: EAST}, 0),
            ({}, -1),
        ],
    )
    async def test_an_invalid_query_is_refused(
        self, store: Index, scope: Scope, vectors: Mapping[str, Vector], k: int
    ) -> None:
        """Unknown vectors, wrong lengths, values that are no numbers, and a `k` below 1 are named."""
        with pytest.raises(InvalidRequest):
            await store.search(scope, make_query("zebra", vectors=vectors, k=k))

    async def test_an_unknown_collection_is_named(self, store: Index, scope: Scope) -> None:
        """Every call that takes a collection refuses an unknown one, and says which the tenant has."""
        stranger = Scope(tenant="elsewhere", user=scope.user)
        with pytest.raises(UnknownCollection, match=r"'nowhere'; there are: none yet"):
            await store.get(stranger, "nowhere", [])
        calls = (
            store.upsert(scope, "nowhere", []),
            store.delete(scope, "nowhere", []),
            store.get(scope, "nowhere", []),
            store.scroll(scope, "nowhere"),
            store.search(scope, make_query("zebra", collection="nowhere")),
            store.matrices(scope, "nowhere", "rows", []),
            store.version(scope, "nowhere"),
        )
        for call in calls:
            with pytest.raises(UnknownCollection, match=rf"'nowhere'.*{NAME}"):
                await call

    @pytest.mark.parametrize("name", ["", "..", "a/b", "1st", "é", "x" * 65, "a b"])
    async def test_collection_names_are_restricted(self, store: Index, scope: Scope, name: str) -> None:
        """Collections and fields are named with letters, digits, `_`, `-` and `.`."""
        with pytest.raises(InvalidRequest):
            await store.create(scope, Collection(name=name))
        with pytest.raises(InvalidRequest):
            await store.create(scope, Collection(name=NAME, fields={name: FieldType.KEYWORD}))

    async def test_a_field_keeps_its_type(self, store: Index, scope: Scope) -> None:
        """Neither a declared field nor a built-in one can become something else, and a refused change has no effect."""
        for fields in ({"rating": FieldType.KEYWORD}, {"time": FieldType.TIME}):
            with pytest.raises(InvalidRequest):
                await store.create(scope, Collection(name=NAME, fields={**fields, "fresh": FieldType.FLAG}))

        found = {collection.name: collection for collection in await store.collections(scope)}
        assert dict(COLLECTION.fields) == dict(found[NAME].fields)

    async def test_a_new_field_covers_old_records(self, index: Index, scope: Scope) -> None:
        """A field declared after records were written filters those too."""
        late = f"late_{uuid4().hex[:8]}"
        await index.create(scope, Collection(name=late))
        record = make_record("a", "zebra", payload={"colour": "red"})
        await index.upsert(scope, late, [prepare_record(record)])
        await index.create(scope, Collection(name=late, fields={"colour": FieldType.KEYWORD}))

        for colour, expected in (("red", ["a"]), ("blue", [])):
            where = Equals("colour", colour)
            assert expected == record_ids(await index.search(scope, make_query("zebra", where=where, collection=late)))
            assert expected == record_ids(await index.scroll(scope, late, where=where))

    async def test_collections_are_listed_by_name(self, index: Index, scope: Scope) -> None:
        """What was created is listed with its fields, in order, once."""
        names = sorted(f"c_{uuid4().hex[:8]}" for _ in range(3))
        for name in reversed(names * 2):
            await index.create(scope, Collection(name=name, fields={"tags": FieldType.KEYWORD}))
        listed = [collection.name for collection in await index.collections(scope)]

        assert names == listed


ROWS: Matrix = np.array([[1, 0, 0], [0, 0.6, 0.8]], np.float32)


def prepare_with_rows(record: Record, rows: Matrix = ROWS, name: str = "rows") -> PreparedRecord:
    """The prepared record with rows of vectors."""
    return replace(prepare_record(record), matrices={name: rows})


class IndexMatrixTests:
    """Matrices are written, read and deleted with their record, and share its readers."""

    async def test_rows_come_back_as_they_were_written(self, store: Index, scope: Scope) -> None:
        """Shape and numbers survive to two decimals, each name has its own rows, and what has none is left out."""
        both = replace(prepare_record(make_record("a")), matrices={"rows": ROWS, "other": 5 * ROWS[:1]})
        await store.upsert(
            scope, NAME, [both, prepare_with_rows(make_record("b"), ROWS[1:]), prepare_record(make_record("c"))]
        )
        found = await store.matrices(scope, NAME, "rows", ["c", "b", "a", "missing", NOT_UNICODE, ""])
        (other,) = (await store.matrices(scope, NAME, "other", ["a"])).values()

        assert sorted(found) == ["a", "b"]
        np.testing.assert_allclose(found["a"], ROWS, atol=0.01)
        np.testing.assert_allclose(found["b"], ROWS[1:], atol=0.01)
        np.testing.assert_allclose(other, 5 * ROWS[:1], atol=0.05)
        assert found["a"].dtype == np.float32
        assert not await store.matrices(scope, NAME, "nothing", ["a"])

    async def test_an_update_replaces_the_rows(self, store: Index, scope: Scope) -> None:
        """The new rows are read, and none of the old ones."""
        await store.upsert(scope, NAME, [prepare_with_rows(make_record("a"))])
        await store.upsert(scope, NAME, [prepare_with_rows(make_record("a"), ROWS[:1], "fresh")])

        assert not await store.matrices(scope, NAME, "rows", ["a"])
        assert (await store.matrices(scope, NAME, "fresh", ["a"]))["a"].shape == (1, 3)

    async def test_rows_are_deleted_with_their_record(self, store: Index, scope: Scope) -> None:
        """After a delete nothing is left to read, and a record that comes back without rows has none."""
        await store.upsert(scope, NAME, [prepare_with_rows(make_record("a"))])
        await store.delete(scope, NAME, ["a"])
        await store.upsert(scope, NAME, [prepare_record(make_record("a"))])

        assert not await store.matrices(scope, NAME, "rows", ["a"])

    async def test_rows_are_as_private_as_their_record(self, store: Index, scope: Scope) -> None:
        """Another tenant, and a user whom the `acl` does not name, get nothing."""
        await store.upsert(scope, NAME, [prepare_with_rows(make_record("a", acl=("user:anna",)))])

        assert list(await store.matrices(scope, NAME, "rows", ["a"])) == ["a"]
        assert not await store.matrices(replace(scope, user="boris"), NAME, "rows", ["a"])
        other = replace(scope, tenant=uuid4().hex)
        await store.create(other, COLLECTION)
        assert not await store.matrices(other, NAME, "rows", ["a"])

    @pytest.mark.parametrize("bad", [np.ones(3, np.float32), np.full((2, 3), np.nan, np.float32)])
    async def test_malformed_rows_are_refused(self, store: Index, scope: Scope, bad: Matrix) -> None:
        """A single vector, or NaN, refuses the whole write."""
        with pytest.raises(InvalidRequest):
            await store.upsert(
                scope, NAME, [prepare_record(make_record("a")), prepare_with_rows(make_record("b"), bad)]
            )

        assert record_ids(await store.scroll(scope, NAME)) == []

    async def test_rows_of_an_unknown_collection_are_refused(self, store: Index, scope: Scope) -> None:
        """As by every call that takes a collection."""
        with pytest.raises(UnknownCollection):
            await store.matrices(scope, "nowhere", "rows", [])
