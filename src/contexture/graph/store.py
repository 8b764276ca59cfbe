"""What articles say about named things: extracted once, kept, and read only as far as the asker may see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from contexture.errors import RedactionFailed, SourceError
from contexture.graph.extract import extracted, readable
from contexture.graph.names import key_of
from contexture.ledger import Trace
from contexture.pipeline.redact import scanned
from contexture.ports import EntityRecognizer, GraphCache, Index, Redactor
from contexture.types import Extracted, Record, Scope

ARTICLES = "articles"

_FORM = 1  # of what is kept; another number makes everything be read again
_SOURCE = "graph"


class GraphStore:
    """Entities and relations of the records of one collection.

    What is kept belongs to a tenant and says nothing about readers: each call asks the index which of the records the
    scope may see, and in which version, so nothing of a hidden, changed or deleted record is ever used. A cache or a
    recogniser that fails is named in the trace; plain capitalised phrases then do the recogniser's work.
    """

    def __init__(
        self,
        *,
        index: Index,
        cache: GraphCache,
        recognizer: EntityRecognizer,
        fallback: EntityRecognizer,
        redactor: Redactor,
        collection: str = ARTICLES,
    ) -> None:
        self._index = index
        self._cache = cache
        self._recognizer = recognizer
        self._fallback = fallback
        self._redactor = redactor
        self._collection = collection
        self._version = f"{_FORM}/{recognizer.name}/{redactor.rules}"
        self._reading = asyncio.Lock()

    async def extract(
        self, scope: Scope, ids: Sequence[str], *, trace: Trace, learn: bool = True
    ) -> Sequence[Extracted]:
        """What the records say that the scope may see, in the order asked for.

        With `learn` off only what is kept is given, and nothing is read anew.
        """
        records = await self._index.get(scope, self._collection, list(dict.fromkeys(ids))) if ids else ()
        kept = await self._kept(scope, records, trace)
        if learn:
            kept = {**kept, **await self._learnt(scope, [each for each in records if each.id not in kept], trace)}
        return [kept[record.id] for record in records if record.id in kept]

    async def mentioning(self, scope: Scope, names: Sequence[str], *, most: int, trace: Trace) -> Sequence[str]:
        """Ids of at most `most` records with one of these names that are kept and that the scope may see, in order."""
        keys = sorted({key for name in names if (key := key_of(name))})
        try:
            ids = await self._cache.mentioning(scope.tenant, self._version, keys) if keys else ()
        except SourceError as failure:
            trace.degraded(_SOURCE, failure)
            return ()
        found: list[str] = []
        for at in range(0, len(ids), most):  # filled up from those that may be seen, however many may not
            seen = await self._index.get(scope, self._collection, ids[at : at + most])
            found += [record.id for record in seen]
            if len(found) >= most:
                break
        return found[:most]

    async def forget(self, scope: Scope, ids: Sequence[str]) -> None:
        """Keep nothing of these records."""
        await self._cache.forget(scope.tenant, ids)

    async def _kept(self, scope: Scope, records: Sequence[Record], trace: Trace) -> Mapping[str, Extracted]:
        try:
            found = await self._cache.get(scope.tenant, self._version, [record.id for record in records])
        except SourceError as failure:
            trace.degraded(_SOURCE, failure)
            return {}
        hashes = {record.id: record.hash for record in records}
        return {key: each for key, each in found.items() if each.hash == hashes[key]}

    async def _learnt(self, scope: Scope, records: Sequence[Record], trace: Trace) -> Mapping[str, Extracted]:
        if not records:
            return {}
        async with self._reading:  # the models are not made for two readers at once
            found, whole = await asyncio.to_thread(self._read, records, trace)
        if whole:
            try:
                await self._cache.put(scope.tenant, self._version, found)
            except SourceError as failure:
                trace.degraded(_SOURCE, failure)
        return {each.record_id: each for each in found}

    def _read(self, records: Sequence[Record], trace: Trace) -> tuple[list[Extracted], bool]:
        """What the records say, and whether the recogniser that was chosen read all of it."""
        try:
            return self._read_by(self._recognizer, records, trace), True
        except SourceError as failure:
            trace.degraded("entities", failure)
            return self._read_by(self._fallback, records, trace), False

    def _read_by(self, recognizer: EntityRecognizer, records: Sequence[Record], trace: Trace) -> list[Extracted]:
        found: list[Extracted] = []
        for record in records:
            try:
                text = readable(record.text, scanned(record.text, self._redactor, lang=record.lang))
            except RedactionFailed as failure:
                trace.degraded(f"redactor:{type(self._redactor).__name__}", str(failure))
                continue
            found.append(extracted(record.id, record.hash, text, recognizer.find(text, record.lang)))
        return found
