"""Which memory comes first: corrections over what they correct, the user's statements over everybody else's words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contexture.builders.turn._collect import ASSISTANT, STANDING, SUMMARY
from contexture.ledger import Reason, Trace
from contexture.memory.supersession import Statement, find_superseded
from contexture.pipeline.candidates import rank_candidates
from contexture.text.questions import asks_about_past
from contexture.text.terms import extract_terms
from contexture.types import Candidate

_STEP = 1e-6  # the least difference in score that orders two candidates


def drop_superseded(candidates: Sequence[Candidate], question: str, trace: Trace) -> list[Candidate]:
    """The candidates without statements that a newer one of the same speaker supersedes.

    They are dropped as `SUPERSEDED`, unless the question asks how something was before.
    """
    if asks_about_past(question):
        return list(candidates)
    stated = [_to_statement(each) for each in candidates if _is_statement(each)]
    standing = {each.id for each in candidates if each.signals.get(STANDING)}
    replaced = {old: new for old, new in find_superseded(stated).items() if new not in standing}
    for candidate in candidates:
        if candidate.id in replaced:
            trace.drop(candidate, Reason.SUPERSEDED, of=replaced[candidate.id])
    return [candidate for candidate in candidates if candidate.id not in replaced]


def rank_below_statements(candidates: Sequence[Candidate], question: str) -> list[Candidate]:
    """The candidates, ranked; the assistant's words and summaries below what the user said about the same thing.

    A statement is about the same thing when it contains every word of the question that the other text contains.
    """
    wanted = frozenset(extract_terms(question))
    covered = {each.id: wanted & frozenset(extract_terms(each.text)) for each in candidates}
    stated = [each for each in candidates if _is_statement(each)]

    def limit_score(candidate: Candidate) -> Candidate:
        above = [each.score for each in stated if covered[each.id] >= covered[candidate.id]]
        limit = min(above, default=candidate.score) - _STEP
        return msgspec.structs.replace(candidate, score=limit) if candidate.score > limit else candidate

    return rank_candidates(each if _is_statement(each) else limit_score(each) for each in candidates)


def _is_statement(candidate: Candidate) -> bool:
    return not (candidate.signals.get(ASSISTANT) or candidate.signals.get(SUMMARY))


def _to_statement(candidate: Candidate) -> Statement:
    return Statement(id=candidate.id, text=candidate.text, time=candidate.time, speaker=candidate.source)
