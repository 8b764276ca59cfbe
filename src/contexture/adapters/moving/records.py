"""Records as they move from one store to another: everything that was computed about them goes along."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from contexture.adapters.index import codec
from contexture.adapters.index.matrices import pack_matrix, unpack_matrix
from contexture.types import Collection, Passage, Prepared


class Part(NamedTuple):
    """The records of one tenant in one collection."""

    collection: str
    tenant: str


class RecordsPlace(Protocol):
    """The records of a store, whoever may read them."""

    def declared(self) -> Mapping[Part, Collection]:
        """Every collection of every tenant, with the fields that it has declared."""
        ...

    def declare(self, tenant: str, collection: Collection) -> None:
        """Let a tenant have a collection, or replace the fields it has declared there."""
        ...

    def parts(self) -> Mapping[Part, int]:
        """Every part that holds a record, and how many."""
        ...

    def page(self, part: Part, after: str, limit: int) -> Sequence[Prepared]:
        """Records of a part in id order, behind `after`."""
        ...

    def among(self, part: Part, ids: Sequence[str]) -> Mapping[str, Prepared]:
        """Those of `ids` that the part holds."""
        ...

    def write(self, part: Part, records: Sequence[Prepared]) -> None:
        """Write records instead of those of the same ids; all of them or none."""
        ...


class Kept(NamedTuple):
    """A record as both kinds of store keep it."""

    id: str
    header: bytes
    text: str
    rules: str
    redactions: bytes
    passages: Sequence[tuple[bytes, bytes]]
    matrices: Mapping[str, bytes]


def prepared_of(kept: Kept) -> Prepared:
    """The record as it was written."""
    record, title_redactions = codec.unpack_header(kept.header, kept.id, kept.text)
    return Prepared(
        record=record,
        passages=tuple(_passage(facts, vectors) for facts, vectors in kept.passages),
        redactions=codec.unpack_spans(kept.redactions),
        title_redactions=title_redactions,
        rules=kept.rules,
        matrices={name: unpack_matrix(data) for name, data in kept.matrices.items()},
    )


def digest(item: Prepared) -> bytes:
    """A hash over all that is kept of a record; two records are the same when theirs are."""
    sum_ = hashlib.sha256()
    pieces = [
        item.record.id.encode("utf-8", "surrogatepass"),
        item.record.text.encode("utf-8", "surrogatepass"),
        codec.pack_header(item),
        item.rules.encode(),
        codec.pack_spans(item.redactions),
        *(codec.pack_facts(codec.facts_of(passage)) for passage in item.passages),
        *(codec.pack_vectors(passage) for passage in item.passages),
        *(name.encode() + pack_matrix(item.matrices[name]) for name in sorted(item.matrices)),
    ]
    for piece in pieces:
        sum_.update(len(piece).to_bytes(8, "big") + piece)
    return sum_.digest()


def _passage(packed_facts: bytes, vectors: bytes) -> Passage:
    facts = codec.unpack_facts(packed_facts)
    terms, weights = codec.term_arrays(facts)
    return Passage(
        start=facts.start,
        end=facts.end,
        sentences=tuple(facts.sentences),
        redactions=codec.to_passage(facts).redactions,
        tokens=facts.tokens,
        simhash=facts.simhash,
        terms=dict(zip(terms.tolist(), weights.tolist(), strict=True)),
        vectors=codec.unpack_vectors(vectors),
    )
