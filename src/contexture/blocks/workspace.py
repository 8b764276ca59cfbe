"""The workspace: blocks are written to the block store, the source of truth, and from there to the search index.

`IndexSync` brings the index up to date after failures and restarts. Blocks are validated before they are stored.
"""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TypeAlias
from uuid import uuid4
from weakref import WeakValueDictionary

from msgspec.structs import replace

from contexture.blocks.records import BLOCKS, FactsComputer, block_to_record
from contexture.errors import Conflict, InvalidRequest, NotFound, RequestError
from contexture.ports import Index
from contexture.retrieval.prepare import EnsuredCollection, Preparer
from contexture.text.unicode import is_valid_unicode, repair_text
from contexture.types import Json, ReadersScope, Receipt, Record, Scope
from contexture.workspace import (
    Activity,
    Block,
    BlockRight,
    BlockType,
    ImportAccess,
    PutResult,
    StaleBlock,
    WritableBlocks,
    is_due_date,
)

__all__ = [
    "BATCH_SIZE",
    "MAX_ID_LENGTH",
    "IndexSync",
    "PutResult",
    "Workspace",
    "check_blocks",
    "check_order",
    "check_targets",
]


BlockRemovalListener: TypeAlias = Callable[[Scope, Sequence[str], Sequence[str]], Awaitable[Receipt]]
"""Called with the ids of blocks whose text is shown no more in some place, and of those that are gone for good.

Returns the receipt of the copies that were removed.
"""


async def keep_block_copies(_scope: Scope, _near: Sequence[str], _erased: Sequence[str]) -> Receipt:
    """The listener of a workspace that stands alone: there are no copies."""
    return Receipt.of_deletion(datetime.now(UTC), {}, ())


class Workspace:
    """Writes blocks for one scope at a time; each call is one transaction of the block store.

    A principal that may read a block may write it and add blocks below it; a block whose `readers` is None inherits
    those of its parent. A block the scope may not read is treated as unknown. When a call returns, the next search sees
    what it wrote. If the index fails, the call raises and the stored blocks stay: the next call for the tenant, or the
    next start, brings the index up to date.
    """

    def __init__(
        self,
        *,
        store: WritableBlocks,
        index: Index,
        preparer: Preparer,
        on_removed: BlockRemovalListener = keep_block_copies,
    ) -> None:
        self._store = store
        self._preparer = preparer
        self._index_sync = IndexSync(store=store, index=index, preparer=preparer)
        self._on_removed = on_removed

    async def put(
        self, scope: Scope, blocks: Sequence[Block], *, now: datetime, importing: ImportAccess | None = None
    ) -> PutResult:
        """Write all of these blocks or none; parents may be in the same call, in any order.

        An import is nobody's edit.

        A block is changed when its type, text, parent, order, properties, readers or a given author differ; a different
        `modified` alone is not a change. Putting a deleted block restores it without the blocks below it. An import
        never widens access; see `ImportAccess`. Raises `InvalidRequest` for a block that cannot be stored.
        """
        checked = await self._preparer.thread.run(
            lambda: check_blocks(blocks, imported=importing is not None), blocks, lambda block: len(block.text)
        )
        for block in checked:
            self._preparer.check_readers(f"block {block.id!r}", block.readers or ())
            self._preparer.check_readers(f"`editors` of block {block.id!r}", block.editors or ())
            self._preparer.check_readers(f"`managers` of block {block.id!r}", block.managers or ())
        done = await self._store.put(scope, checked, now=now, importing=importing)
        await self._index_sync.catch_up(scope.tenant)
        return done

    async def update(
        self, scope: Scope, block_id: str, change: Callable[[Block], Block], *, now: datetime, version: int = 0
    ) -> Block:
        """Read a block, change it and write it back; returns what is stored then.

        Raises `Conflict` if `version` is given and is not the stored one. Without a version, a block that is written
        in between is read and changed again, so that no write is lost. A block that the scope may not read any more
        is returned as it was written.
        """
        for attempt in range(_MAX_ATTEMPTS):
            before = await self._get(scope, block_id)
            expected = version or before.version
            after = replace(change(before), version=expected, modified=None)
            try:
                await self.put(scope, [after], now=now)
            except Conflict:
                if version or attempt == _MAX_ATTEMPTS - 1:
                    raise
                continue
            stored = await self._store.get(scope, [block_id])
            return stored[0] if stored else replace(after, version=expected + 1, modified=now)
        raise AssertionError("the last attempt returns or raises")

    async def restore_version(
        self, scope: Scope, block_id: str, version: int, *, now: datetime, expected: int = 0
    ) -> Block:
        """Write the type, text and properties of an earlier version as a new one; returns the block."""
        kept = await self._store.history(scope, block_id, limit=_ALL_VERSIONS)
        found = next((each for each in kept if each.version == version), None)
        if found is None:
            raise NotFound(f"block {block_id!r} has no version {version}")
        said = {"type": found.type, "text": found.text, "properties": found.properties}
        return await self.update(scope, block_id, lambda block: replace(block, **said), now=now, version=expected)

    async def copy(
        self,
        scope: Scope,
        block_id: str,
        *,
        parent: str | None,
        order: float,
        now: datetime,
        values: Mapping[str, str] | None = None,
    ) -> Block:
        """Copy a block with all below it that the scope may read, under new ids; returns the copy.

        `{{name}}` in texts is replaced by a value. The copy is the caller's and has the readers of its new place.
        """
        root = await self._get(scope, block_id)
        below = await self._store.subtree(scope, block_id, depth=_MAX_DEPTH, limit=MAX_COPIED_BLOCKS + 1)
        if len(below) > MAX_COPIED_BLOCKS:
            raise InvalidRequest(f"block {block_id!r} has more than {MAX_COPIED_BLOCKS} blocks below it")
        names = {block.id: uuid4().hex for block in (root, *below)}
        filled = [_copy_block(block, names, values or {}) for block in (root, *below)]
        top = replace(filled[0], parent=parent, order=order)
        await self.put(scope, [top, *filled[1:]], now=now)
        return await self._get(scope, top.id)

    async def _get(self, scope: Scope, block_id: str) -> Block:
        found = await self._store.get(scope, [block_id])
        if not found:
            raise NotFound(f"there is no block {block_id!r}")
        return found[0]

    async def move(
        self,
        scope: Scope,
        block_id: str,
        *,
        parent: str | None,
        order: float = 0.0,
        now: datetime,
        version: int = 0,
    ) -> None:
        """Move a block with its subtree under another parent, or make it a root; inherited readers are updated.

        Raises `Conflict` if `version` is given and is not the stored one.
        """
        check_order(order)
        check_targets([block_id, *([parent] if parent is not None else [])])
        await self._store.move(scope, block_id, parent=parent, order=order, now=now, version=version)
        await self._index_sync.catch_up(scope.tenant)

    async def delete(
        self, scope: Scope, ids: Sequence[str], *, now: datetime, versions: Mapping[str, int] | None = None
    ) -> Receipt:
        """Soft-delete these blocks with all below them that the scope may edit; the receipt lists them and copies.

        Their texts stay in the trash until `purge`, and are in no kept build from now on. Raises `Conflict` for a block
        whose version is not that of `versions`.
        """
        names = _unique_ids(ids)
        near = await self._store.relatives(scope, names)
        gone = await self._store.delete(scope, names, now=now, versions=versions)
        await self._index_sync.catch_up(scope.tenant)
        return (await self._on_removed(scope, near, ())).add(BLOCKS.name, gone)

    async def erase(self, scope: Scope, ids: Sequence[str]) -> Sequence[str]:
        """Delete these blocks permanently with all below them, deleted or not; returns the ids of what is gone.

        Copies of their texts are up to the caller: `on_removed` is not called.
        """
        gone = await self._store.erase(scope, _unique_ids(ids))
        await self._index_sync.catch_up(scope.tenant)
        await self._store.scrub()  # the queue of index writes held the ids until now
        return gone

    async def restore(self, scope: Scope, ids: Sequence[str]) -> int:
        """Restore these blocks with everything deleted in the same call, links included.

        Returns how many of the restored blocks the scope may read.
        """
        back = await self._store.restore(scope, _unique_ids(ids))
        await self._index_sync.catch_up(scope.tenant)
        return back

    async def view(self, scope: Scope, block_id: str, *, now: datetime) -> None:
        """Record that the scope's user viewed a block; raises `NotFound` for an unknown one."""
        check_targets([block_id])
        await self._store.view(scope, block_id, now=now)

    async def note(self, scope: Scope, deeds: Sequence[Activity]) -> None:
        """Record edits and views that users made elsewhere, as an imported workspace reports them."""
        check_targets([deed.block_id for deed in deeds])
        await self._store.note(scope, deeds)

    async def purge(self, scope: Scope, *, before: datetime) -> Receipt:
        """Delete permanently what was soft-deleted before `before` and the scope manages; the receipt lists it."""
        erased = await self._store.trash(scope, before=before)
        await self._store.purge(scope, before=before)
        return (await self._on_removed(scope, erased, erased)).add(BLOCKS.name, erased)

    async def list_trash(self, scope: Scope, *, before: datetime) -> Sequence[str]:
        """The ids of all blocks that `purge` would delete permanently."""
        return await self._store.trash(scope, before=before)

    async def list_unmanaged(self, scope: Scope, ids: Sequence[str]) -> Sequence[str]:
        """Those of these blocks that the scope may read but does not manage."""
        rights = await self.get_rights(scope, ids)
        return [name for name, right in rights.items() if right is not BlockRight.MANAGE]

    async def get_rights(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockRight]:
        """By id, the highest right of the scope to those of these blocks that it may read."""
        return await self._store.rights(scope, _unique_ids(ids))

    async def list_private(self, scope: Scope) -> Sequence[str]:
        """The ids of all blocks, in the trash or not, that only the scope's user may read."""
        return await self._store.private(scope)

    async def list_relatives(self, scope: Scope, ids: Sequence[str]) -> Sequence[str]:
        """Ids of these blocks, of all above and below them, and of those that link to them."""
        return await self._store.relatives(scope, _unique_ids(ids))

    async def find_pages(self, scope: Scope, names: Sequence[str]) -> Mapping[str, Block]:
        """By name, the page, else the database, else the row with that title or alias."""
        return await self._store.find_pages(scope, _unique_ids(names))

    async def catch_up(self) -> int:
        """Write the search records left stale by an earlier process or a failed index; returns how many."""
        return await self._index_sync.catch_up()

    async def finish(self) -> None:
        """Wait until running index writes are done, including those whose caller was cancelled."""
        await self._index_sync.finish()


_MAX_ATTEMPTS = 5
_ALL_VERSIONS = 1 << 20
_MAX_DEPTH = 1_000
MAX_COPIED_BLOCKS = 2_000
"""Blocks that are copied with one block."""

_REFERENCED_ID = re.compile(r"(\(\(|\]\(block:)([^()\s]+)(\)\)|\))")
_PLACEHOLDER = re.compile(r"\{\{\s*([\w -]+?)\s*\}\}")


def _copy_block(block: Block, names: Mapping[str, str], values: Mapping[str, str]) -> Block:
    """The block under its new id; references inside the copy lead to the copies."""
    linked = _REFERENCED_ID.sub(lambda found: f"{found[1]}{names.get(found[2], found[2])}{found[3]}", block.text)
    return Block(
        id=names[block.id],
        type=block.type,
        text=_PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), linked),
        parent=names.get(block.parent or ""),
        order=block.order,
        properties={
            name: _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), value)
            if isinstance(value, str)
            else value
            for name, value in block.properties.items()
        },
    )


def _unique_ids(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ids))


BATCH_SIZE = 512
"""Blocks whose search records are written in one batch."""

_Refusals: TypeAlias = dict[tuple[str, str], RequestError]
"""Errors of blocks that the index refuses, by tenant and id."""


class IndexSync:
    """Brings the search index up to date with the block store, one run at a time.

    Runs for one tenant are serialized so that an older record never overwrites a newer one.

    The store lists blocks as stale until they are settled. Writing a record twice has no effect, so a process may stop
    between any two steps. Several processes may sync the same store: `settle` returns the blocks that changed in the
    meantime, and they are written again, so the last writer always writes the current state.
    """

    def __init__(self, *, store: WritableBlocks, index: Index, preparer: Preparer) -> None:
        self._store = store
        self._index = index
        self._preparer = preparer
        self._reader = FactsComputer(preparer.redactor, preparer.counters)
        self._turns = WeakValueDictionary[str | None, asyncio.Lock]()
        self._running: set[asyncio.Task[tuple[int, _Refusals]]] = set()
        self._made = EnsuredCollection(index, BLOCKS)

    async def catch_up(self, tenant: str | None = None) -> int:
        """Write the stale search records of a tenant, or of all; returns how many blocks were processed.

        A block that the index refuses does not hold up others: it is not searchable, and its error is raised at the end
        if a tenant is given. When the index fails, the blocks stay stale until the next call. A run continues when its
        caller is cancelled, and the next run for the same tenant starts only after it has ended; others do not wait.
        """
        turn = self._turns.get(tenant)
        if turn is None:
            turn = self._turns[tenant] = asyncio.Lock()
        await turn.acquire()
        run = asyncio.create_task(self._sync(tenant), name="contexture-follow")
        self._running.add(run)
        run.add_done_callback(partial(self._on_done, turn))
        done, refused = await asyncio.shield(run)
        if refused and tenant is not None:
            raise next(iter(refused.values()))
        return done

    async def finish(self) -> None:
        """Wait until the current runs have ended, so that nothing they need is closed before."""
        while self._running:
            await asyncio.wait(self._running)

    def _on_done(self, turn: asyncio.Lock, run: asyncio.Task[tuple[int, _Refusals]]) -> None:
        self._running.discard(run)
        turn.release()
        if not run.cancelled():
            run.exception()  # avoids a warning when the caller is gone; failed blocks stay stale for the next run

    async def _sync(self, tenant: str | None) -> tuple[int, _Refusals]:
        """Write the stale blocks; returns how many were processed, and the refusals of the index."""
        done = 0
        refused: _Refusals = {}
        while found := await self._store.stale(limit=BATCH_SIZE, tenant=tenant):
            done += len(found)
            while found:
                for each in found:
                    refused.pop((each.tenant, each.id), None)  # it may have been refused in an earlier state
                for of, some in groupby(sorted(found, key=_tenant_key), _tenant_key):
                    refused |= await self._write_or_split(of, list(some))
                facts = await self._preparer.thread.map(self._with_facts, found, _text_length)
                found = await self._store.settle(facts)
        return done, refused

    async def _write_or_split(self, tenant: str, stale: Sequence[StaleBlock]) -> _Refusals:
        """Write a batch, or its blocks one by one if the batch is refused; returns the refusals."""
        try:
            await self._write(tenant, stale)
        except RequestError as refusal:
            if len(stale) == 1:
                return {(tenant, stale[0].id): refusal}
            results = [await self._write_or_split(tenant, [each]) for each in stale]
            return {key: each for some in results for key, each in some.items()}
        return {}

    async def _write(self, tenant: str, stale: Sequence[StaleBlock]) -> None:
        readers = tuple(sorted({name for each in stale for name in each.readers}))
        keeper = ReadersScope(tenant=tenant, user="keeper", readers=readers)
        await self._made.ensure(keeper)
        made = await self._preparer.thread.map(block_to_record, stale, _text_length)
        records = {each.id: record for each, record in zip(stale, made, strict=True)}
        kept = [record for record in records.values() if record is not None]
        known = {record.id: record for record in await self._index.get(keeper, BLOCKS.name, list(records))}
        gone = [name for name in known if records[name] is None]
        fresh = [record for record in kept if not _is_indexed(known.get(record.id), record)]
        if gone:
            await self._index.delete(keeper, BLOCKS.name, gone)
            await self._preparer.forget([known[name] for name in gone])  # the last time that their texts are known
        if fresh:
            await self._index.upsert(keeper, BLOCKS.name, await self._preparer.prepare(fresh))

    def _with_facts(self, stale: StaleBlock) -> StaleBlock:
        """The block with its facts computed."""
        return replace(stale, facts=self._reader.compute(stale))


def _tenant_key(stale: StaleBlock) -> str:
    return stale.tenant


def _text_length(stale: StaleBlock) -> int:
    """How long the texts are that the facts about a block are computed from."""
    blocks = (*([stale.block] if stale.block else ()), *(stale.below or ()))
    return sum(len(block.text) for block in blocks)


def _is_indexed(known: Record | None, record: Record) -> bool:
    """Whether the index already has this record; the language is not compared, as it is detected on writing."""
    if known is None:
        return False
    return (known.text, known.title, known.kind, known.time, set(known.acl), dict(known.payload)) == (
        record.text,
        record.title,
        record.kind,
        record.time,
        set(record.acl),
        dict(record.payload),
    )


_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)
_DUE_TYPES = (BlockType.TODO, BlockType.KANBAN_CARD)
MAX_ID_LENGTH = 512
"""Maximum length of a block id, in characters."""


def check_blocks(blocks: Sequence[Block], *, imported: bool = False) -> list[Block]:
    """The blocks with invalid Unicode repaired.

    Raises `InvalidRequest` for a block that cannot be stored, naming its position and field. An import keeps a `due`
    that is not a date, as its source has it.
    """
    seen: dict[str, int] = {}
    for at, block in enumerate(blocks):
        problem = _find_problem(block) or ("" if imported else _find_due_problem(block))
        if problem:
            raise InvalidRequest(f"blocks[{at}]: {problem}")
        if block.id in seen:
            raise InvalidRequest(f"blocks[{at}]: block {block.id!r} is already blocks[{seen[block.id]}]")
        seen[block.id] = at
    return [_repair_block(block) for block in blocks]


def check_order(order: float) -> None:
    """Raise `InvalidRequest` for an order among siblings that is not finite."""
    if not math.isfinite(order):
        raise InvalidRequest(f"`order` must be a finite number, not {order!r}")


def check_targets(ids: Sequence[str]) -> None:
    """Raise `InvalidRequest` for ids that no block can have."""
    for name in ids:
        if not _is_valid_name(name):
            raise InvalidRequest(f"a block id is a string of 1 to {MAX_ID_LENGTH} characters, not {name!r}")


def _find_problem(block: Block) -> str:
    if not _is_valid_name(block.id):
        return f"`id` must be a string of 1 to {MAX_ID_LENGTH} characters without NUL, not {block.id!r}"
    if block.parent is not None and not _is_valid_name(block.parent):
        return f"`parent` of block {block.id!r} is not a valid block id: {block.parent!r}"
    if block.parent == block.id:
        return f"block {block.id!r} cannot be its own parent"
    if not math.isfinite(block.order):
        return f"`order` of block {block.id!r} must be a finite number, not {block.order!r}"
    return _find_readers_problem(block)


def _find_due_problem(block: Block) -> str:
    due = block.properties.get("due")
    if due is None or due == "" or block.type not in _DUE_TYPES:
        return ""
    return (
        ""
        if is_due_date(due)
        else f"`due` of block {block.id!r} must be an ISO date or time such as 2026-06-01, not {due!r}"
    )


def _find_readers_problem(block: Block) -> str:
    if block.readers is None:
        return ""
    if not block.readers:
        return f"`readers` of block {block.id!r} is empty, so nobody could read it; leave it out to inherit"
    strange = next((name for name in block.readers if not (_PRINCIPAL.fullmatch(name) and _is_valid_name(name))), None)
    if strange is None:
        return ""
    return f"`readers` of block {block.id!r} may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"


def _is_valid_name(name: str) -> bool:
    return 0 < len(name) <= MAX_ID_LENGTH and is_valid_unicode(name) and "\0" not in name


def _repair_block(block: Block) -> Block:
    properties = _repair_properties(block)
    if is_valid_unicode(block.text) and is_valid_unicode(block.author) and properties is block.properties:
        return block
    return replace(block, text=repair_text(block.text), author=repair_text(block.author), properties=properties)


def _repair_properties(block: Block) -> Mapping[str, Json]:
    """The properties with invalid Unicode repaired.

    Returns the same object when nothing changes; raises `InvalidRequest` when they are not JSON.
    """
    if not block.properties:
        return block.properties
    try:
        encoded = json.dumps(dict(block.properties), allow_nan=False, ensure_ascii=False)
        return block.properties if is_valid_unicode(encoded) else json.loads(repair_text(encoded))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"the properties of block {block.id!r} cannot be stored: {failure}") from failure
