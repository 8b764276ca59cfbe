"""The embedded index as oracle: over a real Qdrant cluster every answer is the same, hits, scores and ranks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.pipeline.scoring import fuse_channels
from contexture.ports import Index
from contexture.testing.index_records import COLLECTION, NAME, VECTOR, prepare_record
from contexture.testing.strategies import filters, record_lists
from contexture.text.terms import extract_terms
from contexture.types import PUBLIC, Filter, Query, Record, Scope, Vector

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite

pytestmark = pytest.mark.needs("qdrant")
WIDTH = 32
OPTIONS = EmbeddedOptions(vectors={VECTOR: WIDTH}, threads=1)
LAX = [HealthCheck.function_scoped_fixture]
READERS = ((PUBLIC,), ("user:anna",), ("user:boris",), ("group:sales", "user:boris"))


@pytest.fixture(params=["hash", pytest.param("tenant", marks=pytest.mark.slow)])
async def pair(
    request: pytest.FixtureRequest, qdrant_place: str, new_folder: Callable[[], Path]
) -> AsyncIterator[tuple[EmbeddedIndex, QdrantOverSqlite]]:
    """The oracle, and an index in Qdrant, with shards by hash or by tenant."""
    by_tenant = request.param == "tenant"
    options = QdrantOptions(place=qdrant_place, timeout=60, by_tenant=by_tenant, shards=1 if by_tenant else 0)
    server = QdrantServer(options)
    oracle = await EmbeddedIndex.open(new_folder(), OPTIONS)
    index = await QdrantOverSqlite.open_with_server(new_folder(), OPTIONS, server)
    yield oracle, index
    await oracle.close()
    await index.close()


def vector(seed: int) -> Vector:
    """A unit vector; some seeds give nearly the same one."""
    near = np.random.default_rng(seed // 4).normal(size=WIDTH)
    drawn = near + 1e-3 * np.random.default_rng(seed).normal(size=WIDTH)
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)


async def told(index: Index, scope: Scope, query: Query) -> list[object]:
    """Everything that an answer says."""
    found = await index.search(scope, query)
    return [(hit.record, hit.ordinal, hit.text, dict(hit.scores), dict(hit.ranks), hit.matched) for hit in found]


@settings(max_examples=25, suppress_health_check=LAX)
@given(
    records=record_lists(max_size=10),
    readers=st.lists(st.sampled_from(READERS), min_size=10, max_size=10),
    seeds=st.lists(st.integers(0, 15), min_size=11, max_size=11),
    gone=st.integers(0, 3),
    where=st.none() | filters(),
    k=st.integers(1, 4),
    pool=st.none() | st.integers(1, 4),
)
async def test_answers_are_those_of_the_embedded_index(
    records: list[Record],
    readers: list[tuple[str, ...]],
    seeds: list[int],
    gone: int,
    where: Filter | None,
    k: int,
    pool: int | None,
    pair: tuple[EmbeddedIndex, QdrantOverSqlite],
) -> None:
    """Whatever is stored, removed, hidden and asked, both say the same to every reader, to the last bit."""
    tenant = uuid4().hex
    scopes = [Scope(tenant=tenant, user="anna"), Scope(tenant=tenant, user="boris"), Scope(tenant=tenant, user="x")]
    ready = [
        prepare_record(replace(record, text=f"zebra {record.text}", acl=acl), vector(seed))
        for record, acl, seed in zip(records, readers, seeds, strict=False)
    ]
    asked = Query(
        collection=NAME,
        terms=tuple(extract_terms("zebra lynx " + records[0].text if records else "zebra")),
        vectors={VECTOR: vector(seeds[-1])},
        where=where,
        k=k,
        fuse=partial(fuse_channels, pool=pool),
    )
    for index in pair:
        await index.create(scopes[0], COLLECTION)
        await index.upsert(scopes[0], NAME, ready)
        await index.delete(scopes[0], NAME, [record.id for record in records[:gone]])
    for scope in scopes:
        assert await told(pair[0], scope, asked) == await told(pair[1], scope, asked)


async def test_many_near_neighbours_are_ranked_alike(pair: tuple[EmbeddedIndex, QdrantOverSqlite]) -> None:
    """Among hundreds of vectors that differ by thousandths, both find the same ones in the same order."""
    scope = Scope(tenant="local", user="anna")
    drawn = [Record(id=f"r{at:03}", text="zebra", acl=(PUBLIC,)) for at in range(300)]
    for index in pair:
        await index.create(scope, COLLECTION)
        await index.upsert(scope, NAME, [prepare_record(record, vector(at % 40)) for at, record in enumerate(drawn)])
    for seed in range(0, 160, 16):
        asked = Query(collection=NAME, vectors={VECTOR: vector(seed)}, k=12, fuse=fuse_channels)

        assert await told(pair[0], scope, asked) == await told(pair[1], scope, asked)
