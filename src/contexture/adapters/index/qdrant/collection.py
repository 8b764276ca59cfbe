"""One collection on a Qdrant server: create, fill and search it, and read which writes it has applied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import cast

from qdrant_client import models

from contexture.adapters.index.filters import BUILT_IN, payload_key
from contexture.adapters.index.qdrant.client import QdrantServer, is_passage_id
from contexture.adapters.index.qdrant.points import build_point
from contexture.adapters.index.record_store import PassageRow, StoreState
from contexture.errors import SourceError, SourceTimeout
from contexture.types import FieldType

TenantLookup = Callable[[int], str]
"""Returns the key of the tenant in Qdrant for an access class."""

NEVER_FILLED = StoreState(-1, "")
"""Applied state of a collection that was never filled."""

_BATCH_POINTS = 256  # points in a request: about ten kilobytes each
_BATCH_BYTES = 8_000_000  # estimated bytes in a request; Qdrant refuses more than 32 MB
_STATE_POINT = 0  # id of the point that holds the applied state; no passage has it
_STATE_SHARD = "marks"  # the shard key of that point, which belongs to no tenant
_SEQ_KEY, _MARK_KEY = "seq", "mark"
_FIELDS_KEY = "fields"


class QdrantCollection:
    """The points of one collection, and one point that records up to which write they are filled.

    `is_trusted` is cleared when a search fails for another reason than a timeout; `last_error` is the error of the last
    search.
    """

    def __init__(
        self,
        server: QdrantServer,
        store: str,
        collection: str,
        columns: Mapping[str, FieldType],
        vectors: Mapping[str, int],
    ) -> None:
        self.columns = dict(columns)
        self.is_trusted = True
        self.last_error = ""
        self._server = server
        self._vectors = dict(vectors)
        self._fields = {**columns, **BUILT_IN}
        layout = json.dumps([store, collection, self._vectors, server.options.by_tenant], sort_keys=True)
        self.name = f"contexture_{collection}_{hashlib.sha256(layout.encode()).hexdigest()[:12]}"
        self._origin = {"collection": collection, "store": store}
        self._shard_keys: set[str] = set()
        self._complete_fields: set[str] = set()

    # --- creation ---

    def prepare(self) -> None:
        """Create the collection if missing, with payload indexes, which cost least before it has points."""
        noted = self._server.metadata(self.name)
        if noted is None:
            self._server.create(self.name, self._vectors, self._origin)
            noted = self._origin
        if _FIELDS_KEY not in noted:
            self._server.index_permissions(self.name)
        fields = noted.get(_FIELDS_KEY)
        self._complete_fields = set(map(str, cast("list[object]", fields))) if isinstance(fields, list) else set()
        for name, kind in self.missing_fields.items():
            self._server.index_field(self.name, payload_key(name), kind)
        if self._server.options.by_tenant:
            self._ensure_shard_key(_STATE_SHARD)

    @property
    def was_complete(self) -> bool:
        """Whether the points once had all fields declared by then; fields declared since may be missing."""
        return bool(self._complete_fields)

    @property
    def missing_fields(self) -> dict[str, FieldType]:
        """Fields that filters may name and that some points may not have yet."""
        return {name: kind for name, kind in self._fields.items() if name not in self._complete_fields}

    def mark_complete(self) -> None:
        """Record in the metadata that all points have all fields."""
        self._server.set_metadata(self.name, {_FIELDS_KEY: sorted(self._fields)})
        self._complete_fields = set(self._fields)

    # --- filling ---

    @property
    def applied_state(self) -> StoreState:
        """State of the record store that the points have applied; `NEVER_FILLED` when unknown."""
        shard = _STATE_SHARD if self._server.options.by_tenant else None
        noted = self._server.get_payload(self.name, _STATE_POINT, shard)
        try:
            return StoreState(int(noted[_SEQ_KEY]), str(noted[_MARK_KEY]))
        except (KeyError, TypeError, ValueError):
            return NEVER_FILLED

    def apply(
        self,
        added: Iterable[PassageRow],
        removed: Sequence[int],
        state: StoreState,
        tenants: TenantLookup,
        owners: frozenset[str] | None = None,
    ) -> None:
        """Apply committed changes; afterwards a search sees everything up to `state`.

        `owners` are the tenants of the removed passages; None when unknown.
        """
        operations = self._delete_operations(removed, owners)
        for at, batch in enumerate(_batches(added)):
            if at:
                self._server.update(self.name, operations)
                operations = []
            operations += self._upsert_operations(batch, tenants)
        self._server.update(self.name, [*operations, self._state_operation(state)])

    def count(self) -> int:
        """Number of passages in the collection."""
        return self._server.count(self.name) - 1

    def remove_unknown(self, known: Callable[[Sequence[int]], Mapping[int, object]]) -> None:
        """Remove points that are not passages, and those of passages that `known` does not return."""
        for page in self._server.iter_point_ids(self.name):
            kept = known([pid for pid in page if is_passage_id(pid)])
            gone = [pid for pid in page if pid not in kept and pid != _STATE_POINT]
            if gone:
                self._server.update(self.name, self._delete_operations(gone, None))

    # --- search ---

    def search(self, requests: Mapping[str, models.QueryRequest], tenant: str) -> dict[str, dict[int, float]]:
        """Scores by passage id for each request, among a tenant's points, best first; sent as one batch."""
        shard = tenant if self._server.options.by_tenant else None
        asked = [request.model_copy(update={"shard_key": shard}) for request in requests.values()]
        try:
            with self._server.probe():
                found = self._server.search(self.name, asked)
        except SourceError as failure:
            self.last_error = str(failure)
            self.is_trusted = isinstance(failure, SourceTimeout)  # else points may be lost
            raise
        self.last_error = ""
        return dict(zip(requests, found, strict=True))

    def search_params(self, *, exact: bool, effort: int) -> models.SearchParams | None:
        """Parameters of a dense search; None in local mode, which has none."""
        return self._server.search_params(exact=exact, effort=effort)

    # --- inside ---

    def _delete_operations(
        self, removed: Sequence[models.ExtendedPointId], owners: frozenset[str] | None
    ) -> list[models.UpdateOperation]:
        """Operations that remove points; with unknown owners, from all tenants' shards, which ignore unknown ids."""
        if not removed:
            return []
        if not self._server.options.by_tenant:
            return [models.DeleteOperation(delete=models.PointIdsList(points=list(removed)))]
        if owners is None:
            self._shard_keys = self._server.shard_keys(self.name)
        keys: list[models.ShardKey] = [*sorted((owners or self._shard_keys) - {_STATE_SHARD})]
        points = models.PointIdsList(points=list(removed), shard_key=keys)
        return [models.DeleteOperation(delete=points)] if keys else []

    def _upsert_operations(self, rows: Sequence[PassageRow], tenants: TenantLookup) -> list[models.UpdateOperation]:
        if not self._server.options.by_tenant:
            return [self._upsert_operation(rows, tenants, None)] if rows else []
        by_tenant = groupby(sorted(rows, key=lambda row: tenants(row.access)), key=lambda row: tenants(row.access))
        return [self._upsert_operation(list(some), tenants, self._ensure_shard_key(key)) for key, some in by_tenant]

    def _upsert_operation(
        self, rows: Sequence[PassageRow], tenants: TenantLookup, shard: str | None
    ) -> models.UpdateOperation:
        points = [build_point(row, tenants(row.access), self._fields, self._vectors) for row in rows]
        return models.UpsertOperation(upsert=models.PointsList(points=points, shard_key=shard))

    def _state_operation(self, state: StoreState) -> models.UpdateOperation:
        point = models.PointStruct(id=_STATE_POINT, vector={}, payload={_SEQ_KEY: state.seq, _MARK_KEY: state.mark})
        shard = _STATE_SHARD if self._server.options.by_tenant else None
        return models.UpsertOperation(upsert=models.PointsList(points=[point], shard_key=shard))

    def _ensure_shard_key(self, key: str) -> str:
        """The shard key, created if neither this nor another process has created it."""
        if key not in self._shard_keys:
            self._shard_keys = self._server.shard_keys(self.name)
        if key not in self._shard_keys:
            self._server.add_shard_key(self.name, key)
            self._shard_keys.add(key)
        return key


def _batches(rows: Iterable[PassageRow]) -> Iterator[list[PassageRow]]:
    """Batches of rows that fit in one request; a row that is too large is a batch of its own."""
    batch, room = list[PassageRow](), _BATCH_BYTES
    for row in rows:
        size = _estimate_bytes(row)
        if batch and (len(batch) == _BATCH_POINTS or size > room):
            yield batch
            batch, room = [], _BATCH_BYTES
        batch.append(row)
        room -= size
    yield batch


def _estimate_bytes(row: PassageRow) -> int:
    """Estimated bytes of a point as JSON, seldom too low: text is escaped, and numbers are written as decimals."""
    return 3 * len(row.header) + 5 * len(row.vectors) + 5 * len(row.facts.terms)
