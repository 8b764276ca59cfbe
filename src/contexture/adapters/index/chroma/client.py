"""The one place that talks to chromadb: opening it, its failures as ours, and its collections with types."""

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
    raise ImportError('pages in Chroma need chromadb: pip install "contexture[chroma]"') from missing

_FOLDER = re.compile(r"chroma:.+")
_HTTP = re.compile(r"chroma\+(https?)://([^/:]+)(?::(\d{1,5}))?/?")
_PORT = 8_000
_WRITE = 1_000
_READ = 500
_GRAPH = {"space": "ip", "ef_construction": 200, "ef_search": 200, "max_neighbors": 24}
_FLAT = {"space": "l2", "ef_construction": 10, "ef_search": 10, "max_neighbors": 4}

# Requests that Chroma refuses, its server's answers, a connection that broke, and what its bindings raise.
_FAILURES: tuple[type[Exception], ...] = (
    _errors.ChromaError, httpx.HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError,
)  # fmt: skip


class Client:
    """Chroma in a folder, or behind an address; nothing else is ever reached."""

    def __init__(self, place: str, *, timeout: float) -> None:
        self.place = place
        with chroma_errors(place):
            self._client = _opened(place, timeout)
        self._boxes: dict[str, Box] = {}

    def box(self, name: str, *, vectors: bool = False) -> Box:
        """The Chroma collection of this name, made when it is not there; with `vectors` it gets a good graph."""
        found = self._boxes.get(name)
        if found is None:
            with chroma_errors(self.place):
                inner = self._client.get_or_create_collection(
                    name, embedding_function=None, configuration={"hnsw": _GRAPH if vectors else _FLAT}
                )
            found = self._boxes[name] = Box(inner, self.place)
        return found

    def close(self) -> None:
        """Let go of its files or connections; chromadb keeps them for as long as the process lives otherwise."""
        with chroma_errors(self.place):
            self._client.close()


class Box:
    """One Chroma collection."""

    def __init__(self, inner: Any, place: str) -> None:
        self._inner = inner
        self._place = place

    def count(self) -> int:
        """How many items it has."""
        with chroma_errors(self._place):
            return int(self._inner.count())

    def put(
        self,
        ids: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
        *,
        vectors: Sequence[Vector] | None = None,
        documents: Sequence[str] | None = None,
    ) -> None:
        """Write items, at most a thousand at a time; those without a vector of their own get a meaningless one."""
        for at in range(0, len(ids), _WRITE):
            some = slice(at, at + _WRITE)
            rows = [_nothing(id_) for id_ in ids[some]] if vectors is None else [row.tolist() for row in vectors[some]]
            with chroma_errors(self._place):
                self._inner.upsert(
                    ids=list(ids[some]),
                    embeddings=rows,
                    metadatas=[dict(each) for each in metadatas[some]],
                    documents=None if documents is None else list(documents[some]),
                )

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids do no harm."""
        for some in _chunks(ids):
            with chroma_errors(self._place):
                self._inner.delete(ids=some)

    def metadata(self, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """The metadata of these items."""
        return dict(self._read(ids, "metadatas"))

    def documents(self, ids: Sequence[str]) -> dict[str, str]:
        """The texts of these items."""
        return {id_: text or "" for id_, text in self._read(ids, "documents")}

    def vectors(self, ids: Sequence[str], width: int) -> tuple[list[str], Matrix]:
        """The vectors of these items, and the ids they belong to in the same order."""
        found = list(self._read(ids, "embeddings"))
        return [id_ for id_, _ in found], np.array([row for _, row in found], np.float32).reshape(-1, width)

    def walk(self, where: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Every item that passes, with its metadata."""
        offset = 0
        while True:
            with chroma_errors(self._place):
                found = self._inner.get(where=dict(where), limit=_WRITE, offset=offset, include=["metadatas"])
            yield from zip(found["ids"], found["metadatas"], strict=True)
            if len(found["ids"]) < _WRITE:
                return
            offset += _WRITE

    def nearest(self, vector: Vector, n: int, where: Mapping[str, Any] | None) -> list[tuple[str, float]]:
        """About the `n` nearest items that pass, with their dot products."""
        with chroma_errors(self._place):
            found = self._inner.query(
                query_embeddings=[vector.tolist()],
                n_results=n,
                where=None if where is None else dict(where),
                include=["distances"],
            )
        return [(id_, 1.0 - away) for id_, away in zip(found["ids"][0], found["distances"][0], strict=True)]

    def _read(self, ids: Sequence[str], what: str) -> Iterator[tuple[str, Any]]:
        for some in _chunks(ids):
            with chroma_errors(self._place):
                found = self._inner.get(ids=some, include=[what])
            yield from zip(found["ids"], found[what], strict=True)


@contextmanager
def chroma_errors(place: str) -> Generator[None]:
    """Chroma's failures as ours."""
    try:
        yield
    except httpx.TimeoutException as failure:
        raise SourceTimeout(f"Chroma at {place!r} did not answer in time") from failure
    except _FAILURES as failure:
        raise SourceUnavailable(f"Chroma at {place!r} failed: {type(failure).__name__}: {failure}") from failure


def check_place(place: str) -> None:
    """Refuse what names neither a folder nor an address."""
    if not _FOLDER.fullmatch(place) and not _HTTP.fullmatch(place):
        raise UnknownAdapter(f"{place!r} names no Chroma; write `chroma:FOLDER` or `chroma+http://HOST:PORT`")


def reach(place: str, *, timeout: float) -> None:
    """Ask a server whether it is there; a folder is not looked at."""
    check_place(place)
    with chroma_errors(place):
        _ask(place, timeout)


def _ask(place: str, timeout: float) -> None:
    address = _HTTP.fullmatch(place)
    if address is not None:
        kind, host, port = address.groups()
        httpx.get(f"{kind}://{host}:{port or _PORT}/api/v2/heartbeat", timeout=timeout).raise_for_status()


def _opened(place: str, timeout: float) -> Any:
    check_place(place)
    settings = _config.Settings(anonymized_telemetry=False)
    address = _HTTP.fullmatch(place)
    if address is None:
        folder = Path(place.removeprefix("chroma:"))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _chromadb.PersistentClient(path=str(folder), settings=settings)
    _ask(place, timeout)  # because chromadb waits for ever for its first answers
    kind, host, port = address.groups()
    client = _chromadb.HttpClient(host=host, port=int(port or _PORT), ssl=kind == "https", settings=settings)
    session: Any = getattr(getattr(client, "_server", None), "_session", None)
    if isinstance(session, httpx.Client):
        session.timeout = timeout  # there is no setting for it
    return client


def _nothing(id_: str) -> list[float]:
    """A vector for an item that is never searched by one; different ones keep Chroma's graph from degenerating."""
    return [float(sum(map(ord, id_)) % 997) + len(id_) / 1_000]


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(ids), _READ):
        yield list(ids[at : at + _READ])
