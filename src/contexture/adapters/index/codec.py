"""Binary encoding of record headers, passage facts, vectors and spans in the record stores."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from contexture.types import Passage, PreparedRecord, Record, Span, Vector

SpanTuples = list[tuple[int, int, str, float]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordHeader(msgspec.Struct, array_like=True):
    """Everything about a record but its text."""

    acl: tuple[str, ...]
    title: str
    title_redactions: SpanTuples
    kind: str
    lang: str
    source: str
    time: int | None
    session: str
    position: int | None
    payload: dict[str, Any]


class PassageFacts(msgspec.Struct, array_like=True):
    """Everything about a passage but its text and vectors; terms are two parallel arrays."""

    start: int
    end: int
    sentences: tuple[tuple[int, int], ...]
    redactions: SpanTuples
    tokens: dict[str, int]
    simhash: int
    terms: bytes
    weights: bytes


class PassageTerms(msgspec.Struct, array_like=True):
    """A passage's facts, of which only the terms are decoded."""

    start: int
    end: int
    sentences: msgspec.Raw
    redactions: msgspec.Raw
    tokens: msgspec.Raw
    simhash: int
    terms: bytes
    weights: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(RecordHeader).decode
_decode_facts = msgspec.msgpack.Decoder(PassageFacts).decode
_decode_terms = msgspec.msgpack.Decoder(PassageTerms).decode
_decode_vectors = msgspec.msgpack.Decoder(dict[str, bytes]).decode
_decode_spans = msgspec.msgpack.Decoder(SpanTuples).decode


def pack_spans(spans: tuple[Span, ...]) -> bytes:
    """Spans as bytes."""
    return _encode([(span.start, span.end, span.label, span.score) for span in spans])


def unpack_spans(data: bytes) -> tuple[Span, ...]:
    """The spans that `pack_spans` packed."""
    return tuple(Span(*parts) for parts in _decode_spans(data))


def pack_header(prepared: PreparedRecord) -> bytes:
    """The header of a record as bytes."""
    record = prepared.record
    return _encode(
        RecordHeader(
            acl=record.acl,
            title=record.title,
            title_redactions=[(s.start, s.end, s.label, s.score) for s in prepared.title_redactions],
            kind=record.kind,
            lang=record.lang,
            source=record.source,
            time=None if record.time is None else to_microseconds(record.time),
            session=record.session,
            position=record.position,
            payload=dict(record.payload),
        )
    )


def unpack_header(data: bytes, record_id: str, text: str) -> tuple[Record, tuple[Span, ...]]:
    """The record, with the given text, and the redactions of its title."""
    header = _decode_header(data)
    record = Record(
        id=record_id,
        text=text,
        acl=header.acl,
        title=header.title,
        kind=header.kind,
        lang=header.lang,
        source=header.source,
        time=None if header.time is None else _EPOCH + timedelta(microseconds=header.time),
        session=header.session,
        position=header.position,
        payload=header.payload,
    )
    return record, tuple([Span(*parts) for parts in header.title_redactions])


def extract_facts(passage: Passage) -> PassageFacts:
    """The facts of a passage."""
    return PassageFacts(
        start=passage.start,
        end=passage.end,
        sentences=passage.sentences,
        redactions=[(s.start, s.end, s.label, s.score) for s in passage.redactions],
        tokens=dict(passage.tokens),
        simhash=passage.simhash,
        terms=np.fromiter(passage.terms.keys(), np.uint32, len(passage.terms)).tobytes(),
        weights=np.fromiter(passage.terms.values(), np.float32, len(passage.terms)).tobytes(),
    )


def pack_facts(facts: PassageFacts) -> bytes:
    """The facts of a passage as bytes."""
    return _encode(facts)


def pack_vectors(passage: Passage) -> bytes:
    """The dense vectors of a passage as bytes, each number in half precision."""
    return pack_named_vectors(passage.vectors)


def pack_named_vectors(vectors: Mapping[str, Vector]) -> bytes:
    """Dense vectors as bytes, by name, each number in half precision."""
    return _encode({name: vector.astype(np.float16).tobytes() for name, vector in vectors.items()})


def unpack_facts(data: bytes) -> PassageFacts:
    """The facts that `pack_facts` packed, with terms and weights still as bytes."""
    return _decode_facts(data)


def unpack_terms(data: bytes) -> tuple[bytes, bytes]:
    """Terms and weights of the facts that `pack_facts` packed; decodes nothing else."""
    facts = _decode_terms(data)
    return facts.terms, facts.weights


def term_arrays(facts: PassageFacts) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
    """Term ids and their BM25 weights."""
    return np.frombuffer(facts.terms, np.uint32), np.frombuffer(facts.weights, np.float32)


def unpack_vector_bytes(data: bytes) -> dict[str, bytes]:
    """Vectors of a passage by name, each still as bytes in half precision."""
    return _decode_vectors(data)


def unpack_vectors(data: bytes) -> dict[str, Vector]:
    """The vectors that `pack_vectors` packed, by name."""
    return {name: unpack_vector(half) for name, half in _decode_vectors(data).items()}


def unpack_vector(half: bytes) -> Vector:
    """One vector from its bytes in half precision."""
    return np.frombuffer(half, np.float16).astype(np.float32)


def facts_to_passage(facts: PassageFacts) -> Passage:
    """The passage as a pipeline needs it, without terms and vectors."""
    nothing: Mapping[Any, Any] = {}
    return Passage(
        start=facts.start,
        end=facts.end,
        sentences=facts.sentences,
        redactions=tuple([Span(*parts) for parts in facts.redactions]),
        tokens=facts.tokens,
        simhash=facts.simhash,
        terms=nothing,
        vectors=nothing,
    )


def to_microseconds(time: datetime) -> int:
    """Whole microseconds since the epoch, exact for every time; a time without a zone is read as UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def to_timestamp(time: datetime | None) -> float | None:
    """Seconds since the epoch; a time without a zone is read as UTC."""
    if time is None:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
