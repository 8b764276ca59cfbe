"""Records packed for PostgreSQL before a write begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from contexture.adapters.index import codec
from contexture.adapters.index.matrices import pack_matrix
from contexture.adapters.index.postgres.record_store import encode_text
from contexture.errors import InvalidRequest
from contexture.types import Passage, PreparedRecord


class PackedPassage(NamedTuple):
    """A passage in its stored form."""

    text: str
    unpacked_facts: codec.PassageFacts
    facts: bytes
    vectors: bytes


class PackedRow(NamedTuple):
    """A record in its stored form, packed before the transaction, because other writers wait during it.

    `space` is its id space; None for the one of its readers and its writer. A record with one is copied from another
    store and replaces what is there, whoever may read it.
    """

    id: bytes
    acl: bytes
    hash: str
    header: bytes
    text: bytes
    rules: str
    redactions: bytes
    passages: Sequence[PackedPassage]
    matrices: Sequence[tuple[str, bytes]]
    readers: tuple[str, ...]
    space: str | None = None


def pack_records(prepared: Sequence[PreparedRecord]) -> list[PackedRow]:
    """Records in their stored form; of two with the same id, the last.

    Raises `InvalidRequest`, which names the record, for one that cannot be stored.
    """
    newest = {item.record.id: item for item in prepared}
    return [_pack_record(item) for item in newest.values()]


def _pack_record(item: PreparedRecord) -> PackedRow:
    record = item.record
    try:
        return PackedRow(
            id=encode_text(record.id),
            acl=_pack_acl(record.acl),
            hash=record.hash,
            header=codec.pack_header(item),
            text=record.text.encode(),
            rules=item.rules,
            redactions=codec.pack_spans(item.redactions),
            passages=[_pack_passage(record.text, passage) for passage in item.passages],
            matrices=[(name, pack_matrix(matrix)) for name, matrix in item.matrices.items()],
            readers=record.acl,
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        raise InvalidRequest(f"record {record.id!r} cannot be stored: {failure}") from failure


@lru_cache(maxsize=1_024)
def _pack_acl(acl: tuple[str, ...]) -> bytes:
    return json.dumps(sorted(set(acl))).encode()


def _pack_passage(text: str, passage: Passage) -> PackedPassage:
    known = codec.extract_facts(passage)
    piece = text[passage.start : passage.end]
    return PackedPassage(piece, known, codec.pack_facts(known), codec.pack_vectors(passage))
