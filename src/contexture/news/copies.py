"""Which articles tell one story almost word for word.

A copy shares most of its three-word runs with the other article, and says nothing that contradicts it: the numbers,
names, negations and directions of one of the two all stand in the other, and a negation more comes with a clause more.
"Prices rose 3 %" and "prices rose 4 %" are two stories however alike the rest is. What this needs to know of an article
is computed when it is written.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from contexture.text.sentences import sentences
from contexture.text.simhash import shingles
from contexture.text.terms import words

LIKENESS = 0.7
"""Share of all three-word runs of two articles that copies have in common."""

APART = timedelta(days=3)
"""A story is reprinted within this time; later it is another one."""

_SKETCH = 64
_FACTS = 256
_LEAST_WORDS = 8  # shorter texts are alike by chance
_CLAUSE = 5  # words that a negation more must bring along
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NAME = re.compile(r"(?<=[\w,;:»”)\]] )[«“\"(]*([^\W\d_a-zа-яё][\w-]*)")
_TURNS = frozenset(
    """no not never none nor without neither не нет ни без никогда
    rise rises rose risen rising fall falls fell fallen falling up down increase increased decrease decreased
    grow grew grown shrink shrank win wins won lose loses lost gain gained open opens opened close closes closed
    approve approved reject rejected accept accepted refuse refused start starts started end ends ended stop stopped
    begin began before after above below over under more less fewer higher lower first last yes pass passed fail failed
    вырос выросла выросли выросло упал упала упали упало рост падение больше меньше выше ниже увеличил уменьшил
    повысил понизил повысили понизили снизил снизили подорожал подорожали подешевел подешевели выиграл проиграл
    победил открыл закрыл открыт закрыт открыли закрыли одобрил одобрили отклонил отклонили принял отверг начал
    завершил начали завершили до после первый последний""".split()
)


@dataclass(frozen=True, slots=True)
class Print:
    """What is known of an article's wording: its words, a sample of its runs of words, its facts and its turns.

    Facts are numbers and names; turns are negations and directions, each time that they occur.
    """

    length: int
    runs: frozenset[int]
    facts: frozenset[int]
    turns: frozenset[int]


UNLIKE = Print(0, frozenset(), frozenset(), frozenset())
"""The fingerprint of what is like nothing else."""


def print_of(text: str) -> dict[str, Any]:
    """The fingerprint of a text, as it is stored."""
    spoken = words(text)
    runs = {_id(" ".join(run)) for run in shingles(" ".join(spoken))} if len(spoken) >= _LEAST_WORDS else set[int]()
    return {
        "length": len(spoken),
        "runs": _packed(runs, _SKETCH),
        "facts": _packed(map(_id, _facts(text)), _FACTS),
        "turns": _packed(map(_id, _turns(spoken)), _FACTS),
    }


def stored_print(payload: Mapping[str, Any]) -> Print:
    """The fingerprint in a record's payload; one that is missing is like no other."""
    found: Mapping[str, Any] = payload.get("print") or {}
    runs, facts, turns = (_unpacked(found.get(name, "")) for name in ("runs", "facts", "turns"))
    return Print(found.get("length", 0), runs, facts, turns)


def copies(one: Print, other: Print) -> bool:
    """Whether two articles have nearly the same words and no fact that only each of them has."""
    if one.runs.isdisjoint(other.runs):
        return False
    return _likeness(one.runs, other.runs) >= LIKENESS and (_within(one, other) or _within(other, one))


def _likeness(one: frozenset[int], other: frozenset[int]) -> float:
    """The Jaccard similarity, estimated from the smallest hashes of either; exact for short texts."""
    sample = sorted(one | other)[:_SKETCH]
    return sum(each in one and each in other for each in sample) / len(sample)


def _within(one: Print, other: Print) -> bool:
    """Whether all that one article states stands in the other, and what else that one denies has room to stand in."""
    more = len(other.turns) - len(one.turns)
    room = other.length - one.length >= _CLAUSE * more
    return room and _subset(one.facts, other.facts) and _subset(one.turns, other.turns)


def _subset(one: frozenset[int], other: frozenset[int]) -> bool:
    missing = one - other
    return not missing or (len(other) == _FACTS and min(missing) > max(other))


def _facts(text: str) -> set[str]:
    """Numbers, and names inside sentences."""
    found = {number.strip(".,") for number in _NUMBER.findall(text)}
    for start, end in sentences(text):
        found.update(name.lower() for name in _NAME.findall(text[start:end]))
    return found


def _turns(spoken: Sequence[str]) -> list[str]:
    """Negations and directions, the second `not` apart from the first."""
    seen: Counter[str] = Counter()
    found: list[str] = []
    for word in spoken:
        if word in _TURNS:
            seen[word] += 1
            found.append(f"{word} {seen[word]}")
    return found


def _packed(hashes: Iterable[int], most: int) -> str:
    return b64encode(np.array(sorted(set(hashes))[:most], "<u4").tobytes()).decode()


@lru_cache(maxsize=4_096)
def _unpacked(text: str) -> frozenset[int]:
    return frozenset(np.frombuffer(b64decode(text), "<u4").tolist())


def _id(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))
