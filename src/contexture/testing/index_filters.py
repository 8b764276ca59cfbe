"""What an index promises about filters: search and scroll agree with one plain meaning; part of `IndexConformance`."""
# ruff: noqa: S101 - a conformance suite asserts

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from contexture.adapters.index.filters import field_types, record_matches
from contexture.ports import Index
from contexture.testing.prepared import COLLECTION, EAST, NAME, make_query, make_record, prepare_record, record_ids
from contexture.testing.strategies import filters, record_lists
from contexture.types import PUBLIC, Filter, Range, Record, Scope

# One process may run the checks over several indexes, each of which lives through all examples.
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
        visible = [replace(record, text=f"zebra {record.text}", acl=(PUBLIC,)) for record in records]
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
