"""A Qdrant that others change, or that is none: what it says is not believed, and the store mends what it can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.testing.index_records import EAST, NAME, VECTORS, make_query, make_record, prepare_record, record_ids
from contexture.types import Equals, Scope

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from qdrant_client import models

from contexture.adapters.index.qdrant import collection as boxes
from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite

if TYPE_CHECKING:
    from support.qdrant import QdrantDouble

Reopen = Callable[..., "Awaitable[QdrantOverSqlite]"]
ANNA = Scope(tenant="local", user="anna")
ZEBRA = make_query("zebra", vector=EAST)
UPDATE = "POST points batch"


def box(qdrant: QdrantDouble) -> str:
    """The name of the one collection there is."""
    (found,) = qdrant.client.get_collections().collections
    return found.name


def sent(qdrant: QdrantDouble) -> list[list[int]]:
    """The passages of each request that wrote some."""
    requests = [[each.get("upsert", {}) for each in body["operations"]] for body in qdrant.bodies(UPDATE)]
    points = [[point["id"] for each in request for point in each.get("points", ())] for request in requests]
    return [[pid for pid in each if pid] for each in points if any(each)]


@pytest.mark.parametrize("by_tenant", [False, True])
async def test_a_collection_that_was_removed_is_made_again(
    qdrant: QdrantDouble, reopen: Reopen, *, by_tenant: bool
) -> None:
    """The search that meets its loss is an error; the next one fills it again, and nothing has to be started."""
    index = await reopen(by_tenant=by_tenant)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
    qdrant.forget()
    with pytest.raises(SourceUnavailable, match="Qdrant at"):
        await index.search(ANNA, ZEBRA)

    assert ["a", "b"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_write_that_meets_the_loss_is_not_lost(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """What is written behind the loss of a collection is found together with what was there before."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.forget()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("b"))])

    assert ["a", "b"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_qdrant_that_comes_back_with_less_is_counted(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """After a search that failed, the first that reaches Qdrant finds what was lost meanwhile."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
    qdrant.stop()
    with pytest.raises(SourceUnavailable):
        await index.search(ANNA, ZEBRA)
    qdrant.client.delete(box(qdrant), models.PointIdsList(points=[1]))
    qdrant.start()

    assert ["a", "b"] == record_ids(await index.search(ANNA, ZEBRA))


@pytest.mark.parametrize("said", [{"x": 1}, {"seq": "many", "mark": ""}, {"seq": None, "mark": ""}])
async def test_a_mark_that_says_nothing_is_made_again(
    qdrant: QdrantDouble, reopen: Reopen, said: dict[str, Any]
) -> None:
    """Everything is sent again, once, and the collection says again how far it has come."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.client.upsert(box(qdrant), [models.PointStruct(id=0, vector={}, payload=said)])
    qdrant.asked.clear()
    await reopen()
    (mark,) = qdrant.client.retrieve(box(qdrant), [0])

    assert [[1]] == sent(qdrant)
    assert {"seq": 1, "mark": ""} == mark.payload


async def test_metadata_that_somebody_changed_are_made_again(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Fields that are no list are taken for none."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.client.update_collection(box(qdrant), metadata={"fields": 7})
    index = await reopen()

    assert ["a"] == record_ids(await index.search(ANNA, ZEBRA))
    assert "tags:keyword" in qdrant.client.get_collection(box(qdrant)).config.metadata["fields"]


async def test_points_from_before_fields_were_told_apart_by_type_are_sent_again(
    qdrant: QdrantDouble, reopen: Reopen
) -> None:
    """A collection that has fields by their names alone gets them by name and type, and filters find them."""
    index = await reopen()
    await index.upsert(
        ANNA, NAME, [prepare_record(make_record("a", payload={"tags": "red"})), prepare_record(make_record("b"))]
    )
    (known,) = qdrant.client.retrieve(box(qdrant), [1])
    plain = {key.partition(":")[0]: value for key, value in known.payload.items()}
    qdrant.client.overwrite_payload(box(qdrant), plain, [1])
    fields = qdrant.client.get_collection(box(qdrant)).config.metadata["fields"]
    qdrant.client.update_collection(box(qdrant), metadata={"fields": [each.partition(":")[0] for each in fields]})
    index = await reopen()

    assert ["a"] == record_ids(await index.search(ANNA, make_query("zebra", where=Equals("tags", "red"))))


@pytest.mark.parametrize("stranger", ["550e8400-e29b-41d4-a716-446655440000", (1 << 64) - 1])
async def test_points_that_cannot_be_passages_are_removed(
    qdrant: QdrantDouble, reopen: Reopen, stranger: int | str
) -> None:
    """A search that is given one is an error that says so, and the next one is rid of it."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    (known,) = qdrant.client.retrieve(box(qdrant), [1], with_vectors=True)
    qdrant.client.upsert(box(qdrant), [models.PointStruct(id=stranger, vector=known.vector, payload=known.payload)])
    with pytest.raises(SourceUnavailable, match="not a passage"):
        await index.search(ANNA, ZEBRA)

    assert ["a"] == record_ids(await index.search(ANNA, ZEBRA))
    assert 2 == qdrant.client.count(box(qdrant)).count


@pytest.mark.parametrize(
    "said",
    [b"<html>\nwelcome\n</html>", b"{}", b"null", b'{"result": null}', b'{"result": true}', b"[" * 100_000, b"\xff"],
    ids=["html", "empty", "null", "nothing", "other", "deep", "bytes"],
)
async def test_a_server_that_is_no_qdrant_is_an_error(qdrant: QdrantDouble, reopen: Reopen, said: bytes) -> None:
    """Whatever it says, a write is kept, and a search says in one short line that Qdrant failed."""
    qdrant.saying = said
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    with pytest.raises(SourceUnavailable, match="Qdrant at") as caught:
        await index.search(ANNA, ZEBRA)
    qdrant.saying = b""

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert ["a"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_a_key_that_a_server_repeats_is_not_shown(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """What a gateway says about a key that it refuses is shown without the key."""
    qdrant.failing, qdrant.saying = 401, b"invalid key: hunter2"
    with pytest.warns(UserWarning, match="insecure"):
        index = await reopen(api_key="hunter2")
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    with pytest.raises(SourceUnavailable, match="401: invalid key: …"):
        await index.search(ANNA, ZEBRA)


@pytest.mark.parametrize("key", ["hunter2\n", "hunter2 ", "ключhunter2", "hunter2\0"])
def test_a_key_that_cannot_be_sent_is_refused(key: str) -> None:
    """It is refused before anything is sent, and the error does not repeat it."""
    with pytest.raises(InvalidRequest) as caught:
        QdrantOptions(place="qdrant://db", api_key=key)

    assert "hunter2" not in str(caught.value)


async def test_requests_stay_small_however_large_titles_are(
    qdrant: QdrantDouble, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server takes only so much at once: points go in as many requests as they need, the mark with the last."""
    monkeypatch.setattr(boxes, "_BATCH_BYTES", 10_000)
    index = await reopen()
    large = [msgspec.structs.replace(make_record(name), title="x" * 2_000) for name in "abc"]
    await index.upsert(ANNA, NAME, [prepare_record(each) for each in [*large, make_record("d")]])
    marked = ["upsert" in body["operations"][-1] and body["operations"][-1]["upsert"]["points"][0]["id"] == 0
              for body in qdrant.bodies(UPDATE)]  # fmt: skip

    assert [[1], [2], [3, 4]] == sent(qdrant)
    assert [False, False, True] == marked[-3:]
    assert ["a", "b", "c", "d"] == record_ids(await index.search(ANNA, ZEBRA))


async def test_fields_are_indexed_before_points_come(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Qdrant indexes an empty collection at once, and has the fields when it builds its graph."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    order = [each.what for each in qdrant.asked if each.what in ("PUT index", UPDATE)]

    assert order == sorted(order, key=[*dict.fromkeys(order)].index)
    assert "PUT index" == order[0]


async def test_an_opening_that_fails_gives_the_store_back(
    qdrant: QdrantDouble, new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may open it at once."""
    folder, options = new_folder(), EmbeddedOptions(vectors=VECTORS, threads=1)
    server = QdrantServer(QdrantOptions(place=qdrant.place))

    async def broken(index: QdrantOverSqlite) -> None:
        raise SourceUnavailable(f"the store in {str(index._folder)!r} is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(QdrantOverSqlite, "warm", broken)
        with pytest.raises(SourceUnavailable, match="damaged"):
            await QdrantOverSqlite.open_with_server(folder, options, server)
    index = await QdrantOverSqlite.open_with_server(folder, options, QdrantServer(QdrantOptions(place=qdrant.place)))
    await index.close()
