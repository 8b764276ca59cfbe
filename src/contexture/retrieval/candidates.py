"""What a search found, as candidates for a prompt."""

from __future__ import annotations

from contexture.pipeline.fence import label
from contexture.pipeline.known import NOTHING, masked
from contexture.pipeline.mask import Mask
from contexture.retrieval.search import Found
from contexture.types import Candidate, Citation, Record


def candidate_of(found: Found, collection: str, rules: str, mask: Mask = NOTHING) -> Candidate:
    """A search result as a candidate, known secrets masked in everything but its id.

    Spans stored by other rules than those in force are not trusted, nor those of a text that held a secret.
    """
    hit, record = found.hit, found.hit.record
    trusted = hit.rules == rules
    title = mask.mask(record.title)
    raw = Candidate(
        id=f"{record.id}#{hit.ordinal:05d}",
        key=f"{record.id}#{hit.ordinal:05d}",
        text=hit.text,
        title=title,
        label=_label(record, mask),
        kind=record.kind,
        lang=record.lang,
        source=mask.mask(record.source),
        time=record.time,
        score=found.score,
        signals=found.signals,
        sentences=hit.passage.sentences,
        origins=tuple((hit.passage.start + a, hit.passage.start + b) for a, b in hit.passage.sentences),
        redactions=hit.passage.redactions if trusted else None,
        title_redactions=hit.title_redactions if trusted and title == record.title else None,
        tokens=hit.passage.tokens,
        simhash=hit.passage.simhash,
        citation=Citation(
            collection=collection,
            record_id=record.id,
            title=title,
            start=hit.passage.start,
            end=hit.passage.end,
            hash=hit.hash,
        ),
    )
    return masked(raw, mask)


def whole(record: Record, collection: str, mask: Mask = NOTHING) -> Candidate:
    """A stored record from beginning to end as one candidate, known secrets masked; nothing of it is redacted yet."""
    raw = Candidate(
        id=record.id,
        key=record.id,
        text=record.text,
        title=mask.mask(record.title),
        kind=record.kind,
        lang=record.lang,
        source=mask.mask(record.source),
        time=record.time,
        citation=Citation(
            collection=collection,
            record_id=record.id,
            title=mask.mask(record.title),
            start=0,
            end=len(record.text),
            hash=record.hash,
        ),
    )
    return masked(raw, mask)


def _label(record: Record, mask: Mask) -> str:
    """What to call a record whose title cannot be shown as it stands; redaction then reads it in that form."""
    shown = _named(record.title, mask)
    if shown and shown == record.title:
        return ""
    return shown or _named(record.source, mask) or _named(record.id, mask)


def _named(text: str, mask: Mask) -> str:
    """Masked before, because a label may be shortened, and behind, because it is normalised."""
    return mask.mask(label(mask.mask(text)))
