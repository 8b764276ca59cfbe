"""Records as items of Chroma, and back.

An item is never changed: a newer version of a record is a new item, and a removed record is one that says so. Of the
items with one key the newest holds, so that a write is whole when its last call has returned, and not before.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from contexture.adapters.index import codec
from contexture.adapters.index.filters import stored_value
from contexture.types import FieldType, Prepared, Record

ACCESS = "cx.access"
SEQ = "cx.seq"
DATA = "cx.data"
KEY = "cx.key"
GONE = "cx.gone"

_PLAIN = 4_096  # characters of a payload's text that are shown to people who look into Chroma
_INTEGERS = 1 << 63


class _Head(msgspec.Struct, array_like=True):
    """Everything about a record but its text and vectors."""

    header: bytes
    id: str
    hash: str
    rules: str
    facts: list[bytes]
    vectors: list[list[str]]
    matrices: list[str]


class Kept(NamedTuple):
    """A record as a mirror keeps it."""

    key: str
    seq: int
    record: Record
    header: bytes
    hash: str
    rules: str
    facts: tuple[codec.Facts, ...]
    vectors: tuple[tuple[str, ...], ...]
    matrices: tuple[str, ...]

    @property
    def item(self) -> str:
        """The id of its item."""
        return item_id(self.key, self.seq)

    def passage(self, ordinal: int) -> str:
        """The id of a passage's vector."""
        return f"{self.key}.{self.seq}.{ordinal}"

    def matrix(self, name: str) -> str:
        """The id of the item of a matrix."""
        return f"{self.key}.{self.seq}.{digest(name)}"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Head).decode


def digest(*parts: str) -> str:
    """A short safe name for these texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def item_id(key: str, seq: int) -> str:
    """The id of one version of a record."""
    return f"{key}.{seq}"


def access_of(acl: tuple[str, ...]) -> str:
    """The name of the class of all records that these principals may read."""
    return digest(*sorted(set(acl)))


def kept_of(prepared: Prepared, seq: int, known: Mapping[str, int]) -> tuple[Kept, bytes]:
    """A record to be written, and its head as bytes; of its vectors only known ones are kept."""
    head = _Head(
        header=codec.pack_header(prepared),
        id=prepared.record.id,
        hash=prepared.record.hash,
        rules=prepared.rules,
        facts=[codec.pack_facts(codec.facts_of(passage)) for passage in prepared.passages],
        vectors=[[name for name in passage.vectors if name in known] for passage in prepared.passages],
        matrices=sorted(prepared.matrices),
    )
    data = _encode(head)
    return _kept(digest(prepared.record.id), seq, data), data


def metadata_of(kept: Kept, data: bytes) -> dict[str, Any]:
    """The item of a record: its head, and the plain values of its payload for people who look into Chroma."""
    plain = {name: value for name, value in kept.record.payload.items() if _is_plain(name, value)}
    return {**plain, KEY: kept.key, SEQ: kept.seq, DATA: packed(data)}


def gone(key: str, seq: int) -> dict[str, Any]:
    """The item that says that a record was removed."""
    return {KEY: key, SEQ: seq, GONE: True}


def passage_metadata(kept: Kept, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """What a vector is filtered by: who may see it, and every field that has a value."""
    values = {name: stored_value(kept.record, name, kind) for name, kind in fields.items()}
    found = {f"cx.f.{name}": [value] if isinstance(value, str) else value for name, value in values.items()}
    return {
        ACCESS: access_of(kept.record.acl),
        SEQ: kept.seq,
        **{name: value for name, value in found.items() if value is not None and value != []},
    }


def read(metadata: Mapping[str, Any]) -> tuple[str, int, Kept | None]:
    """Key and sequence number of an item, and the record that it holds unless that was removed."""
    key, seq = str(metadata[KEY]), int(metadata[SEQ])
    return key, seq, None if metadata.get(GONE) else _kept(key, seq, unpacked(metadata[DATA]))


def packed(data: bytes) -> str:
    """Bytes as a text that Chroma keeps."""
    return base64.b64encode(data).decode()


def unpacked(text: str) -> bytes:
    """What `packed` packed."""
    return base64.b64decode(text)


def _kept(key: str, seq: int, data: bytes) -> Kept:
    head = _decode(data)
    record, _ = codec.unpack_header(head.header, head.id, "")
    facts = tuple(codec.unpack_facts(each) for each in head.facts)
    names = tuple(tuple(each) for each in head.vectors)
    return Kept(key, seq, record, head.header, head.hash, head.rules, facts, names, tuple(head.matrices))


def _is_plain(name: str, value: Any) -> bool:
    if not name or name.startswith(("cx.", "chroma:")):
        return False
    if isinstance(value, str):
        return len(value) <= _PLAIN and "\x00" not in value
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -_INTEGERS <= value < _INTEGERS
    return isinstance(value, float) and math.isfinite(value)
