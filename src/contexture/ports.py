"""The protocols that adapters implement. Each docstring is the contract; `contexture.testing` checks it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias, runtime_checkable

from contexture import conversation
from contexture.types import (
    DEFAULT_RIGHTS,
    ApiKey,
    Collection,
    CollectionChanges,
    ExtractedMentions,
    Filter,
    Hit,
    Json,
    Matrix,
    Mention,
    Message,
    PreparedRecord,
    Query,
    Receipt,
    Record,
    Right,
    Scalar,
    Scope,
    Span,
    UnembeddedBatch,
    Vector,
)


class Clock(Protocol):
    """Provides the current time; a build reads it once."""

    def now(self) -> datetime:
        """The current time, with a time zone."""
        ...


class Index(Protocol):
    """Stores prepared records and searches them.

    Every call takes a scope. Nothing outside `scope.tenant`, and nothing whose `acl` names none
    of `scope.principals`, is returned, counted, or allowed to change any score. A write is
    acknowledged when `upsert` or `delete` returns, and the next search sees it.

    A collection and its fields belong to a tenant. Every call raises `UnknownCollection` for one that the tenant has
    not created; neither results nor errors reveal whether another tenant has it, or with which fields.
    """

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection for the tenant, or add fields to it; the type of an existing field cannot change."""
        ...

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, ordered by name."""
        ...

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all records or none; returns the sequence number of the write.

        Raises `NotPermitted` for the id of a stored record that the scope may not read, `InvalidRequest` for a record
        that cannot be stored, and `Outdated` unless each record of `unchanged` is stored exactly as given. A time
        without a zone is stored as UTC. In an index with `PrivateIds` only records that are not private refuse a write.
        """
        ...

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those of `ids` that the scope may read; returns how many were removed."""
        ...

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """The records of `ids` that exist and that the scope may read, in the order of `ids`."""
        ...

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Up to `limit` records that the scope may read, in id order, starting after the id `after`.

        Raises `InvalidRequest` for a `limit` below 1 and an `after` that is not valid Unicode.
        """
        ...

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The passages that `query.fuse` chooses from every channel's best `query.k`, ordered by record id and ordinal.

        Each has its score in every channel that can score it, which in BM25 may be 0, and the ranks that `fuse` gave
        it; BM25 proposes only passages that contain a term. Candidates, passages and scores are of one version of the
        collection. In exact mode the result does not depend in any way on records the scope may not read.
        """
        ...

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """The matrices written under `name`, by record id; omits records without one or not readable by the scope."""
        ...

    async def version(self, scope: Scope, collection: str) -> int:
        """A number that changes with every write to the tenant's collection; caches use it for invalidation."""
        ...

    async def optimize(self) -> None:
        """Reorganise what searches read, which is worth it after a large load; may do nothing."""
        ...

    async def warm(self) -> None:
        """Load what the first search would otherwise wait for; may do nothing."""
        ...

    async def check_health(self) -> str:
        """Why the last search failed although records can be read; empty when it succeeded.

        Raises `SourceError` when records cannot be read. Reveals nothing about any tenant.
        """
        ...

    async def close(self) -> None:
        """Flush pending writes and release resources; later calls fail."""
        ...


@runtime_checkable
class Journal(Protocol):
    """The change log that an index may have, with which cached results can stay valid across writes."""

    async def changes(self, scope: Scope, collection: str, since: int) -> CollectionChanges | None:
        """Records written after version `since` that the scope may read, or could read before; None when unknown.

        Writes that the scope cannot observe do not change the result in any way.
        """
        ...


@runtime_checkable
class VectorSpaces(Protocol):
    """The vector names that an index may report, so that queries are not embedded for vectors that do not exist."""

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """Names of the vectors of the passages that the scope may read, possibly with others; None when unknown.

        Valid for the version last read with `Index.version`. Reveals nothing that the scope may not read.
        """
        ...


@runtime_checkable
class VectorBacklog(Protocol):
    """The passages of an index that were written without vectors and get them later; durable, and without their texts.

    A record that is replaced or removed leaves the backlog in the same write.
    """

    async def count_unembedded(self, scope: Scope, collection: str) -> int:
        """How many passages that the scope may read have no vectors yet."""
        ...

    async def next_unembedded(self, *, after: str, limit: int) -> UnembeddedBatch | None:
        """The next passages to embed, those of the first tenant after `after` that has some; None when there are none.

        Tenants are in a circle, so that a caller who passes the last one serves all in turn. For embedding only: no
        permissions are applied.
        """
        ...

    async def add_vectors(self, batch: UnembeddedBatch, vectors: Mapping[int, Mapping[str, Vector]]) -> frozenset[int]:
        """Write vectors by passage number; returns the passages that were still there to get them."""
        ...


@runtime_checkable
class PrivateIds(Protocol):
    """An index in which the id of a private record, whose only reader is one user, is unique among those of that user.

    All other ids are unique in the tenant's collection. Where a scope may read several records of one id, every call
    returns the private one only. A write replaces what its scope reads under the id; what it stores for another user,
    and may not read, replaces only what it has stored there before.
    """

    async def list_owners(self, tenant: str, collection: str, ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """By id, the users who have a private record of it, and "" for a shared one; applies no permissions."""
        ...


@runtime_checkable
class ScrubbableIndex(Protocol):
    """An index that can remove deleted texts from the files it writes itself."""

    async def scrub(self, collections: Sequence[str]) -> Sequence[str]:
        """Remove the texts of deleted records from files; returns what stays of these collections, and until when."""
        ...


@runtime_checkable
class EmbeddingCache(Protocol):
    """An embedder that stores the vectors of texts, and can forget them."""

    async def forget(self, texts: Sequence[str]) -> None:
        """Remove the stored vectors of these texts."""
        ...


class Embedder(Protocol):
    """Embeds texts as unit vectors; equal texts give equal vectors, alone or in a batch."""

    @property
    def name(self) -> str:
        """Name of its vectors in the index and the cache; changes when the model weights change."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One row per text, in order, including empty texts."""
        ...

    def calibrate(self, cosine: Vector) -> Vector:
        """Map cosines monotonically to similarities from 0 to 1: unrelated pairs below .3, true pairs about .8."""
        ...


class TokenCounter(Protocol):
    """Counts tokens as one model family does.

    `count("")` is 0. Two joined texts may have another count than the sum of both, so budgets are
    checked on the joined text. `exact` is False for estimates, which are then too high rather than too low.
    """

    @property
    def encoding(self) -> str:
        """The key under which token counts of this encoding are stored."""
        ...

    @property
    def exact(self) -> bool:
        """Whether `count` equals what the model will be charged."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a plain text, without message framing."""
        ...

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a whole prompt with roles, names and framing."""
        ...

    def prefix(self, text: str, limit: int) -> str:
        """The longest prefix found that counts at most `limit`; never cuts inside a character."""
        ...


class Redactor(Protocol):
    """Finds secrets and personal data in a text; `pipeline.redaction` replaces them.

    `rules` is the version of the rule set; stored spans of another version are not used.
    """

    @property
    def rules(self) -> str:
        """Version of the enabled rules."""
        ...

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Spans to redact, sorted and not overlapping."""
        ...


class Reranker(Protocol):
    """Scores texts against a query with a model that reads both together."""

    @property
    def name(self) -> str:
        """Name of the signal that it adds to candidates."""
        ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One score between 0 and 1 per text, in order."""
        ...


class ChatModel(Protocol):
    """Completes chat messages. Raises `SourceError` when the vendor fails."""

    @property
    def name(self) -> str:
        """The model's name, for ledgers and metrics."""
        ...

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """The whole answer."""
        ...

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """The answer in pieces, in order."""
        ...


@runtime_checkable
class ToolCallingModel(ChatModel, Protocol):
    """A chat model that takes the options of chat APIs, such as `tools`, and can answer with tool calls.

    A choice has the form of chat APIs. Raises `InvalidRequest` when the vendor refuses the request as wrong.
    """

    async def complete_choice(
        self, messages: Sequence[Message], *, max_tokens: int | None, options: Mapping[str, Json]
    ) -> dict[str, Any]:
        """The answer: `message` and `finish_reason`, and whatever else the vendor gives."""
        ...

    def stream_choices(
        self, messages: Sequence[Message], *, max_tokens: int | None, options: Mapping[str, Json]
    ) -> AsyncIterator[dict[str, Any]]:
        """The answer in pieces, in order: `delta`, and `finish_reason` in the last one."""
        ...


class SetAttributes(Protocol):
    """Sets attributes of a running span."""

    def __call__(self, attributes: Mapping[str, Scalar], /) -> None:
        """Set attributes by name; a later value replaces an earlier one of the same name."""
        ...


class Tracer(Protocol):
    """Records spans: how long an operation took and how it ended; never the text of a query or of a result."""

    def span(
        self, operation: str, target: str, attributes: Mapping[str, Scalar]
    ) -> AbstractContextManager[SetAttributes]:
        """A span of an operation on a target that lasts as long as the context; `attributes` are the first ones."""
        ...


class Secrets(Protocol):
    """Known secret values by key. They are used for masking; only tools may expand a key to its value."""

    def known_values(self) -> Mapping[str, str]:
        """All secret values by key."""
        ...


class MemoryWriter(Protocol):
    """The part of a memory service that stores."""

    async def remember(self, scope: Scope, memories: Sequence[conversation.Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order."""
        ...


class MemoryService(Protocol):
    """Stores, recalls and removes memories of one scope; runs in process or behind a URL.

    Memories of another tenant, or that the scope may not read, are never returned or counted and never
    change a score. Raises `SourceError` when the service fails.
    """

    async def remember(self, scope: Scope, memories: Sequence[conversation.Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order. A known idempotency key returns its existing id."""
        ...

    async def recall(self, scope: Scope, query: conversation.Recall) -> Sequence[conversation.Recalled]:
        """The best `query.top_k` memories that score at least the threshold and are not expired, best first."""
        ...

    async def feedback(self, scope: Scope, given: conversation.Feedback) -> None:
        """Rank one memory a little higher or lower from now on; raises `NotFound` for an unknown one."""
        ...

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove those of `ids` that the scope may read; returns how many were removed."""
        ...


class Health(Protocol):
    """Health monitor of a service, fed by the outcomes that its client reports."""

    def state(self) -> conversation.HealthState:
        """The current state; reading it has no side effect other than applying elapsed time."""
        ...

    def record_success(self) -> None:
        """Record a call that succeeded."""
        ...

    def record_failure(self) -> None:
        """Record a call that failed after its retries, or that the open circuit breaker rejected."""
        ...

    def record_recovery(self) -> None:
        """Record a probe that succeeded: a service that is down is degraded from now on."""
        ...


class SessionStore(Protocol):
    """Append-only log of events by session; a session of another tenant or user reads as empty."""

    async def append(self, scope: Scope, session_id: str, events: Sequence[conversation.SessionEvent]) -> int:
        """Append the events in order, skipping those whose id is stored already; returns the last position."""
        ...

    async def list_events(
        self, scope: Scope, session_id: str, *, limit: int = 20
    ) -> Sequence[conversation.SessionEvent]:
        """The newest `limit` events, oldest first."""
        ...

    async def sessions(self, scope: Scope, *, limit: int = 50) -> Sequence[str]:
        """Ids of the scope's sessions, most recently written first."""
        ...

    async def citing(self, scope: Scope, record_ids: Sequence[str]) -> Sequence[conversation.OwnedEvent]:
        """Events of every user of the tenant whose prompts held one of these memories (`RECALLED_KEY`)."""
        ...

    async def remove_citations(self, scope: Scope, record_ids: Sequence[str], *, own: bool = False) -> None:
        """Remove the ids of these memories from the metadata of all events of the tenant; with `own`, of the user's."""
        ...

    async def erase(self, scope: Scope, session_id: str, event_ids: Sequence[str] | None = None) -> Sequence[str]:
        """Remove these events of the scope's session, or the whole session; returns the ids of the removed events."""
        ...


class CopyStore(Protocol):
    """A store that keeps copies of texts: builds, replies, memories that wait for delivery."""

    async def erase(self, scope: Scope, target: conversation.ErasureTarget, *, preview: bool = False) -> Sequence[str]:
        """Remove what copies the target's texts; returns the ids of what is removed, or would be with `preview`.

        When it returns, the removed texts are in no file of the store.
        """
        ...


class ReplyStore(Protocol):
    """Stored replies by message id; those of another tenant or user are not found."""

    async def get(self, scope: Scope, message_id: str) -> conversation.StoredReply | None:
        """The stored reply to a message; None when the message is unknown."""
        ...

    async def put(self, scope: Scope, reply: conversation.StoredReply) -> conversation.StoredReply:
        """Store the reply unless a complete one is stored already; returns the reply that is stored afterwards."""
        ...


RemovalListener: TypeAlias = Callable[[Scope, Sequence[Record]], Awaitable[Receipt]]
"""Called with removed records, so that copies of their texts can be removed too; returns the receipt of the copies."""


async def keep_copies(_scope: Scope, _records: Sequence[Record]) -> Receipt:
    """The listener of a store that stands alone: there are no copies."""
    return Receipt.of_deletion(datetime.now(UTC), {}, ())


MessageHandler: TypeAlias = Callable[[conversation.Delivery], Awaitable[None]]
"""Handles one message of a bus."""


class Bus(Protocol):
    """Message bus between processes, by topic. Raises `SourceError` when the broker fails."""

    async def connect(self) -> None:
        """Connect to the broker and create missing topics; optional, the other methods connect by themselves."""
        ...

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Publish a message; it is durable once this returns. Messages with the same key keep their order."""
        ...

    def subscribe(self, topic: str, handle: MessageHandler) -> AbstractAsyncContextManager[None]:
        """Pass the messages of a topic to `handle` while the context lasts.

        A message is acknowledged when `handle` returns. If handling fails or is interrupted, the message is delivered
        again, here or in another process of the same group, and before any later message with its key. Several
        messages are handled concurrently; those with the same key start in order. On exit no more messages are taken,
        and running handlers are awaited for a limited time.
        """
        ...

    async def close(self) -> None:
        """Close the connections to the broker."""
        ...


class Policy(Protocol):
    """Allows or denies an action; denies when the policy is undefined, fails or times out."""

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> conversation.Decision:
        """Whether the scope may perform `action`, a name such as `message.process`, on `resource`."""
        ...


class KeyStore(Protocol):
    """The API keys of one store. Every lookup reads the stored key, so that revocation takes effect immediately."""

    @property
    def needs_thread(self) -> bool:
        """Whether a lookup is slow enough to run in a thread."""
        ...

    def add(
        self,
        name: str,
        scope: Scope,
        *,
        now: datetime,
        expires: datetime | None = None,
        rights: Iterable[Right] = DEFAULT_RIGHTS,
    ) -> tuple[ApiKey, str]:
        """Create a key; returns it with its token, which is not stored and cannot be shown again.

        Raises `InvalidRequest` without a name or rights, or if `expires` is in the past.
        """
        ...

    def list(self) -> Sequence[ApiKey]:
        """All keys, also revoked and expired ones, oldest first."""
        ...

    def revoke(self, key_id: str, *, now: datetime) -> ApiKey:
        """Revoke a key; revoking it again changes nothing. Raises `NotFound` for an unknown id."""
        ...

    def find(self, presented: str, *, now: datetime) -> ApiKey | None:
        """The active key of a token; None if the token is unknown, wrong, revoked or expired."""
        ...

    def is_empty(self) -> bool:
        """Whether no key was ever added; one that was revoked or has expired still counts."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class EntityRecognizer(Protocol):
    """Finds named entities: people, organisations, places. Equal texts give equal mentions."""

    @property
    def name(self) -> str:
        """Name and version of the recognizer, for caches; changes when the same text may give other mentions."""
        ...

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """Mentions in order, not overlapping. Blocks, so call it outside the event loop.

        Raises `SourceError` when the model fails.
        """
        ...


class GraphCache(Protocol):
    """Cache of extracted mentions by tenant; it does not check access, so callers must check it on every read."""

    async def get(self, tenant: str, version: str, ids: Sequence[str]) -> Mapping[str, ExtractedMentions]:
        """The cached mentions of these records, by record id, from this version of the extraction."""
        ...

    async def put(self, tenant: str, version: str, found: Sequence[ExtractedMentions]) -> None:
        """Store these, each replacing the entry of its record."""
        ...

    async def mentioning(self, tenant: str, version: str, keys: Sequence[str]) -> Sequence[str]:
        """Ids of the cached records that have one of these keys, in order."""
        ...

    async def forget(self, tenant: str, ids: Sequence[str]) -> None:
        """Remove the entries of these records."""
        ...
