"""Prepares stored records again, so that vectors and terms of an older version are replaced, a batch at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import TypedDict

from contexture.errors import InvalidRequest, Outdated
from contexture.ports import Index
from contexture.results import JsonResult
from contexture.retrieval.message_context import MessageContexts
from contexture.retrieval.prepare import CutFunction, Preparer
from contexture.types import Record, Scope

MAX_BATCH = 64

ReindexFunction: TypeAlias = Callable[[Scope, Sequence[Record]], Awaitable[None]]
"""Computes what a collection holds of these records again and writes them, where a `Preparer` cannot."""


class ReindexStepJson(TypedDict):
    """How many records one step prepared again, and where the next one continues; `done` once nothing is left."""

    records: int
    collection: str
    after: str
    done: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReindexStep(JsonResult):
    """What one step prepared again, and where the next one continues; `done` once nothing is left."""

    records: int
    collection: str
    after: str
    done: bool

    def json_form(self) -> ReindexStepJson:
        """The same as an object."""
        return {"records": self.records, "collection": self.collection, "after": self.after, "done": self.done}


class Reindexer:
    """Prepares the records that a scope may read again, collection by collection, in the order of their ids.

    It runs beside searches and writes: a record that is written meanwhile is left as it was written. `cuts` say, by
    collection, how its records are cut into passages where that is not by sentences and length; `others` do it for
    collections that hold more than the preparer computes.
    """

    def __init__(
        self,
        index: Index,
        preparer: Preparer,
        cuts: Mapping[str, CutFunction] | None = None,
        others: Mapping[str, ReindexFunction] | None = None,
    ) -> None:
        self._index = index
        self._cuts = dict(cuts or {})
        self._preparer = preparer
        self._contexts = MessageContexts(index, preparer.vectors)
        self._others = dict(others or {})

    async def step(self, scope: Scope, *, collection: str = "", after: str = "", limit: int = MAX_BATCH) -> ReindexStep:
        """Prepare the next `limit` records after an id of a collection, or of the next collection if none is left.

        Raises `InvalidRequest` for a limit that is not between 1 and 64.
        """
        if not 1 <= limit <= MAX_BATCH:
            raise InvalidRequest(f"`limit` must lie between 1 and {MAX_BATCH}, not {limit}")
        names = sorted(each.name for each in await self._index.collections(scope))
        for name in (name for name in names if name >= collection):
            start = after if name == collection else ""
            records = await self._index.scroll(scope, name, after=start, limit=limit)
            if records:
                if name in self._others:
                    await self._others[name](scope, records)
                else:
                    await self._prepare_again(scope, name, records)
                return ReindexStep(records=len(records), collection=name, after=records[-1].id, done=False)
        return ReindexStep(records=0, collection="", after="", done=True)

    async def _prepare_again(self, scope: Scope, collection: str, records: Sequence[Record]) -> None:
        cut = self._cuts.get(collection)
        contexts = {} if cut else await self._contexts.find(scope, collection, records)
        prepared = await self._preparer.prepare(records, contexts, cut=cut, embedded=True)
        try:
            await self._index.upsert(scope, collection, prepared, unchanged=records)
        except Outdated:
            for record, item in zip(records, prepared, strict=True):
                with suppress(Outdated):  # written meanwhile, so it is of the current version
                    await self._index.upsert(scope, collection, [item], unchanged=[record])
