"""Recalled memories: as candidates, scored by relevance and recency, known secrets masked; and their clean metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from contexture.builders.clean import Cleaner
from contexture.builders.turn.request import TurnRecipe
from contexture.builders.turn.summary import SUMMARY_TYPE
from contexture.conversation import Recalled
from contexture.errors import RedactionFailed
from contexture.pipeline.fence import safe_label
from contexture.pipeline.masking import SecretMask, mask_candidate
from contexture.pipeline.scoring import recency, salience
from contexture.text.unicode import repair_text
from contexture.types import Candidate, Citation, content_hash

MEMORY_COLLECTION = "memories"
SNIPPETS_SECTION = "snippets"
ASSISTANT = "assistant"
SUMMARY = "summary"
STANDING = "standing"
"""Signals of a memory: the assistant said it, it is a summary, or its writer says that it supersedes nothing."""

_RESERVED_PREFIX = "history["
_MAX_DEPTH = 64


def make_candidates(
    recalled: Sequence[Recalled], *, now: datetime, rules: str, recipe: TurnRecipe, mask: SecretMask
) -> list[Candidate]:
    """One candidate per recalled memory, scored `.7 x relevance + .3 x recency`.

    Stored redaction spans are used only if their rules match. `source` of a candidate is its speaker; the signals
    `assistant` and `summary` mark what the user did not say.
    """
    relevance = _lift_by_neighbours(recalled, recipe.neighbour_lift)
    return [
        mask_candidate(_make_candidate(found, base, now, rules, mask, recipe), mask)
        for found, base in zip(recalled, relevance, strict=True)
    ]


def memory_candidate_id(memory_id: str) -> str:
    """The candidate id of a memory, distinct from ids of history messages."""
    return f"memory:{memory_id}" if memory_id.startswith(_RESERVED_PREFIX) else memory_id


def _make_candidate(
    found: Recalled, base: float, now: datetime, rules: str, mask: SecretMask, recipe: TurnRecipe
) -> Candidate:
    fresh = recency(found.time, now)
    text = repair_text(found.text)
    trusted = found.redactions is not None and found.rules == rules and text == found.text
    sentences = found.sentences if text == found.text else ()
    return Candidate(
        id=memory_candidate_id(found.id),
        key=memory_candidate_id(found.id),
        text=text,
        section=SNIPPETS_SECTION,
        label=_choose_label(found, mask, dated=recipe.speaker_labels),
        kind=found.kind,
        lang=found.lang,
        source=mask.mask(_speaker(found)),
        time=found.time,
        score=salience(base, fresh),
        signals={
            **found.signals,
            "relevance": _clamp_score(found.score),
            "lifted": base,
            "recency": fresh,
            **_speaker_signals(found),
        },
        sentences=sentences,
        origins=sentences,
        weights=_sentence_weights(found) if sentences else (),
        redactions=found.redactions if trusted else None,
        tokens=found.tokens if text == found.text else {},
        simhash=found.simhash,
        citation=Citation(
            collection=MEMORY_COLLECTION,
            record_id=found.id,
            title="",
            start=0,
            end=len(found.text),
            hash=found.hash or content_hash(found.text),
        ),
    )


def _speaker(found: Recalled) -> str:
    """Who said a memory: the speaker that its metadata names, else its role."""
    named = (found.metadata.get("speaker"), found.metadata.get("role"))
    return next((name for name in named if isinstance(name, str) and name), "")


def _speaker_signals(found: Recalled) -> dict[str, float]:
    """Marks of a memory that is not a statement of the user."""
    if found.type == SUMMARY_TYPE:
        return {SUMMARY: 1.0}
    if found.metadata.get("role") == ASSISTANT:
        return {ASSISTANT: 1.0}
    return {STANDING: 1.0} if found.metadata.get("supersedes") is False else {}


def _choose_label(found: Recalled, mask: SecretMask, *, dated: bool) -> str:
    """The label of a memory: its own label, its source or its type, the first that is not empty.

    A dated label begins with the speaker, or says that the memory is a summary, and ends with the day.
    Known secrets are masked before `safe_label`, because it may cut a secret, and after it, because its normalization
    may complete one.
    """
    source = found.metadata.get("source")
    named = (found.label, source if isinstance(source, str) else "", found.type)
    if dated:
        named = (SUMMARY if found.type == SUMMARY_TYPE else _speaker(found), *named)
    label = next((shown for name in named if (shown := mask.mask(safe_label(mask.mask(name))))), "memory")
    return f"{label}, {found.time:%Y-%m-%d}" if dated and found.time else label


def _sentence_weights(found: Recalled) -> tuple[float, ...]:
    """For each sentence the score of the best piece it starts in; empty when the memory has no scored pieces."""
    if not found.pieces:
        return ()
    return tuple(
        max((piece.score for piece in found.pieces if piece.start <= start < piece.end), default=0.0)
        for start, _ in found.sentences
    )


def _lift_by_neighbours(recalled: Sequence[Recalled], lift: float) -> list[float]:
    """Relevance of each memory plus `lift` times that of its best neighbour in the session; at most 1."""
    own = [_clamp_score(found.score) for found in recalled]
    if not lift:
        return own
    places = {
        place: base for found, base in zip(recalled, own, strict=True) if (place := _session_position(found.metadata))
    }
    return [
        min(
            1.0,
            base + lift * max((places.get(near, 0.0) for near in _neighbour_positions(found.metadata)), default=0.0),
        )
        for found, base in zip(recalled, own, strict=True)
    ]


def _session_position(metadata: Mapping[str, object]) -> tuple[str, int] | None:
    session, position = metadata.get("session_id"), metadata.get("position")
    return (session, position) if isinstance(session, str) and isinstance(position, int) else None


def _neighbour_positions(metadata: Mapping[str, object]) -> list[tuple[str, int]]:
    place = _session_position(metadata)
    return [] if place is None else [(place[0], place[1] - 1), (place[0], place[1] + 1)]


def _clamp_score(score: float) -> float:
    """A score clamped to 0..1; 0 for NaN or infinity, which a remote service may return."""
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0


def clean_metadata(cleaner: Cleaner, value: object, levels: int = _MAX_DEPTH) -> Any:
    """Metadata with every text and key cleaned; raises `RedactionFailed` when nested deeper than `levels`."""
    if isinstance(value, str):
        return cleaner.clean_text(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not levels:
        raise RedactionFailed("metadata is nested too deeply")
    if isinstance(value, Mapping):
        inside = cast("Mapping[str, object]", value).items()
        return {cleaner.clean_text(name): clean_metadata(cleaner, held, levels - 1) for name, held in inside}
    return [clean_metadata(cleaner, held, levels - 1) for held in cast("Sequence[object]", value)]
