"""A Qdrant that dies, comes back, forgets, or knows too much: nothing acknowledged is lost, and nothing is made up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contexture import Record, Settings
from contexture.adapters.index.record_store import SqliteRecordStore, pack_records
from contexture.adapters.store_backup import back_up, restore_backup
from contexture.errors import SourceTimeout, SourceUnavailable
from contexture.testing.doubles import NOON
from contexture.testing.index_records import EAST, NAME, make_query, make_record, prepare_record, record_ids
from contexture.types import PUBLIC, Collection, Equals, FieldType, Scope
from support.service import small_engine

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from qdrant_client import models

if TYPE_CHECKING:
    from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite
    from support.qdrant import QdrantDouble

Reopen = Callable[..., "Awaitable[QdrantOverSqlite]"]
ANNA = Scope(tenant="local", user="anna")
ZEBRA = make_query("zebra", vector=EAST)
PUMP = Record(id="pump", title="Pump", text="The pump leaks oil into the basin.", acl=(PUBLIC,))


def box(qdrant: QdrantDouble) -> str:
    """The name of the one collection there is."""
    (found,) = qdrant.client.get_collections().collections
    return found.name


async def test_writes_are_kept_while_qdrant_is_away(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """The truth takes and gives records all the same; a search says who is missing, and works when it is back."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.stop()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("b")), prepare_record(make_record("c"))])
    removed = await index.delete(ANNA, NAME, ["a"])
    kept = record_ids(await index.get(ANNA, NAME, ["a", "b"])), record_ids(await index.scroll(ANNA, NAME))
    with pytest.raises(SourceUnavailable, match=r"Qdrant at 'qdrant://127\.0\.0\.1"):
        await index.search(ANNA, ZEBRA)
    qdrant.start()

    assert (1, (["b"], ["b", "c"])) == (removed, kept)
    assert ["b", "c"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_store_opens_without_its_qdrant(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """What was written before and meanwhile is found as soon as Qdrant answers."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.stop()
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("b"))])
    qdrant.start()

    assert ["a", "b"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_write_that_was_cut_short_is_made_good_by_the_next_opening(
    qdrant: QdrantDouble, reopen: Reopen
) -> None:
    """What the truth has and Qdrant never saw is sent when the store is opened, removals too, and nothing else is."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
    await index.close()
    truth = SqliteRecordStore(index._folder / "truth.sqlite")
    truth.upsert(
        ANNA, NAME, pack_records([prepare_record(make_record("c"))])
    )  # as a process does that is killed behind its commit
    truth.delete(ANNA, NAME, ["a"])
    truth.close()
    qdrant.asked.clear()
    index = await reopen()
    sent = [
        point["id"]
        for body in qdrant.bodies("POST points batch")
        for operation in body["operations"]
        for point in operation.get("upsert", {}).get("points", ())
    ]

    assert [3, 0] == sent
    assert ["b", "c"] == record_ids(await index.search(ANNA, ZEBRA))


@pytest.mark.parametrize("status", [500, 429])
async def test_a_refused_write_is_sent_again(qdrant: QdrantDouble, reopen: Reopen, status: int) -> None:
    """The next write brings Qdrant what it refused, so that a search need not."""
    index = await reopen(pause=0)
    qdrant.failing = status
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.failing = 0
    await index.upsert(ANNA, NAME, [prepare_record(make_record("b"))])
    qdrant.asked.clear()

    assert ["a", "b"] == record_ids(await index.search(ANNA, ZEBRA))
    assert ["POST points query batch"] == [each.what for each in qdrant.asked]


async def test_writes_leave_a_qdrant_that_failed_alone(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """One that hangs does not hold them up again and again; the first search brings it everything."""
    index = await reopen()
    qdrant.failing = 500
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.failing = 0
    qdrant.asked.clear()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("b"))])
    left = list(qdrant.asked)

    assert [] == left
    assert ["a", "b"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_line_of_searches_waits_for_one_failure(
    qdrant: QdrantDouble, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that waited while another failed are told so instead of trying one after another."""
    index = await reopen()
    qdrant.failing = 500
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.asked.clear()
    together, lock = threading.Barrier(4), threading.RLock()

    @contextmanager
    def turn() -> Iterator[None]:
        together.wait(timeout=30)
        with lock:
            yield

    monkeypatch.setattr(index._search_backend, "_send_lock", turn)
    line = [index.search(ANNA, ZEBRA) for _ in range(4)]
    told = await asyncio.gather(*line, return_exceptions=True)
    qdrant.failing = 0

    assert [SourceUnavailable] * 4 == [type(each) for each in told]
    assert 1 == len(qdrant.asked)


async def test_one_search_at_a_time_waits_for_a_qdrant_that_hangs(
    qdrant: QdrantDouble, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it finds out whether Qdrant answers again, others are told at once, and writes do not wait."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.failing = 408
    with pytest.raises(SourceTimeout):
        await index.search(ANNA, ZEBRA)
    qdrant.failing = 0
    asked, answered, answer = threading.Event(), threading.Event(), qdrant.answer

    def held(*request: Any) -> object:
        asked.set()
        answered.wait(timeout=30)
        return answer(*request)

    monkeypatch.setattr(qdrant, "answer", held)
    first = asyncio.create_task(index.search(ANNA, ZEBRA))
    await asyncio.to_thread(asked.wait, timeout=30)
    with pytest.raises(SourceTimeout, match="a moment ago"):
        await index.search(ANNA, ZEBRA)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("b"))])
    answered.set()

    assert ["a", "b"] == record_ids(await first)  # what Qdrant lacks comes from the record store
    assert ["a", "b"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_qdrant_that_lost_everything_is_filled_again(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """The truth has all there is to know."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record(name)) for name in "abc"])
    await index.delete(ANNA, NAME, ["b"])
    qdrant.forget()
    index = await reopen()

    assert ["a", "c"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_passage_that_only_qdrant_lost_is_noticed(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Both are counted when a store is opened; a difference is made good."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record(name)) for name in "abc"])
    qdrant.client.delete(box(qdrant), models.PointIdsList(points=[2]))
    index = await reopen()

    assert ["a", "b", "c"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_what_only_qdrant_knows_is_never_found(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Points without a passage do not come up, take nobody's place, and are swept when the store is opened."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record(name)) for name in "abc"])
    name = box(qdrant)
    (known,) = qdrant.client.retrieve(name, [1], with_vectors=True)
    ghosts = [models.PointStruct(id=pid, vector=known.vector, payload=known.payload) for pid in range(100, 160)]
    qdrant.client.upsert(name, ghosts)
    found = await index.search(ANNA, make_query("zebra", vector=EAST, k=3))
    await reopen()

    assert ["a", "b", "c"] == record_ids(found)
    assert [{1, 2, 3}] * 3 == [{hit.ranks[each] for hit in found} for each in ("bm25", "dense", "bm25")]
    assert 3 + 1 == qdrant.client.count(name).count


async def test_permissions_are_tested_on_what_qdrant_answers(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """A Qdrant that gives away what it should not, gives nothing away: the truth says who may read."""
    index = await reopen()
    await index.upsert(
        ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b", acl=("user:boris",)))]
    )
    qdrant.client.set_payload(box(qdrant), {"access": 1}, points=[2])

    assert ["a"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_an_earlier_truth_that_was_put_back_is_believed(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """A Qdrant that has seen more than there is gets everything again, and forgets the rest."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    name = box(qdrant)
    (known,) = qdrant.client.retrieve(name, [1], with_vectors=True)
    later = models.PointStruct(id=7, vector=known.vector, payload=known.payload)
    qdrant.client.upsert(name, [later, models.PointStruct(id=0, vector={}, payload={"seq": 9, "mark": ""})])
    index = await reopen()
    (mark,) = qdrant.client.retrieve(name, [0])

    assert (2, 1) == (qdrant.client.count(name).count, mark.payload["seq"])
    assert ["a"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_new_fields_reach_passages_that_are_there(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """A field that is declared later filters what was written before, and the collection stays the same."""
    index = await reopen()
    await index.upsert(
        ANNA, NAME, [prepare_record(make_record("a", payload={"colour": "red"})), prepare_record(make_record("b"))]
    )
    before = box(qdrant)
    await index.create(ANNA, Collection(name=NAME, fields={"colour": FieldType.KEYWORD}))
    found = record_ids(await index.search(ANNA, make_query("zebra", where=Equals("colour", "red"))))

    assert ["a"] == found
    assert before == box(qdrant)


async def test_stores_on_one_qdrant_do_not_meet(
    qdrant: QdrantDouble, reopen: Reopen, new_folder: Callable[[], Path]
) -> None:
    """Another folder is another store, whatever its passages are numbered."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    async with small_engine(Settings(home=new_folder(), store=qdrant.place)) as other:
        await other.add([PUMP])
        found = await other.search("pump")

    assert ["pump"] == [each.record_id for each in found.found]
    assert ["a"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_restored_store_is_another_one(
    qdrant: QdrantDouble, reopen: Reopen, new_folder: Callable[[], Path]
) -> None:
    """What was written behind the backup is not found in it, though Qdrant still has it."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    await index.close()
    file = new_folder() / "store.tar"
    back_up(index._folder, file, now=NOON)
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("b")), prepare_record(make_record("c"))])
    await index.close()
    restore_backup(file, index._folder, force=True)
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("d")), prepare_record(make_record("e", "walrus"))])

    assert ["a", "d"] == record_ids(await index.search(ANNA, make_query("zebra")))
    assert 2 == len(qdrant.client.get_collections().collections)


def test_recent_passages_are_read_by_their_number(new_folder: Callable[[], Path]) -> None:
    """What a search adds costs what was written since, not what the collection holds."""
    store, statements = SqliteRecordStore(new_folder() / "truth.sqlite"), list[str]()
    db = store._connection()
    db.set_trace_callback(statements.append)
    list(store.passages_since(7, NAME))
    db.set_trace_callback(None)
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statements[0]}")]
    store.close()

    assert "SEARCH p USING INDEX passages_seq (seq>?)" == plan[0]
    assert not any("TEMP B-TREE" in step for step in plan)
