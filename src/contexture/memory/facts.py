"""What is computed about a whole memory when it is written, so that no build computes it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import json
from msgspec.structs import replace as changed

from contexture.conversation import Recalled
from contexture.memory.records import kind_of, metadata_of
from contexture.memory.relevance import Rated
from contexture.ports import TokenCounter
from contexture.text.simhash import simhash
from contexture.types import Prepared, Record, Span


def with_facts(item: Prepared, counters: Sequence[TokenCounter]) -> Prepared:
    """A prepared memory that carries the facts about its whole text; an empty record has none."""
    text = item.record.text
    if not text:
        return item
    facts: dict[str, Any] = {
        "sentences": [(each.start + a, each.start + b) for each in item.passages for a, b in each.sentences],
        "redactions": [(span.start, span.end, span.label, span.score) for span in item.redactions],
        "rules": item.rules,
        "tokens": {counter.encoding: counter.count(text) for counter in counters},
        "simhash": f"{simhash(text):x}",  # a whole number beyond 63 bits has no place in every store
    }
    # As one text: a search reads the payloads of many memories and needs the facts of few.
    told = json.encode(facts).decode()
    return replace(item, record=changed(item.record, payload={**item.record.payload, "facts": told}))


def with_stored_facts(found: Rated, record: Record) -> Recalled:
    """A memory as recall gives it: found by its passages, whole as it is stored in `record`."""
    facts = _facts(record)
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
        sentences=tuple((a, b) for a, b in facts.get("sentences", ())),
        redactions=tuple(Span(*each) for each in facts["redactions"]) if "redactions" in facts else None,
        rules=facts.get("rules", ""),
        tokens=facts.get("tokens", {}),
        simhash=int(facts.get("simhash", "0"), 16),
    )


def _facts(record: Record) -> Mapping[str, Any]:
    """What was computed about a memory; stores of before hold it unpacked."""
    told: str | Mapping[str, Any] = record.payload.get("facts", {})
    return json.decode(told) if isinstance(told, str) else told
