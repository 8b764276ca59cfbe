"""What an index promises about whose collections and fields are; part of `IndexConformance`."""
# ruff: noqa: S101 - a conformance suite asserts

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import uuid4

import pytest

from contexture.adapters.index.filters import field_types, record_matches
from contexture.errors import ContextError, InvalidRequest, UnknownCollection, UnknownField
from contexture.ports import Index
from contexture.testing.prepared import COLLECTION, EAST, NAME, make_query, make_record, prepare_record, record_ids
from contexture.types import Collection, Contains, Equals, FieldType, Filter, Not, Range, Record, Scope

KEYWORD, NUMBER, FLAG, TIME = FieldType.KEYWORD, FieldType.NUMBER, FieldType.FLAG, FieldType.TIME
Call: TypeAlias = Callable[[], Awaitable[object]]

_SPRING = datetime(2026, 3, 1, tzinfo=UTC)

FILTERS: Mapping[FieldType, tuple[Filter, ...]] = {
    KEYWORD: (Equals("it", "red"), Equals("it", "2026-03-01"), Contains("it", "2026"), Not(Equals("it", "red"))),
    NUMBER: (Equals("it", 1), Range(field="it", gt=0), Range(field="it"), Not(Equals("it", 1))),
    FLAG: (Equals("it", True), Equals("it", False), Not(Equals("it", True))),
    TIME: (Range(field="it", gte=_SPRING), Range(field="it", lt=_SPRING), Range(field="it"), Not(Range(field="it"))),
}
"""Questions about a field `it` that make sense for one type."""

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
        """Every call of a tenant that has not created it is refused, in the words that a name nobody has gets."""
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
        """A field that another tenant has declared is unknown, and not among those that are named."""
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
