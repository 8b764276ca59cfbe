"""The one place that talks to qdrant-client: opening it, its failures as ours, and the few calls that are made."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeGuard

import httpx

from contexture.adapters.index.qdrant.options import QdrantOptions
from contexture.errors import SourceTimeout, SourceUnavailable
from contexture.types import FieldType

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
except ImportError as missing:
    raise ImportError('a store in Qdrant needs qdrant-client: pip install "contexture[qdrant]"') from missing

LEXICAL = "lexical"
ACCESS = "access"
TENANT = "tenant"

_PAGE = 10_000
_KEYWORD = models.PayloadSchemaType.KEYWORD
_FLOAT = models.PayloadSchemaType.FLOAT
_LATE = (408, 504)  # what Qdrant and gateways before it answer when something takes too long
# What Qdrant refuses, a connection that broke, an answer that is none, and what its local mode raises.
_FAILURES = (ApiException, QdrantException, httpx.HTTPError, OSError, ValueError, AssertionError, RecursionError)
_PASSAGES = 1 << 63  # above any number that a truth gives
_READ, _SHOWN = 2_000, 300  # of an answer that is none


class Server:
    """One Qdrant server or cluster; nothing is asked of it before the first call.

    It is `late` from a request that took too long until one that was answered.
    """

    def __init__(self, options: QdrantOptions, client: QdrantClient | None = None) -> None:
        self.options = options
        self.name = f"Qdrant at {options.place!r}"
        self._local = client is not None  # in this process: no payload indexes, no shards, one caller at a time
        self.late = False
        self._trial = threading.Lock()
        self._turn: AbstractContextManager[Any] = threading.RLock() if self._local else nullcontext()
        self._client = client or QdrantClient(
            url=options.url,
            api_key=options.api_key or None,
            timeout=math.ceil(options.timeout),
            check_compatibility=False,
        )

    # --- collections ---

    def metadata(self, name: str) -> Mapping[str, Any] | None:
        """What was noted about a collection; None when it is not there."""
        with self._asking():
            if not self._client.collection_exists(name):
                return None
            return self._client.get_collection(name).config.metadata or {}

    def create(self, name: str, vectors: Mapping[str, int], metadata: Mapping[str, Any]) -> None:
        """Make a collection for words and these vectors."""
        chosen = self.options
        with self._asking():
            self._client.create_collection(
                name,
                vectors_config={
                    vector: models.VectorParams(
                        size=size, distance=models.Distance.DOT, datatype=models.Datatype.TURBO8
                    )
                    for vector, size in vectors.items()
                },
                sparse_vectors_config={LEXICAL: models.SparseVectorParams()},
                sharding_method=models.ShardingMethod.CUSTOM if chosen.by_tenant else None,
                shard_number=chosen.shards or None,
                replication_factor=chosen.replicas,
                write_consistency_factor=chosen.confirmations or chosen.replicas,
                metadata=dict(metadata),
            )

    def note(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Note something about a collection."""
        with self._asking():
            self._client.update_collection(name, metadata=dict(metadata))

    def index_permissions(self, name: str) -> None:
        """Let every query find what a tenant's readers may read without looking at the rest."""
        integer = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False)
        keyword = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        self._index(name, ACCESS, integer)
        self._index(name, TENANT, keyword)

    def index_field(self, name: str, key: str, kind: FieldType) -> None:
        """Let filters on a payload field be fast."""
        self._index(name, key, _KEYWORD if kind is FieldType.KEYWORD else _FLOAT)

    def shard_keys(self, name: str) -> set[str]:
        """The shard keys of a collection."""
        with self._asking():
            return {str(each.key) for each in self._client.list_shard_keys(name).shard_keys or ()}

    def add_shard_key(self, name: str, key: str) -> None:
        """Give a collection a further shard key."""
        chosen = self.options
        with self._asking():
            self._client.create_shard_key(
                name, key, shards_number=chosen.shards or None, replication_factor=chosen.replicas
            )

    # --- points ---

    def update(self, name: str, operations: Sequence[models.UpdateOperation]) -> None:
        """Do these in order; what is asked next sees them."""
        with self._asking():
            self._client.batch_update_points(name, operations, wait=True)

    def ask(self, name: str, requests: Sequence[models.QueryRequest]) -> list[dict[int, float]]:
        """What each request finds, best first."""
        with self._asking():
            answers = self._client.query_batch_points(name, requests)
            return [{_passage(point.id): point.score for point in answer.points} for answer in answers]

    def payload(self, name: str, pid: int, shard: str | None) -> Mapping[str, Any]:
        """The payload of one point; empty when it is not there."""
        with self._asking():
            found = self._client.retrieve(name, [pid], shard_key_selector=shard)
        return (found[0].payload if found else None) or {}

    def count(self, name: str) -> int:
        """How many points a collection has."""
        with self._asking():
            return self._client.count(name, exact=True).count

    def ids(self, name: str) -> Iterator[list[models.ExtendedPointId]]:
        """Every point of a collection, passage or not, a page at a time."""
        offset: Any = None
        while True:
            with self._asking():
                page, offset = self._client.scroll(
                    name, limit=_PAGE, offset=offset, with_payload=False, with_vectors=False
                )
            yield [point.id for point in page]
            if offset is None:
                return

    # --- the server itself ---

    def params(self, *, exact: bool, effort: int) -> models.SearchParams | None:
        """How a dense search is made."""
        return None if self._local else models.SearchParams(exact=exact, hnsw_ef=None if exact else effort)

    def version(self) -> str:
        """The version that answers."""
        with self._asking():
            return str(self._client.info().version)

    def close(self) -> None:
        """Let go of the connections."""
        with self._asking():
            self._client.close()

    def _index(self, name: str, key: str, schema: models.PayloadSchemaType | models.PayloadSchemaParams) -> None:
        if not self._local:
            with self._asking():
                self._client.create_payload_index(name, key, field_schema=schema, wait=True)

    @contextmanager
    def trying(self) -> Generator[None]:
        """While it is late, one caller at a time finds out whether it still is, and others are told at once.

        Threads that all waited for it would be missing where the truth could answer.
        """
        late = self.late
        if late and not self._trial.acquire(blocking=False):
            raise SourceTimeout(f"{self.name} did not answer in time a moment ago")
        try:
            yield
        finally:
            if late:
                self._trial.release()

    @contextmanager
    def _asking(self) -> Generator[None]:
        try:
            with self._turn, qdrant_errors(self.name, self.options.api_key):
                yield
        except SourceTimeout:
            self.late = True
            raise
        self.late = False


def is_passage(point: models.ExtendedPointId) -> TypeGuard[int]:
    """Whether a point has the number of a passage; others are somebody else's."""
    return isinstance(point, int) and point < _PASSAGES


def _passage(point: models.ExtendedPointId) -> int:
    if not is_passage(point):
        raise ValueError(f"it answered with {point!r}, which is no passage")
    return point


@contextmanager
def qdrant_errors(name: str, key: str = "") -> Generator[None]:
    """Qdrant's failures as ours, in one line that does not repeat the key."""
    try:
        yield
    except _FAILURES as failure:
        cause = failure.source if isinstance(failure, ResponseHandlingException) else failure
        if isinstance(cause, httpx.TimeoutException) or getattr(cause, "status_code", None) in _LATE:
            raise SourceTimeout(f"{name} did not answer in time") from failure
        told = " ".join(_told(cause).split())
        shown = told.replace(key, "…") if key else told
        raise SourceUnavailable(f"{name} failed: {shown[:_SHOWN]}") from failure


def _told(cause: Exception) -> str:
    if isinstance(cause, UnexpectedResponse):
        return f"it answered {cause.status_code}: {cause.content[:_READ].decode('utf-8', 'replace')}"
    return f"{type(cause).__name__}: {cause}"
