"""Conversion between records and Chroma items.

Items are immutable: a new version of a record is a new item, and a removed record is a tombstone item. Of the items
with one key the newest is valid, so that a write becomes visible as a whole with its last call.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from contexture.adapters.index import codec
from contexture.adapters.index.filters import stored_value
from contexture.types import FieldType, PreparedRecord, Record

ACCESS = "cx.access"
SEQ = "cx.seq"
DATA = "cx.data"
KEY = "cx.key"
GONE = "cx.gone"

_MAX_PLAIN_CHARS = 4_096  # longest payload text that is stored as plain metadata, for people who inspect Chroma
_INT64_LIMIT = 1 << 63


class _RecordHead(msgspec.Struct, array_like=True):
    """Everything about a record except its text and vectors."""

    header: bytes
    id: str
    hash: str
    rules: str
    facts: list[bytes]
    vectors: list[list[str]]
    matrices: list[str]


class ChromaRecord(NamedTuple):
    """A record as the mirror holds it: everything except its text and vectors."""

    key: str
    seq: int
    record: Record
    header: bytes
    hash: str
    rules: str
    facts: tuple[codec.PassageFacts, ...]
    vectors: tuple[tuple[str, ...], ...]
    matrices: tuple[str, ...]

    @property
    def item_id(self) -> str:
        """The id of the record's item."""
        return format_item_id(self.key, self.seq)

    def passage_id(self, ordinal: int) -> str:
        """The id of the items of a passage's vectors."""
        return f"{self.key}.{self.seq}.{ordinal}"

    def matrix_id(self, name: str) -> str:
        """The id of the item of a matrix."""
        return f"{self.key}.{self.seq}.{short_digest(name)}"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_RecordHead).decode


def short_digest(*parts: str) -> str:
    """Short hexadecimal digest of these texts, safe in ids and names."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def format_item_id(key: str, seq: int) -> str:
    """The id of the item of one version of a record."""
    return f"{key}.{seq}"


def access_key(acl: tuple[str, ...]) -> str:
    """The key of the access class of records with exactly these readers."""
    return short_digest(*sorted(set(acl)))


def pack_record(prepared: PreparedRecord, seq: int, known: Mapping[str, int]) -> tuple[ChromaRecord, bytes]:
    """A record to be written, and its packed `_RecordHead`; vectors not in `known` are dropped."""
    head = _RecordHead(
        header=codec.pack_header(prepared),
        id=prepared.record.id,
        hash=prepared.record.hash,
        rules=prepared.rules,
        facts=[codec.pack_facts(codec.extract_facts(passage)) for passage in prepared.passages],
        vectors=[[name for name in passage.vectors if name in known] for passage in prepared.passages],
        matrices=sorted(prepared.matrices),
    )
    data = _encode(head)
    return _unpack_record(short_digest(prepared.record.id), seq, data), data


def record_metadata(kept: ChromaRecord, data: bytes) -> dict[str, Any]:
    """Metadata of a record's item: its packed head, and plain payload values for people who inspect Chroma."""
    plain = {name: value for name, value in kept.record.payload.items() if _is_plain(name, value)}
    return {**plain, KEY: kept.key, SEQ: kept.seq, DATA: encode_base64(data)}


def tombstone_metadata(key: str, seq: int) -> dict[str, Any]:
    """Metadata of the tombstone item of a removed record."""
    return {KEY: key, SEQ: seq, GONE: True}


def passage_metadata(kept: ChromaRecord, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """Metadata that vectors are filtered by: the access class, and every field that has a value."""
    values = {name: stored_value(kept.record, name, kind) for name, kind in fields.items()}
    found = {f"cx.f.{name}": [value] if isinstance(value, str) else value for name, value in values.items()}
    return {
        ACCESS: access_key(kept.record.acl),
        SEQ: kept.seq,
        **{name: value for name, value in found.items() if value is not None and value != []},
    }


def parse_item(metadata: Mapping[str, Any]) -> tuple[str, int, ChromaRecord | None]:
    """Key, sequence number and record of an item; the record is None for a tombstone."""
    key, seq = str(metadata[KEY]), int(metadata[SEQ])
    return key, seq, None if metadata.get(GONE) else _unpack_record(key, seq, decode_base64(metadata[DATA]))


def encode_base64(data: bytes) -> str:
    """Bytes as base64 text, which Chroma can store."""
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes:
    """The bytes that `encode_base64` encoded."""
    return base64.b64decode(text)


def _unpack_record(key: str, seq: int, data: bytes) -> ChromaRecord:
    head = _decode(data)
    record, _ = codec.unpack_header(head.header, head.id, "")
    facts = tuple(codec.unpack_facts(each) for each in head.facts)
    names = tuple(tuple(each) for each in head.vectors)
    return ChromaRecord(key, seq, record, head.header, head.hash, head.rules, facts, names, tuple(head.matrices))


def _is_plain(name: str, value: Any) -> bool:
    if not name or name.startswith(("cx.", "chroma:")):
        return False
    if isinstance(value, str):
        return len(value) <= _MAX_PLAIN_CHARS and "\x00" not in value
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -_INT64_LIMIT <= value < _INT64_LIMIT
    return isinstance(value, float) and math.isfinite(value)
