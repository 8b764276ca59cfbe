"""Passages as Qdrant keeps them: the numbers that are compared, and what filters may ask."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from qdrant_client import models

from contexture.adapters.index import codec
from contexture.adapters.index.codes import quantised
from contexture.adapters.index.filters import payload_of
from contexture.adapters.index.qdrant.client import ACCESS, LEXICAL, TENANT
from contexture.adapters.index.scoring import impacts
from contexture.adapters.index.truth import Row
from contexture.types import FieldType, Vector

_PLAIN = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_DECIMALS = 6  # of a number that is sent; the byte in which Qdrant keeps it has fewer


def tenant_key(tenant: str) -> str:
    """How a tenant is called in Qdrant: by its name, or by a hash of one that is not plain."""
    if _PLAIN.fullmatch(tenant):
        return f"tenant.{tenant}"
    return f"hashed.{hashlib.sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()}"


def sent(vector: Vector) -> list[float]:
    """A vector as Qdrant gets it: what its bytes stand for, so that both sides rank by the same numbers."""
    codes, scales = quantised(vector[None, :])
    numbers: npt.NDArray[np.float64] = codes[0].astype(np.float64) * float(scales[0])
    return numbers.round(_DECIMALS).tolist()


def point_of(row: Row, tenant: str, fields: Mapping[str, FieldType], vectors: Mapping[str, int]) -> models.PointStruct:
    """A passage as a point of its own."""
    record, _ = codec.unpack_header(row.header, row.record_id, "")
    named: dict[str, models.Vector] = {
        name: sent(vector) for name, vector in codec.unpack_vectors(row.vectors).items() if name in vectors
    }
    terms, weights = codec.term_arrays(row.facts)
    if len(terms):
        named[LEXICAL] = models.SparseVector(indices=terms.tolist(), values=impacts(weights).tolist())
    payload = {ACCESS: row.access, TENANT: tenant, **payload_of(record, fields)}
    return models.PointStruct(id=row.pid, vector=named, payload=payload)
