"""The workspace: blocks are written to their store, which is the truth, and from there to the search index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from contexture.blocks.check import check_order, check_targets, checked
from contexture.blocks.follow import Follower
from contexture.ports import Index
from contexture.retrieval.prepare import Preparer
from contexture.types import Scope
from contexture.workspace import Activity, Block, Put, WritableBlocks

__all__ = ["Put", "Workspace"]


class Workspace:
    """Writes blocks for one scope at a time; each call is whole or not at all.

    Whoever may read a block may write it, and below it; a block whose `readers` is None is read by whoever reads its
    parent. What the scope may not read is answered as unknown. When a call returns, the next search sees what it wrote.
    A call whose index fails raises, and what it stored stays: the next call, or the next opening, brings the index up
    to date.
    """

    def __init__(self, *, store: WritableBlocks, index: Index, preparer: Preparer) -> None:
        self._store = store
        self._follower = Follower(store=store, index=index, preparer=preparer)

    async def put(self, scope: Scope, blocks: Sequence[Block], *, now: datetime) -> Put:
        """Write all of these or none; parents may come in the same call, in any order.

        A block is altered when its type, text, parent, order, properties or readers differ, or an author it names;
        another `modified` alone alters nothing. A deleted block that is put again is back, without what was below it.
        """
        done = await self._store.put(scope, checked(blocks), now=now)
        await self._follower.catch_up(scope.tenant)
        return done

    async def move(self, scope: Scope, block_id: str, *, parent: str | None, order: float = 0.0) -> None:
        """Put a block and all below it under another parent, or make it a root; inherited readers follow."""
        check_order(order)
        check_targets([block_id, *([parent] if parent is not None else [])])
        await self._store.move(scope, block_id, parent=parent, order=order)
        await self._follower.catch_up(scope.tenant)

    async def delete(self, scope: Scope, ids: Sequence[str], *, now: datetime) -> int:
        """Remove these and all below them until they are restored; returns how many the scope could read."""
        gone = await self._store.delete(scope, _distinct(ids), now=now)
        await self._follower.catch_up(scope.tenant)
        return gone

    async def restore(self, scope: Scope, ids: Sequence[str]) -> int:
        """Bring back all that went with each of these in one deletion, links included; returns how many it reads."""
        back = await self._store.restore(scope, _distinct(ids))
        await self._follower.catch_up(scope.tenant)
        return back

    async def view(self, scope: Scope, block_id: str, *, now: datetime) -> None:
        """Note that the scope's user looked at a block; an unknown one is a `NotFound`."""
        check_targets([block_id])
        await self._store.view(scope, block_id, now=now)

    async def note(self, scope: Scope, deeds: Sequence[Activity]) -> None:
        """Note edits and views that users made elsewhere, as an imported workspace tells them."""
        check_targets([deed.block_id for deed in deeds])
        await self._store.note(scope, deeds)

    async def purge(self, scope: Scope, *, before: datetime) -> int:
        """Forget for good what was deleted before then; returns how many blocks the scope could read."""
        return await self._store.purge(scope, before=before)

    async def find_pages(self, scope: Scope, names: Sequence[str]) -> Mapping[str, Block]:
        """By name, the page, else the database, else the row that has it as its title or as an alias."""
        return await self._store.find_pages(scope, _distinct(names))

    async def catch_up(self) -> int:
        """Write the search records that an earlier process, or a failing index, left behind; returns how many."""
        return await self._follower.catch_up()

    async def finish(self) -> None:
        """Wait until the search records that are being written, also for callers that went away, are written."""
        await self._follower.finish()


def _distinct(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ids))
