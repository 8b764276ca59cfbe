"""`python -m benchmarks.qdrant`: a store over a real Qdrant node, which it starts.

`scripts/install-qdrant` installs the server. What the node does and what this process does are told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from time import monotonic

import httpx
import psutil
from benchmarks.corpus import SCOPE, questions, records
from benchmarks.footprint import disk_megabytes
from benchmarks.store import EXACT, NAME, Models, Writer, searcher
from benchmarks.timing import Numbers, each, summary

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite
from contexture.ledger import Trace

SIZE = 50_000
ASKED = 200
PROGRAM = Path.home() / ".cache" / "contexture" / "qdrant-1.16.3" / "qdrant"
_LIMIT = 3_600.0  # seconds for building graphs
_ONE_MB = 1e6


class Node:
    """A Qdrant server on this machine, and what it has used."""

    def __init__(self, folder: Path, process: psutil.Process, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.place = f"qdrant://127.0.0.1:{port}"
        self._process = process

    def cpu_seconds(self) -> float:
        """Processor time so far."""
        used = self._process.cpu_times()
        return float(used.user + used.system)

    def megabytes(self) -> float:
        """Resident memory, without files that it maps and others may use."""
        found = self._process.memory_info()
        return float(found.rss - found.shared) / _ONE_MB


@contextmanager
def started_node(folder: Path, program: Path) -> Iterator[Node]:
    """A node of one's own with its data in `folder`; it ends with the context."""
    folder.mkdir()
    with socket() as one, socket() as two:
        for each_socket in (one, two):
            each_socket.bind(("127.0.0.1", 0))
        port, grpc_port = one.getsockname()[1], two.getsockname()[1]
    settings = {
        "SERVICE__HOST": "127.0.0.1",
        "SERVICE__HTTP_PORT": port,
        "SERVICE__GRPC_PORT": grpc_port,
        "TELEMETRY_DISABLED": "true",
        "STORAGE__STORAGE_PATH": folder / "storage",
        "STORAGE__SNAPSHOTS_PATH": folder / "snapshots",
        "LOG_LEVEL": "WARN",
    }
    environment = {f"QDRANT__{name}": str(value) for name, value in settings.items()}
    with subprocess.Popen([program], cwd=folder, env=environment, stdout=subprocess.DEVNULL) as child:  # noqa: S603 - ours
        try:
            node = Node(folder, psutil.Process(child.pid), port)
            asyncio.run(_until_ready(node))
            yield node
        finally:
            child.kill()


async def _until_ready(node: Node) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while True:
            try:
                if (await client.get(f"{node.url}/readyz")).is_success:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.1)


async def _until_optimized(node: Node) -> float:
    """Wait until Qdrant has merged segments and built graphs; returns the seconds that took."""
    began = monotonic()
    async with asyncio.timeout(_LIMIT), httpx.AsyncClient() as client:
        (name,) = [
            each["name"] for each in (await client.get(f"{node.url}/collections")).json()["result"]["collections"]
        ]
        while True:
            found = (await client.get(f"{node.url}/collections/{name}")).json()["result"]
            if found["status"] == "green":
                return monotonic() - began
            await asyncio.sleep(0.5)


async def measure(folder: Path, node: Node, models: Models, size: int, asked: int) -> Numbers:
    """How records are written, what a node holds and how long questions take, exactly and over graphs."""
    numbers: Numbers = {"size": size}
    vectors = models.encoders().vectors
    server = QdrantServer(QdrantOptions(place=node.place, timeout=120))
    exact = EmbeddedOptions(vectors=vectors, exact_limit=EXACT)
    index = await QdrantOverSqlite.open_with_server(folder, exact, server)
    writer, began = Writer(index, models), node.cpu_seconds()
    for block in records(size):
        await writer.write(block)
    passages = index.count(NAME)
    numbers |= {
        "passages": passages,
        "ingest_per_s": size / writer.seconds,
        "node_write_cpu_ms_per_passage": (node.cpu_seconds() - began) * 1_000 / passages,
    }
    numbers["node_optimize_s"] = await _until_optimized(node)
    numbers["node_all_cpu_ms_per_passage"] = (node.cpu_seconds() - began) * 1_000 / passages
    numbers |= await _ask(index, node, models, "exact", asked)
    await index.close()
    graphs = EmbeddedOptions(vectors=vectors, exact_limit=0)
    server = QdrantServer(QdrantOptions(place=node.place, timeout=120))
    index = await QdrantOverSqlite.open_with_server(folder, graphs, server)
    numbers |= await _ask(index, node, models, "graphs", asked)
    await index.close()
    return {
        **numbers,
        "node_megabytes": node.megabytes(),
        "node_disk_bytes_per_passage": disk_megabytes(node.folder) * _ONE_MB / passages,
    }


async def _ask(index: QdrantOverSqlite, node: Node, models: Models, name: str, asked: int) -> Numbers:
    search = searcher(index, models.encoders())
    for text in questions(asked // 4, seed=21):
        await search.search(SCOPE, NAME, text, trace=Trace())
    began = node.cpu_seconds()
    times = await each(questions(asked, seed=22), lambda text: search.search(SCOPE, NAME, text, trace=Trace()))
    return {**summary(name, times), f"{name}_node_cpu_ms": (node.cpu_seconds() - began) * 1_000 / asked}


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--asked", type=int, default=ASKED)
    parser.add_argument("--program", type=Path, default=PROGRAM, help="the Qdrant server")
    chosen = parser.parse_args()
    if not os.access(chosen.program, os.X_OK):
        parser.error(f"{chosen.program} is missing: scripts/install-qdrant")
    with TemporaryDirectory(prefix="contexture-qdrant-", ignore_cleanup_errors=True) as name:
        shipped = Models(Path(name))
        with started_node(Path(name) / "node", chosen.program) as node:
            numbers = asyncio.run(measure(Path(name) / "home", node, shipped, chosen.size, chosen.asked))
        shipped.close()
    print(json.dumps({key: round(value, 3) for key, value in numbers.items()}, indent=2))


if __name__ == "__main__":
    main()
