"""Client of a Qdrant server: the only module that calls qdrant-client; its errors become `SourceError`s."""

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
    raise ImportError('a store in Qdrant needs qdrant-client: pip install "contexture-ai[qdrant]"') from missing

LEXICAL = "lexical"
ACCESS = "access"
TENANT = "tenant"

_PAGE = 10_000
_KEYWORD = models.PayloadSchemaType.KEYWORD
_FLOAT = models.PayloadSchemaType.FLOAT
_TIMEOUT_STATUSES = (408, 504)  # of Qdrant, and of gateways in front of it, for a request that takes too long
# Refused requests, broken connections, malformed responses, and errors of the local mode.
_FAILURES = (ApiException, QdrantException, httpx.HTTPError, OSError, ValueError, AssertionError, RecursionError)
_MAX_PASSAGE_ID = 1 << 63  # above any passage id of a record store
_MAX_BODY_BYTES, _MAX_MESSAGE_CHARS = 2_000, 300  # of an error response


class QdrantServer:
    """One Qdrant server or cluster; not contacted before the first call.

    `timed_out` is set by a request that timed out and cleared by the next one that succeeds.
    """

    def __init__(self, options: QdrantOptions, client: QdrantClient | None = None) -> None:
        self.options = options
        self.name = f"Qdrant at {options.place!r}"
        self._local = client is not None  # runs in this process: no payload indexes, no shards, one caller at a time
        self.timed_out = False
        self._probe_lock = threading.Lock()
        self._call_lock: AbstractContextManager[Any] = threading.RLock() if self._local else nullcontext()
        self._client = client or QdrantClient(
            url=options.url,
            api_key=options.api_key or None,
            timeout=math.ceil(options.timeout),
            check_compatibility=False,
        )

    # --- collections ---

    def metadata(self, name: str) -> Mapping[str, Any] | None:
        """Metadata of a collection; None when the collection does not exist."""
        with self._request():
            if not self._client.collection_exists(name):
                return None
            return self._client.get_collection(name).config.metadata or {}

    def create(self, name: str, vectors: Mapping[str, int], metadata: Mapping[str, Any]) -> None:
        """Create a collection with a sparse vector for BM25 and these dense vectors."""
        chosen = self.options
        with self._request():
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

    def set_metadata(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Update the metadata of a collection."""
        with self._request():
            self._client.update_collection(name, metadata=dict(metadata))

    def index_permissions(self, name: str) -> None:
        """Create payload indexes on access class and tenant, so that queries do not scan the points of others."""
        integer = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False)
        keyword = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        self._create_payload_index(name, ACCESS, integer)
        self._create_payload_index(name, TENANT, keyword)

    def index_field(self, name: str, key: str, kind: FieldType) -> None:
        """Create a payload index on a field, for fast filters."""
        self._create_payload_index(name, key, _KEYWORD if kind is FieldType.KEYWORD else _FLOAT)

    def shard_keys(self, name: str) -> set[str]:
        """The shard keys of a collection."""
        with self._request():
            return {str(each.key) for each in self._client.list_shard_keys(name).shard_keys or ()}

    def add_shard_key(self, name: str, key: str) -> None:
        """Add a shard key to a collection."""
        chosen = self.options
        with self._request():
            self._client.create_shard_key(
                name, key, shards_number=chosen.shards or None, replication_factor=chosen.replicas
            )

    # --- points ---

    def update(self, name: str, operations: Sequence[models.UpdateOperation]) -> None:
        """Run these operations in order; later requests see them."""
        with self._request():
            self._client.batch_update_points(name, operations, wait=True)

    def search(self, name: str, requests: Sequence[models.QueryRequest]) -> list[dict[int, float]]:
        """Scores by passage id for each request, best first."""
        with self._request():
            answers = self._client.query_batch_points(name, requests)
            return [{_to_passage_id(point.id): point.score for point in answer.points} for answer in answers]

    def get_payload(self, name: str, pid: int, shard: str | None) -> Mapping[str, Any]:
        """The payload of one point; empty when the point does not exist."""
        with self._request():
            found = self._client.retrieve(name, [pid], shard_key_selector=shard)
        return (found[0].payload if found else None) or {}

    def count(self, name: str) -> int:
        """Number of points in a collection."""
        with self._request():
            return self._client.count(name, exact=True).count

    def iter_point_ids(self, name: str) -> Iterator[list[models.ExtendedPointId]]:
        """Ids of all points of a collection, page by page; not all need be passages."""
        offset: Any = None
        while True:
            with self._request():
                page, offset = self._client.scroll(
                    name, limit=_PAGE, offset=offset, with_payload=False, with_vectors=False
                )
            yield [point.id for point in page]
            if offset is None:
                return

    # --- the server itself ---

    def search_params(self, *, exact: bool, effort: int) -> models.SearchParams | None:
        """Parameters of a dense search; None in local mode, which has none."""
        return None if self._local else models.SearchParams(exact=exact, hnsw_ef=None if exact else effort)

    def version(self) -> str:
        """Version of the server."""
        with self._request():
            return str(self._client.info().version)

    def close(self) -> None:
        """Close the connections."""
        with self._request():
            self._client.close()

    def _create_payload_index(
        self, name: str, key: str, schema: models.PayloadSchemaType | models.PayloadSchemaParams
    ) -> None:
        if not self._local:
            with self._request():
                self._client.create_payload_index(name, key, field_schema=schema, wait=True)

    @contextmanager
    def probe(self) -> Generator[None]:
        """Context of a request: while the server is `timed_out`, only one caller at a time may try it.

        The others fail at once with `SourceTimeout`.
        """
        late = self.timed_out
        if late and not self._probe_lock.acquire(blocking=False):
            raise SourceTimeout(f"{self.name} did not answer in time a moment ago")
        try:
            yield
        finally:
            if late:
                self._probe_lock.release()

    @contextmanager
    def _request(self) -> Generator[None]:
        try:
            with self._call_lock, qdrant_errors(self.name, self.options.api_key):
                yield
        except SourceTimeout:
            self.timed_out = True
            raise
        self.timed_out = False


def is_passage_id(point: models.ExtendedPointId) -> TypeGuard[int]:
    """Whether a point id is a passage id; other points were not written by this store."""
    return isinstance(point, int) and point < _MAX_PASSAGE_ID


def _to_passage_id(point: models.ExtendedPointId) -> int:
    if not is_passage_id(point):
        raise ValueError(f"it answered with {point!r}, which is not a passage")
    return point


@contextmanager
def qdrant_errors(name: str, key: str = "") -> Generator[None]:
    """Translate Qdrant errors to `SourceTimeout` or `SourceUnavailable`; the message does not contain the API key."""
    try:
        yield
    except _FAILURES as failure:
        cause = failure.source if isinstance(failure, ResponseHandlingException) else failure
        if isinstance(cause, httpx.TimeoutException) or getattr(cause, "status_code", None) in _TIMEOUT_STATUSES:
            raise SourceTimeout(f"{name} did not answer in time") from failure
        reason = " ".join(_describe_error(cause).split())
        shown = reason.replace(key, "…") if key else reason
        raise SourceUnavailable(f"{name} failed: {shown[:_MAX_MESSAGE_CHARS]}") from failure


def _describe_error(cause: Exception) -> str:
    if isinstance(cause, UnexpectedResponse):
        return f"it answered {cause.status_code}: {cause.content[:_MAX_BODY_BYTES].decode('utf-8', 'replace')}"
    return f"{type(cause).__name__}: {cause}"
