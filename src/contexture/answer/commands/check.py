"""What a model wrote, sentence by sentence: only what names valid evidence stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from contexture.answer.commands.figures import digits
from contexture.answer.commands.values import UNSURE, Evidence, Statement
from contexture.text.language import UNKNOWN, detect
from contexture.text.sentences import sentences

_REFERENCE = re.compile(r"\s*\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\]")
# A reference behind the full stop belongs to the sentence before it.
_BEHIND = re.compile(r"([.!?…]+)((?:\s*\[\s*\d{1,4}(?:\s*[,;]\s*\d{1,4})*\s*\])+)")
_LIST_MARK = re.compile(r"^(?:[-*•]|\d+[.)])\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The statements that stand, and how many sentences were taken out."""

    statements: tuple[Statement, ...]
    removed: int


def checked(text: str, evidence: Mapping[int, Evidence], lang: str) -> Checked:
    """Every sentence with at least one valid reference, its references taken out of the text.

    A sentence with a figure that none of its evidence shows is marked.
    """
    ordered = _BEHIND.sub(lambda found: f"{found[2]}{found[1]}", text)
    kept: list[Statement] = []
    removed = 0
    for start, end in sentences(ordered):
        statement = _statement(ordered[start:end], evidence, lang)
        if statement is None:
            removed += 1
        else:
            kept.append(statement)
    return Checked(statements=tuple(kept), removed=removed)


def _statement(sentence: str, evidence: Mapping[int, Evidence], lang: str) -> Statement | None:
    named = [int(number) for found in _REFERENCE.findall(sentence) for number in re.findall(r"\d+", found)]
    valid = tuple(dict.fromkeys(number for number in named if number in evidence))
    text = " ".join(_LIST_MARK.sub("", _REFERENCE.sub("", sentence)).split())
    if not valid or not any(character.isalnum() for character in text):
        return None
    spoken = detect(text)
    return Statement(
        text=text,
        lang=lang if spoken == UNKNOWN else spoken,
        evidence=valid,
        marks=() if _shown(text, [evidence[number] for number in valid]) else (UNSURE,),
    )


def _shown(text: str, evidence: list[Evidence]) -> bool:
    """Whether every figure of a sentence stands in its evidence, or in the date of it."""
    seen = frozenset[str]().union(*(digits(f"{each.text} {each.title} {each.date}") for each in evidence))
    dates = frozenset(part.lstrip("0") for each in evidence for part in each.date.split("-"))
    return digits(text) <= seen | dates
