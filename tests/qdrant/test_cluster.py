"""Three real nodes that are killed, moved and set back under reads and writes: every answer is the embedded index's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.errors import SourceError
from contexture.pipeline.scoring import fuse_channels
from contexture.ports import Index
from contexture.testing.index_records import COLLECTION, NAME, VECTOR, prepare_record
from contexture.text.terms import extract_terms
from contexture.types import PUBLIC, Contains, Hit, Query, Record, Scope, Vector
from support.qdrant_server import QdrantCluster

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite

pytestmark = [pytest.mark.needs("qdrant"), pytest.mark.slow]

WIDTH = 64
LOADED = 300
WORDS = ("zebra", "walrus", "lynx", "otter", "heron", "badger", "marten", "osprey")
SCOPES = (Scope(tenant="acme", user="anna"), Scope(tenant="acme", user="boris"), Scope(tenant="globex", user="cleo"))
OPTIONS = EmbeddedOptions(vectors={VECTOR: WIDTH}, threads=1)


LIMIT = 240.0  # seconds for what happens to the cluster


class Pair(NamedTuple):
    """A store over the cluster, and the embedded index that says what its answers must be."""

    index: QdrantOverSqlite
    oracle: EmbeddedIndex


OpenPair = Callable[..., Awaitable[Pair]]


def vector(seed: int) -> Vector:
    """A unit vector; neighbours differ by little."""
    drawn = np.random.default_rng(seed // 4).normal(size=WIDTH) + 1e-2 * np.random.default_rng(seed).normal(size=WIDTH)
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)


def record(at: int, version: int = 0) -> Record:
    """A record that some of the users may read."""
    acl = (PUBLIC,) if at % 3 else ("user:anna",)
    text = " ".join(WORDS[(at * step + version) % len(WORDS)] for step in (1, 3, 5))
    return Record(id=f"r{at:04}", title=f"Title {at % 7} of {version}", text=text, acl=acl)


async def write(pair: Pair, scope: Scope, numbers: Sequence[int], version: int = 0) -> None:
    """Write the same records to both."""
    ready = [prepare_record(record(at, version), vector(at + version)) for at in numbers]
    for index in pair:
        await index.upsert(scope, NAME, ready)


async def remove(pair: Pair, scope: Scope, numbers: Sequence[int]) -> None:
    """Remove the same records from both."""
    removed = [await index.delete(scope, NAME, [record(at).id for at in numbers]) for index in pair]
    assert removed[0] == removed[1]


def questions() -> list[tuple[Scope, Query]]:
    """Words, vectors, both, and a filter, asked by every user."""
    found: list[tuple[Scope, Query]] = []
    for scope in SCOPES:
        for seed, words in enumerate(("zebra", "walrus heron", "otter lynx badger")):
            terms, near = tuple(extract_terms(words)), {VECTOR: vector(40 * seed)}
            ask = partial(Query, collection=NAME, k=12, fuse=fuse_channels)
            found += [(scope, ask(terms=terms)), (scope, ask(vectors=near)), (scope, ask(terms=terms, vectors=near))]
        found.append((scope, ask(terms=terms, vectors=near, where=Contains("title", "le 3"))))
    return found


async def told(index: Index, scope: Scope, query: Query) -> list[object]:
    """Everything that an answer says; a search that fails is tried once more."""

    async def ask() -> Sequence[Hit]:
        return await index.search(scope, query)

    try:
        found = await ask()
    except SourceError:
        found = await ask()
    return [(hit.record, hit.ordinal, hit.text, dict(hit.scores), dict(hit.ranks), hit.matched) for hit in found]


async def assert_answers_agree(pair: Pair) -> None:
    """Every question gets the same answer from both."""
    for scope, query in questions():
        assert await told(pair.oracle, scope, query) == await told(pair.index, scope, query)


@pytest.fixture
def cluster(new_folder: Callable[[], Path]) -> Iterator[QdrantCluster]:
    """Three nodes of one's own."""
    with QdrantCluster(new_folder()) as three:
        yield three


@pytest.fixture
async def open_pair(cluster: QdrantCluster, new_folder: Callable[[], Path]) -> AsyncIterator[OpenPair]:
    """Opens a store over the cluster and its oracle, both with the same records."""
    async with AsyncExitStack() as stack:

        async def give(**chosen: Any) -> Pair:
            server = QdrantServer(QdrantOptions(**{"place": cluster.place, "timeout": 20.0, **chosen}))
            index = await QdrantOverSqlite.open_with_server(new_folder(), OPTIONS, server)
            stack.push_async_callback(index.close)
            oracle = await EmbeddedIndex.open(new_folder(), OPTIONS)
            stack.push_async_callback(oracle.close)
            pair = Pair(index, oracle)
            for each in pair:
                for tenant in ("acme", "globex"):
                    await each.create(Scope(tenant=tenant, user="anna"), COLLECTION)
            await write(pair, SCOPES[0], range(LOADED))
            await write(pair, SCOPES[2], range(LOADED, LOADED + 60))
            return pair

        yield give


class Traffic:
    """Reads and writes that go on while something happens to the cluster; every answer is checked at once."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._done = asyncio.Event()
        self.asked = self.retried = self.written = 0

    async def run_during(self, work: Callable[[], None]) -> None:
        """Read and write until blocking `work` in another thread is done; raises what any of them raises."""
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._write())
            try:
                await asyncio.to_thread(work)
            finally:
                self._done.set()

    async def _read(self) -> None:
        """Ask again and again: no answer lacks what was acknowledged before the question."""
        query = Query(collection=NAME, terms=tuple(extract_terms("fresh")), k=2_000, fuse=fuse_channels)
        while not self._done.is_set():
            acknowledged = self.written
            try:
                found = await self._pair.index.search(SCOPES[0], query)
            except SourceError:
                self.retried += 1
                found = await self._pair.index.search(SCOPES[0], query)
            self.asked += 1
            ids = {hit.record.id for hit in found}
            assert [] == [at for at in range(acknowledged) if f"fresh{at:04}" not in ids]

    async def _write(self) -> None:
        """Write record after record, every third twice: one that is replaced is never away."""
        while not self._done.is_set():
            at = self.written
            for version in range(2 if at % 3 == 0 else 1):
                made = Record(id=f"fresh{at:04}", text=f"fresh {WORDS[(at + version) % len(WORDS)]}", acl=(PUBLIC,))
                for index in self._pair:
                    await index.upsert(SCOPES[0], NAME, [prepare_record(made, vector(at + version))])
            self.written = at + 1


def kill_in_turn(cluster: QdrantCluster) -> None:
    """Kill each node, bring it back and wait until it has caught up, before the next is killed."""
    for node in cluster.nodes:
        node.kill()
        threading.Event().wait(1)  # reads and writes go on without it
        node.start()
        cluster.wait_until_whole()


@pytest.mark.parametrize(
    "chosen",
    [{"replicas": 2}, {"replicas": 3}, {"replicas": 2, "by_tenant": True, "shards": 1}],
    ids=["two", "three", "tenants"],
)
async def test_each_node_may_be_killed_in_turn(
    cluster: QdrantCluster, open_pair: OpenPair, chosen: dict[str, Any]
) -> None:
    """Under reads and writes no search fails twice, no acknowledged write is missing, and answers are the oracle's."""
    pair = await open_pair(**chosen)
    await assert_answers_agree(pair)
    traffic = Traffic(pair)
    await traffic.run_during(partial(kill_in_turn, cluster))

    assert traffic.asked > 20
    assert traffic.written > 20
    await assert_answers_agree(pair)


def move_each_shard(cluster: QdrantCluster, name: str) -> None:
    """Move a copy of each shard to the node that has none."""
    path = f"/collections/{name}/cluster"
    peers = {node.call("GET", "/cluster")["peer_id"]: node for node in cluster.nodes}
    for shard in sorted(set[int]().union(*(node.shards(name) for node in cluster.nodes))):
        source = next(peer for peer, node in peers.items() if shard in node.shards(name))
        target = next(peer for peer, node in peers.items() if shard not in node.shards(name))
        move = {"shard_id": shard, "from_peer_id": source, "to_peer_id": target}
        cluster.nodes[0].call("POST", path, {"move_shard": move})
        cluster.wait_until(lambda source=source, shard=shard: shard not in peers[source].shards(name))
        cluster.wait_until_whole()


async def test_shards_may_be_moved(cluster: QdrantCluster, open_pair: OpenPair) -> None:
    """Under reads and writes each shard moves to another node, and nothing is missing meanwhile or afterwards."""
    pair = await open_pair(replicas=2)
    (name,) = cluster.collections()
    traffic = Traffic(pair)
    await traffic.run_during(partial(move_each_shard, cluster, name))

    assert traffic.asked > 20
    await assert_answers_agree(pair)


async def test_a_restored_snapshot_is_completed(cluster: QdrantCluster, open_pair: OpenPair) -> None:
    """What was written, replaced and removed since the snapshot holds in the next answer, and is sent again."""
    pair = await open_pair()
    (name,) = cluster.collections()
    made = [(node, node.call("POST", f"/collections/{name}/snapshots")["name"]) for node in cluster.nodes]
    await write(pair, SCOPES[0], range(LOADED, LOADED + 40))
    await write(pair, SCOPES[0], range(0, 60, 2), version=1)
    await remove(pair, SCOPES[0], range(1, 30, 2))
    for node, snapshot in made:
        place = f"file://{node.folder}/snapshots/{name}/{snapshot}"
        node.call("PUT", f"/collections/{name}/snapshots/recover", {"location": place, "priority": "snapshot"})
    cluster.wait_until_whole()
    restored = cluster.count(name)
    newest = Query(collection=NAME, vectors={VECTOR: vector(LOADED + 20)}, k=8, fuse=fuse_channels)
    first = await told(pair.index, SCOPES[0], newest)

    assert first == await told(pair.oracle, SCOPES[0], newest)
    await assert_answers_agree(pair)

    assert LOADED + 60 + 1 == restored
    assert pair.index.count(NAME) + 1 == cluster.count(name)


async def test_a_write_that_qdrant_does_not_take_blocks_no_search(cluster: QdrantCluster, open_pair: OpenPair) -> None:
    """With one node of three no write has its confirmations: searches add it, and Qdrant gets it later."""
    pair = await open_pair(pause=0.0)
    (name,) = cluster.collections()
    for node in cluster.nodes[1:]:
        node.kill()
    await write(pair, SCOPES[0], range(LOADED, LOADED + 20))
    await write(pair, SCOPES[0], range(0, 40, 2), version=1)
    await assert_answers_agree(pair)
    for node in cluster.nodes[1:]:
        node.start()
    cluster.wait_until_whole()
    await assert_answers_agree(pair)

    assert pair.index.count(NAME) + 1 == cluster.count(name)


async def test_a_node_that_hangs_is_skipped(cluster: QdrantCluster, open_pair: OpenPair) -> None:
    """One search waits for it in vain; the next go to other nodes, and writes go on."""
    pair = await open_pair(timeout=3.0)
    cluster.nodes[0].pause()
    await assert_answers_agree(pair)
    await write(pair, SCOPES[0], range(LOADED, LOADED + 20))
    await assert_answers_agree(pair)
    cluster.nodes[0].resume()
    cluster.wait_until_whole()
    await assert_answers_agree(pair)


async def test_a_store_opens_while_its_first_node_is_dead(cluster: QdrantCluster, open_pair: OpenPair) -> None:
    """A collection is created and filled through the others."""
    cluster.nodes[0].kill()
    pair = await open_pair(replicas=2)
    await assert_answers_agree(pair)


async def test_a_lost_node_is_replaced_by_an_empty_one(cluster: QdrantCluster, open_pair: OpenPair) -> None:
    """With two copies nothing is missing while a node is gone for good, and its successor gets the copies it had."""
    pair = await open_pair(replicas=2)
    (name,) = cluster.collections()
    path = f"/collections/{name}/cluster"
    lost = cluster.nodes[2].call("GET", "/cluster")["peer_id"]
    cluster.replace(2)
    await write(pair, SCOPES[0], range(LOADED, LOADED + 20))
    await assert_answers_agree(pair)
    first = cluster.nodes[0]
    shards = first.call("GET", path)["remote_shards"] + first.call("GET", path)["local_shards"]
    missing = {shard["shard_id"] for shard in shards if shard.get("peer_id") == lost}
    first.call("DELETE", f"/cluster/peer/{lost}?force=true")
    new = cluster.nodes[2].call("GET", "/cluster")["peer_id"]
    for shard in sorted(missing):
        held = [node for node in cluster.nodes if shard in node.shards(name)]
        source = held[0].call("GET", "/cluster")["peer_id"]
        first.call("POST", path, {"replicate_shard": {"shard_id": shard, "from_peer_id": source, "to_peer_id": new}})
    cluster.wait_until(lambda: missing <= cluster.nodes[2].shards(name))
    cluster.wait_until_whole()
    cluster.nodes[1].kill()
    await assert_answers_agree(pair)

    assert missing


async def test_a_collection_that_is_lost_is_filled_again(cluster: QdrantCluster, open_pair: OpenPair) -> None:
    """A search that meets the loss is an error; the next one is answered, with everything sent again."""
    pair = await open_pair()
    (name,) = cluster.collections()
    cluster.nodes[0].call("DELETE", f"/collections/{name}")
    await assert_answers_agree(pair)

    assert pair.index.count(NAME) + 1 == cluster.count(name)
