"""Passages as Qdrant points: vectors, and the payload for filters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from qdrant_client import models

from contexture.adapters.index import codec
from contexture.adapters.index.filters import build_payload
from contexture.adapters.index.qdrant.client import ACCESS, LEXICAL, TENANT
from contexture.adapters.index.quantized_vectors import quantize
from contexture.adapters.index.record_store import PassageRow
from contexture.adapters.index.scoring import to_impacts
from contexture.types import FieldType, Vector

_PLAIN_TENANT = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_DECIMALS = 6  # of a number that is sent; Qdrant stores it in one byte, with fewer


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
