"""One collection on a Qdrant server: passages as points, creation, filling, search, and which writes it has applied."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from qdrant_client import models

from contexture.adapters.index import codec
from contexture.adapters.index.filters import BUILT_IN, build_payload, payload_key
from contexture.adapters.index.qdrant.client import ACCESS, LEXICAL, TENANT, QdrantServer, is_passage_id
from contexture.adapters.index.quantized_vectors import quantize
from contexture.adapters.index.record_store import PassageRow, StoreState
from contexture.adapters.index.scoring import to_impacts
from contexture.errors import SourceError, SourceTimeout
from contexture.types import FieldType, Vector

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
_PLAIN_TENANT = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_DECIMALS = 6  # of a number that is sent; Qdrant stores it in one or two bytes, with fewer


class QdrantCollection:
    """The points of one collection, and one point that records up to which write they are filled.

    `is_trusted` is cleared when points may be lost: a search failed for another reason than a timeout, or the state
    that came with its answer is older than `applied`, the last one known to be applied. `last_error` is that of the
    last search.
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
        self.applied = NEVER_FILLED
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
        self._server.check_version()
        info = self._server.describe(self.name)
        noted: Mapping[str, Any] = self._origin
        if info is None:
            self._server.create(self.name, self._vectors, self._origin)
        else:
            noted = info.metadata
            confirmations = self._server.options.required_confirmations(info.copies)
            if confirmations != info.confirmations:
                self._server.set_confirmations(self.name, confirmations)
        if self._server.options.by_tenant:  # first: without any shard there is nothing to index
            self._ensure_shard_key(_STATE_SHARD)
        if _FIELDS_KEY not in noted:
            self._server.index_permissions(self.name)
        fields = noted.get(_FIELDS_KEY)
        self._complete_fields = set(map(str, cast("list[object]", fields))) if isinstance(fields, list) else set()
        for name, kind in self.missing_fields.items():
            self._server.index_field(self.name, payload_key(name), kind)

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

    def read_state(self) -> StoreState:
        """State of the record store that the points have applied; `NEVER_FILLED` when unknown. Also sets `applied`."""
        shard = _STATE_SHARD if self._server.options.by_tenant else None
        self.applied = _parse_state(self._server.get_payload(self.name, _STATE_POINT, shard))
        return self.applied

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
        self.applied = state

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

    def search(
        self, requests: Mapping[str, models.QueryRequest], tenant: str
    ) -> tuple[dict[str, dict[int, float]], StoreState]:
        """Scores by passage id for each request, among a tenant's points, best first; sent as one batch.

        Also returns the state that the points had applied: of a node that is behind, or of a restored snapshot, it is
        an older one than that of the last write.
        """
        by_tenant = self._server.options.by_tenant
        asked = [
            request.model_copy(update={"shard_key": tenant if by_tenant else None}) for request in requests.values()
        ]
        state = models.QueryRequest(
            filter=models.Filter(must=[models.HasIdCondition(has_id=[_STATE_POINT])]),
            with_payload=True,
            limit=1,
            shard_key=_STATE_SHARD if by_tenant else None,
        )
        known = self.applied
        try:
            with self._server.probe():
                found = self._server.search(self.name, asked, state)
        except SourceError as failure:
            self.last_error = str(failure)
            self.is_trusted = isinstance(failure, SourceTimeout)  # else points may be lost
            raise
        self.last_error = ""
        seen = _parse_state(found.payload)
        if seen.seq < known.seq:
            self.is_trusted = False
        return dict(zip(requests, found.scores, strict=True)), seen

    def match_substring(self, piece: str) -> models.Match:
        """The condition that a text field contains `piece`."""
        return self._server.match_substring(piece)

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


def _parse_state(payload: Mapping[str, Any]) -> StoreState:
    try:
        return StoreState(int(payload[_SEQ_KEY]), str(payload[_MARK_KEY]))
    except (KeyError, TypeError, ValueError):
        return NEVER_FILLED


def _estimate_bytes(row: PassageRow) -> int:
    """Estimated bytes of a point as JSON, seldom too low: text is escaped, and numbers are written as decimals."""
    return 3 * len(row.header) + 5 * len(row.vectors) + 5 * len(row.facts.terms)


def tenant_key(tenant: str) -> str:
    """Key of a tenant in Qdrant: its name, or a hash of a name with other characters than plain ones."""
    if _PLAIN_TENANT.fullmatch(tenant):
        return f"tenant.{tenant}"
    return f"hashed.{hashlib.sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()}"


def to_wire_vector(vector: Vector) -> list[float]:
    """A vector as sent to Qdrant: quantized to int8 and back, so that both sides rank by the same numbers."""
    codes, scales = quantize(vector[None, :])
    numbers: npt.NDArray[np.float64] = codes[0].astype(np.float64) * float(scales[0])
    return numbers.round(_DECIMALS).tolist()


def build_point(
    row: PassageRow, tenant: str, fields: Mapping[str, FieldType], vectors: Mapping[str, int]
) -> models.PointStruct:
    """The Qdrant point of a passage."""
    record, _ = codec.unpack_header(row.header, row.record_id, "")
    named: dict[str, models.Vector] = {
        name: to_wire_vector(vector) for name, vector in codec.unpack_vectors(row.vectors).items() if name in vectors
    }
    terms, weights = codec.term_arrays(row.facts)
    if len(terms):
        named[LEXICAL] = models.SparseVector(indices=terms.tolist(), values=to_impacts(weights).tolist())
    payload = {ACCESS: row.access, TENANT: tenant, **build_payload(record, fields)}
    return models.PointStruct(id=row.pid, vector=named, payload=payload)
