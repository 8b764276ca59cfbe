"""The contract of an index as a test class: subclass it, provide an `index` fixture, inherit the tests.

The fixture opens an index for the vectors in `VECTORS`. One index may serve all tests, because every test writes as a
tenant of its own.

class TestMyIndex(IndexConformance):
    @pytest.fixture
    async def index(self):
        return await MyIndex.open(vectors=VECTORS)
"""
# ruff: noqa: S101 - a conformance suite asserts

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace as replace_struct

from contexture.adapters.index.filters import field_types, record_matches
from contexture.errors import ContextError, InvalidRequest, NotPermitted, UnknownCollection, UnknownField
from contexture.ports import Index
from contexture.testing.index_records import (
    COLLECTION,
    EAST,
    NAME,
    VECTORS,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.testing.index_searches import IndexMatrixTests, IndexSearchTests
from contexture.testing.index_writes import IndexWriteTests
from contexture.testing.strategies import filters, record_lists
from contexture.types import PUBLIC, Collection, Contains, Equals, FieldType, Filter, Not, Range, Record, Scope

__all__ = ["VECTORS", "IndexConformance"]


# One process may run the tests over several indexes, each of which serves all examples.
_EXPECTED = (HealthCheck.function_scoped_fixture, HealthCheck.differing_executors)


class IndexFilterTests:
    """Search, scroll and the definition of a filter agree."""

    @given(records=record_lists(max_size=8), where=filters())
    @settings(max_examples=60, deadline=None, suppress_health_check=_EXPECTED)
    async def test_search_and_scroll_agree_with_the_definition(
        self, store: Index, records: list[Record], where: Filter
    ) -> None:
        """Every generated filter tree picks the same records by search, by scroll and by its definition."""
        scope = Scope(tenant=uuid4().hex, user="anna")
        await store.create(scope, COLLECTION)
        visible = [replace_struct(record, text=f"zebra {record.text}", acl=(PUBLIC,)) for record in records]
        await store.upsert(scope, NAME, [prepare_record(record) for record in visible])
        expected = sorted(record.id for record in visible if record_matches(where, record, field_types(COLLECTION)))

        assert expected == record_ids(await store.scroll(scope, NAME, where=where))
        assert expected == record_ids(await store.search(scope, make_query("zebra", where=where)))
        assert expected == record_ids(await store.search(scope, make_query(vector=EAST, where=where)))

    @pytest.mark.parametrize(
        ("seen", "found"),
        [
            ("2026-03-01T12:00:00+02:00", True),
            ("2026-03-01", True),
            (datetime(2026, 3, 1, tzinfo=UTC), True),
            ("2027-03-01", False),
            ("in spring", False),
            (1_772_000_000, False),
            (None, False),
        ],
    )
    async def test_times_in_a_payload_can_be_filtered(
        self, store: Index, scope: Scope, *, seen: object, found: bool
    ) -> None:
        """A time may be written as such or as ISO text; anything else is no time, and without a zone it is UTC."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", payload={"seen": seen}))])
        where = Range(field="seen", gte=datetime(2026, 1, 1, tzinfo=UTC), lt=datetime(2026, 12, 31))  # noqa: DTZ001 - read as UTC

        assert found is bool(await store.scroll(scope, NAME, where=where))
        assert found is bool(await store.search(scope, make_query("zebra", where=where)))


class IndexPermissionTests:
    """Nothing that a scope may not see is returned, counted, changed, or able to change a score."""

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
        await store.upsert(scope, NAME, [prepare_record(make_record("a", acl=("group:sales",)))])
        with pytest.raises(NotPermitted):
            await store.upsert(
                boris, NAME, [prepare_record(make_record("b")), prepare_record(make_record("a", "walrus"))]
            )

        assert record_ids(await store.scroll(boris, NAME)) == []
        assert [record.text for record in await store.scroll(scope, NAME)] == ["zebra"]

    async def test_a_hidden_record_cannot_be_removed(self, store: Index, scope: Scope) -> None:
        """Deleting it returns 0, as for an unknown id."""
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


class IndexMaintenanceTests:
    """Maintenance changes no answer, and an index that works says so."""

    async def test_maintenance_changes_no_answer(self, store: Index, scope: Scope) -> None:
        """Records and hits are the same before and after warming up and optimizing."""
        await store.upsert(scope, NAME, [prepare_record(make_record(name, f"zebra {name}")) for name in "abc"])
        asked = make_query("zebra b", vector=EAST)
        records = await store.scroll(scope, NAME)
        before = [(hit.record.id, hit.scores, hit.ranks) for hit in await store.search(scope, asked)]
        await store.warm()
        await store.optimize()

        assert records == await store.scroll(scope, NAME)
        assert before == [(hit.record.id, hit.scores, hit.ranks) for hit in await store.search(scope, asked)]
        assert await store.check_health() == ""


KEYWORD, NUMBER, FLAG, TIME = FieldType.KEYWORD, FieldType.NUMBER, FieldType.FLAG, FieldType.TIME
Call: TypeAlias = Callable[[], Awaitable[object]]

_SPRING = datetime(2026, 3, 1, tzinfo=UTC)

FILTERS: Mapping[FieldType, tuple[Filter, ...]] = {
    KEYWORD: (Equals("it", "red"), Equals("it", "2026-03-01"), Contains("it", "2026"), Not(Equals("it", "red"))),
    NUMBER: (Equals("it", 1), Range(field="it", gt=0), Range(field="it"), Not(Equals("it", 1))),
    FLAG: (Equals("it", True), Equals("it", False), Not(Equals("it", True))),
    TIME: (Range(field="it", gte=_SPRING), Range(field="it", lt=_SPRING), Range(field="it"), Not(Range(field="it"))),
}
"""Valid filters over a field `it`, by the type of the field."""

VALUES: tuple[object, ...] = ("red", "2026-03-01", ["red", "blue"], 1, 1.5, True, False, None)


def _all_calls(index: Index, scope: Scope, name: str) -> tuple[Call, ...]:
    """Every call of the port that names a collection."""
    return (
        lambda: index.upsert(scope, name, [prepare_record(make_record("a"))]),
        lambda: index.delete(scope, name, ["a"]),
        *_read_calls(index, scope, name),
    )


def _read_calls(index: Index, scope: Scope, name: str) -> tuple[Call, ...]:
    """Those calls that change nothing."""
    return (
        lambda: index.get(scope, name, ["a"]),
        lambda: index.scroll(scope, name),
        lambda: index.scroll(scope, name, where=Equals("tags", "red")),
        lambda: index.search(scope, make_query("zebra", vector=EAST, collection=name)),
        lambda: index.search(scope, make_query("zebra", where=Equals("tags", "red"), collection=name)),
        lambda: index.matrices(scope, name, "rows", ["a"]),
        lambda: index.version(scope, name),
    )


async def _answer_or_error(call: Call) -> str:
    """The answer of a call, or its error, as text."""
    try:
        return repr(await call())
    except ContextError as refusal:
        return f"{type(refusal).__name__}: {refusal}"


class IndexTenantTests:
    """Collections and fields belong to a tenant; no other tenant can tell that they exist."""

    @pytest.fixture
    def stranger(self) -> Scope:
        """A user of a tenant that has nothing."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))

    async def test_a_collection_of_another_tenant_is_unknown(self, store: Index, scope: Scope, stranger: Scope) -> None:
        """Every call of a tenant that has not created it is refused with the error of a collection that nobody has."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", payload={"tags": "red"}))])
        for mine in ("none yet", "aside"):
            if mine == "aside":
                await store.create(stranger, Collection(name=mine))
            for call, other in zip(
                _all_calls(store, stranger, NAME), _all_calls(store, stranger, "nowhere"), strict=True
            ):
                with pytest.raises(UnknownCollection) as refused:
                    await call()

                assert str(refused.value) == f"unknown collection {NAME!r}; there are: {mine}"
                assert await _answer_or_error(other) == f"UnknownCollection: {refused.value}".replace(NAME, "nowhere")
        assert record_ids(await store.get(scope, NAME, ["a"])) == ["a"]

    async def test_a_tenant_lists_its_own_collections(self, store: Index, scope: Scope, stranger: Scope) -> None:
        """Two tenants with a collection of one name each list their own, with the fields that they declared."""
        assert await store.collections(stranger) == []
        theirs = Collection(name=NAME, fields={"colour": KEYWORD})
        await store.create(stranger, theirs)

        assert [(each.name, dict(each.fields)) for each in await store.collections(scope)] == [
            (NAME, dict(COLLECTION.fields))
        ]
        assert [(each.name, dict(each.fields)) for each in await store.collections(stranger)] == [
            (NAME, dict(theirs.fields))
        ]

    async def test_a_tenant_filters_by_its_own_fields(self, store: Index, scope: Scope, stranger: Scope) -> None:
        """A field that another tenant has declared is unknown, and not listed in the error."""
        theirs = Collection(name=NAME, fields={"colour": KEYWORD})
        await store.create(stranger, theirs)
        for who, mine, field in ((scope, COLLECTION, "colour"), (stranger, theirs, "tags")):
            known, where = ", ".join(sorted(field_types(mine))), Equals(field, "red")
            for call in (store.scroll(who, NAME, where=where), store.search(who, make_query("zebra", where=where))):
                with pytest.raises(UnknownField) as refused:
                    await call

                assert str(refused.value) == f"unknown filter field {field!r}; this collection has {known}"

    async def test_a_field_may_have_another_type_in_another_tenant(self, index: Index) -> None:
        """Four tenants declare one field of one collection, each with its own type, before and after they write."""
        name = f"typed_{uuid4().hex[:8]}"
        tenants = {kind: Scope(tenant=f"{kind}-{uuid4().hex}", user="anna") for kind in FILTERS}
        records = [make_record(f"r{at}", payload={"it": value}) for at, value in enumerate(VALUES)]
        for kind, scope in tenants.items():
            early = kind in (KEYWORD, TIME)
            await index.create(scope, Collection(name=name, fields={"it": kind} if early else {}))
            await index.upsert(scope, name, [prepare_record(record) for record in records])
            await index.create(scope, Collection(name=name, fields={"it": kind}))
        for kind, scope in tenants.items():
            for where in FILTERS[kind]:
                expected = _matching_ids(where, records, kind)

                assert expected == record_ids(await index.scroll(scope, name, where=where)), where
                for asked in (make_query("zebra", where=where), make_query(vector=EAST, where=where)):
                    assert expected == record_ids(await index.search(scope, replace(asked, collection=name))), where
            for other in FILTERS.keys() - {kind}:
                with pytest.raises(InvalidRequest, match=f"holds a {kind}: it cannot become a {other}"):
                    await index.create(scope, Collection(name=name, fields={"it": other}))

    async def test_writes_of_other_tenants_change_no_answer(self, store: Index, scope: Scope, stranger: Scope) -> None:
        """Every answer and every error is the same to the letter before and after."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", payload={"tags": "red", "colour": "red"}))])
        calls = (
            *_read_calls(store, scope, NAME),
            *_all_calls(store, scope, "elsewhere"),
            lambda: store.scroll(scope, NAME, where=Equals("colour", "red")),
            lambda: store.search(scope, make_query("zebra", where=Equals("rating", "red"))),
            lambda: store.create(scope, Collection(name=NAME, fields={"tags": TIME})),
            lambda: store.collections(scope),
        )
        before = [await _answer_or_error(call) for call in calls]
        for name in (NAME, "elsewhere"):
            fields = {"tags": TIME, "colour": NUMBER, "rating": KEYWORD}
            await store.create(stranger, Collection(name=name, fields=fields))
            await store.upsert(stranger, name, [prepare_record(make_record("a", payload={"tags": "red", "colour": 1}))])

        assert before == [await _answer_or_error(call) for call in calls]


def _matching_ids(where: Filter, records: list[Record], kind: FieldType) -> list[str]:
    return [record.id for record in records if record_matches(where, record, {"it": kind})]


class IndexConformance(
    IndexWriteTests,
    IndexSearchTests,
    IndexFilterTests,
    IndexPermissionTests,
    IndexTenantTests,
    IndexMatrixTests,
    IndexMaintenanceTests,
):
    """Everything an index promises."""

    @pytest.fixture
    async def store(self, index: Index, scope: Scope) -> Index:
        """The index with the collection that the tests use."""
        await index.create(scope, COLLECTION)
        return index

    @pytest.fixture
    def scope(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))
