"""What a request to forget removes: what it names, what repeats it, and the summaries made from it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from contexture.blocks.records import BLOCKS
from contexture.blocks.workspace import Workspace
from contexture.builders.turn.request import plain_text
from contexture.conversation import (
    MEMORIES_COLLECTION,
    RECALLED_KEY,
    SUMMARY_TYPE,
    Recall,
    SessionEvent,
    message_of,
    statement_keys,
)
from contexture.erasure.request import ForgetRequest
from contexture.errors import InvalidRequest, NotFound, NotPermitted, UnknownCollection
from contexture.graph.store import GraphStore
from contexture.memory.records import ALIAS_KIND, make_key_id
from contexture.news.store import NewsStore
from contexture.pages.records import DOCUMENT_KIND, PAGES
from contexture.pages.store import PageStore
from contexture.pages.visual import VISUAL_PAGES
from contexture.ports import Clock, CopyStore, Index, MemoryService, SessionStore
from contexture.retrieval.prepare import Preparer
from contexture.text.terms import extract_terms
from contexture.types import And, Equals, Filter, Record, Scope
from contexture.workspace import BlockStore

MATCH_THRESHOLD = 0.6
"""Calibrated relevance from which a memory is about the subject to forget."""

_MAX_MATCHES = 100
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)  # whatever is in the trash
_ALL_EVENTS = 1 << 30
_BATCH = 500
_MAX_ROUNDS = 8  # an answer that repeats an answer that repeats a memory

Scrub: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
"""Empties logs and files that may still hold texts of these collections; returns what stays, and until when."""


OwnerLookup: TypeAlias = Callable[[str, str, Sequence[str]], Awaitable[Mapping[str, frozenset[str]]]]
"""By id, the users who have a private record of it in a tenant's collection, and "" for a shared one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureStores:
    """Everything that keeps texts or copies of them.

    `list_owners` tells who has a private record of an id. `memory_is_local` says whether memories are records of
    `index`. `copies` holds builds, replies and the outbox by name. `forget_imports` removes what imports remember of
    blocks. `clean` redacts a text. `out_of_reach` names copies that no store of this process holds. `splits_messages`
    says whether a message may be several remote memories.
    """

    index: Index
    list_owners: OwnerLookup
    memory: MemoryService
    memory_is_local: bool
    namespace: str
    universe: str
    sessions: SessionStore
    copies: Mapping[str, CopyStore]
    graph: GraphStore
    blocks: BlockStore
    workspace: Workspace
    pages: PageStore
    news: Callable[[], NewsStore]
    preparer: Preparer
    forget_imports: Callable[[Sequence[str]], int]
    scrub: Scrub
    clean: Callable[[str], str]
    clock: Clock
    out_of_reach: tuple[str, ...] = ()
    splits_messages: bool = False


Summaries: TypeAlias = list[tuple[Record, list[SessionEvent]]]
"""Summaries that lose a message, each with the messages of it that are left."""


@dataclass(slots=True)
class ErasurePlan:
    """What one request removes: memories, events by user and session, records by collection, blocks."""

    memories: dict[str, Record] = field(default_factory=dict[str, Record])
    named_memories: frozenset[str] = frozenset()
    remote_ids: set[str] = field(default_factory=set[str])
    events: dict[tuple[str, str], dict[str, SessionEvent]] = field(
        default_factory=dict[tuple[str, str], dict[str, SessionEvent]]
    )
    whole_sessions: set[str] = field(default_factory=set[str])
    records: dict[str, dict[str, Record]] = field(default_factory=dict[str, dict[str, Record]])
    blocks: list[str] = field(default_factory=list[str])
    matches: Callable[[str], bool] | None = None
    whole_user: bool = False
    summaries: Summaries = field(default_factory=list[tuple[Record, list[SessionEvent]]])
    sessions_read: dict[tuple[str, str], Sequence[SessionEvent]] = field(
        default_factory=dict[tuple[str, str], Sequence[SessionEvent]]
    )

    def add_event(self, user: str, session_id: str, event: SessionEvent) -> None:
        """Add an event of a user's session."""
        self.events.setdefault((user, session_id), {}).setdefault(event.id, event)

    def add_record(self, collection: str, record: Record) -> None:
        """Add a record of any collection to where it is removed."""
        if collection == BLOCKS.name:
            self.blocks.append(record.id)
        elif collection == MEMORIES_COLLECTION:
            self.memories[record.id] = record
        elif collection != VISUAL_PAGES.name:  # removed with the pages
            self.records.setdefault(collection, {})[record.id] = record

    def event_ids(self, user: str) -> frozenset[str]:
        """The ids of the removed events of a user."""
        return frozenset(name for (owner, _), events in self.events.items() if owner == user for name in events)

    def session_ids(self, user: str) -> set[str]:
        """The sessions of a user that lose an event."""
        return {session_id for owner, session_id in self.events if owner == user}


class ErasurePlanner:
    """Finds everything that a request removes, without removing it."""

    def __init__(self, stores: ErasureStores) -> None:
        self._stores = stores

    async def make_plan(self, request: ForgetRequest, scope: Scope) -> ErasurePlan:
        """What a request names, and everything that repeats it."""
        plan = await self._plan_named(request, scope)
        await self._add_repetitions(plan, scope)
        await self._check_blocks(plan, request, scope)
        plan.summaries = await self.find_summaries(plan, scope)
        return plan

    async def _check_blocks(self, plan: ErasurePlan, request: ForgetRequest, scope: Scope) -> None:
        """Leave out blocks that the scope does not manage; raises `NotPermitted` if the request names one."""
        foreign = await self._stores.workspace.list_unmanaged(scope, plan.blocks) if plan.blocks else ()
        if foreign and request.subject == "records":
            raise NotPermitted(f"only those who manage block {foreign[0]!r} may erase it")
        plan.blocks = [name for name in plan.blocks if name not in set(foreign)]

    async def get_records(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those of these records that exist and that the scope may read."""
        try:
            return await self._stores.index.get(scope, collection, ids) if ids else ()
        except UnknownCollection:
            return ()

    # --- what a request names ---

    async def _plan_named(self, request: ForgetRequest, scope: Scope) -> ErasurePlan:
        plan = ErasurePlan()
        match request.subject:
            case "user":
                await self._plan_user(plan, request.user_id, scope)
            case "session":
                await self._plan_session(plan, request.session_id, scope)
            case "events":
                await self._plan_events(plan, request, scope)
            case "records":
                await self._plan_records(plan, request, scope)
            case "matching":
                await self._plan_matching(plan, request.matching, scope)
            case _:
                plan.blocks += await self._stores.workspace.list_trash(scope, before=_END_OF_TIME)
        return plan

    async def _plan_user(self, plan: ErasurePlan, user: str, scope: Scope) -> None:
        if user != scope.user:
            raise InvalidRequest(f"users are forgotten on their own behalf; act as user {user!r}")
        plan.whole_user = True
        for session_id in await self._stores.sessions.sessions(scope, limit=_ALL_EVENTS):
            await self._plan_session(plan, session_id, scope)
        for collection in await self._stores.index.collections(scope):
            async for record in self._scroll(scope, collection.name):
                if is_private(record, scope) and not (collection.name == PAGES.name and record.kind != DOCUMENT_KIND):
                    plan.add_record(collection.name, record)
        private = await self._stores.workspace.list_private(scope)  # also those in the trash, which no search finds
        plan.blocks = list(dict.fromkeys((*plan.blocks, *private)))

    async def _plan_session(self, plan: ErasurePlan, session_id: str, scope: Scope) -> None:
        plan.whole_sessions.add(session_id)
        plan.events.setdefault((scope.user, session_id), {})
        for event in await self._read_events(plan, scope, session_id):
            plan.add_event(scope.user, session_id, event)
        if self._stores.memory_is_local:
            async for record in self._scroll(scope, MEMORIES_COLLECTION, Equals("session", session_id)):
                if is_private(record, scope):
                    plan.memories[record.id] = record

    async def _plan_events(self, plan: ErasurePlan, request: ForgetRequest, scope: Scope) -> None:
        known = {event.id: event for event in await self._read_events(plan, scope, request.session_id)}
        for name in request.event_ids:
            if name not in known:
                raise NotFound(f"session {request.session_id!r} has no event {name!r}")
            plan.add_event(scope.user, request.session_id, known[name])

    async def _plan_records(self, plan: ErasurePlan, request: ForgetRequest, scope: Scope) -> None:
        if request.collection == BLOCKS.name:
            plan.blocks += request.ids
            return
        if request.collection == MEMORIES_COLLECTION and not self._stores.memory_is_local:
            plan.remote_ids.update(request.ids)
            return
        found = {record.id: record for record in await self.get_records(scope, request.collection, request.ids)}
        for name in request.ids:
            record = found.get(name) or Record(id=name, text="", acl=())  # deleted already; copies may be left
            if request.collection == PAGES.name and record.text and record.kind != DOCUMENT_KIND:
                raise InvalidRequest(f"{name!r} is a page; forget its document, {name.rpartition(':')[0]!r}")
            plan.add_record(request.collection, record)
        plan.named_memories = frozenset(plan.memories)

    async def _plan_matching(self, plan: ErasurePlan, subject: str, scope: Scope) -> None:
        wanted = set(extract_terms(subject))

        def matches(text: str) -> bool:
            return wanted <= set(extract_terms(text))

        plan.matches = matches
        query = Recall(
            query=subject,
            now=self._stores.clock.now(),
            top_k=_MAX_MATCHES,
            threshold=MATCH_THRESHOLD,
            namespace=self._stores.namespace,
            universe=self._stores.universe,
        )
        near = {found.id for found in await self._stores.memory.recall(scope, query)}
        if self._stores.memory_is_local:
            async for record in self._scroll(scope, MEMORIES_COLLECTION):
                if is_private(record, scope) and (record.id in near or matches(record.text)):
                    plan.memories[record.id] = record
        else:
            plan.remote_ids |= near
        for session_id in await self._stores.sessions.sessions(scope, limit=_ALL_EVENTS):
            for event in await self._read_events(plan, scope, session_id):
                if matches(event_text(event)):
                    plan.add_event(scope.user, session_id, event)

    # --- what repeats it ---

    async def _add_repetitions(self, plan: ErasurePlan, scope: Scope) -> None:
        """Add the messages that memories repeat, the memories of messages, and answers that repeat a memory."""
        for _ in range(_MAX_ROUNDS):
            before = len(plan.memories), len(plan.remote_ids), sum(map(len, plan.events.values()))
            await self._add_messages(plan, scope)
            await self._add_memories(plan, scope)
            await self._add_answers(plan, scope)
            if before == (len(plan.memories), len(plan.remote_ids), sum(map(len, plan.events.values()))):
                return

    async def _add_messages(self, plan: ErasurePlan, scope: Scope) -> None:
        """Add the message of every memory of a chat: the memory's idempotency key begins with its id."""
        for record in plan.memories.values():
            key, owner = record.payload.get("key"), find_owner(record, scope)
            if isinstance(key, str) and key and record.session:
                for event in await self._read_events(plan, owner, record.session):
                    if event.id in {key, message_of(key)}:
                        plan.add_event(owner.user, record.session, event)

    async def _add_memories(self, plan: ErasurePlan, scope: Scope) -> None:
        """Add the memories of every message."""
        for (user, _), events in plan.events.items():
            several = self._stores.memory_is_local or self._stores.splits_messages
            keys = [key for name in events for key in (statement_keys(name) if several else [name])]
            ids = [make_key_id(scope.tenant, self._stores.namespace, key, f"user:{user}") for key in keys]
            if self._stores.memory_is_local:
                for record in await self.get_records(act_as(user, scope), MEMORIES_COLLECTION, ids):
                    plan.memories.setdefault(record.id, record)
            elif user == scope.user:
                plan.remote_ids.update(ids)

    async def _add_answers(self, plan: ErasurePlan, scope: Scope) -> None:
        """Add the answers that had one of the memories in their prompt and share a term with it."""
        terms = {name: set(extract_terms(record.text)) for name, record in plan.memories.items()}
        private = {name for name, record in plan.memories.items() if is_private(record, scope)}
        owners = await self._stores.list_owners(scope.tenant, MEMORIES_COLLECTION, [*plan.memories])
        for found in await self._stores.sessions.citing(scope, [*plan.memories, *plan.remote_ids]):
            event_terms = set(extract_terms(event_text(found.event)))
            recalled = set(found.event.metadata.get(RECALLED_KEY, ()))
            if found.user != scope.user:
                # Others may have another memory of this id to themselves.
                recalled -= private | {name for name in recalled if found.user in owners.get(name, ())}
            if any(name in plan.remote_ids or not event_terms.isdisjoint(terms.get(name, ())) for name in recalled):
                plan.add_event(found.user, found.session_id, found.event)

    # --- summaries ---

    async def find_summaries(self, plan: ErasurePlan, scope: Scope) -> Summaries:
        """The summaries of the scope's sessions that lose a message."""
        if not self._stores.memory_is_local:
            return []
        sessions = plan.session_ids(scope.user) | {each.session for each in plan.memories.values() if each.session}
        gone = plan.event_ids(scope.user)
        found: Summaries = []
        for session_id in sorted(sessions):
            where = And((Equals("session", session_id), Equals("type", SUMMARY_TYPE)))
            summaries = [record async for record in self._scroll(scope, MEMORIES_COLLECTION, where)]
            events = await self._read_events(plan, scope, session_id) if summaries else ()
            for record, covered in _assign_messages(summaries, events):
                left = [event for event in covered if event.id not in gone]
                if not covered or len(left) < len(covered):
                    found.append((record, left))
        return found

    # --- reading ---

    async def _read_events(self, plan: ErasurePlan, scope: Scope, session_id: str) -> Sequence[SessionEvent]:
        key = scope.user, session_id
        if key not in plan.sessions_read:
            found = await self._stores.sessions.list_events(scope, session_id, limit=_ALL_EVENTS)
            plan.sessions_read[key] = found
        return plan.sessions_read[key]

    async def _scroll(self, scope: Scope, collection: str, where: Filter | None = None) -> AsyncIterator[Record]:
        after = ""
        while True:
            try:
                found = await self._stores.index.scroll(scope, collection, where=where, after=after, limit=_BATCH)
            except UnknownCollection:
                return
            for record in found:
                if record.kind != ALIAS_KIND:
                    yield record
            if len(found) < _BATCH:
                return
            after = found[-1].id


def _assign_messages(
    summaries: Sequence[Record], events: Sequence[SessionEvent]
) -> list[tuple[Record, list[SessionEvent]]]:
    """Each summary with the messages that it covers: those trimmed then that no earlier summary covers."""
    ids: set[str] = set()
    found: list[tuple[Record, list[SessionEvent]]] = []
    for record in sorted(summaries, key=lambda each: (each.time is None, each.time, each.id)):
        held: Mapping[str, Any] = record.payload.get("metadata", {})
        length, kept = held.get("trimmed_from"), held.get("trimmed_to")
        covered: list[SessionEvent] = []
        if record.time is not None and isinstance(length, int) and isinstance(kept, int) and length:
            history = [event for event in events if event.time < record.time and event_text(event)][-length:]
            covered = [event for event in history[: max(0, len(history) - kept)] if event.id not in ids]
        ids.update(event.id for event in covered)
        found.append((record, covered))
    return found


def event_text(event: SessionEvent) -> str:
    return plain_text(event.message.get("content"))


def is_private(record: Record, scope: Scope) -> bool:
    """Whether the scope's user is the only reader; others may have records of the same id."""
    return set(record.acl) == {f"user:{scope.user}"}


def find_owner(record: Record, scope: Scope) -> Scope:
    """The scope that may remove a memory: the one that erases, or the user whose answer repeated it."""
    if not record.acl or not set(record.acl).isdisjoint(scope.principals):
        return scope
    user = next((name.removeprefix("user:") for name in record.acl if name.startswith("user:")), scope.user)
    return act_as(user, scope)


def act_as(user: str, scope: Scope) -> Scope:
    return scope if user == scope.user else Scope(tenant=scope.tenant, user=user)
