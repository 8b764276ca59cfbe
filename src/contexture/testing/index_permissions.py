"""What an index promises about who sees what; part of `IndexConformance`."""
# ruff: noqa: S101 - a conformance suite asserts

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from contexture.errors import NotPermitted
from contexture.ports import Index
from contexture.testing.prepared import COLLECTION, EAST, NAME, make_query, make_record, prepare_record, record_ids
from contexture.types import PUBLIC, Scope


class IndexPermissionTests:
    """Nothing that a scope may not see is returned, counted, changed, or able to move a score."""

    @pytest.mark.parametrize(
        ("acl", "readers"),
        [
            ((PUBLIC,), "anna boris"),
            (("user:anna",), "anna"),
            (("user:boris", "group:staff"), "boris"),
            (("group:staff",), "boris"),
            (("group:sales", "group:staff"), "anna boris"),
            (("anna", "user:", "group:anna", "user:public"), ""),
            ((), ""),
        ],
    )
    async def test_the_acl_decides_who_reads(
        self, store: Index, scope: Scope, acl: tuple[str, ...], readers: str
    ) -> None:
        """A record is read and found by those its `acl` names, and an empty one admits nobody, its writer included."""
        anna, boris = scope, Scope(tenant=scope.tenant, user="boris", groups=("staff",))
        await store.upsert(anna, NAME, [prepare_record(make_record("a", acl=acl))])
        for reader in (anna, boris):
            expected = ["a"] if reader.user in readers.split() else []

            assert expected == record_ids(await store.get(reader, NAME, ["a"]))
            assert expected == record_ids(await store.scroll(reader, NAME))
            assert expected == record_ids(await store.search(reader, make_query("zebra", vector=EAST)))

    async def test_tenants_are_isolated(self, store: Index, scope: Scope) -> None:
        """Two tenants use one id for different records; neither sees, replaces or removes the other's."""
        other = replace(scope, tenant=uuid4().hex)
        await store.create(other, COLLECTION)
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra"))])
        await store.upsert(other, NAME, [prepare_record(make_record("a", "walrus"))])

        assert record_ids(await store.search(scope, make_query("walrus"))) == []
        assert await store.delete(other, NAME, ["a"]) == 1
        assert [record.text for record in await store.get(scope, NAME, ["a"])] == ["zebra"]
        assert record_ids(await store.search(scope, make_query("zebra"))) == ["a"]

    async def test_a_hidden_record_cannot_be_replaced(self, store: Index, scope: Scope) -> None:
        """A write over an id that the scope may not see is refused as a whole."""
        boris = replace(scope, user="boris", groups=())
        await store.upsert(scope, NAME, [prepare_record(make_record("a", acl=("user:anna",)))])
        with pytest.raises(NotPermitted):
            await store.upsert(
                boris, NAME, [prepare_record(make_record("b")), prepare_record(make_record("a", "walrus"))]
            )

        assert record_ids(await store.scroll(boris, NAME)) == []
        assert [record.text for record in await store.scroll(scope, NAME)] == ["zebra"]

    async def test_a_hidden_record_cannot_be_removed(self, store: Index, scope: Scope) -> None:
        """Deleting it is answered like deleting nothing."""
        boris = replace(scope, user="boris", groups=())
        await store.upsert(scope, NAME, [prepare_record(make_record("a", acl=("user:anna",)))])

        assert await store.delete(boris, NAME, ["a", "missing"]) == 0
        assert record_ids(await store.search(scope, make_query("zebra"))) == ["a"]

    async def test_a_change_of_readers_holds_at_once(self, store: Index, scope: Scope) -> None:
        """A record whose `acl` loses a reader is gone for that reader with the next call."""
        boris = replace(scope, user="boris", groups=())
        await store.upsert(scope, NAME, [prepare_record(make_record("a"))])
        await store.upsert(scope, NAME, [prepare_record(make_record("a", acl=("user:anna",)))])

        assert record_ids(await store.search(boris, make_query("zebra", vector=EAST))) == []
        assert record_ids(await store.get(boris, NAME, ["a"])) == []
        assert record_ids(await store.search(scope, make_query("zebra"))) == ["a"]

    async def test_hidden_records_change_no_score(self, store: Index, scope: Scope) -> None:
        """Scores and ranks are the same bits before and after others write what the scope may not see."""
        boris = replace(scope, user="boris", groups=())
        await store.upsert(boris, NAME, [prepare_record(make_record(name, f"zebra {name}")) for name in "abcdef"])
        asked = make_query("zebra walrus b", vector=EAST, k=3)
        before = [(hit.record.id, hit.scores, hit.ranks) for hit in await store.search(boris, asked)]
        hidden = [
            prepare_record(make_record(f"h{number}", "zebra zebra walrus", acl=("user:anna",))) for number in range(9)
        ]
        await store.upsert(scope, NAME, hidden)

        assert before == [(hit.record.id, hit.scores, hit.ranks) for hit in await store.search(boris, asked)]
