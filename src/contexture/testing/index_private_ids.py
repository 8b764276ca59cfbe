"""Ids of private records, which are unique among those of one reader: for indexes that have such id spaces.

class TestMyIndex(IndexConformance, IndexPrivateIdTests): ...
"""
# ruff: noqa: S101 - a conformance suite asserts

from dataclasses import replace

import numpy as np
import pytest

from contexture.errors import NotPermitted, Outdated
from contexture.ports import Index
from contexture.testing.index_records import EAST, NAME, make_query, make_record, prepare_record
from contexture.types import PUBLIC, PreparedRecord, ReadersScope, Scope

ANNAS, BORISES, SALES = ("user:anna",), ("user:boris",), ("group:sales",)


def _prepare(text: str, acl: tuple[str, ...]) -> PreparedRecord:
    return prepare_record(make_record("a", text, acl=acl))


async def _read(store: Index, scope: Scope) -> list[list[str]]:
    """The texts of everything that the scope reads, by every call."""
    asked = (make_query("zebra"), make_query(vector=EAST))
    return [
        [record.text for record in await store.get(scope, NAME, ["a", "b"])],
        [record.text for record in await store.scroll(scope, NAME)],
        *[[hit.text for hit in await store.search(scope, query)] for query in asked],
    ]


class IndexPrivateIdTests:
    """What only somebody else may read neither refuses a write nor is changed by it."""

    @pytest.fixture
    def boris(self, scope: Scope) -> Scope:
        """A user without groups, in the same tenant."""
        return replace(scope, user="boris", groups=())

    @pytest.mark.parametrize("acl", [BORISES, (PUBLIC,), (*BORISES, "user:carla")])
    async def test_a_write_to_the_id_of_a_foreign_private_record_is_like_any_other(
        self, store: Index, scope: Scope, boris: Scope, acl: tuple[str, ...]
    ) -> None:
        """Whatever its readers are, it is stored, replaced and removed, and the private record stays as it is."""
        await store.upsert(scope, NAME, [_prepare("zebra of anna", ANNAS)])
        for text in ("zebra of boris", "zebra again"):
            await store.upsert(boris, NAME, [_prepare(text, acl)])

            assert await _read(store, boris) == [[text]] * 4
            assert await _read(store, scope) == [["zebra of anna"]] * 4
        assert await store.delete(boris, NAME, ["a"]) == 1
        assert await _read(store, boris) == [[]] * 4
        assert await _read(store, scope) == [["zebra of anna"]] * 4

    async def test_ones_own_private_record_comes_before_a_shared_one(
        self, store: Index, scope: Scope, boris: Scope
    ) -> None:
        """It hides the shared one in every call, also where it does not match, until it is removed."""
        await store.upsert(scope, NAME, [_prepare("walrus of anna", ANNAS)])
        await store.upsert(boris, NAME, [_prepare("zebra for all", (PUBLIC,))])

        assert await _read(store, boris) == [["zebra for all"]] * 4
        assert await _read(store, scope) == [["walrus of anna"], ["walrus of anna"], [], ["walrus of anna"]]
        assert await store.delete(scope, NAME, ["a"]) == 1
        assert await _read(store, scope) == [["zebra for all"]] * 4

    async def test_ones_own_private_record_may_become_shared(self, store: Index, scope: Scope, boris: Scope) -> None:
        """And back, each time replacing what one could read under the id; never over one that others share."""
        for acl in (ANNAS, SALES, ANNAS, (PUBLIC,)):
            await store.upsert(scope, NAME, [_prepare(f"zebra for {acl[0]}", acl)])

            assert await _read(store, scope) == [[f"zebra for {acl[0]}"]] * 4
        await store.upsert(scope, NAME, [_prepare("zebra", SALES)])
        await store.upsert(boris, NAME, [_prepare("zebra of boris", BORISES)])
        with pytest.raises(NotPermitted):
            await store.upsert(boris, NAME, [_prepare("zebra for all", (PUBLIC,))])

        assert await _read(store, boris) == [["zebra of boris"]] * 4

    async def test_both_are_replaced_by_what_is_shared_again(self, store: Index, scope: Scope, boris: Scope) -> None:
        """Whoever reads a private and a shared record of one id, and shares the id, leaves one."""
        await store.upsert(scope, NAME, [_prepare("zebra of anna", ANNAS)])
        await store.upsert(boris, NAME, [_prepare("zebra for all", (PUBLIC,))])
        await store.upsert(scope, NAME, [_prepare("zebra of both", (PUBLIC,))])

        assert await _read(store, scope) == await _read(store, boris) == [["zebra of both"]] * 4
        assert await store.delete(scope, NAME, ["a"]) == 1
        assert await _read(store, scope) == [[]] * 4

    async def test_what_is_written_for_somebody_else_replaces_nothing_of_theirs(
        self, store: Index, scope: Scope, boris: Scope
    ) -> None:
        """Its writer may repeat the write, and the reader's own record of the id comes first."""
        await store.upsert(scope, NAME, [_prepare("zebra of anna", ANNAS)])
        for text in ("zebra for anna", "zebra once more"):
            await store.upsert(boris, NAME, [_prepare(text, ANNAS)])

        assert await _read(store, boris) == [[]] * 4
        assert await _read(store, scope) == [["zebra of anna"]] * 4
        await store.delete(scope, NAME, ["a"])
        assert await _read(store, scope) == [["zebra once more"]] * 4

    async def test_what_is_derived_for_all_readers_has_one_id_space(self, store: Index, scope: Scope) -> None:
        """An older version of a record that has become private since does not reach those who read it before."""
        keeper = ReadersScope(tenant=scope.tenant, user="keeper", readers=(PUBLIC, *ANNAS))
        late = ReadersScope(tenant=scope.tenant, user="keeper", readers=(PUBLIC,))
        await store.upsert(keeper, NAME, [_prepare("zebra in private", ANNAS)])
        with pytest.raises(NotPermitted):
            await store.upsert(late, NAME, [_prepare("zebra for all", (PUBLIC,))])
        await store.upsert(keeper, NAME, [_prepare("zebra again", ANNAS)])

        assert await _read(store, scope) == [["zebra again"]] * 4

    async def test_a_condition_is_about_ones_own_record(self, store: Index, scope: Scope, boris: Scope) -> None:
        """`unchanged` compares what the scope reads, whatever others have under the id."""
        await store.upsert(scope, NAME, [_prepare("zebra of anna", ANNAS)])
        await store.upsert(boris, NAME, [_prepare("zebra of boris", BORISES)])
        (mine,) = await store.get(boris, NAME, ["a"])
        await store.upsert(scope, NAME, [_prepare("zebra changed", ANNAS)])
        await store.upsert(boris, NAME, [_prepare("zebra kept", BORISES)], unchanged=[mine])
        with pytest.raises(Outdated):
            await store.upsert(boris, NAME, [_prepare("zebra lost", BORISES)], unchanged=[mine])

        assert await _read(store, boris) == [["zebra kept"]] * 4

    async def test_rows_of_vectors_belong_to_the_record_that_is_read(
        self, store: Index, scope: Scope, boris: Scope
    ) -> None:
        """Those of a hidden record are not returned in its place."""
        rows = np.ones((2, 3), np.float32)
        await store.upsert(scope, NAME, [_prepare("zebra of anna", ANNAS)])
        shared = replace(_prepare("zebra for all", (PUBLIC,)), matrices={"rows": rows})
        await store.upsert(boris, NAME, [shared])

        assert [*await store.matrices(boris, NAME, "rows", ["a"])] == ["a"]
        assert [*await store.matrices(scope, NAME, "rows", ["a"])] == []
