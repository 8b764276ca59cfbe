"""One collection in Qdrant: made, filled, and asked how far it has come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import cast

from qdrant_client import models

from contexture.adapters.index.filters import BUILT_IN, key_of
from contexture.adapters.index.qdrant.client import Server, is_passage
from contexture.adapters.index.qdrant.points import point_of
from contexture.adapters.index.truth import Row, State
from contexture.errors import SourceError, SourceTimeout
from contexture.types import FieldType

Tenants = Callable[[int], str]
"""Says by access class how its tenant is called in Qdrant."""

NOTHING = State(-1, "")
"""What a box has seen that was never filled."""

_BATCH = 256  # points in a request: about ten kilobytes each
_ROOM = 8_000_000  # bytes in a request, as far as they can be told beforehand; Qdrant refuses more than 32 MB
_MARK = 0  # no passage has this number
_MARKS = "marks"  # the shard key of that point, which belongs to no tenant
_SEQ, _MARKED = "seq", "mark"
_FIELDS = "fields"


class Box:
    """The points of one collection, and one more that says up to which write they have come.

    Its name tells which store it belongs to and for which vectors it was made, so that stores may share a server and
    another layout gets a collection of its own. It is `sound` until Qdrant refuses a question about it;
    `trouble` is how the last question failed.
    """

    def __init__(
        self,
        server: Server,
        store: str,
        collection: str,
        columns: Mapping[str, FieldType],
        vectors: Mapping[str, int],
    ) -> None:
        self.columns = dict(columns)
        self.sound = True
        self.trouble = ""
        self._server = server
        self._vectors = dict(vectors)
        self._fields = {**columns, **BUILT_IN}
        layout = json.dumps([store, collection, self._vectors, server.options.by_tenant], sort_keys=True)
        self.name = f"contexture_{collection}_{hashlib.sha256(layout.encode()).hexdigest()[:12]}"
        self._origin = {"collection": collection, "store": store}
        self._keys: set[str] = set()
        self._noted: set[str] = set()

    # --- how it is made ---

    def prepare(self) -> None:
        """Make it where it is missing, and let filters be fast before it has points: that is when it costs least."""
        noted = self._server.metadata(self.name)
        if noted is None:
            self._server.create(self.name, self._vectors, self._origin)
            noted = self._origin
        if _FIELDS not in noted:
            self._server.index_permissions(self.name)
        fields = noted.get(_FIELDS)
        self._noted = set(map(str, cast("list[object]", fields))) if isinstance(fields, list) else set()
        for name, kind in self.lacking.items():
            self._server.index_field(self.name, key_of(name), kind)
        if self._server.options.by_tenant:
            self._ensure(_MARKS)

    @property
    def whole(self) -> bool:
        """Whether its points once had all the fields that there were; those declared since may be lacking."""
        return bool(self._noted)

    @property
    def lacking(self) -> dict[str, FieldType]:
        """The fields that its points may not have yet, though filters may name them."""
        return {name: kind for name, kind in self._fields.items() if name not in self._noted}

    def complete(self) -> None:
        """All points have all fields now: note it."""
        self._server.note(self.name, {_FIELDS: sorted(self._fields)})
        self._noted = set(self._fields)

    # --- how it is filled ---

    @property
    def seen(self) -> State:
        """Up to which write it has come; `NOTHING` when it has not been filled yet, or does not say."""
        shard = _MARKS if self._server.options.by_tenant else None
        noted = self._server.payload(self.name, _MARK, shard)
        try:
            return State(int(noted[_SEQ]), str(noted[_MARKED]))
        except (KeyError, TypeError, ValueError):
            return NOTHING

    def apply(
        self,
        added: Iterable[Row],
        removed: Sequence[int],
        state: State,
        tenants: Tenants,
        owners: frozenset[str] | None = None,
    ) -> None:
        """Take committed changes; when this returns it has everything up to `state`, and a search sees it.

        `owners` are the tenants of what was removed; None when they are not known.
        """
        operations = self._removals(removed, owners)
        for at, batch in enumerate(_batches(added)):
            if at:
                self._server.update(self.name, operations)
                operations = []
            operations += self._additions(batch, tenants)
        self._server.update(self.name, [*operations, self._marked(state)])

    def count(self) -> int:
        """How many passages it holds."""
        return self._server.count(self.name) - 1

    def sweep(self, known: Callable[[Sequence[int]], Mapping[int, object]]) -> None:
        """Remove the points of passages that are not known, and of whatever is no passage."""
        for page in self._server.ids(self.name):
            kept = known([pid for pid in page if is_passage(pid)])
            gone = [pid for pid in page if pid not in kept and pid != _MARK]
            if gone:
                self._server.update(self.name, self._removals(gone, None))

    # --- how it is asked ---

    def ask(self, requests: Mapping[str, models.QueryRequest], tenant: str) -> dict[str, dict[int, float]]:
        """What each request finds among a tenant's points, best first; all of them are asked at once."""
        shard = tenant if self._server.options.by_tenant else None
        asked = [request.model_copy(update={"shard_key": shard}) for request in requests.values()]
        try:
            with self._server.trying():
                found = self._server.ask(self.name, asked)
        except SourceError as failure:
            self.trouble = str(failure)
            self.sound = isinstance(failure, SourceTimeout)  # else Qdrant may have lost it, or come back with less
            raise
        self.trouble = ""
        return dict(zip(requests, found, strict=True))

    def params(self, *, exact: bool, effort: int) -> models.SearchParams | None:
        """How a dense search is made."""
        return self._server.params(exact=exact, effort=effort)

    # --- inside ---

    def _removals(
        self, removed: Sequence[models.ExtendedPointId], owners: frozenset[str] | None
    ) -> list[models.UpdateOperation]:
        """Passages of unknown owners are removed from every tenant's shards: a shard that has none does nothing."""
        if not removed:
            return []
        if not self._server.options.by_tenant:
            return [models.DeleteOperation(delete=models.PointIdsList(points=list(removed)))]
        if owners is None:
            self._keys = self._server.shard_keys(self.name)
        keys: list[models.ShardKey] = [*sorted((owners or self._keys) - {_MARKS})]
        points = models.PointIdsList(points=list(removed), shard_key=keys)
        return [models.DeleteOperation(delete=points)] if keys else []

    def _additions(self, rows: Sequence[Row], tenants: Tenants) -> list[models.UpdateOperation]:
        if not self._server.options.by_tenant:
            return [self._upsert(rows, tenants, None)] if rows else []
        by_tenant = groupby(sorted(rows, key=lambda row: tenants(row.access)), key=lambda row: tenants(row.access))
        return [self._upsert(list(some), tenants, self._ensure(key)) for key, some in by_tenant]

    def _upsert(self, rows: Sequence[Row], tenants: Tenants, shard: str | None) -> models.UpdateOperation:
        points = [point_of(row, tenants(row.access), self._fields, self._vectors) for row in rows]
        return models.UpsertOperation(upsert=models.PointsList(points=points, shard_key=shard))

    def _marked(self, state: State) -> models.UpdateOperation:
        point = models.PointStruct(id=_MARK, vector={}, payload={_SEQ: state.seq, _MARKED: state.mark})
        shard = _MARKS if self._server.options.by_tenant else None
        return models.UpsertOperation(upsert=models.PointsList(points=[point], shard_key=shard))

    def _ensure(self, key: str) -> str:
        """The shard key, made where it is missing; another process may have made it."""
        if key not in self._keys:
            self._keys = self._server.shard_keys(self.name)
        if key not in self._keys:
            self._server.add_shard_key(self.name, key)
            self._keys.add(key)
        return key


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows that fit into a request together, or one that does not."""
    batch, room = list[Row](), _ROOM
    for row in rows:
        size = _size(row)
        if batch and (len(batch) == _BATCH or size > room):
            yield batch
            batch, room = [], _ROOM
        batch.append(row)
        room -= size
    yield batch


def _size(row: Row) -> int:
    """About how many bytes of JSON a point takes, seldom less: text is escaped, and numbers are written out."""
    return 3 * len(row.header) + 5 * len(row.vectors) + 5 * len(row.facts.terms)
