"""What Chroma adds to the contract of an index: its failures, other processes, graphs, and what people see in it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from psutil import Process

pytest.importorskip("chromadb", reason="chromadb is not installed")

import chromadb

from contexture.adapters.index.chroma.filters import compile_where
from contexture.adapters.index.chroma.index import ChromaIndex, ChromaOptions
from contexture.adapters.index.filters import field_types
from contexture.adapters.index.routed import RoutedIndex
from contexture.builders.research.build import ResearchContextBuilder
from contexture.errors import SourceError, SourceTimeout, SourceUnavailable, UnknownAdapter, UnknownCollection
from contexture.pages.visual import VISUAL_PAGES
from contexture.testing.index_records import (
    COLLECTION,
    EAST,
    NAME,
    VECTOR,
    VECTORS,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.types import And, AnyOf, Collection, Contains, Equals, FieldType, Filter, Not, Or, Range, Scope
from support.page_conformance import DOCUMENT_VECTORS, pages_over
from support.visual_conformance import PAGE_VECTORS, document, pages_of
from support.workbench import Parts, Workbench

SCOPE = Scope.local()
OPTIONS = ChromaOptions(vectors=VECTORS)
PATIENCE = 60.0


async def opened(folder: Path, options: ChromaOptions = OPTIONS) -> ChromaIndex:
    """An index in a folder, with the collection of the checks."""
    index = await ChromaIndex.open(f"chroma:{folder}", options)
    await index.create(SCOPE, COLLECTION)
    return index


@pytest.mark.parametrize("place", ["chroma:", "chroma+http://", "chroma+ftp://host", "http://host:80", "qdrant:x"])
def test_a_place_that_is_none_is_refused_at_once(place: str):
    """A setting that names neither a folder nor an address is told, before anything is opened."""
    with pytest.raises(UnknownAdapter, match="chroma:FOLDER"):
        ChromaIndex(place, OPTIONS)


async def test_a_server_that_is_not_there_is_a_source_that_is_down():
    """Every call says so, and nothing is reached when the index is made."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    index = ChromaIndex(f"chroma+http://127.0.0.1:{port}", OPTIONS)
    for call in (index.collections(SCOPE), index.search(SCOPE, make_query("zebra")), index.get(SCOPE, NAME, ["a"])):
        with pytest.raises(SourceError, match="Chroma at"):
            await call


async def test_a_context_names_a_chroma_that_is_down(tmp_path: Path):
    """A build over pages that cannot be reached is empty and says why, instead of failing."""
    index = ChromaIndex("chroma+http://127.0.0.1:9", ChromaOptions(vectors=DOCUMENT_VECTORS))
    parts = Parts()
    store = pages_over(Workbench(index, parts), tmp_path)
    builder = ResearchContextBuilder(store, counter=parts.counter, redactor=parts.redactor, clock=parts.clock)
    context = await builder.build_context("where do ships wait?")

    assert context.sources == []
    assert all("Chroma at" in lost.reason for lost in context.degradations)
    assert context.degradations


async def test_a_closed_index_says_so(new_folder: Callable[[], Path]):
    """Further calls fail, whatever they ask."""
    index = await opened(new_folder())
    await index.close()
    with pytest.raises(SourceUnavailable, match="closed"):
        await index.scroll(SCOPE, NAME)


async def test_a_closed_index_holds_no_file_open(new_folder: Callable[[], Path]):
    """Only the last of those that share a folder lets go of it."""
    folder = new_folder()
    first, second = await opened(folder), await opened(folder)
    await first.upsert(SCOPE, NAME, [prepare_record(make_record("a"))])
    await first.close()
    found = record_ids(await second.search(SCOPE, make_query("zebra", vector=EAST)))
    await second.close()

    assert found == ["a"]
    async with asyncio.timeout(PATIENCE):  # Chroma lets go of them on threads of its own
        while any(Path(each.path).is_relative_to(folder) for each in Process().open_files()):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_another_process_sees_writes_and_removals(new_folder: Callable[[], Path]):
    """A second index over the same Chroma, with its own mirror, answers from the last write."""
    folder = new_folder()
    writer, reader = await opened(folder), await opened(folder)
    await writer.upsert(SCOPE, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
    assert record_ids(await reader.search(SCOPE, make_query("zebra", vector=EAST))) == ["a", "b"]
    await writer.upsert(SCOPE, NAME, [prepare_record(make_record("a", "walrus"))])
    await writer.delete(SCOPE, NAME, ["b"])

    assert record_ids(await reader.search(SCOPE, make_query("zebra", vector=EAST))) == ["a"]
    assert record_ids(await reader.search(SCOPE, make_query("zebra"))) == []
    assert [record.text for record in await reader.scroll(SCOPE, NAME)] == ["walrus"]


async def test_what_was_written_is_there_when_it_is_opened_again(new_folder: Callable[[], Path]):
    """Collections, fields and records are read from Chroma."""
    folder = new_folder()
    index = await opened(folder)
    await index.upsert(SCOPE, NAME, [prepare_record(make_record("a", payload={"tags": ["red"]}))])
    await index.close()
    again = await ChromaIndex.open(f"chroma:{folder}", OPTIONS)

    assert [COLLECTION] == list(await again.collections(SCOPE))
    assert record_ids(await again.search(SCOPE, make_query(vector=EAST, where=Equals("tags", "red")))) == ["a"]


async def test_the_graph_finds_what_comparing_finds(new_folder: Callable[[], Path]):
    """Over six hundred vectors Chroma's nearest ten are those that comparing all of them gives, filters included."""
    draw = np.random.default_rng(3).standard_normal((600, 4)).astype(np.float32)
    rows = draw / np.linalg.norm(draw, axis=1, keepdims=True)
    folder = new_folder()
    index = await opened(folder)
    records = [make_record(f"r{at:03}", payload={"rating": at % 2}) for at in range(len(rows))]
    await index.upsert(SCOPE, NAME, [prepare_record(record, row) for record, row in zip(records, rows, strict=True)])
    exact = await opened(folder, replace(OPTIONS, exact_limit=10_000))
    for where in (None, Equals("rating", 1), Not(Equals("rating", 1))):
        asked = make_query(vector=EAST, k=10, where=where)
        walked, compared = await index.search(SCOPE, asked), await exact.search(SCOPE, asked)

        assert record_ids(compared) == record_ids(walked)
        assert [hit.scores[VECTOR] for hit in compared] == [hit.scores[VECTOR] for hit in walked]


async def test_collections_from_before_are_of_those_who_have_something_there(new_folder: Callable[[], Path]):
    """A store whose collections all tenants shared: who has written keeps them with their fields, nobody else does."""
    folder, stranger = new_folder(), Scope(tenant="elsewhere", user="anna")
    index = await opened(folder)
    await index.upsert(SCOPE, NAME, [prepare_record(make_record("a", payload={"tags": "red"}))])
    meta = index._open_store()._meta
    ((item, said),) = [(id_, said) for id_, said in meta.scroll({"name": {"$eq": NAME}}) if "owner" in said]
    meta.remove([item])
    meta.upsert([f"collection.{NAME}"], [{"name": NAME, "fields": said["fields"]}])
    await index.close()
    index = await ChromaIndex.open(f"chroma:{folder}", OPTIONS)

    assert [COLLECTION] == list(await index.collections(SCOPE))
    assert [] == list(await index.collections(stranger))
    assert ["a"] == record_ids(await index.search(SCOPE, make_query("zebra", where=Equals("tags", "red"))))
    with pytest.raises(UnknownCollection, match="none yet"):
        await index.search(stranger, make_query("zebra"))
    await index.create(SCOPE, Collection(name=NAME, fields={"colour": FieldType.KEYWORD}))
    await index.create(stranger, Collection(name=NAME, fields={"tags": FieldType.NUMBER}))
    assert {*COLLECTION.fields, "colour"} == set((await index.collections(SCOPE))[0].fields)
    await index.close()


async def test_a_write_that_fails_half_way_changes_nothing(new_folder: Callable[[], Path], monkeypatch):
    """Vectors that were written before their record failed are found by nobody."""
    index = await opened(new_folder())
    await index.upsert(SCOPE, NAME, [prepare_record(make_record("a", "zebra"))])
    store = index._open_store()
    monkeypatch.setattr(store, "_put_matrices", _fails)
    with pytest.raises(SourceUnavailable):
        await index.upsert(SCOPE, NAME, [prepare_record(make_record("a", "walrus")), prepare_record(make_record("b"))])

    assert record_ids(await index.search(SCOPE, make_query(vector=EAST))) == ["a"]
    assert [record.text for record in await index.get(SCOPE, NAME, ["a", "b"])] == ["zebra"]


async def test_a_write_whose_end_is_unknown_is_read_again(new_folder: Callable[[], Path], monkeypatch):
    """When records arrived and their announcement failed, the writer sees after its next write what others see."""
    folder = new_folder()
    index = await opened(folder)
    store = index._open_store()
    with monkeypatch.context() as broken:
        broken.setattr(store, "_finish_write", _fails)
        with pytest.raises(SourceUnavailable):
            await index.upsert(SCOPE, NAME, [prepare_record(make_record("a"))])
    await index.upsert(SCOPE, NAME, [prepare_record(make_record("b"))])

    assert (
        record_ids(await index.scroll(SCOPE, NAME))
        == record_ids(await (await opened(folder)).scroll(SCOPE, NAME))
        == ["a", "b"]
    )


async def test_a_server_that_hangs_is_given_up(new_folder: Callable[[], Path]):
    """An address that accepts and never answers is a source that timed out."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = f"chroma+http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SourceTimeout, match="in time"):
            await ChromaIndex(place, replace(OPTIONS, timeout=0.05)).collections(SCOPE)


async def test_people_find_metadata_in_chroma_itself(new_folder: Callable[[], Path]):
    """The collection of a tenant's pages answers Chroma's own `get` by document and page."""
    folder = new_folder()
    index = await ChromaIndex.open(f"chroma:{folder}", ChromaOptions(vectors=PAGE_VECTORS))
    await pages_of(index).add(SCOPE, document())
    client = chromadb.PersistentClient(path=str(folder), settings=_quiet())
    (name,) = (
        each.name
        for each in client.list_collections()
        if each.name.startswith(f"contexture.{VISUAL_PAGES.name}.local.") and ".vectors." not in each.name
        if ".matrices." not in each.name
    )
    where = {"$and": [{"doc_id": {"$eq": "d1"}}, {"page": {"$eq": 2}}]}
    found = client.get_collection(name, embedding_function=None).get(where=where, include=["metadatas"])

    assert [("d1.pdf", "pdf", 1)] == [
        (each["filename"], each["extension"], each["num_tables"]) for each in found["metadatas"]
    ]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (Equals("tags", "red"), {"cx.f.tags": {"$contains": "red"}}),
        (Equals("pinned", True), {"cx.f.pinned": {"$eq": True}}),
        (AnyOf("rating", (1, 2)), {"$or": [{"cx.f.rating": {"$eq": 1.0}}, {"cx.f.rating": {"$eq": 2.0}}]}),
        (Range(field="rating", gte=1, lt=3), {"$and": [{"cx.f.rating": {"$gte": 1.0}}, {"cx.f.rating": {"$lt": 3.0}}]}),
        (Not(Equals("tags", "red")), None),
        (Contains("tags", "re"), None),
        (And((Contains("tags", "re"), Equals("pinned", True))), {"cx.f.pinned": {"$eq": True}}),
        (Or((Contains("tags", "re"), Equals("pinned", True))), None),
        (Equals("tags", "nul\x00"), None),
        (Or(()), {"cx.access": {"$eq": ""}}),
    ],
    ids=str,
)
def test_filters_are_pushed_down_as_far_as_chroma_can_say_them(where: Filter, said: object):
    """What it cannot say is left out of its query, never turned into something narrower."""
    assert said == compile_where(None, where, field_types(COLLECTION))


def test_a_scope_that_may_read_nothing_asks_for_nothing():
    """Permissions are part of the query, and an empty list of classes lets nothing pass."""
    assert compile_where([], None, {}) == {"cx.access": {"$eq": ""}}
    assert compile_where(["x"], None, {}) == {"cx.access": {"$in": ["x"]}}


async def test_each_collection_lives_where_it_is_sent(new_folder: Callable[[], Path]):
    """A routed index writes, finds and lists as one, and each place holds its own collections alone."""
    home, away = await opened(new_folder()), await ChromaIndex.open(f"chroma:{new_folder()}", OPTIONS)
    index = RoutedIndex(home, {"far": away})
    far = Collection(name="far", fields={"tags": FieldType.KEYWORD})
    await index.create(SCOPE, far)
    await index.upsert(SCOPE, "far", [prepare_record(make_record("f"))])
    await index.upsert(SCOPE, NAME, [prepare_record(make_record("n"))])

    assert ["far", NAME] == [collection.name for collection in await index.collections(SCOPE)]
    assert record_ids(await index.search(SCOPE, make_query("zebra", collection="far"))) == ["f"]
    assert record_ids(await index.get(SCOPE, NAME, ["n", "f"])) == ["n"]
    assert await index.version(SCOPE, "far") == await away.version(SCOPE, "far")
    assert await index.delete(SCOPE, "far", ["f"]) == 1
    with pytest.raises(UnknownCollection):
        await home.get(SCOPE, "far", [])
    await index.close()
    with pytest.raises(SourceUnavailable):
        await away.collections(SCOPE)


def _quiet() -> object:
    return chromadb.config.Settings(anonymized_telemetry=False)


def _fails(*_: object) -> None:
    raise SourceUnavailable("the disk is full")
