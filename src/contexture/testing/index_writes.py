"""Writing and reading back; part of `IndexConformance`."""
# ruff: noqa: S101, PLR2004 - a conformance suite asserts

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import numpy as np
import pytest

from contexture.errors import InvalidRequest, Outdated
from contexture.ports import Index
from contexture.testing.index_records import (
    AWKWARD_IDS,
    COLLECTION,
    EAST,
    NAME,
    NORTH,
    NOT_UNICODE,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.types import PUBLIC, Collection, Equals, Not, PreparedRecord, Range, Record, Scope

FAR_ZONE = timezone(timedelta(hours=-11, minutes=-30))


class IndexWriteTests:
    """Records that are written can be read, found, replaced and deleted."""

    @pytest.mark.parametrize("number", [np.nan, np.inf, 70_000.0, -3e38])
    async def test_vectors_beyond_half_precision_are_refused(self, store: Index, scope: Scope, number: float) -> None:
        """Vectors are kept in half precision; where one does not fit, nothing is stored."""
        with pytest.raises(InvalidRequest):
            await store.upsert(
                scope,
                NAME,
                [prepare_record(make_record("a")), prepare_record(make_record("b"), np.full(4, number, np.float32))],
            )

        assert not await store.get(scope, NAME, ["a", "b"])

    async def test_a_record_comes_back_as_it_was_written(self, store: Index, scope: Scope) -> None:
        """Every field survives, times to the microsecond and in any zone, payloads with their nesting."""
        record = Record(
            id="r1",
            text="The pump leaks.",
            acl=(PUBLIC, "user:anna"),
            title="Pump",
            kind="memory",
            lang="en",
            source="wiki",
            time=datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=FAR_ZONE),
            session="s1",
            position=7,
            payload={"tags": ["red", "blue"], "rating": 4.5, "deep": {"list": [1, None, True, "ё"]}},
        )
        await store.upsert(scope, NAME, [prepare_record(record)])

        assert [record] == list(await store.get(scope, NAME, ["r1"]))
        assert [record] == list(await store.scroll(scope, NAME))

    @pytest.mark.parametrize("change", ["none", "replaced", "readers", "removed"])
    async def test_a_conditional_write_fails_after_a_change(self, store: Index, scope: Scope, change: str) -> None:
        """If a record in `unchanged` was replaced or deleted since, nothing is written."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
        read = list(await store.get(scope, NAME, ["a"]))
        if change == "removed":
            await store.delete(scope, NAME, ["a"])
        elif change != "none":
            acl = (f"user:{scope.user}",) if change == "readers" else (PUBLIC,)
            await store.upsert(
                scope, NAME, [prepare_record(make_record("a", "lion" if change == "replaced" else "zebra", acl=acl))]
            )
        before = list(await store.get(scope, NAME, ["a", "b"]))
        if change == "none":
            await store.upsert(scope, NAME, [prepare_record(make_record("b", "bear"))], unchanged=read)
        else:
            with pytest.raises(Outdated):
                await store.upsert(scope, NAME, [prepare_record(make_record("b", "bear"))], unchanged=read)

        assert ("bear" if change == "none" else "zebra") == (await store.get(scope, NAME, ["b"]))[0].text
        assert before[:-1] == list(await store.get(scope, NAME, ["a"]))

    @pytest.mark.parametrize("time", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
    async def test_the_ends_of_time_can_be_stored(self, store: Index, scope: Scope, time: datetime) -> None:
        """`datetime.min` and `datetime.max` come back exactly."""
        await store.upsert(scope, NAME, [prepare_record(make_record("r1", time=time))])

        assert [time] == [record.time for record in await store.get(scope, NAME, ["r1"])]

    async def test_a_time_without_a_zone_is_utc(self, store: Index, scope: Scope) -> None:
        """A naive time comes back as that time in UTC."""
        naive = datetime(2026, 2, 3, 4, 5)  # noqa: DTZ001 - what the check is about
        await store.upsert(scope, NAME, [prepare_record(make_record("r1", time=naive))])

        assert [naive.replace(tzinfo=UTC)] == [record.time for record in await store.get(scope, NAME, ["r1"])]

    async def test_get_answers_in_the_order_asked_for(self, store: Index, scope: Scope) -> None:
        """Unknown ids are skipped, and so are ids that cannot be stored."""
        await store.upsert(scope, NAME, [prepare_record(make_record(name)) for name in "abc"])

        asked = ["c", "missing", "a", NOT_UNICODE, "b", ""]
        assert record_ids(await store.get(scope, NAME, asked)) == ["c", "a", "b"]

    async def test_the_next_search_sees_a_write(self, store: Index, scope: Scope) -> None:
        """A record is found by its own words and by its own vector as soon as the write returns."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra crossing"), EAST)])

        assert record_ids(await store.search(scope, make_query("zebra"))) == ["a"]
        assert record_ids(await store.search(scope, make_query(vector=EAST))) == ["a"]

    async def test_each_passage_is_found_on_its_own(self, store: Index, scope: Scope) -> None:
        """A hit says which passage it is, where it stands in the text, and what the text's hash is."""
        record = make_record("a", "first zebra\n\nsecond giraffe", title="Animals")
        await store.upsert(scope, NAME, [prepare_record(record)])
        (hit,) = await store.search(scope, make_query("giraffe"))

        assert (1, "second giraffe", record.hash) == (hit.ordinal, hit.text, hit.hash)
        assert hit.text == record.text[hit.passage.start : hit.passage.end]
        assert (hit.record.id, hit.record.title, hit.record.text) == ("a", "Animals", "")

    async def test_an_update_replaces_every_passage(self, store: Index, scope: Scope) -> None:
        """After an update the old words find nothing and the new ones do."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra\n\ngiraffe"), EAST)])
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "walrus"), NORTH)])

        assert record_ids(await store.search(scope, make_query("zebra giraffe"))) == []
        assert record_ids(await store.search(scope, make_query("walrus"))) == ["a"]
        assert [record.text for record in await store.get(scope, NAME, ["a"])] == ["walrus"]

    async def test_delete_returns_how_many_there_were(self, store: Index, scope: Scope) -> None:
        """Unknown ids and repeats do not count, and what is removed is gone from every answer."""
        await store.upsert(scope, NAME, [prepare_record(make_record(name, "zebra")) for name in "abc"])

        assert await store.delete(scope, NAME, ["a", "a", "missing", "c", NOT_UNICODE]) == 2
        assert await store.delete(scope, NAME, ["a"]) == 0
        assert record_ids(await store.search(scope, make_query("zebra"))) == ["b"]
        assert record_ids(await store.scroll(scope, NAME)) == ["b"]

    async def test_a_deleted_record_can_come_back(self, store: Index, scope: Scope) -> None:
        """Delete and write again: the new text is found, the old one is not."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra"))])
        await store.delete(scope, NAME, ["a"])
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "walrus"))])

        assert record_ids(await store.search(scope, make_query("zebra"))) == []
        assert record_ids(await store.search(scope, make_query("walrus"))) == ["a"]

    @pytest.mark.parametrize(
        "bad",
        [
            prepare_record(make_record("")),
            prepare_record(make_record(NOT_UNICODE)),
            prepare_record(make_record("bad", payload={"rating": 10**30})),
            prepare_record(make_record("bad", payload={"thing": object()})),
            prepare_record(make_record("bad", payload={"thing": NOT_UNICODE})),
            prepare_record(make_record("bad", source=NOT_UNICODE)),
            prepare_record(make_record("bad", NOT_UNICODE)),
            prepare_record(make_record("bad", time=datetime.max.replace(tzinfo=FAR_ZONE))),
            prepare_record(make_record("bad", "zebra"), np.ones(3, np.float32)),
            prepare_record(make_record("bad", "zebra"), np.array([1, 0, np.nan, 0], np.float32)),
        ],
    )
    async def test_a_write_is_whole_or_not_at_all(self, store: Index, scope: Scope, bad: PreparedRecord) -> None:
        """One record that cannot be stored refuses the whole write, and nothing is changed."""
        await store.upsert(scope, NAME, [prepare_record(make_record("old", "zebra"))])
        with pytest.raises(InvalidRequest):
            await store.upsert(
                scope,
                NAME,
                [prepare_record(make_record("new", "zebra")), bad, prepare_record(make_record("old", "walrus"))],
            )

        assert record_ids(await store.scroll(scope, NAME)) == ["old"]
        assert record_ids(await store.search(scope, make_query("zebra", vector=EAST))) == ["old"]

    async def test_the_last_of_equal_ids_wins(self, store: Index, scope: Scope) -> None:
        """A write that names one id twice stores the later one."""
        await store.upsert(
            scope, NAME, [prepare_record(make_record("a", "zebra")), prepare_record(make_record("a", "walrus"))]
        )

        assert [record.text for record in await store.scroll(scope, NAME)] == ["walrus"]
        assert record_ids(await store.search(scope, make_query("zebra"))) == []

    async def test_an_empty_write_is_allowed(self, store: Index, scope: Scope) -> None:
        """An empty write and an empty delete are answered, not refused."""
        await store.upsert(scope, NAME, [])

        assert await store.delete(scope, NAME, []) == 0
        assert list(await store.get(scope, NAME, [])) == []

    @pytest.mark.parametrize("name", AWKWARD_IDS, ids=lambda name: ascii(name)[:20])
    async def test_any_text_can_be_an_id(self, store: Index, scope: Scope, name: str) -> None:
        """It is read, found, filtered, scrolled and removed like any other."""
        await store.upsert(scope, NAME, [prepare_record(make_record(name, "zebra"))])

        assert [name] == record_ids(await store.get(scope, NAME, [name]))
        assert [name] == record_ids(await store.search(scope, make_query("zebra", where=Equals("id", name))))
        assert [name] == record_ids(await store.scroll(scope, NAME, where=Equals("id", name)))
        assert record_ids(await store.scroll(scope, NAME, after=name)) == []
        assert await store.delete(scope, NAME, [name]) == 1

    @pytest.mark.parametrize("text", ["", " \n\t "])
    async def test_a_record_without_words_is_kept(self, store: Index, scope: Scope, text: str) -> None:
        """It can be read, though no search finds it."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", text))])

        assert [text] == [record.text for record in await store.get(scope, NAME, ["a"])]
        assert record_ids(await store.search(scope, make_query("zebra", vector=EAST))) == []

    @pytest.mark.parametrize("rating", [float("nan"), float("inf"), 1e308])
    async def test_extreme_numbers_are_stored(self, store: Index, scope: Scope, rating: float) -> None:
        """A number that no filter can name is stored and simply never matches a range of small ones."""
        await store.upsert(scope, NAME, [prepare_record(make_record("a", "zebra", payload={"rating": rating}))])

        low = Range(field="rating", lte=5)
        assert record_ids(await store.search(scope, make_query("zebra", where=Not(low)))) == ["a"]
        assert record_ids(await store.search(scope, make_query("zebra", where=low))) == []

    async def test_concurrent_writes_are_all_stored(self, store: Index, scope: Scope) -> None:
        """Concurrent writes and searches do not lose or mix anything up."""
        names = [f"r{number}" for number in range(12)]
        writes = [store.upsert(scope, NAME, [prepare_record(make_record(name, f"zebra {name}"))]) for name in names]
        searches = [store.search(scope, make_query("zebra")) for _ in names]
        await asyncio.gather(*writes, *searches)

        assert sorted(names) == record_ids(await store.search(scope, make_query("zebra")))
        assert sorted(names) == record_ids(await store.scroll(scope, NAME))

    async def test_the_version_changes_with_every_write(self, store: Index, scope: Scope) -> None:
        """It changes for the tenant and collection written to, and for no other."""
        other = Scope(tenant=uuid4().hex, user="anna")
        aside = Collection(name=f"aside_{uuid4().hex[:8]}")
        await store.create(scope, aside)
        await store.create(other, COLLECTION)
        still = [await store.version(other, NAME), await store.version(scope, aside.name)]
        seen = [await store.version(scope, NAME)]
        for write in (store.upsert(scope, NAME, [prepare_record(make_record("a"))]), store.delete(scope, NAME, ["a"])):
            await write
            seen.append(await store.version(scope, NAME))

        assert len(seen) == len(set(seen))
        assert still == [await store.version(other, NAME), await store.version(scope, aside.name)]
