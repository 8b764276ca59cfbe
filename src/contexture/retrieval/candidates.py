"""What a search found, as candidates for a prompt."""

from __future__ import annotations

from contexture.pipeline.fence import label
from contexture.retrieval.search import Found
from contexture.types import Candidate, Citation, Record


def candidate_of(found: Found, collection: str, rules: str) -> Candidate:
    """A search result as a candidate; spans stored by other rules than those in force are not trusted."""
    hit, record = found.hit, found.hit.record
    trusted = hit.rules == rules
    return Candidate(
        id=f"{record.id}#{hit.ordinal:05d}",
        key=f"{record.id}#{hit.ordinal:05d}",
        text=hit.text,
        title=record.title,
        label=_label(record),
        kind=record.kind,
        lang=record.lang,
        source=record.source,
        time=record.time,
        score=found.score,
        signals=found.signals,
        sentences=hit.passage.sentences,
        origins=tuple((hit.passage.start + a, hit.passage.start + b) for a, b in hit.passage.sentences),
        redactions=hit.passage.redactions if trusted else None,
        title_redactions=hit.title_redactions if trusted else None,
        tokens=hit.passage.tokens,
        simhash=hit.passage.simhash,
        citation=Citation(
            collection=collection,
            record_id=record.id,
            title=record.title,
            start=hit.passage.start,
            end=hit.passage.end,
            hash=hit.hash,
        ),
    )


def _label(record: Record) -> str:
    """What to call a record whose title cannot be shown as it stands; redaction then reads it in that form."""
    shown = label(record.title)
    if shown and shown == record.title:
        return ""
    return shown or label(record.source) or label(record.id)
