"""Records as they are kept in PostgreSQL, packed before a write begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from contexture.adapters.index import codec
from contexture.adapters.index.matrices import pack_matrix
from contexture.adapters.index.postgres.truth import packed
from contexture.errors import InvalidRequest
from contexture.types import Passage, Prepared


class PackedPassage(NamedTuple):
    """A passage as it is kept."""

    text: str
    known: codec.Facts
    facts: bytes
    vectors: bytes


class PackedRecord(NamedTuple):
    """A record as it is kept, packed before the transaction begins, for others wait while that lasts."""

    id: bytes
    acl: bytes
    hash: str
    header: bytes
    text: bytes
    rules: str
    redactions: bytes
    passages: Sequence[PackedPassage]
    matrices: Sequence[tuple[str, bytes]]


def pack(prepared: Sequence[Prepared]) -> list[PackedRecord]:
    """Records as they are kept, of two with one id the last; one that cannot be kept is refused by name."""
    newest = {item.record.id: item for item in prepared}
    return [_packed(item) for item in newest.values()]


def _packed(item: Prepared) -> PackedRecord:
    record = item.record
    try:
        return PackedRecord(
            id=packed(record.id),
            acl=_readers(record.acl),
            hash=record.hash,
            header=codec.pack_header(item),
            text=record.text.encode(),
            rules=item.rules,
            redactions=codec.pack_spans(item.redactions),
            passages=[_packed_passage(record.text, passage) for passage in item.passages],
            matrices=[(name, pack_matrix(matrix)) for name, matrix in item.matrices.items()],
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        raise InvalidRequest(f"record {record.id!r} cannot be stored: {failure}") from failure


@lru_cache(maxsize=1_024)
def _readers(acl: tuple[str, ...]) -> bytes:
    return json.dumps(sorted(set(acl))).encode()


def _packed_passage(text: str, passage: Passage) -> PackedPassage:
    known = codec.facts_of(passage)
    piece = text[passage.start : passage.end]
    return PackedPassage(piece, known, codec.pack_facts(known), codec.pack_vectors(passage))
