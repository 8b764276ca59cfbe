"""A memory with what was computed about its whole text when it was written."""

from __future__ import annotations

from contexture.conversation import Recalled
from contexture.memory.records import kind_of, metadata_of
from contexture.memory.relevance import Rated
from contexture.retrieval.facts import facts_of
from contexture.types import Record


def with_stored_facts(found: Rated, record: Record) -> Recalled:
    """A memory as recall gives it: found by its passages, whole as it is stored in `record`."""
    facts = facts_of(record)
    return Recalled(
        id=record.id,
        text=record.text,
        score=found.score,
        time=record.time,
        label=record.source,
        kind=kind_of(record),
        type=record.payload.get("type", "memory"),
        lang=record.lang,
        hash=found.hash,
        metadata=metadata_of(record),
        signals=found.signals,
        pieces=found.pieces,
        sentences=facts.sentences,
        redactions=facts.redactions,
        rules=facts.rules,
        tokens=facts.tokens,
        simhash=facts.simhash,
    )
