"""A real Qdrant for tests: one node, or a cluster of several on loopback whose nodes can be killed and started again.

with QdrantCluster(folder, nodes=3) as cluster:
    cluster.nodes[1].kill()
    cluster.nodes[1].start()
    cluster.wait_until_whole()
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import httpx

VERSION = "1.16.3"
START_SECONDS = 60.0
RUN_WHILE_READ = '"$@" </dev/null & read -r _; kill -9 $!'
"""Runs a program until standard input ends, as it does when the tests are killed."""


def find_program() -> Path | None:
    """The Qdrant server that `QDRANT_PROGRAM` names or `scripts/install-qdrant` installed; None without it."""
    named = os.environ.get("QDRANT_PROGRAM", "")  # noqa: TID251 - tests are told where the program is
    cache = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")  # noqa: TID251 - as in that script
    found = Path(named) if named else cache / "contexture" / f"qdrant-{VERSION}" / "qdrant"
    return found if os.access(found, os.X_OK) else None


class QdrantNode:
    """One node; its data stay in `folder`, and its output is appended to `folder/log`."""

    def __init__(self, folder: Path, first: QdrantNode | None = None) -> None:
        self.folder = folder
        self.port, self.grpc_port, self.peer_port = _free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self._peer_url = f"http://127.0.0.1:{self.peer_port}"
        self._first = first
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)

    def start(self) -> None:
        """Start the node; `wait` says when it has caught up."""
        program = find_program()
        assert program is not None, "run scripts/install-qdrant"
        settings = {
            "SERVICE__HOST": "127.0.0.1",
            "SERVICE__HTTP_PORT": self.port,
            "SERVICE__GRPC_PORT": self.grpc_port,
            "SERVICE__MAX_WORKERS": 2,
            "CLUSTER__ENABLED": "true",
            "CLUSTER__P2P__PORT": self.peer_port,
            "TELEMETRY_DISABLED": "true",
            "STORAGE__STORAGE_PATH": self.folder / "storage",
            "STORAGE__SNAPSHOTS_PATH": self.folder / "snapshots",
            "STORAGE__WAL__WAL_CAPACITY_MB": 1,  # of each shard, written out in full
            "STORAGE__PERFORMANCE__MAX_SEARCH_THREADS": 1,
        }
        bootstrap = ["--bootstrap", self._first._peer_url] if self._first else []
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", RUN_WHILE_READ, "sh", program, "--uri", self._peer_url, *bootstrap],
                stdin=subprocess.PIPE,
                cwd=self.folder,
                env={"PATH": os.defpath, **{f"QDRANT__{name}": str(value) for name, value in settings.items()}},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End the process as `kill -9` does, whether it runs, is stopped or is gone."""
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process.stdin.close()

    def pause(self) -> None:
        """Stop the process, so that it hangs, until `resume`."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process run again."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def is_ready(self) -> bool:
        """Whether the node answers and has caught up with its cluster."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def wait(self) -> None:
        """Wait until the node is ready; fails after `START_SECONDS`."""
        _wait_until(self.is_ready, seconds=START_SECONDS)

    def shards(self, name: str) -> set[int]:
        """The shards of a collection that this node has a copy of."""
        found = self.call("GET", f"/collections/{name}/cluster")["local_shards"]
        return {shard["shard_id"] for shard in found}

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The result of a request; fails if it is refused."""
        answer = httpx.request(method, f"{self.url}{path}", json=body, timeout=START_SECONDS)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()["result"]


class QdrantCluster:
    """Nodes that form one cluster, below `folder`."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self.folder = folder
        first = QdrantNode(folder / "node0")
        self.nodes = [first, *(QdrantNode(folder / f"node{at}", first) for at in range(1, nodes))]
        self._undo = ExitStack()

    @property
    def place(self) -> str:
        """The address of all nodes, as a store is told it."""
        return "qdrant://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            for node in self.nodes:
                undo.callback(node.kill)
                node.start()
                node.wait()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def keep_logs(self) -> Path:
        """Copy the logs of all nodes to a folder that outlives the test, and return it."""
        kept = Path(tempfile.mkdtemp(prefix="contexture-qdrant-logs-"))
        for node in self.nodes:
            if (node.folder / "log").exists():
                shutil.copy(node.folder / "log", kept / f"{node.folder.name}.log")
        return kept

    def collections(self) -> list[str]:
        """The names of all collections."""
        found = self.nodes[0].call("GET", "/collections")["collections"]
        return sorted(each["name"] for each in found)

    def count(self, name: str) -> int:
        """How many points a collection has."""
        return int(self.nodes[0].call("POST", f"/collections/{name}/points/count", {"exact": True})["count"])

    def replace(self, at: int) -> None:
        """Kill a node, lose its disk, and let an empty one join the cluster under another address."""
        self.nodes[at].kill()
        node = QdrantNode(self.folder / f"node{at}-new", self.nodes[0])
        self.nodes[at] = node
        self._undo.callback(node.kill)
        node.start()
        node.wait()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until this is so; fails after `START_SECONDS`."""
        _wait_until(condition, seconds=START_SECONDS)

    def wait_until_whole(self) -> None:
        """Wait until every node is ready and every copy of every shard is active."""
        for node in self.nodes:
            node.wait()
        _wait_until(self._is_whole, seconds=START_SECONDS)

    def _is_whole(self) -> bool:
        for node in self.nodes:
            for name in self.collections():
                info = node.call("GET", f"/collections/{name}/cluster")
                shards = [*info["local_shards"], *info["remote_shards"]]
                if info["shard_transfers"] or any(shard["state"] != "Active" for shard in shards):
                    return False
        return True


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    until = monotonic() + seconds
    while not condition():
        assert monotonic() < until, f"not so after {seconds:.0f} seconds"
        threading.Event().wait(0.05)
