"""Recalled memories as candidates: scored by relevance and recency, known secrets masked, corrections first."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from msgspec.structs import replace

from contexture.conversation import CORRECTS_KEY, JOINED, SUMMARY_TYPE, Recalled
from contexture.ledger import Reason, Trace
from contexture.pipeline.candidates import rank_candidates
from contexture.pipeline.fence import safe_label
from contexture.pipeline.masking import SecretMask, mask_candidate
from contexture.pipeline.scoring import recency, salience
from contexture.text.questions import asks_about_past
from contexture.text.segmentation import TextRange, split_sentences
from contexture.text.supersession import (
    DatedStatement,
    Supersession,
    find_attribute_terms,
    find_superseded,
    is_outdated,
)
from contexture.text.unicode import repair_text
from contexture.types import Candidate, Citation, content_hash

MEMORY_COLLECTION = "memories"
SNIPPETS_SECTION = "snippets"
ASSISTANT = "assistant"
SUMMARY = "summary"
STANDING = "standing"
"""Signals of a memory: the assistant said it, it is a summary, or its writer says that it supersedes nothing."""

_CORRECTS = "corrects "  # begins a signal; the id of the corrected memory follows
_RESERVED_PREFIX = "history["
_JOINED_SHARE = 0.35  # at most the score of the least relevant and oldest memory above the threshold
_FREE_OF_LOSS = 3  # better memories of one session
_MAX_LOSSES = 5
_STEP = 1e-6  # by which a candidate is ranked below another
_TRIFLE = 1e-9  # by which the older of two equals is ranked below the newer


def make_candidates(
    recalled: Sequence[Recalled],
    *,
    now: datetime,
    rules: str,
    mask: SecretMask,
    dated: bool,
    lift: float = 0.0,
    spread: float = 0.0,
) -> list[Candidate]:
    """One candidate per recalled memory, scored `.7 x relevance + .3 x recency`.

    One that joins a better one beside it has a third of that, so that it only uses room that others leave.
    Stored redaction spans are used only if their rules match. `source` of a candidate is its speaker; the signals
    `assistant` and `summary` mark what the user did not say. A `dated` label begins with the speaker and ends with the
    day. `lift` is the share of the relevance of the better neighbour in the session that is added. `spread` is the
    share of its score that a memory loses for each better one of its session beyond three.
    """
    relevance = _lift_by_neighbours(recalled, lift)
    candidates = [
        mask_candidate(_make_candidate(found, base, now, rules, mask, dated=dated), mask)
        for found, base in zip(recalled, relevance, strict=True)
    ]
    return _spread_over_sessions(candidates, recalled, spread) if spread else candidates


def memory_candidate_id(memory_id: str) -> str:
    """The candidate id of a memory, distinct from ids of history messages."""
    return f"memory:{memory_id}" if memory_id.startswith(_RESERVED_PREFIX) else memory_id


def _make_candidate(
    found: Recalled, base: float, now: datetime, rules: str, mask: SecretMask, *, dated: bool
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
        label=_choose_label(found, mask, dated=dated),
        kind=found.kind,
        lang=found.lang,
        source=mask.mask(_speaker(found)),
        time=found.time,
        score=salience(base, fresh) * (_JOINED_SHARE if JOINED in found.signals else 1.0),
        signals={
            **found.signals,
            "relevance": _clamp_score(found.score),
            "lifted": base,
            "recency": fresh,
            **_speaker_signals(found),
            **_correction_signals(found),
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


def _correction_signals(found: Recalled) -> dict[str, float]:
    """A mark for each memory that this one says it corrects."""
    named: object = found.metadata.get(CORRECTS_KEY)
    ids = cast("list[object]", named) if isinstance(named, list) else []
    return {f"{_CORRECTS}{memory_candidate_id(each)}": 1.0 for each in ids if isinstance(each, str)}


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


def _spread_over_sessions(
    candidates: Sequence[Candidate], recalled: Sequence[Recalled], spread: float
) -> list[Candidate]:
    """Each candidate with the share of its score that the better ones of its session leave it."""
    sessions = {each.id: found.metadata.get("session_id") for each, found in zip(candidates, recalled, strict=True)}
    better = Counter[object]()
    share: dict[str, float] = {}
    for candidate in rank_candidates(candidates):
        session = sessions[candidate.id]
        losses = min(max(0, better[session] - _FREE_OF_LOSS), _MAX_LOSSES)
        share[candidate.id] = (1 - spread) ** losses if session else 1.0
        better[session] += 1
    return [replace(each, score=each.score * share[each.id]) for each in candidates]


def _session_position(metadata: Mapping[str, object]) -> tuple[str, int] | None:
    session, position = metadata.get("session_id"), metadata.get("position")
    return (session, position) if isinstance(session, str) and isinstance(position, int) else None


def _neighbour_positions(metadata: Mapping[str, object]) -> list[tuple[str, int]]:
    place = _session_position(metadata)
    return [] if place is None else [(place[0], place[1] - 1), (place[0], place[1] + 1)]


def _clamp_score(score: float) -> float:
    """A score clamped to 0..1; 0 for NaN or infinity, which a remote service may return."""
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0


def drop_superseded(candidates: Sequence[Candidate], question: str, trace: Trace) -> list[Candidate]:
    """The candidates without what a newer statement of the same speaker supersedes, or says that it corrects.

    A memory of which every sentence is superseded is dropped as `SUPERSEDED`; of any other, the superseded sentences
    are left out, which its note says. Nothing is, when the question asks how something was before.
    """
    if asks_about_past(question):
        return list(candidates)
    stated = [each for each in candidates if _is_statement(each)]
    found = {**_find_corrected(stated), **find_superseded([_to_statement(each) for each in stated])}
    kept: list[Candidate] = []
    for candidate in candidates:
        replaced = found.get(candidate.id)
        if replaced is None:
            kept.append(candidate)
        elif replaced.whole:
            trace.drop(candidate, Reason.SUPERSEDED, of=replaced.by)
        else:
            kept.append(_leave_out(candidate, replaced.sentences))
            trace.add_note(candidate, f"sentences left out, superseded by {replaced.by!r}: {len(replaced.sentences)}")
    return kept


def _find_corrected(stated: Sequence[Candidate]) -> dict[str, Supersession]:
    """By id, the statements that a newer one of the same speaker says it corrects."""
    return {
        older.id: Supersession(by=newer.id, sentences=(), whole=True)
        for older in stated
        for newer in stated
        if f"{_CORRECTS}{older.id}" in newer.signals and _may_correct(older, newer)
    }


def _may_correct(older: Candidate, newer: Candidate) -> bool:
    return (
        older.time is not None
        and newer.time is not None
        and newer.time > older.time
        and newer.source == older.source
        and not newer.signals.get(STANDING)
    )


def _leave_out(candidate: Candidate, superseded: Sequence[TextRange]) -> Candidate:
    """The candidate without these sentences; its stored facts are about the whole text, so they go too."""
    stated = [
        candidate.text[start:end] for start, end in split_sentences(candidate.text) if (start, end) not in superseded
    ]
    return replace(candidate, text=" ".join(stated), sentences=(), origins=(), weights=(), tokens={})


def rank_below_statements(candidates: Sequence[Candidate], question: str) -> list[Candidate]:
    """The candidates, ranked; the assistant's words and summaries below what the user said about the same thing.

    So is a statement that also says what a newer one of the same speaker corrects. A statement is about the same thing
    when it contains every word of the question that the other text contains.
    """
    wanted = find_attribute_terms(question)
    covered = {each.id: wanted & find_attribute_terms(each.text) for each in candidates}
    stated = [each for each in candidates if _is_statement(each)]

    def limit_score(candidate: Candidate) -> Candidate:
        above = [
            each.score
            for each in stated
            if covered[each.id] >= covered[candidate.id]
            and (not _is_statement(candidate) or (covered[candidate.id] and _is_corrected(candidate, each)))
        ]
        limit = min(above, default=candidate.score + _STEP) - _STEP
        return replace(candidate, score=limit) if candidate.score > limit else candidate

    return _rank_newer_first([limit_score(each) for each in candidates])


def _rank_newer_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best score first; of equal scores the newer first, then by id, each a trifle below the one before it."""
    ranked: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: (-each.score, -_timestamp(each), each.id)):
        limit = ranked[-1].score - _TRIFLE if ranked else math.inf
        ranked.append(replace(candidate, score=limit) if candidate.score > limit else candidate)
    return ranked


def _timestamp(candidate: Candidate) -> float:
    return candidate.time.timestamp() if candidate.time else -math.inf


def _is_corrected(older: Candidate, newer: Candidate) -> bool:
    """Whether a newer statement of the same speaker corrects something that an older one says beside other things."""
    return _may_correct(older, newer) and is_outdated(older.text, newer.text)


def _is_statement(candidate: Candidate) -> bool:
    return not (candidate.signals.get(ASSISTANT) or candidate.signals.get(SUMMARY))


def _to_statement(candidate: Candidate) -> DatedStatement:
    return DatedStatement(
        id=candidate.id,
        text=candidate.text,
        time=candidate.time,
        speaker=candidate.source,
        supersedes=not candidate.signals.get(STANDING),
    )
