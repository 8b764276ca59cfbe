"""`python -m benchmarks.qdrant`: a store over one Qdrant node, whose part Qdrant's own engine plays in this process.

What the node does and what the process does are told apart. The wire between them is left out, but for its bytes.
"""

# ruff: noqa: ARG002 - a node here has one collection, whatever its name

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, cast

import qdrant_edge as qe
from benchmarks.corpus import SCOPE, questions, records
from benchmarks.footprint import disk_megabytes
from benchmarks.store import EXACT, NAME, Models, Writer, searcher
from benchmarks.timing import Numbers, clocked, each, percentile, summary
from qdrant_client import QdrantClient, models

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.qdrant.client import LEXICAL, QdrantOptions, QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite
from contexture.ledger import Trace
from contexture.types import FieldType

SIZE = 50_000
ASKED = 200


class Node(QdrantServer):
    """One shard of one collection, kept by the engine that a Qdrant node runs; it times itself."""

    def __init__(self, folder: Path, vectors: Mapping[str, int]) -> None:
        super().__init__(QdrantOptions(place="qdrant://node"), QdrantClient(":memory:"))
        folder.mkdir()
        self.asking: list[float] = []
        self.busy = self.sent = 0.0
        self.walks = False
        named = {
            name: qe.EdgeVectorParams(size=size, distance=qe.Distance.Dot, datatype=qe.VectorStorageDatatype.Turbo8)
            for name, size in vectors.items()
        }
        config = qe.EdgeConfig(vectors=named, sparse_vectors={LEXICAL: qe.EdgeSparseVectorParams()}, wal_enabled=False)
        self._shard = qe.EdgeShard.create(str(folder), config)
        self._known: dict[str, Any] | None = None

    def metadata(self, name: str) -> Mapping[str, Any] | None:
        """What was noted."""
        return self._known

    def create(self, name: str, vectors: Mapping[str, int], metadata: Mapping[str, Any]) -> None:
        """The shard is there; its permissions are indexed."""
        self._known = dict(metadata)
        self._shard.update(qe.UpdateOperation.create_field_index("access", qe.PayloadSchemaType.Integer))
        self._shard.update(qe.UpdateOperation.create_field_index("tenant", qe.PayloadSchemaType.Keyword))

    def set_metadata(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Note something."""
        self._known = {**(self._known or {}), **metadata}

    def index_field(self, name: str, key: str, kind: FieldType) -> None:
        """Index a field."""
        schema = qe.PayloadSchemaType.Keyword if kind is FieldType.KEYWORD else qe.PayloadSchemaType.Float
        self._shard.update(qe.UpdateOperation.create_field_index(key, schema))

    def update(self, name: str, operations: Sequence[models.UpdateOperation]) -> None:
        """Take points; their size on the wire is added up."""
        self.sent += sum(len(operation.model_dump_json(exclude_none=True)) for operation in operations)
        started = process_time()
        for operation in operations:
            if isinstance(operation, models.UpsertOperation):
                points = [_point(point) for point in cast("models.PointsList", operation.upsert).points]
                self._shard.update(qe.UpdateOperation.upsert_points(points))
        self.busy += process_time() - started

    def search(self, name: str, requests: Sequence[models.QueryRequest]) -> list[dict[int, float]]:
        """Answer, one request after the other."""
        started, busy = perf_counter(), process_time()
        found = [self._shard.query(_request(request)) for request in requests]
        self.busy += process_time() - busy
        self.asking.append((perf_counter() - started) * 1_000)
        return [{int(str(point.id)): point.score for point in points} for points in found]

    def get_payload(self, name: str, pid: int, shard: str | None) -> Mapping[str, Any]:
        """Nothing was here before."""
        return {}

    def count(self, name: str) -> int:
        """How many points there are."""
        return self._shard.count(qe.CountRequest(exact=True))

    def iter_point_ids(self, name: str) -> Iterator[list[int]]:
        """Nothing is swept."""
        return iter(())

    def search_params(self, *, exact: bool, effort: int) -> models.SearchParams | None:
        """As a server is asked, over its graphs once it `walks`."""
        exact = exact and not self.walks
        return models.SearchParams(exact=exact, hnsw_ef=None if exact else effort)

    def optimize(self) -> None:
        """Merge segments and build the graphs, as a node does by itself."""
        self._shard.optimize()

    def close(self) -> None:
        """Release the shard."""
        self._shard.flush()
        self._shard.close()


def _point(point: models.PointStruct) -> qe.Point:
    vectors = {
        name: qe.SparseVector(indices=value.indices, values=value.values)
        if isinstance(value, models.SparseVector)
        else value
        for name, value in cast("dict[str, Any]", point.vector).items()
    }
    return qe.Point(int(point.id), vectors, cast("dict[str, Any]", point.payload))


def _request(request: models.QueryRequest) -> qe.QueryRequest:
    told = request.query
    vector = qe.SparseVector(told.indices, told.values) if isinstance(told, models.SparseVector) else told
    (classes,) = cast("list[models.Filter]", cast("models.Filter", request.filter).must)
    readable = [
        qe.FieldCondition(key="access", match=qe.MatchValue(cast("Any", condition).match.value))
        for condition in cast("list[Any]", classes.should)
    ]
    exact = bool(request.params and request.params.exact)
    effort = request.params.hnsw_ef if request.params else None
    return qe.QueryRequest(
        limit=request.limit or 0,
        query=qe.Query.Nearest(cast("Any", vector), using=request.using),
        filter=qe.Filter(should=readable),
        params=qe.SearchParams(exact=exact, hnsw_ef=effort),
    )


async def measured(folder: Path, models_: Models, size: int, asked: int) -> Numbers:
    """How records are written, what a node holds and how long questions take, exactly and over graphs."""
    numbers: Numbers = {"size": size}
    vectors = models_.encoders().vectors
    node = Node(folder / "node", vectors)
    options = EmbeddedOptions(vectors=vectors, exact_limit=EXACT)
    index = await QdrantOverSqlite.open_with_server(folder / "home", options, node)
    writer = Writer(index, models_)
    for block in records(size):
        await writer.write(block)
    passages = index.count(NAME)
    numbers |= {
        "passages": passages,
        "ingest_per_s": size / writer.seconds,
        "node_write_cpu_ms_per_passage": node.busy * 1_000 / passages,
        "sent_bytes_per_passage": node.sent / passages,
    }
    for name in ("exact", "hnsw"):
        if name == "hnsw":
            _, numbers["node_optimize_s"] = await clocked(lambda: asyncio.to_thread(node.optimize))
            node.walks = True
        numbers |= await _questions(index, node, models_, name, asked)
    await index.close()
    return {**numbers, "node_disk_bytes_per_passage": disk_megabytes(folder / "node") * 2**20 / passages}


async def _questions(index: QdrantOverSqlite, node: Node, models_: Models, name: str, asked: int) -> Numbers:
    search = searcher(index, models_.encoders())
    for text in questions(asked, seed=21):
        await search.search(SCOPE, NAME, text, trace=Trace())
    node.asking.clear()
    node.busy = 0.0
    times = await each(questions(asked, seed=22), lambda text: search.search(SCOPE, NAME, text, trace=Trace()))
    return summary(name, times) | {
        f"{name}_node_p50_ms": percentile(node.asking, 0.5),
        f"{name}_node_p95_ms": percentile(node.asking, 0.95),
        f"{name}_node_cpu_ms": node.busy * 1_000 / asked,
        f"{name}_trips": len(node.asking) / asked,
    }


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--asked", type=int, default=ASKED)
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="contexture-qdrant-", ignore_cleanup_errors=True) as name:
        shipped = Models(Path(name))
        numbers = asyncio.run(measured(Path(name), shipped, chosen.size, chosen.asked))
        shipped.close()
    print(json.dumps({key: round(value, 3) for key, value in numbers.items()}, indent=2))


if __name__ == "__main__":
    main()
