"""The composite score of a block: five parts, each of them a signal in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from contexture.builders.workspace.desk import COLLECTED, Desk
from contexture.builders.workspace.intent import OTHER_DATES
from contexture.builders.workspace.tree import Chains, distance, page_title, steps_up
from contexture.pipeline.score import DECAY_DAYS, UNKNOWN, age_days, composite, linear_decay, structural
from contexture.types import Candidate
from contexture.workspace import Touch

AUTHORED, EDITED, VIEWED = 0.4, 0.4, 0.2
"""What each kind of dealing with a block can add to the user's affinity to it; together 1."""

_APART = 1_000
_NEVER = Touch()


def scored(
    desk: Desk, candidates: Sequence[Candidate], chains: Chains | None, touches: Mapping[str, Touch]
) -> list[Candidate]:
    """The candidates with their parts and their score; `chains` is None where the tree could not be read."""
    focus = desk.place.nearest
    near = None if focus is None or chains is None else steps_up(focus.id, chains)
    return [_scored(desk, candidate, chains, near, touches.get(candidate.key, _NEVER)) for candidate in candidates]


def affinity(touch: Touch, now: datetime) -> float:
    """How much a user has to do with a block, from 0 to 1: they wrote it, edited it, looked at it.

    Each further edit or view adds half of what the one before did; both fade like recency does.
    """
    if touch == _NEVER:
        return 0.0
    fresh = 1.0 if touch.last is None else 2 ** (-age_days(touch.last, now) / DECAY_DAYS)
    dealt = EDITED * (1 - 0.5**touch.edits) + VIEWED * (1 - 0.5**touch.views)
    return AUTHORED * touch.author + fresh * dealt


def _scored(
    desk: Desk, candidate: Candidate, chains: Chains | None, near: Mapping[str, int] | None, touch: Touch
) -> Candidate:
    block = desk.blocks[candidate.key]
    chain = () if chains is None else chains.get(block.id, ())
    signals = {
        **candidate.signals,
        "semantic": candidate.signals[COLLECTED],
        "structural": _near(block.id, chains, near),
        "recency": linear_decay(block.modified, desk.now),
        "type_match": desk.intent.type_match(block, page_title(block, chain)),
        "affinity": affinity(touch, desk.now),
    }
    score = composite(signals, desk.config.weights).score
    if desk.intent.span is not None and not desk.intent.dated(block):
        score *= OTHER_DATES
    return replace(candidate, score=min(max(score, 0.0), 1.0), signals=signals)


def _near(block_id: str, chains: Chains | None, near: Mapping[str, int] | None) -> float:
    """By the real distance in the tree; what is in another tree is as far as can be."""
    if near is None or chains is None:
        return UNKNOWN
    steps = distance(block_id, near, chains)
    return structural(_APART if steps is None else steps)
