"""Client of a Qdrant server or cluster: the only module that calls qdrant-client; its errors become `SourceError`s."""

import math
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple, TypeGuard, TypeVar

import httpx

from contexture.errors import InvalidRequest, SourceError, SourceTimeout, SourceUnavailable, UnknownAdapter
from contexture.types import FieldType

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
except ImportError as missing:
    raise ImportError('a store in Qdrant needs qdrant-client: pip install "contexture-ai[qdrant]"') from missing

_T = TypeVar("_T")

LEXICAL = "lexical"
ACCESS = "access"
TENANT = "tenant"

_HOST = r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_ADDRESS_PATTERN = re.compile(rf"qdrant(?:\+(https?))?://({_HOST}(?:,{_HOST})*)/?")
_PORT_PATTERN = re.compile(r":(\d+)$")
_API_KEY_PATTERN = re.compile(r"[!-~]*")  # characters allowed in an HTTP header
_DEFAULT_PORT, _MAX_PORT = 6_333, 65_535
_MAX_DEFAULT_COPIES = 3

_MIN_VERSION = (1, 16)  # the first whose collections have metadata
_TURBO8_VERSION = (1, 20)  # the first with that datatype, and with `substring`
_TOKENS_VERSION = (1, 19, 1)  # the first where `text` compares words, not substrings, in a field without a text index
_NUMBERS = re.compile(r"\d+")

_PAGE = 10_000
_KEYWORD = models.PayloadSchemaType.KEYWORD
_FLOAT = models.PayloadSchemaType.FLOAT
_TIMEOUT_STATUSES = (408, 504)  # of Qdrant, and of gateways in front of it, for a request that takes too long
_NOT_FOUND, _BUSY_STATUS, _SERVER_ERROR = 404, 429, 500
# Refused requests, broken connections and malformed responses.
_FAILURES = (ApiException, httpx.HTTPError, OSError, ValueError, AssertionError, RecursionError)
_MAX_PASSAGE_ID = 1 << 63  # above any passage id of a record store
_MAX_BODY_BYTES, _MAX_MESSAGE_CHARS = 2_000, 300  # of an error response


class QdrantCollectionLost(SourceUnavailable):
    """The server has no such collection; it is created and filled again."""


class QdrantTooOld(SourceUnavailable):
    """The server's version is not supported; the message names both versions and what to do."""

    retryable = False


@dataclass(frozen=True, kw_only=True, slots=True)
class QdrantOptions:
    """Addresses of Qdrant, and how collections are created there.

    QdrantOptions(place="qdrant://localhost:6333")
    QdrantOptions(place="qdrant+https://node1,node2,node3:7000", api_key=key, by_tenant=True)

    With `shards` 0 the server chooses their number. `replicas` are the copies of each shard; 0 means one on each node,
    up to three. `confirmations` is the number of copies that must confirm a write; 0 means a majority, but one of two.
    After a failure, writes do not contact Qdrant for `pause` seconds, so that a hanging server does not delay them.
    """

    place: str
    api_key: str = field(default="", repr=False)
    timeout: float = 10.0
    by_tenant: bool = False
    shards: int = 0
    replicas: int = 0
    confirmations: int = 0
    pause: float = 30.0

    def __post_init__(self) -> None:
        """Raise `InvalidRequest` for a key that cannot be sent; the message does not contain it."""
        if not _API_KEY_PATTERN.fullmatch(self.api_key):
            raise InvalidRequest("the key of Qdrant has a space, a line end or another letter that no key can have")

    @property
    def urls(self) -> tuple[str, ...]:
        """The address of each host as an HTTP URL; raises `UnknownAdapter` for an invalid one."""
        found = _ADDRESS_PATTERN.fullmatch(self.place)
        hosts = found[2].split(",") if found else []
        if found is None or any(int(port[1]) > _MAX_PORT for port in map(_PORT_PATTERN.search, hosts) if port):
            raise UnknownAdapter(
                "the store is not a Qdrant address; write `qdrant://HOST:PORT` or `qdrant+https://HOST:PORT`, several "
                "hosts as `qdrant://HOST:PORT,HOST:PORT`, and the key as CONTEXTURE_QDRANT_API_KEY"
            )
        return tuple(
            f"{found[1] or 'http'}://{host}{'' if _PORT_PATTERN.search(host) else f':{_DEFAULT_PORT}'}"
            for host in hosts
        )

    def required_confirmations(self, copies: int) -> int:
        """How many of a shard's copies must confirm a write: more than half, but one of two, as both may not be up."""
        return min(self.confirmations, copies) or (1 if copies <= 2 else copies // 2 + 1)  # noqa: PLR2004


class CollectionInfo(NamedTuple):
    """What a server says of a collection: its metadata, copies of each shard, and confirmations of a write."""

    metadata: Mapping[str, Any]
    copies: int
    confirmations: int


class SearchAnswer(NamedTuple):
    """Scores by passage id for each request, best first, and the payload of the point asked for; empty without it."""

    scores: list[dict[int, float]]
    payload: Mapping[str, Any]


class QdrantServer:
    """A Qdrant server, or the nodes of a cluster; not contacted before the first call.

    A call goes to the host that answered last. When it does not answer, the others are tried in turn, those that
    failed before only when they say that they are ready: a node that starts again answers before it has caught up.
    `timed_out` is set when every host has timed out since the last success.
    """

    def __init__(self, options: QdrantOptions) -> None:
        self.options = options
        self.name = f"Qdrant at {options.place!r}"
        self._probe_lock = threading.Lock()
        self._clients = tuple(
            QdrantClient(
                url=url,
                api_key=options.api_key or None,
                timeout=math.ceil(options.timeout),
                check_compatibility=False,
            )
            for url in options.urls
        )
        self._order = self._clients  # the one that answered last comes first, the one that failed last comes last
        self._suspects: frozenset[QdrantClient] = frozenset()
        self._timeouts = 0
        self._version = ""

    # --- collections ---

    def describe(self, name: str) -> CollectionInfo | None:
        """What the server says of a collection; None when it does not exist."""

        def work(client: QdrantClient) -> CollectionInfo | None:
            if not client.collection_exists(name):
                return None
            config = client.get_collection(name).config
            copies, confirmations = config.params.replication_factor, config.params.write_consistency_factor
            return CollectionInfo(config.metadata or {}, copies or 1, confirmations or 1)

        return self._call(work)

    def create(self, name: str, vectors: Mapping[str, int], metadata: Mapping[str, Any]) -> None:
        """Create a collection with a sparse vector for BM25 and these dense vectors, unless it exists."""
        chosen, copies = self.options, self.count_copies()
        turbo8 = _parse_version(self.check_version()) >= _TURBO8_VERSION
        datatype = models.Datatype.TURBO8 if turbo8 else models.Datatype.FLOAT16

        def work(client: QdrantClient) -> None:
            if client.collection_exists(name):  # created by a request whose answer was lost
                return
            client.create_collection(
                name,
                vectors_config={
                    vector: models.VectorParams(size=size, distance=models.Distance.DOT, datatype=datatype)
                    for vector, size in vectors.items()
                },
                sparse_vectors_config={LEXICAL: models.SparseVectorParams()},
                sharding_method=models.ShardingMethod.CUSTOM if chosen.by_tenant else None,
                shard_number=chosen.shards or None,
                replication_factor=copies,
                write_consistency_factor=chosen.required_confirmations(copies),
                metadata=dict(metadata),
            )

        self._call(work)

    def count_copies(self) -> int:
        """How many copies a new shard gets: as the options say, or one on each node of the cluster, up to three."""
        if self.options.replicas:
            return self.options.replicas
        status = self._call(lambda client: client.cluster_status())
        nodes = len(status.peers) if isinstance(status, models.ClusterStatusOneOf1) else 1
        return max(1, min(nodes, _MAX_DEFAULT_COPIES))

    def set_confirmations(self, name: str, confirmations: int) -> None:
        """Change how many copies must confirm a write to a collection."""
        params = models.CollectionParamsDiff(write_consistency_factor=confirmations)
        self._call(lambda client: client.update_collection(name, collection_params=params))

    def set_metadata(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Update the metadata of a collection."""
        self._call(lambda client: client.update_collection(name, metadata=dict(metadata)))

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
        return self._call(lambda client: _list_shard_keys(client, name))

    def add_shard_key(self, name: str, key: str) -> None:
        """Add a shard key to a collection, unless it has it."""
        shards, copies = self.options.shards or None, self.count_copies()

        def work(client: QdrantClient) -> None:
            if key not in _list_shard_keys(client, name):
                client.create_shard_key(name, key, shards_number=shards, replication_factor=copies)

        self._call(work)

    # --- points ---

    def update(self, name: str, operations: Sequence[models.UpdateOperation]) -> None:
        """Run these operations in order; later requests see them."""
        self._call(lambda client: client.batch_update_points(name, operations, wait=True))

    def search(
        self, name: str, requests: Sequence[models.QueryRequest], extra: models.QueryRequest | None = None
    ) -> SearchAnswer:
        """Answer these requests, and `extra`, which asks for the payload of one point, as one batch."""

        def work(client: QdrantClient) -> SearchAnswer:
            answers = client.query_batch_points(name, [*requests, *([extra] if extra else ())])
            scores = [{_to_passage_id(point.id): point.score for point in each.points} for each in answers]
            found = answers[-1].points if extra else []
            return SearchAnswer(scores[: len(requests)], (found[0].payload if found else None) or {})

        return self._call(work)

    def get_payload(self, name: str, pid: int, shard: str | None) -> Mapping[str, Any]:
        """The payload of one point; empty when the point does not exist."""
        found = self._call(lambda client: client.retrieve(name, [pid], shard_key_selector=shard))
        return (found[0].payload if found else None) or {}

    def count(self, name: str) -> int:
        """Number of points in a collection."""
        return self._call(lambda client: client.count(name, exact=True).count)

    def iter_point_ids(self, name: str) -> Iterator[list[models.ExtendedPointId]]:
        """Ids of all points of a collection, page by page; not all need be passages."""
        offset: Any = None
        while True:
            page, offset = self._call(
                lambda client, offset=offset: client.scroll(
                    name, limit=_PAGE, offset=offset, with_payload=False, with_vectors=False
                )
            )
            yield [point.id for point in page]
            if offset is None:
                return

    # --- the server itself ---

    def check_version(self) -> str:
        """Version of the server, read once after each failure; raises `QdrantTooOld` if it is not supported."""
        if not self._version:
            version = self._call(lambda client: str(client.info().version))
            if _parse_version(version) < _MIN_VERSION:
                wanted = ".".join(map(str, _MIN_VERSION))
                raise QdrantTooOld(
                    f"{self.name} has version {version}, but {wanted} or newer is needed: upgrade Qdrant, one minor "
                    "version at a time, and start again"
                )
            self._version = version
        return self._version

    def match_substring(self, piece: str) -> models.MatchSubstring | models.MatchText:
        """The condition that a text field contains `piece`; raises `SourceUnavailable` where a server has none."""
        version = _parse_version(self.check_version())
        if version >= _TURBO8_VERSION:
            return models.MatchSubstring(substring=piece)
        if version >= _TOKENS_VERSION:
            raise SourceUnavailable(
                f"{self.name} has version {self._version}, which cannot search by `contains`: upgrade it to 1.20"
            )
        return models.MatchText(text=piece)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            with self._translate_errors():
                client.close()

    @property
    def timed_out(self) -> bool:
        """Whether every host has timed out since the last success."""
        return self._timeouts >= len(self._clients)

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

    # --- inside ---

    def _create_payload_index(
        self, name: str, key: str, schema: models.PayloadSchemaType | models.PayloadSchemaParams
    ) -> None:
        self._call(lambda client: client.create_payload_index(name, key, field_schema=schema, wait=True))

    def _call(self, work: Callable[[QdrantClient], _T]) -> _T:
        """Result of `work` on the first host that answers; it must do no harm if it is done twice."""
        until = monotonic() + self.options.timeout
        unready: list[QdrantClient] = []
        error: SourceError | None = None
        for client in self._order:
            if error and monotonic() >= until:  # one host took all the time there is
                break
            if client in self._suspects and len(self._clients) > 1 and not _is_ready(client):
                unready.append(client)
                continue
            found, error = self._attempt(client, work)
            if error is None:
                return found[0]
        for client in unready if error is None or monotonic() < until else ():
            found, error = self._attempt(client, work)
            if error is None:
                return found[0]
        raise error or SourceUnavailable(f"{self.name} has no host")

    def _attempt(self, client: QdrantClient, work: Callable[[QdrantClient], _T]) -> tuple[list[_T], SourceError | None]:
        """The result of `work` as a list of one, or an error after which another host may be tried; raises others."""
        try:
            with self._translate_errors():
                found = work(client)
        except SourceError as failure:
            if isinstance(failure, SourceTimeout):
                self._timeouts += 1
            if not isinstance(failure, SourceTimeout) and not _is_host_failure(failure.__cause__):
                raise
            self._order = (*(each for each in self._order if each is not client), client)
            self._suspects |= {client}
            self._version = ""  # it may be started again with another
            return [], failure
        self._timeouts = 0
        self._suspects -= {client}
        if self._order[0] is not client:
            self._order = (client, *(each for each in self._order if each is not client))
        return [found], None

    def _translate_errors(self) -> Any:
        return qdrant_errors(self.name, self.options.api_key)


def is_passage_id(point: models.ExtendedPointId) -> TypeGuard[int]:
    """Whether a point id is a passage id; other points were not written by this store."""
    return isinstance(point, int) and point < _MAX_PASSAGE_ID


def _to_passage_id(point: models.ExtendedPointId) -> int:
    if not is_passage_id(point):
        raise ValueError(f"it answered with {point!r}, which is not a passage")
    return point


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(version)[:3]))


def _list_shard_keys(client: QdrantClient, name: str) -> set[str]:
    return {str(each.key) for each in client.list_shard_keys(name).shard_keys or ()}


def _is_ready(client: QdrantClient) -> bool:
    """Whether a node says that it has caught up with its cluster."""
    try:
        client.http.service_api.readyz()
    except _FAILURES:
        return False
    return True


@contextmanager
def qdrant_errors(name: str, key: str = "") -> Generator[None]:
    """Translate Qdrant errors to `SourceTimeout` or `SourceUnavailable`; the message does not contain the API key."""
    try:
        yield
    except _FAILURES as failure:
        cause = _find_cause(failure)
        if isinstance(cause, httpx.TimeoutException) or getattr(cause, "status_code", None) in _TIMEOUT_STATUSES:
            raise SourceTimeout(f"{name} did not answer in time") from failure
        reason = " ".join(_describe_error(cause).split())
        shown = reason.replace(key, "…") if key else reason
        lost = getattr(cause, "status_code", None) == _NOT_FOUND
        kind = QdrantCollectionLost if lost else SourceUnavailable
        raise kind(f"{name} failed: {shown[:_MAX_MESSAGE_CHARS]}") from failure


def _find_cause(failure: BaseException | None) -> BaseException | None:
    return failure.source if isinstance(failure, ResponseHandlingException) else failure


def _is_host_failure(failure: BaseException | None) -> bool:
    """Whether another node of the cluster may answer what this one could not."""
    cause = _find_cause(failure)
    if isinstance(cause, UnexpectedResponse):
        return cause.status_code == _BUSY_STATUS or (cause.status_code or 0) >= _SERVER_ERROR
    return isinstance(cause, httpx.HTTPError | OSError)


def _describe_error(cause: BaseException | None) -> str:
    if isinstance(cause, UnexpectedResponse):
        return f"it answered {cause.status_code}: {cause.content[:_MAX_BODY_BYTES].decode('utf-8', 'replace')}"
    return f"{type(cause).__name__}: {cause}"
