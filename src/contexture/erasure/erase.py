"""Erasure: forgets a user, a session, records or a subject in every place that keeps a copy of their text."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from uuid import uuid4

from contexture import conversation
from contexture.blocks.records import BLOCKS
from contexture.builders.turn.summary import extract_summary
from contexture.erasure._plan import (
    ErasurePlan,
    ErasurePlanner,
    ErasureStores,
    OwnerLookup,
    act_as,
    event_text,
    find_owner,
    is_private,
)
from contexture.erasure.request import ForgetRequest
from contexture.errors import Outdated, UnknownCollection
from contexture.memory.records import ALIAS_KIND, is_alive
from contexture.news.articles import ARTICLES
from contexture.pages.records import PAGE_KIND, PAGES, page_record_id
from contexture.pages.visual import VISUAL_PAGES
from contexture.retrieval.message_context import MessageContexts
from contexture.types import Receipt, Record, Scope

__all__ = ["Erasure", "ErasureStores", "OwnerLookup"]

SESSION_EVENTS = "session events"
_MEMORY_REFERENCE = conversation.record_reference(conversation.MEMORIES_COLLECTION, "")
_BATCH = 500
_MAX_RECENT = 10_000  # erased records that a running build may still cite
_MAX_ROUNDS = 8  # of records of one id that a user has from as many writers
_LEFT_BY_DELETION = ("cached embeddings, and ids and words in index files: a request to forget removes them",)
_LEFT_IN_TRASH = ("the texts in the trash, until it is purged", *_LEFT_BY_DELETION)
_SHOWN_CHARACTERS = 200  # of a matched text in a preview


class Erasure:
    """Removes texts from every place that keeps them or a copy of them; every call can be repeated.

    A copy is found by reference: builds, replies and answers name the records that were in their prompts, and a memory
    of a chat has the id of the message that it repeats. An answer is a copy of a memory in its prompt when they share a
    term. Summaries of a session that loses a message are made again from what is left of it.
    """

    def __init__(self, stores: ErasureStores) -> None:
        self._stores = stores
        self._planner = ErasurePlanner(stores)
        self._contexts = MessageContexts(stores.index, stores.preparer.vectors)
        self._recently_erased: dict[tuple[str, str], None] = {}

    async def forget(self, request: ForgetRequest, *, scope: Scope) -> Receipt:
        """Forget what the request names, now and for good; with `preview` nothing is removed."""
        plan = await self._planner.make_plan(request, scope)
        # The copies first, so that an interrupted call can be repeated: they are found by what is removed after.
        removed: dict[str, list[str]] = {}
        _add_ids(removed, await self._erase_copies(scope, await self._make_target(plan, scope), request.preview))
        for user in {owner for owner, _ in plan.events} - {scope.user}:  # whose answers repeat a shared memory
            _add_ids(removed, await self._erase_later_turns(plan, act_as(user, scope), preview=request.preview))
        rebuilt, pending = 0, list[str]()
        if request.preview:
            _add_ids(removed, _list_planned(plan, self._stores.clock.now()))
        for _ in range(0 if request.preview else _MAX_ROUNDS):
            plan = await self._planner.make_plan(request, scope)  # with memories that the outbox delivered meanwhile
            target = await self._make_target(plan, scope)
            _add_ids(removed, await self._erase_originals(plan, scope))
            rebuilt += await self._rebuild_summaries(plan, scope)
            _add_ids(removed, await self._erase_copies(scope, target))  # built in the meantime
            pending += [each for each in await self._scrub(plan) if each not in pending]
            # The user's own records may have hidden what others stored for the user under the same ids.
            if not request.user_id or not (plan.memories or plan.records):
                break
        return Receipt(
            receipt_id=f"forget-{uuid4().hex[:12]}",
            subject=request.subject,
            preview=request.preview,
            time=self._stores.clock.now(),
            removed={place: tuple(dict.fromkeys(ids)) for place, ids in removed.items() if ids},
            rebuilt_summaries=rebuilt,
            matched=self._list_matches(plan) if request.preview else (),
            out_of_reach=(*pending, *self._stores.out_of_reach),
        )

    async def erase_copies(self, scope: Scope, collection: str, records: Sequence[Record]) -> Receipt:
        """Remove the builds and replies of every user that cite these records, which are deleted already."""
        removed: dict[str, list[str]] = {}
        if records:
            removed = await self._erase_copies(scope, await self._find_copies({collection: records}, scope))
            await self._stores.scrub(())
        return self._make_receipt(removed, _LEFT_BY_DELETION)

    async def erase_unreadable(self, scope: Scope, cited: Sequence[tuple[str, str]]) -> None:
        """Remove the scope's builds and replies that cite one of these records, by collection and id, if it is gone."""
        gone = set(await self.list_unreadable(scope, cited))
        references = frozenset(conversation.record_reference(*each) for each in cited if each[1] in gone)
        if references:
            await self._erase_copies(scope, conversation.ErasureTarget(own_records=references))
            await self._stores.scrub(())

    async def handle_removed_blocks(self, scope: Scope, near: Sequence[str], erased: Sequence[str]) -> Receipt:
        """Remove copies of blocks that are in the trash or purged; `near` are those that may show their texts."""
        if not near and not erased:
            return self._make_receipt({}, _LEFT_IN_TRASH)
        references = frozenset(conversation.record_reference(BLOCKS.name, name) for name in (*near, *erased))
        removed = await self._erase_copies(scope, conversation.ErasureTarget(records=references))
        await self._stores.scrub(())
        if erased:
            await asyncio.to_thread(self._stores.forget_imports, erased)
        return self._make_receipt(removed, _LEFT_BY_DELETION if erased else _LEFT_IN_TRASH)

    def _make_receipt(self, removed: Mapping[str, Sequence[str]], left: Sequence[str]) -> Receipt:
        return Receipt.of_deletion(self._stores.clock.now(), removed, (*left, *self._stores.out_of_reach))

    async def list_unreadable(self, scope: Scope, references: Iterable[tuple[str, str]]) -> Sequence[str]:
        """Those of these records, by collection and id, that no longer exist or that the scope may not read.

        Memories of a remote service cannot be checked, nor can candidates without a collection.
        """
        wanted: dict[str, set[str]] = {}
        for collection, record_id in references:
            if collection and (collection != conversation.MEMORIES_COLLECTION or self._stores.memory_is_local):
                wanted.setdefault(collection, set()).add(record_id)
        lost: list[str] = []
        for collection, ids in wanted.items():
            lost += sorted(ids - await self._readable_ids(scope, collection, sorted(ids)))
        return lost

    def was_erased(self, scope: Scope, references: Iterable[tuple[str, str]]) -> bool:
        """Whether one of these records was erased by this process lately, while a build may have used it."""
        return any((scope.tenant, conversation.record_reference(*each)) in self._recently_erased for each in references)

    def _remember_erased(self, scope: Scope, references: Iterable[str]) -> None:
        for reference in references:
            self._recently_erased.pop((scope.tenant, reference), None)
            self._recently_erased[scope.tenant, reference] = None
        while len(self._recently_erased) > _MAX_RECENT:
            del self._recently_erased[next(iter(self._recently_erased))]

    async def _readable_ids(self, scope: Scope, collection: str, ids: Sequence[str]) -> set[str]:
        if collection == BLOCKS.name:
            return {block.id for block in await self._stores.blocks.get(scope, ids)}
        now = self._stores.clock.now()
        return {
            record.id for record in await self._planner.get_records(scope, collection, ids) if is_alive(record, now)
        }

    # --- removal ---

    async def _make_target(self, plan: ErasurePlan, scope: Scope) -> conversation.ErasureTarget:
        held = {conversation.MEMORIES_COLLECTION: plan.memories, **plan.records}
        blocks = await self._stores.workspace.list_relatives(scope, plan.blocks) if plan.blocks else ()
        named = [
            *((conversation.MEMORIES_COLLECTION, record.id) for record, _ in plan.summaries),
            *((BLOCKS.name, name) for name in blocks),
        ]
        own = [
            *((conversation.MEMORIES_COLLECTION, name) for name in plan.remote_ids),
            *((BLOCKS.name, name) for name in plan.blocks),
        ]
        touched = plan.session_ids(scope.user) | plan.whole_sessions
        target = await self._find_copies({place: [*records.values()] for place, records in held.items()}, scope)
        return replace(
            target,
            records=target.records | {conversation.record_reference(*each) for each in named},
            own_records=target.own_records | {conversation.record_reference(*each) for each in own},
            sessions=frozenset(plan.whole_sessions),
            events=plan.event_ids(scope.user),
            touched_sessions=frozenset(touched | set(map(self._stores.clean, touched))),  # a capsule's are redacted
            whole_user=plan.whole_user,
            matches=plan.matches,
        )

    async def _find_copies(self, held: Mapping[str, Sequence[Record]], scope: Scope) -> conversation.ErasureTarget:
        """The copies of these records, by collection.

        Others may have another record under the id of a private one: their builds copy it only if the text is the same.
        """
        records, private, versions, own = set[str](), set[tuple[str, str]](), set[str](), set[str]()
        for collection, some in held.items():
            owners = await self._stores.list_owners(scope.tenant, collection, [record.id for record in some])
            for record in some:
                reference = conversation.record_reference(collection, record.id)
                if record.acl:
                    versions.add(conversation.record_reference(collection, record.id, record.hash))
                if collection != PAGES.name and (not record.acl or is_private(record, scope)):
                    own.add(reference)
                    continue
                names = _with_pages(collection, {record.id: record})  # ids of documents depend on their readers
                records |= {conversation.record_reference(collection, name) for name in names}
                others = owners.get(record.id, frozenset())
                private |= {(user, reference) for user in others if {f"user:{user}"} != set(record.acl)}
        return conversation.ErasureTarget(
            records=frozenset(records),
            private=frozenset(private),
            versions=frozenset(versions),
            own_records=frozenset(own),
        )

    async def _erase_copies(
        self,
        scope: Scope,
        target: conversation.ErasureTarget,
        preview: bool = False,  # noqa: FBT001, FBT002 - as the request says it
    ) -> dict[str, list[str]]:
        if not preview:
            self._remember_erased(scope, target.records | target.own_records)
        erased = await self._erase_stored_copies(scope, target, preview=preview)
        _add_ids(erased, await self._erase_answers(scope, target, preview=preview))
        return erased

    async def _erase_stored_copies(
        self, scope: Scope, target: conversation.ErasureTarget, *, preview: bool
    ) -> dict[str, list[str]]:
        stores = self._stores.copies
        return {place: [*await store.erase(scope, target, preview=preview)] for place, store in stores.items()}

    async def _erase_answers(
        self, scope: Scope, target: conversation.ErasureTarget, *, preview: bool
    ) -> dict[str, list[str]]:
        """Remove the answers of chats whose prompts held one of these records, and what has them in turn.

        That is summaries, and the builds of later turns, whose histories show the answers. Memories are not meant: they
        have a rule of their own.
        """
        names = [each for each in target.records | target.own_records if not each.startswith(_MEMORY_REFERENCE)]
        plans: dict[str, ErasurePlan] = {}
        for found in await self._stores.sessions.citing(scope, names) if names else ():
            held = set(found.event.metadata.get(conversation.RECALLED_KEY, ()))
            shared = any((found.user, each) not in target.private for each in target.records & held)
            if shared or (found.user == scope.user and target.own_records & held):
                plans.setdefault(found.user, ErasurePlan()).add_event(found.user, found.session_id, found.event)
        erased: dict[str, list[str]] = {}
        for user, plan in plans.items():
            owner = act_as(user, scope)
            _add_ids(erased, await self._erase_later_turns(plan, owner, preview=preview))
            _add_ids(erased, {SESSION_EVENTS: sorted(plan.event_ids(user))})
            if preview:
                continue
            plan.summaries = await self._planner.find_summaries(plan, owner)
            await self._erase_events(plan, owner)
            if plan.summaries:
                await self._stores.memory.forget(owner, [record.id for record, _ in plan.summaries])
                await self._rebuild_summaries(plan, owner)
        return erased

    async def _erase_later_turns(self, plan: ErasurePlan, owner: Scope, *, preview: bool) -> dict[str, list[str]]:
        """Remove the builds and replies that have the owner's removed events in their history."""
        sessions = plan.session_ids(owner.user)
        touched = frozenset(sessions | set(map(self._stores.clean, sessions)))  # a capsule's are redacted
        copies = conversation.ErasureTarget(events=plan.event_ids(owner.user), touched_sessions=touched)
        return await self._erase_stored_copies(owner, copies, preview=preview)

    async def _erase_originals(self, plan: ErasurePlan, scope: Scope) -> dict[str, list[str]]:
        await self._erase_vectors(plan, scope)
        removed = {"memories": await self._erase_memories(plan, scope)}
        other = [record.id for record, _ in plan.summaries if record.id not in plan.memories]
        if other:
            await self._stores.memory.forget(scope, other)
        removed["summaries"] = other
        removed[SESSION_EVENTS] = await self._erase_events(plan, scope)
        readable = [record for record in plan.memories.values() if record.acl]
        owners = await self._stores.list_owners(
            scope.tenant, conversation.MEMORIES_COLLECTION, [record.id for record in readable]
        )
        own = {record.id for record in readable if is_private(record, scope) or any(owners.get(record.id, ()))}
        shared = [record.id for record in readable if record.id not in own]
        await self._stores.sessions.remove_citations(scope, [*shared, *other])
        await self._stores.sessions.remove_citations(scope, sorted(own), own=True)
        for collection, records in plan.records.items():
            removed[collection] = await self._erase_records(collection, records, scope)
        if plan.blocks:
            erased = await self._stores.workspace.erase(scope, plan.blocks)
            removed[BLOCKS.name] = list(erased)
            await asyncio.to_thread(self._stores.forget_imports, erased)
        return removed

    async def _erase_memories(self, plan: ErasurePlan, scope: Scope) -> list[str]:
        now, by_owner = self._stores.clock.now(), dict[Scope, list[str]]()
        for record in plan.memories.values():
            by_owner.setdefault(find_owner(record, scope), []).append(record.id)
        for owner, ids in by_owner.items():
            for at in range(0, len(ids), _BATCH):
                await self._stores.memory.forget(owner, ids[at : at + _BATCH])
        gone = [record.id for record in plan.memories.values() if _is_counted(record, now)]
        for name in sorted(plan.remote_ids):  # the service says which of them it had
            gone += [name] if await self._stores.memory.forget(scope, [name]) else []
        return gone

    async def _erase_events(self, plan: ErasurePlan, scope: Scope) -> list[str]:
        gone: list[str] = []
        for (user, session_id), events in plan.events.items():
            whole = user == scope.user and session_id in plan.whole_sessions
            gone += await self._stores.sessions.erase(act_as(user, scope), session_id, None if whole else [*events])
        return gone

    async def _erase_records(self, collection: str, records: Mapping[str, Record], scope: Scope) -> list[str]:
        ids = _with_pages(collection, records)
        if collection == ARTICLES.name:
            await self._stores.news().remove(scope, ids)
            await self._stores.graph.forget(scope, ids)
        elif collection == PAGES.name:
            await self._stores.pages.remove(scope, list(records))
        else:
            try:
                await self._stores.index.delete(scope, collection, ids)
            except UnknownCollection:
                return []
        return [name for name, record in records.items() if record.acl]

    async def _erase_vectors(self, plan: ErasurePlan, scope: Scope) -> None:
        """Remove cached embeddings of the texts: a text can be guessed from its vector."""
        held = {**plan.records, conversation.MEMORIES_COLLECTION: plan.memories}
        if plan.blocks:  # a block may be a page of a workspace, which is cut like any other record
            near = await self._stores.workspace.list_relatives(scope, plan.blocks)
            blocks = await self._planner.get_records(scope, BLOCKS.name, near)
            held[BLOCKS.name] = {record.id: record for record in blocks}
        for collection, records in held.items():
            known = [record for record in records.values() if record.kind != PAGE_KIND and record.acl]
            if known:
                await self._erase_vectors_of(known, collection, scope)
        await self._stores.pages.forget_vectors(scope, [*plan.records.get(PAGES.name, {})])

    async def _erase_vectors_of(self, records: Sequence[Record], collection: str, scope: Scope) -> None:
        """Remove the cached embeddings of records, and embed the messages after them without them."""
        preparer, index = self._stores.preparer, self._stores.index
        if not any(record.session for record in records):
            await preparer.forget(records)
            return
        later = await self._contexts.find_after(scope, collection, records)
        both = [*records, *later]
        await preparer.forget(both, await self._contexts.find(scope, collection, both))
        left = await self._contexts.find(scope, collection, later, without={record.id for record in records})
        prepared = await preparer.prepare(later, left, embedded=True)
        for record, item in zip(later, prepared, strict=True):
            with suppress(Outdated):  # replaced meanwhile
                await index.upsert(scope, collection, [item], unchanged=[record])

    async def _scrub(self, plan: ErasurePlan) -> Sequence[str]:
        held = {conversation.MEMORIES_COLLECTION: plan.memories, BLOCKS.name: plan.blocks, **plan.records}
        held[VISUAL_PAGES.name] = plan.records.get(PAGES.name, {})  # has the names of files, and is removed with them
        return await self._stores.scrub(sorted(name for name, removed in held.items() if removed))

    # --- summaries ---

    async def _rebuild_summaries(self, plan: ErasurePlan, scope: Scope) -> int:
        """Summarize again what is left of each summary; returns how many there are."""
        fresh = [
            memory
            for record, left in plan.summaries
            if record.session not in plan.whole_sessions and record.id not in plan.named_memories
            if (memory := self._summarize_again(record, left)) is not None
            if plan.matches is None or not plan.matches(memory.text)
        ]
        if fresh:
            await self._stores.memory.remember(scope, fresh)
        return len(fresh)

    def _summarize_again(self, record: Record, left: Sequence[conversation.SessionEvent]) -> conversation.Memory | None:
        text = extract_summary([{**event.message, "content": self._stores.clean(event_text(event))} for event in left])
        if not text:
            return None
        held = record.payload
        return conversation.Memory(
            text=text,
            type=conversation.SUMMARY_TYPE,
            session_id=record.session,
            persona_id=held.get("persona", ""),
            namespace=held.get("namespace", self._stores.namespace),
            universe=held.get("universe", ""),
            tags=tuple(held.get("tags", ())),
            time=record.time,
            idempotency_key=f"rebuilt-{sha256(f'{record.id} {text}'.encode()).hexdigest()[:32]}",
            metadata=held.get("metadata", {}),
        )

    def _list_matches(self, plan: ErasurePlan) -> tuple[tuple[str, str, str], ...]:
        if plan.matches is None:
            return ()
        memories = [("memories", record.id, record.text) for record in plan.memories.values()]
        events = [
            (SESSION_EVENTS, event.id, event_text(event)) for some in plan.events.values() for event in some.values()
        ]
        return tuple(
            (place, name, self._stores.clean(text)[:_SHOWN_CHARACTERS]) for place, name, text in (*memories, *events)
        )


def _list_planned(plan: ErasurePlan, now: datetime) -> dict[str, list[str]]:
    """What a plan removes, before anything is removed; the blocks below its blocks are not listed."""
    return {
        "memories": [record.id for record in plan.memories.values() if _is_counted(record, now)],
        SESSION_EVENTS: [name for events in plan.events.values() for name in events],
        "summaries": [record.id for record, _ in plan.summaries if record.id not in plan.memories],
        **{place: [name for name, each in records.items() if each.acl] for place, records in plan.records.items()},
        BLOCKS.name: plan.blocks,
    }


def _add_ids(removed: dict[str, list[str]], more: Mapping[str, Sequence[str]]) -> None:
    for place, ids in more.items():
        removed.setdefault(place, []).extend(ids)


def _with_pages(collection: str, records: Mapping[str, Record]) -> list[str]:
    """The ids of those of these records that exist, and of the pages of documents."""
    stored = [record.id for record in records.values() if record.acl]
    if collection != PAGES.name:
        return stored
    pages = [
        page_record_id(record.id, int(number))
        for record in records.values()
        for number in record.payload.get("pages", ())
    ]
    return [*stored, *pages]


def _is_counted(record: Record, now: datetime) -> bool:
    """Whether a memory was there: not one that is deleted already or has expired."""
    return bool(record.acl) and record.kind != ALIAS_KIND and is_alive(record, now)
