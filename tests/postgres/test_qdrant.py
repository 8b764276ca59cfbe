"""Qdrant over PostgreSQL: several processes share both, and each write is sent to Qdrant once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contexture import Record, Settings, wiring
from contexture.errors import SourceTimeout, SourceUnavailable, UnknownAdapter
from contexture.testing.doubles import NOON
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
from contexture.types import PUBLIC, Collection, Equals, FieldType, Hit, Scope
from support.service import small_engine

pytest.importorskip("psycopg", reason="psycopg is not installed")
pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from qdrant_client import models

from contexture.adapters.index.postgres.index import PostgresOptions
from contexture.adapters.index.postgres.schema import ORDINAL_BITS
from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
from contexture.adapters.index.qdrant.over_postgres import QdrantOverPostgres
from contexture.adapters.postgres import pool as pools
from support.qdrant import QdrantDouble

if TYPE_CHECKING:
    from contexture import Contexture

OPTIONS = PostgresOptions(vectors=VECTORS)
ANNA = Scope(tenant="local", user="anna")
ZEBRA = make_query("zebra", vector=EAST)
PUMP = Record(id="pump", title="Pump", text="The pump leaks oil into the basin.", acl=(PUBLIC,))
Pair = tuple[QdrantOverPostgres, QdrantOverPostgres]


@pytest.fixture
def qdrant() -> Iterator[QdrantDouble]:
    """A Qdrant behind HTTP that nobody else uses."""
    with QdrantDouble() as double:
        yield double


@pytest.fixture
async def pair(qdrant: QdrantDouble, url: str, new_folder: Callable[[], Path]) -> AsyncIterator[Pair]:
    """Two processes' indexes over one database and one Qdrant."""
    options = QdrantOptions(place=qdrant.place, timeout=60)
    one, other = [await QdrantOverPostgres.open_with_server(url, OPTIONS, QdrantServer(options)) for _ in range(2)]
    await one.create(ANNA, COLLECTION)
    yield one, other
    await one.close()
    await other.close()


def sent(qdrant: QdrantDouble) -> list[int]:
    """The records whose passages were sent, by number, as often as they were."""
    operations = [each for body in qdrant.bodies("POST points batch") for each in body["operations"]]
    points = [point["id"] for each in operations for point in each.get("upsert", {}).get("points", ())]
    return sorted(pid >> ORDINAL_BITS for pid in points if pid)


async def test_what_one_process_wrote_the_other_finds_at_once(pair: Pair, qdrant: QdrantDouble) -> None:
    """Written, changed and removed; whoever reads sends nothing that was sent before."""
    one, other = pair
    await one.upsert(ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
    found = record_ids(await other.search(ANNA, ZEBRA))
    await other.upsert(ANNA, NAME, [prepare_record(make_record("a", "walrus"))])
    await other.delete(ANNA, NAME, ["b"])

    assert ["a", "b"] == found
    assert [] == record_ids(await one.search(ANNA, make_query("zebra")))
    assert ["a"] == record_ids(await one.search(ANNA, make_query("walrus")))
    assert [1, 2, 3] == sent(qdrant)


async def test_writes_from_both_sides_at_once_lose_nothing(pair: Pair, qdrant: QdrantDouble) -> None:
    """Each passage reaches Qdrant once, whoever sends it, and both find all of them."""
    records = [prepare_record(make_record(f"r{at:02}")) for at in range(20)]
    await asyncio.gather(*(pair[at % 2].upsert(ANNA, NAME, [each]) for at, each in enumerate(records)))

    for index in pair:
        assert [f"r{at:02}" for at in range(20)] == record_ids(await index.search(ANNA, ZEBRA))
    assert list(range(1, 21)) == sent(qdrant)


async def test_who_sends_for_another_process_sends_the_fields_it_does_not_know_of_yet(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write of a field that was declared since is found by it, whoever was the first to send it."""
    one, other = pair
    attempt, reached, let = one._qdrant.try_sync, threading.Event(), threading.Event()

    def held_up(names: Iterable[str]) -> None:
        reached.set()
        let.wait(60)
        attempt(names)

    monkeypatch.setattr(one._qdrant, "try_sync", held_up)
    slow = asyncio.create_task(one.upsert(ANNA, NAME, [prepare_record(make_record("a", payload={"colour": "red"}))]))
    await asyncio.to_thread(reached.wait, 60)
    await other.create(ANNA, Collection(name=NAME, fields={"colour": FieldType.KEYWORD}))
    await other.upsert(ANNA, NAME, [prepare_record(make_record("b", payload={"colour": "red"}))])
    monkeypatch.setattr(other._qdrant, "try_sync", lambda _: None)
    await other.upsert(ANNA, NAME, [prepare_record(make_record("c", payload={"colour": "red"}))])
    let.set()
    await slow

    assert ["a", "b", "c"] == record_ids(await other.search(ANNA, make_query("zebra", where=Equals("colour", "red"))))


async def test_a_search_that_is_repeated_takes_nothing_back_from_qdrant(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process writes and sends just before the repeated search asks Qdrant stays there."""
    one, other = pair
    await one.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    loop, turn, found = asyncio.get_running_loop(), one._qdrant._send_lock, one._search
    written: dict[str, Future[int]] = {}

    def write(name: str) -> None:
        work = other.upsert(ANNA, NAME, [prepare_record(make_record(name))])
        written[name] = asyncio.run_coroutine_threadsafe(work, loop)
        with suppress(TimeoutError):  # it may have to wait until the search is done
            written[name].result(1)

    def overtaken(*given: Any) -> tuple[list[Hit], bool]:
        if written:
            return found(*given)
        write("b")
        return [], False

    def late() -> AbstractContextManager[object]:
        if "c" not in written:
            write("c")
        return turn()

    monkeypatch.setattr(one, "_search", overtaken)
    monkeypatch.setattr(one._qdrant, "_send_lock", late)
    await one.search(ANNA, ZEBRA)
    await asyncio.gather(*map(asyncio.wrap_future, written.values()))

    assert ["a", "b", "c"] == record_ids(await other.search(ANNA, ZEBRA))


async def test_what_a_writer_could_not_send_another_sends(pair: Pair, qdrant: QdrantDouble) -> None:
    """A write that was made while Qdrant was away is found by whoever asks first when it is back."""
    one, other = pair
    await one.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.stop()
    await one.upsert(ANNA, NAME, [prepare_record(make_record("b"))])
    await one.delete(ANNA, NAME, ["a"])
    read = record_ids(await other.get(ANNA, NAME, ["a", "b"]))
    with pytest.raises(SourceUnavailable, match="Qdrant at"):
        await other.search(ANNA, ZEBRA)
    qdrant.start()

    assert ["b"] == read
    assert [["b"], ["b"]] == [record_ids(await index.search(ANNA, ZEBRA)) for index in (other, one)]


async def test_who_waits_too_long_for_another_is_told_for_what(
    qdrant: QdrantDouble, url: str, new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search while another process fills Qdrant gives up in time, and does not blame the database."""
    monkeypatch.setattr(pools, "_SESSION", pools._SESSION.replace("30s", "50ms"))
    options = QdrantOptions(place=qdrant.place)
    one, other = [await QdrantOverPostgres.open_with_server(url, OPTIONS, QdrantServer(options)) for _ in range(2)]
    await one.create(ANNA, COLLECTION)
    with other._send_lock():
        await one.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
        with pytest.raises(SourceTimeout, match=r"Qdrant at .* another process"):
            await one.search(ANNA, ZEBRA)
    found = record_ids(await one.search(ANNA, ZEBRA))
    await one.close()
    await other.close()

    assert ["a"] == found


async def test_fields_made_elsewhere_filter_what_was_there(pair: Pair) -> None:
    """A field that another process declares is sent for passages from before."""
    one, other = pair
    await one.upsert(
        ANNA, NAME, [prepare_record(make_record("a", payload={"colour": "red"})), prepare_record(make_record("b"))]
    )
    await other.search(ANNA, ZEBRA)
    await one.create(ANNA, Collection(name=NAME, fields={"colour": FieldType.KEYWORD}))
    await other.upsert(ANNA, NAME, [prepare_record(make_record("c", payload={"colour": "red"}))])
    red = make_query("zebra", where=Equals("colour", "red"))

    assert [["a", "c"]] * 2 == [record_ids(await index.search(ANNA, red)) for index in pair]


async def test_a_process_that_comes_later_sends_nothing_again(
    pair: Pair, qdrant: QdrantDouble, url: str, new_folder: Callable[[], Path]
) -> None:
    """It finds what is there with an empty folder, and reads no vectors for it."""
    names = [f"r{at:02}" for at in range(60)]
    await pair[0].upsert(ANNA, NAME, [prepare_record(make_record(name)) for name in names])
    await pair[0].optimize()
    qdrant.asked.clear()
    server = QdrantServer(QdrantOptions(place=qdrant.place))
    third = await QdrantOverPostgres.open_with_server(url, OPTIONS, server)
    found = record_ids(await third.search(ANNA, ZEBRA))
    await third.close()

    assert names == found
    assert [] == sent(qdrant)


async def test_shards_that_another_process_made_are_used(
    qdrant: QdrantDouble, url: str, new_folder: Callable[[], Path]
) -> None:
    """A tenant's shards are made once, whoever writes first, and removals reach those that others made."""
    options = QdrantOptions(place=qdrant.place, by_tenant=True)
    one, other = [await QdrantOverPostgres.open_with_server(url, OPTIONS, QdrantServer(options)) for _ in range(2)]
    boris = Scope(tenant="globex", user="boris")
    await one.create(ANNA, COLLECTION)
    await other.create(boris, COLLECTION)
    for index, scope, name in ((one, ANNA, "a"), (other, ANNA, "b"), (other, boris, "c"), (one, boris, "d")):
        await index.upsert(scope, NAME, [prepare_record(make_record(name))])
    await one.delete(boris, NAME, ["c"])
    found = [record_ids(await index.search(scope, ZEBRA)) for index in (one, other) for scope in (ANNA, boris)]
    await one.close()
    await other.close()

    assert [["a", "b"], ["d"]] * 2 == found
    assert ["marks", "tenant.local", "tenant.globex"] == [body["shard_key"] for body in qdrant.bodies("PUT shards")]


async def test_a_database_that_was_put_back_is_believed(
    pair: Pair, qdrant: QdrantDouble, url: str, new_folder: Callable[[], Path]
) -> None:
    """A Qdrant that has come to a state that the database never had gets everything again, and forgets the rest."""
    await pair[0].upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    (box,) = qdrant.client.get_collections().collections
    (known,) = qdrant.client.retrieve(box.name, [1 << ORDINAL_BITS], with_vectors=True)
    later = models.PointStruct(id=7, vector=known.vector, payload=known.payload)
    elsewhere = models.PointStruct(id=0, vector={}, payload={"seq": 1, "mark": "another"})
    qdrant.client.upsert(box.name, [later, elsewhere])
    qdrant.asked.clear()
    third = await QdrantOverPostgres.open_with_server(url, OPTIONS, QdrantServer(QdrantOptions(place=qdrant.place)))
    found = record_ids(await third.search(ANNA, ZEBRA))
    await third.close()

    assert ["a"] == found
    assert [1] == sent(qdrant)
    assert 2 == qdrant.client.count(box.name).count


async def test_contexts_are_those_of_the_embedded_store(
    qdrant: QdrantDouble, new_url: Callable[[], str], new_folder: Callable[[], Path]
) -> None:
    """Queries and turns over the same records are the same, letter for letter, and keys are in the database."""
    both = Settings(home=new_folder(), store=qdrant.place, truth=new_url(), tenant="demo", user="demo")
    built: list[Any] = []
    for chosen in (Settings(home=new_folder(), tenant="demo", user="demo"), both):
        async with small_engine(chosen) as engine:
            built.append(await _contexts(engine))
    keys = wiring.api_keys(both)
    keys.close()

    assert built[0] == built[1]
    assert not (both.home / "keys.sqlite").exists()


async def _contexts(engine: Contexture) -> list[Any]:
    await engine.add([PUMP, msgspec.structs.replace(PUMP, id="second", text="A second pump leaks too.")])
    turn = {
        "tenant_id": "demo", "user_id": "demo", "session_id": "s", "system_prompt": "You help.",
        "user_message": "What leaks oil?", "history": [],
    }  # fmt: skip
    query, chat = await engine.build("Where does the pump leak?", now=NOON), await engine.build_turn(turn, now=NOON)
    return [
        (query.context.messages, msgspec.json.encode(query.ledger.entries)),
        (chat.messages, msgspec.json.encode(chat.ledger.entries)),
    ]


async def test_a_truth_needs_a_store_in_qdrant(tmp_path: Path) -> None:
    """A database that nobody would read is refused, and so is a truth of another kind."""
    for chosen in ({"truth": "postgres://db/app"}, {"store": "qdrant://db", "truth": "mysql://db/app"}):
        with pytest.raises(UnknownAdapter):
            async with small_engine(Settings(home=tmp_path, **chosen)):
                pass
