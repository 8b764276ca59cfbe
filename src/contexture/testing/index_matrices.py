"""What an index promises about rows of vectors kept with a record; part of `IndexConformance`."""
# ruff: noqa: S101 - a conformance suite asserts

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest

from contexture.errors import InvalidRequest, UnknownCollection
from contexture.ports import Index
from contexture.testing.prepared import COLLECTION, NAME, NOT_UNICODE, make_record, prepare_record, record_ids
from contexture.types import Matrix, PreparedRecord, Record, Scope

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
        """A single vector, or numbers that are none, stop the whole write."""
        with pytest.raises(InvalidRequest):
            await store.upsert(
                scope, NAME, [prepare_record(make_record("a")), prepare_with_rows(make_record("b"), bad)]
            )

        assert record_ids(await store.scroll(scope, NAME)) == []

    async def test_rows_of_an_unknown_collection_are_refused(self, store: Index, scope: Scope) -> None:
        """As by every call that takes a collection."""
        with pytest.raises(UnknownCollection):
            await store.matrices(scope, "nowhere", "rows", [])
