"""The contracts that adapters fulfil. Each docstring is the contract; `contexture.testing` checks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Protocol, TypeAlias

from contexture.conversation import (
    Decision,
    Delivery,
    Event,
    Feedback,
    HealthState,
    Memory,
    Recall,
    Recalled,
    StoredReply,
)
from contexture.types import (
    Changes,
    Collection,
    Extracted,
    Filter,
    Hit,
    Json,
    Matrix,
    Mention,
    Message,
    Prepared,
    Query,
    Record,
    Scalar,
    Scope,
    Span,
    Vector,
)


class Clock(Protocol):
    """Says what time it is; a build reads it once."""

    def now(self) -> datetime:
        """The current time, with its zone."""
        ...


class Index(Protocol):
    """Stores prepared records and finds them again.

    Every call takes a scope. Nothing outside `scope.tenant`, and nothing whose `acl` names none
    of `scope.principals`, is returned, counted, or allowed to change any score. A write is
    acknowledged when `upsert` or `delete` returns, and the next search sees it.

    A collection and its fields belong to a tenant. One that the tenant has not created is `UnknownCollection` in
    every call; neither answers nor errors tell whether another tenant has it, or which fields it has there.
    """

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Make the collection for the tenant, or add fields to it; the type of a tenant's field cannot change."""
        ...

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name."""
        ...

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all of them or none; returns the sequence number of the write.

        Unless each record of `unchanged` is stored just so, nothing is written and `Outdated` raised.
        """
        ...

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those the scope may see; returns how many there were."""
        ...

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those of `ids` that exist and that the scope may see, in the order asked for."""
        ...

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Records in id order, starting behind `after`."""
        ...

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The best `query.pool` of every channel's best `query.k` passages, each with all its scores.

        Channels order by score, ties by record id and ordinal; the pool is chosen by reciprocal
        rank over the channels, ties likewise. In exact mode the answer does
        not depend in any way on records the scope may not see.
        """
        ...

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By id, the rows written under `name` with those of these records that have them and the scope may see."""
        ...

    async def version(self, scope: Scope, collection: str) -> int:
        """A number that changes with every write to the tenant's part of a collection; caches use it."""
        ...

    async def close(self) -> None:
        """Flush and release; further calls fail."""
        ...


class Journal(Protocol):
    """What an index may know about its own writes, so that answers can be remembered across them."""

    async def changes(self, scope: Scope, collection: str, since: int) -> Changes | None:
        """What was written behind the version `since` and the scope may read, or could before; None when unknown.

        Writes that the scope cannot tell do not change the answer in any way.
        """
        ...


class Spaces(Protocol):
    """What an index may know about its own vectors, so that no question is embedded for nothing."""

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """The names of the vectors that what the scope may read has, and perhaps others; None when unknown.

        It speaks of the version last asked for, and of nothing that the scope may not read.
        """
        ...


class Embedder(Protocol):
    """Turns texts into unit vectors; equal texts give equal vectors, alone or in a batch."""

    @property
    def name(self) -> str:
        """Names the vector in the index and the cache; changes when the weights do."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One row per text, in order; the empty text has a row too."""
        ...

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as similarities from 0 to 1: unrelated pairs below .3, true pairs about .8; monotonic."""
        ...


class TokenCounter(Protocol):
    """Measures text the way one model family will.

    `count("")` is 0. Joining two texts may count differently from their sum, so budgets are
    checked on the joined bytes. `exact` is False for estimates, which then err upwards.
    """

    @property
    def encoding(self) -> str:
        """The key under which token counts of this kind are stored."""
        ...

    @property
    def exact(self) -> bool:
        """Whether `count` equals what the model will be charged."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a bare text."""
        ...

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a whole prompt with roles, names and framing."""
        ...

    def prefix(self, text: str, limit: int) -> str:
        """The longest prefix found that counts at most `limit`; never cuts inside a character."""
        ...


class Redactor(Protocol):
    """Finds what must not be shown. It only finds: `pipeline.redact` replaces.

    `rules` names the rule set; stored spans of another rule set are not trusted.
    """

    @property
    def rules(self) -> str:
        """Version of the rules that are switched on."""
        ...

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap."""
        ...


class Reranker(Protocol):
    """Scores texts against a query with a model that reads both."""

    @property
    def name(self) -> str:
        """Names the signal it adds."""
        ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One score between 0 and 1 per text, in order."""
        ...


class ChatModel(Protocol):
    """Answers messages. Vendor failures surface as `SourceError`."""

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


class Note(Protocol):
    """Adds facts to a span that is under way."""

    def __call__(self, told: Mapping[str, Scalar], /) -> None:
        """Facts by name; a later one replaces an earlier one of the same name."""
        ...


class Spans(Protocol):
    """Tells those who watch how long things took and how they ended; what was asked or found is never told."""

    def span(self, operation: str, target: str, told: Mapping[str, Scalar]) -> AbstractContextManager[Note]:
        """Something that lasts as long as the context: an operation on a target, with facts known beforehand."""
        ...


class Secrets(Protocol):
    """Known secret values by key. Used to mask them; expansion is for tools only."""

    def known(self) -> Mapping[str, str]:
        """Every key with its value."""
        ...


class MemoryService(Protocol):
    """Remembers, recalls and forgets for one scope at a time; in process or behind a URL.

    Nothing another tenant, or a reader the scope is not, has stored is returned, counted, or allowed to
    change a score. Failures of the service surface as `SourceError`.
    """

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all of them or none; ids in order. A known idempotency key gives the id it has."""
        ...

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best `query.top_k` memories at or above the threshold, best first, expired ones left out."""
        ...

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Let one memory rank a little higher or lower from now on; an unknown one is `NotFound`."""
        ...

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove those the scope may read; returns how many there were."""
        ...


class Health(Protocol):
    """Knows how a service is doing from what its client reports."""

    def state(self) -> HealthState:
        """The state now; asking moves nothing but time."""
        ...

    def succeeded(self) -> None:
        """A call was answered."""
        ...

    def failed(self) -> None:
        """A call failed after its retries, or the open breaker refused it."""
        ...


class SessionStore(Protocol):
    """Append-only events by session; another tenant's or user's session is an empty one."""

    async def append(self, scope: Scope, session_id: str, events: Sequence[Event]) -> int:
        """Add the events in order, those whose id is known left out; returns the last position."""
        ...

    async def list_events(self, scope: Scope, session_id: str, *, limit: int = 20) -> Sequence[Event]:
        """The newest `limit` events, oldest first."""
        ...

    async def sessions(self, scope: Scope, *, limit: int = 50) -> Sequence[str]:
        """The scope's sessions, the one last written to first."""
        ...


class ReplyStore(Protocol):
    """What became of messages, by the id they came with; another tenant's or user's are unknown ones."""

    async def get(self, scope: Scope, message_id: str) -> StoredReply | None:
        """What became of a message; None when it is not known."""
        ...

    async def put(self, scope: Scope, reply: StoredReply) -> StoredReply:
        """Keep this instead of what is known of the message, unless that is complete; says what stands."""
        ...


Handle: TypeAlias = Callable[[Delivery], Awaitable[None]]
"""Takes one message of a bus."""


class Bus(Protocol):
    """Carries messages between processes, by topic. Failures of the broker surface as `SourceError`."""

    async def reach(self) -> None:
        """Connect to the broker and make the topics that are missing; not needed before the rest."""
        ...

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Hand a message over; it survives once this returns. Those of one key keep their order."""
        ...

    def delivering(self, topic: str, handle: Handle) -> AbstractAsyncContextManager[None]:
        """Give the messages of a topic to `handle` while the context lasts.

        A message is acknowledged when `handle` returns. One whose handling fails or is cut off comes again, here or
        in another process of the same group, and until then no later one of its key. Several are handled at once;
        those of one key start in order. Leaving takes no more and waits for those under way, but not for ever.
        """
        ...

    async def close(self) -> None:
        """Let go of the broker."""
        ...


class Policy(Protocol):
    """Allows or denies an action; undefined, failing or late means denied."""

    async def decide(self, scope: Scope, action: str, resource: Mapping[str, Json]) -> Decision:
        """Whether the scope may do this; `action` is a name such as `message.process`."""
        ...


class EntityRecognizer(Protocol):
    """Finds named things: people, organisations, places. Equal texts give equal mentions."""

    @property
    def name(self) -> str:
        """Changes when the same text may give other mentions; caches use it."""
        ...

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """Mentions in order that do not overlap; a model that fails is a `SourceError`. Not for the event loop."""
        ...


class GraphCache(Protocol):
    """Keeps what was extracted from records, by tenant; who may read a record is asked elsewhere, each time."""

    async def get(self, tenant: str, version: str, ids: Sequence[str]) -> Mapping[str, Extracted]:
        """What is kept of these records by this version of the extraction."""
        ...

    async def put(self, tenant: str, version: str, found: Sequence[Extracted]) -> None:
        """Keep these, each instead of what was kept of its record."""
        ...

    async def mentioning(self, tenant: str, version: str, keys: Sequence[str]) -> Sequence[str]:
        """Ids of the records in which one of these names is kept, in order."""
        ...

    async def forget(self, tenant: str, ids: Sequence[str]) -> None:
        """Keep nothing of these records."""
        ...
