"""Client of Chroma: the only module that calls chromadb; adds types and translates errors."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from contexture.errors import SourceTimeout, SourceUnavailable, UnknownAdapter
from contexture.types import Matrix, Vector

try:
    _chromadb: Any = import_module("chromadb")
    _errors: Any = import_module("chromadb.errors")
    _config: Any = import_module("chromadb.config")
except ImportError as missing:
    raise ImportError('pages in Chroma need chromadb: pip install "contexture-ai[chroma]"') from missing

_FOLDER_PATTERN = re.compile(r"chroma:.+")
_HTTP_PATTERN = re.compile(r"chroma\+(https?)://([^/:]+)(?::(\d{1,5}))?/?")
_DEFAULT_PORT = 8_000
_WRITE_BATCH = 1_000
_READ_BATCH = 500
_HNSW_SEARCHED = {"space": "ip", "ef_construction": 200, "ef_search": 200, "max_neighbors": 24}
_HNSW_MINIMAL = {"space": "l2", "ef_construction": 10, "ef_search": 10, "max_neighbors": 4}

# Refused requests, error responses, broken connections, and errors of its bindings.
_FAILURES: tuple[type[Exception], ...] = (
    _errors.ChromaError, httpx.HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError,
)  # fmt: skip


class ChromaClient:
    """Client of Chroma in a folder or on a server; contacts nothing else, telemetry is off."""

    def __init__(self, place: str, *, timeout: float) -> None:
        self.place = place
        with chroma_errors(place):
            self._client = _open_client(place, timeout)
        self._collections: dict[str, ChromaCollection] = {}

    def collection(self, name: str, *, vectors: bool = False) -> ChromaCollection:
        """The Chroma collection of this name, created if missing; with `vectors` its HNSW graph is built for search."""
        found = self._collections.get(name)
        if found is None:
            with chroma_errors(self.place):
                inner = self._client.get_or_create_collection(
                    name, embedding_function=None, configuration={"hnsw": _HNSW_SEARCHED if vectors else _HNSW_MINIMAL}
                )
            found = self._collections[name] = ChromaCollection(inner, self.place)
        return found

    def close(self) -> None:
        """Close files and connections, which chromadb otherwise keeps open until the process ends."""
        with chroma_errors(self.place):
            self._client.close()


class ChromaCollection:
    """One Chroma collection, with types and translated errors."""

    def __init__(self, inner: Any, place: str) -> None:
        self._inner = inner
        self._place = place

    def count(self) -> int:
        """Number of items in the collection."""
        with chroma_errors(self._place):
            return int(self._inner.count())

    def upsert(
        self,
        ids: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
        *,
        vectors: Sequence[Vector] | None = None,
        documents: Sequence[str] | None = None,
    ) -> None:
        """Write items in batches; without `vectors` each item gets a placeholder vector."""
        for at in range(0, len(ids), _WRITE_BATCH):
            some = slice(at, at + _WRITE_BATCH)
            rows = (
                [_placeholder_vector(id_) for id_ in ids[some]]
                if vectors is None
                else [row.tolist() for row in vectors[some]]
            )
            with chroma_errors(self._place):
                self._inner.upsert(
                    ids=list(ids[some]),
                    embeddings=rows,
                    metadatas=[dict(each) for each in metadatas[some]],
                    documents=None if documents is None else list(documents[some]),
                )

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored."""
        for some in _chunks(ids):
            with chroma_errors(self._place):
                self._inner.delete(ids=some)

    def metadata(self, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """The metadata of these items."""
        return dict(self._get(ids, "metadatas"))

    def documents(self, ids: Sequence[str]) -> dict[str, str]:
        """The texts of these items."""
        return {id_: text or "" for id_, text in self._get(ids, "documents")}

    def vectors(self, ids: Sequence[str], width: int) -> tuple[list[str], Matrix]:
        """The vectors of these items, and the ids they belong to in the same order."""
        found = list(self._get(ids, "embeddings"))
        return [id_ for id_, _ in found], np.array([row for _, row in found], np.float32).reshape(-1, width)

    def scroll(self, where: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Id and metadata of every item that passes the filter."""
        offset = 0
        while True:
            with chroma_errors(self._place):
                found = self._inner.get(where=dict(where), limit=_WRITE_BATCH, offset=offset, include=["metadatas"])
            yield from zip(found["ids"], found["metadatas"], strict=True)
            if len(found["ids"]) < _WRITE_BATCH:
                return
            offset += _WRITE_BATCH

    def query_nearest(self, vector: Vector, n: int, where: Mapping[str, Any] | None) -> list[tuple[str, float]]:
        """Approximately the `n` nearest items that pass the filter, with their dot products."""
        with chroma_errors(self._place):
            found = self._inner.query(
                query_embeddings=[vector.tolist()],
                n_results=n,
                where=None if where is None else dict(where),
                include=["distances"],
            )
        return [(id_, 1.0 - away) for id_, away in zip(found["ids"][0], found["distances"][0], strict=True)]

    def _get(self, ids: Sequence[str], what: str) -> Iterator[tuple[str, Any]]:
        for some in _chunks(ids):
            with chroma_errors(self._place):
                found = self._inner.get(ids=some, include=[what])
            yield from zip(found["ids"], found[what], strict=True)


@contextmanager
def chroma_errors(place: str) -> Generator[None]:
    """Translate Chroma errors to `SourceTimeout` or `SourceUnavailable`."""
    try:
        yield
    except httpx.TimeoutException as failure:
        raise SourceTimeout(f"Chroma at {place!r} did not answer in time") from failure
    except _FAILURES as failure:
        raise SourceUnavailable(f"Chroma at {place!r} failed: {type(failure).__name__}: {failure}") from failure


def check_address(place: str) -> None:
    """Raise `UnknownAdapter` unless the text names a Chroma folder or server."""
    if not _FOLDER_PATTERN.fullmatch(place) and not _HTTP_PATTERN.fullmatch(place):
        raise UnknownAdapter(f"{place!r} is not a Chroma address; write `chroma:FOLDER` or `chroma+http://HOST:PORT`")


def ping(place: str, *, timeout: float) -> None:
    """Ask a Chroma server for its heartbeat; a folder is not checked."""
    check_address(place)
    with chroma_errors(place):
        _heartbeat(place, timeout)


def _heartbeat(place: str, timeout: float) -> None:
    address = _HTTP_PATTERN.fullmatch(place)
    if address is not None:
        kind, host, port = address.groups()
        httpx.get(f"{kind}://{host}:{port or _DEFAULT_PORT}/api/v2/heartbeat", timeout=timeout).raise_for_status()


def _open_client(place: str, timeout: float) -> Any:
    check_address(place)
    settings = _config.Settings(anonymized_telemetry=False)
    address = _HTTP_PATTERN.fullmatch(place)
    if address is None:
        folder = Path(place.removeprefix("chroma:"))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _chromadb.PersistentClient(path=str(folder), settings=settings)
    _heartbeat(place, timeout)  # because chromadb has no timeout on its first requests
    kind, host, port = address.groups()
    client = _chromadb.HttpClient(host=host, port=int(port or _DEFAULT_PORT), ssl=kind == "https", settings=settings)
    session: Any = getattr(getattr(client, "_server", None), "_session", None)
    if isinstance(session, httpx.Client):
        session.timeout = timeout  # chromadb has no setting for it
    return client


def _placeholder_vector(id_: str) -> list[float]:
    """Vector of an item that has none; different values keep Chroma's graph from degenerating."""
    return [float(sum(map(ord, id_)) % 997) + len(id_) / 1_000]


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(ids), _READ_BATCH):
        yield list(ids[at : at + _READ_BATCH])
