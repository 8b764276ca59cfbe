"""What memory recalls, as candidates: with salience, lifted by their neighbours, secrets masked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from contexture.conversation import Recalled
from contexture.pipeline.fence import label
from contexture.pipeline.known import masked
from contexture.pipeline.mask import Mask
from contexture.pipeline.score import recency, salience
from contexture.retrieval.prepare import mended
from contexture.types import Candidate, Citation, content_hash

COLLECTION = "memories"
SECTION = "snippets"
_RESERVED = "history["


def candidates_of(
    recalled: Sequence[Recalled], *, now: datetime, rules: str, lift: float, mask: Mask
) -> list[Candidate]:
    """One candidate per memory: `.7 x relevance + .3 x recency`, spans of other rules not trusted."""
    relevance = _lifted(recalled, lift)
    return [
        masked(_candidate(found, base, now, rules, mask), mask) for found, base in zip(recalled, relevance, strict=True)
    ]


def candidate_id(memory_id: str) -> str:
    """The id of a memory, told apart from those of messages."""
    return f"memory:{memory_id}" if memory_id.startswith(_RESERVED) else memory_id


def _candidate(found: Recalled, base: float, now: datetime, rules: str, mask: Mask) -> Candidate:
    fresh = recency(found.time, now)
    text = mended(found.text)
    trusted = found.redactions is not None and found.rules == rules and text == found.text
    sentences = found.sentences if text == found.text else ()
    return Candidate(
        id=candidate_id(found.id),
        key=candidate_id(found.id),
        text=text,
        section=SECTION,
        label=_label(found, mask),
        kind=found.kind,
        lang=found.lang,
        time=found.time,
        score=salience(base, fresh),
        signals={**found.signals, "relevance": _safe(found.score), "lifted": base, "recency": fresh},
        sentences=sentences,
        origins=sentences,
        weights=_weights(found) if sentences else (),
        redactions=found.redactions if trusted else None,
        tokens=found.tokens if text == found.text else {},
        simhash=found.simhash,
        citation=Citation(
            collection=COLLECTION,
            record_id=found.id,
            title="",
            start=0,
            end=len(found.text),
            hash=found.hash or content_hash(found.text),
        ),
    )


def _label(found: Recalled, mask: Mask) -> str:
    """What to call a memory: its label, where it came from, or what type it is.

    Masked before, because a label may be shortened, and behind, because it is normalised.
    """
    source = found.metadata.get("source")
    named = (found.label, source if isinstance(source, str) else "", found.type)
    return next((shown for name in named if (shown := mask.mask(label(mask.mask(name))))), "memory")


def _weights(found: Recalled) -> tuple[float, ...]:
    """For each sentence how well the best piece it stands in answers; none when nothing is known of pieces."""
    if not found.pieces:
        return ()
    return tuple(
        max((piece.score for piece in found.pieces if piece.start <= start < piece.end), default=0.0)
        for start, _ in found.sentences
    )


def _lifted(recalled: Sequence[Recalled], lift: float) -> list[float]:
    """Relevance, and what neighbours in the same session lend of theirs; never above 1."""
    own = [_safe(found.score) for found in recalled]
    if not lift:
        return own
    places = {place: base for found, base in zip(recalled, own, strict=True) if (place := _place(found.metadata))}
    return [
        min(1.0, base + lift * max((places.get(near, 0.0) for near in _near(found.metadata)), default=0.0))
        for found, base in zip(recalled, own, strict=True)
    ]


def _place(metadata: Mapping[str, object]) -> tuple[str, int] | None:
    session, position = metadata.get("session_id"), metadata.get("position")
    return (session, position) if isinstance(session, str) and isinstance(position, int) else None


def _near(metadata: Mapping[str, object]) -> list[tuple[str, int]]:
    place = _place(metadata)
    return [] if place is None else [(place[0], place[1] - 1), (place[0], place[1] + 1)]


def _safe(score: float) -> float:
    """A relevance from 0 to 1, whatever a remote service says."""
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0
