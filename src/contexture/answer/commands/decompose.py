"""The parts of a question, each of which wants an answer of its own."""

from __future__ import annotations

import re

from contexture.news.newest import asks_for_anything
from contexture.text.terms import terms

MOST_PARTS = 4

_ASKING = (
    "who|whom|whose|what|when|where|why|how|which|кто|кого|кому|что|чем|когда|где|куда|почему|зачем|как|"
    "какой|какая|какие|каков|сколько|чей"
)
_JOINTS = re.compile(
    rf"[?？;]+\s*|(?:,\s*|\s+)(?:and|or|but|и|или|а|но|а также|as well as)\s+(?=(?:{_ASKING})\b)"
    rf"|,\s+(?=(?:{_ASKING})\b)",
    re.IGNORECASE,
)
_ONLY_ASKING = frozenset(
    terms(
        """many much long far often happened happen latest recent news tell explain describe say says know
        сколько много давно часто случилось произошло последние свежие новости расскажи объясни известно"""
    )
)
_VERSUS = re.compile(r"\s+(?:vs\.?|versus|compared (?:to|with)|против|по сравнению с)\s+", re.IGNORECASE)


def subject_of(question: str) -> frozenset[int]:
    """The terms that an answer must speak of; words that only ask are not among them, and any news has none."""
    if asks_for_anything(question):
        return frozenset()
    wanted = frozenset(terms(question))
    return wanted - _ONLY_ASKING or wanted


def parts_of(question: str) -> tuple[str, ...]:
    """At most four parts that say something, in order; a question that cannot be taken apart is its only part."""
    pieces = [piece.strip(" ,.") for joint in _JOINTS.split(question) for piece in _VERSUS.split(joint)]
    found: dict[frozenset[int], str] = {}
    for piece in pieces:
        said = frozenset(terms(piece))
        if said:
            found.setdefault(said, piece)
    return tuple(found.values())[:MOST_PARTS] or (question,)
