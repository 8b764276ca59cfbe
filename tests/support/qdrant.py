"""A Qdrant for tests: a real HTTP server in front of the client's local mode, which can be stopped and started again.

with QdrantDouble() as qdrant:
    Settings(store=qdrant.place)

It searches by brute force and does not shard. It does hold a cluster's rules about shard keys, and remembers every
request, so that what a cluster would be told can be looked at.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

_UPDATES: TypeAdapter[list[models.UpdateOperation]] = TypeAdapter(list[models.UpdateOperation])
_SEARCHES: TypeAdapter[list[models.QueryRequest]] = TypeAdapter(list[models.QueryRequest])


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: what is done to which collection, with which body and key."""

    what: str
    collection: str
    body: dict[str, Any]
    api_key: str | None


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class QdrantDouble:
    """Answers on a free port of this machine, and remembers in `asked` what it was asked.

    `failing` is a status to answer with, and `saying` what to say instead of an answer.
    """

    def __init__(self) -> None:
        self.client = QdrantClient(":memory:")
        self.asked: list[Asked] = []
        self.failing = 0
        self.saying = b""
        self.version = "1.20.0"
        self.copies = (1, 1)  # of each shard, and how many of them must confirm a write
        self._keys: dict[str, set[str]] = {}
        self._turn = threading.Lock()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def place(self) -> str:
        """Its address as a store."""
        return f"qdrant://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Answer from now on, on the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Answer no more; what it holds stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def forget(self) -> None:
        """Lose everything."""
        with self._turn:
            self.client, self._keys = QdrantClient(":memory:"), {}

    def bodies(self, what: str) -> list[dict[str, Any]]:
        """The bodies of the requests of one kind so far."""
        return [each.body for each in self.asked if each.what == what]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def answer(self, method: str, path: str, body: dict[str, Any], api_key: str | None) -> object:
        """What a request gets."""
        _, _, name, *rest = [*path.split("/"), "", ""]
        what = " ".join((method, *filter(None, rest)))
        self.asked.append(Asked(what, name, body, api_key))
        if self.failing:
            raise Refused(self.failing, "told to fail")
        with self._turn:
            return _ANSWERS[what](self, name, body)

    # --- what there is to ask ---

    def exists(self, name: str, body: dict[str, Any]) -> object:
        """Whether a collection is there."""
        del body
        return {"exists": self.client.collection_exists(name)}

    def describe(self, name: str, body: dict[str, Any]) -> object:
        """A collection."""
        del body
        found = self.client.get_collection(name)
        found.config.params.replication_factor, found.config.params.write_consistency_factor = self.copies
        return found

    def create(self, name: str, body: dict[str, Any]) -> object:
        """A new collection."""
        wanted = models.CreateCollection.model_validate(body)
        if wanted.sharding_method is models.ShardingMethod.CUSTOM:
            self._keys[name] = set()
        return self.client.create_collection(
            name, wanted.vectors, sparse_vectors_config=wanted.sparse_vectors, metadata=wanted.metadata
        )

    def change(self, name: str, body: dict[str, Any]) -> object:
        """A collection's metadata; its parameters are kept as they are."""
        return self.client.update_collection(name, metadata=body["metadata"]) if "metadata" in body else True

    def index(self, name: str, body: dict[str, Any]) -> object:
        """An index that a brute-force search does not need."""
        del name, body
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)

    def shard_keys(self, name: str, body: dict[str, Any]) -> object:
        """The shard keys of a collection."""
        del body
        return {"shard_keys": [{"key": key} for key in sorted(self._keys[name])]}

    def add_shard_key(self, name: str, body: dict[str, Any]) -> object:
        """A new shard key."""
        if body["shard_key"] in self._keys[name]:
            raise Refused(400, f"shard key {body['shard_key']} exists already")
        self._keys[name].add(body["shard_key"])
        return True

    def update(self, name: str, body: dict[str, Any]) -> object:
        """Points that come and go."""
        for operation in body["operations"]:
            for told in operation.values():
                self._sharded(name, told.get("shard_key"))
        return self.client.batch_update_points(name, _UPDATES.validate_python(body["operations"]))

    def query(self, name: str, body: dict[str, Any]) -> object:
        """The nearest points of each request."""
        for search in body["searches"]:
            self._sharded(name, search.get("shard_key"))
        # Local mode would say that parameters have no effect.
        searches = _SEARCHES.validate_python([{**search, "params": None} for search in body["searches"]])
        return self.client.query_batch_points(name, searches)

    def retrieve(self, name: str, body: dict[str, Any]) -> object:
        """Points by id."""
        return self.client.retrieve(name, body["ids"])

    def count(self, name: str, body: dict[str, Any]) -> object:
        """How many points there are."""
        del body
        return self.client.count(name)

    def scroll(self, name: str, body: dict[str, Any]) -> object:
        """A page of points."""
        points, following = self.client.scroll(name, limit=body["limit"], offset=body.get("offset"))
        return {"points": [point.model_dump(mode="json") for point in points], "next_page_offset": following}

    def _sharded(self, name: str, told: Any) -> None:
        """A cluster's rule: where tenants have shards, every request says which of them it means."""
        known = self._keys.get(name)
        keys = set[str](told if isinstance(told, list) else [told] if told else [])  # pyright: ignore[reportUnknownArgumentType] - JSON
        if known is None and keys:
            raise Refused(400, "this collection has no shard keys")
        if known is not None and (not keys or keys - known):
            raise Refused(400, f"shard keys {sorted(keys)} are not among {sorted(known)}")


_ANSWERS: dict[str, Callable[[QdrantDouble, str, dict[str, Any]], object]] = {
    "GET": QdrantDouble.describe,
    "GET exists": QdrantDouble.exists,
    "PUT": QdrantDouble.create,
    "PATCH": QdrantDouble.change,
    "PUT index": QdrantDouble.index,
    "GET shards": QdrantDouble.shard_keys,
    "PUT shards": QdrantDouble.add_shard_key,
    "POST points batch": QdrantDouble.update,
    "POST points query batch": QdrantDouble.query,
    "POST points": QdrantDouble.retrieve,
    "POST points count": QdrantDouble.count,
    "POST points scroll": QdrantDouble.scroll,
}


def _handler(double: QdrantDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Speaks HTTP for the double."""

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status, said = 200, self._said(body)
            except Refused as refused:
                status, said = refused.status, {"status": {"error": str(refused)}, "time": 0.0}
            except (ValueError, KeyError, UnexpectedResponse) as failure:
                status, said = 404, {"status": {"error": str(failure)}, "time": 0.0}
            sent = double.saying or json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def _said(self, body: bytes) -> dict[str, Any]:
            path = urlsplit(self.path).path
            if double.failing and path in ("/", "/cluster"):
                double.asked.append(Asked(f"{self.command} {path}", "", {}, self.headers.get("api-key")))
                raise Refused(double.failing, "told to fail")
            if path == "/":
                return {"title": "double", "version": double.version}
            if path == "/cluster":
                return {"result": {"status": "disabled"}, "status": "ok", "time": 0.0}
            told = cast("dict[str, Any]", json.loads(body)) if body else {}
            result = double.answer(self.command, path, told, self.headers.get("api-key"))
            return {"result": _plain(result), "status": "ok", "time": 0.0}

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nothing."""

        do_GET = do_PUT = do_POST = do_PATCH = handle_any  # noqa: N815 - the library's names

    return Handler


def _plain(result: object) -> object:
    """A result as JSON takes it."""
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json")
    if isinstance(result, list):
        return [_plain(each) for each in cast("list[object]", result)]
    return result
