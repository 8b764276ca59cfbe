"""Which articles tell one story almost word for word.

A copy shares most of its three-word runs with the other article, and says nothing that contradicts it: the numbers,
names, negations and directions of one of the two all stand in the other. "Prices rose 3 %" and "prices rose 4 %" are
two stories however alike the rest is. What this needs to know of an article is computed when it is written.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
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
    """What is known of an article's wording: how long it is, a sample of its runs of words, and its facts."""

    length: int
    runs: frozenset[int]
    facts: frozenset[int]


def print_of(text: str) -> dict[str, Any]:
    """The fingerprint of a text, as it is stored."""
    length = len(words(text))
    runs = {_id(" ".join(run)) for run in shingles(" ".join(words(text)))} if length >= _LEAST_WORDS else set[int]()
    return {"length": length, "runs": _packed(runs, _SKETCH), "facts": _packed(map(_id, _facts(text)), _FACTS)}


def stored_print(payload: Mapping[str, Any]) -> Print:
    """The fingerprint in a record's payload; one that is missing is like no other."""
    found: Mapping[str, Any] = payload.get("print") or {}
    return Print(found.get("length", 0), _unpacked(found.get("runs", "")), _unpacked(found.get("facts", "")))


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
    missing = one.facts - other.facts
    return not missing or (len(other.facts) == _FACTS and min(missing) > max(other.facts))


def _facts(text: str) -> set[str]:
    """Numbers, names inside sentences, negations and directions."""
    found = {word for word in words(text) if word in _TURNS} | {number.strip(".,") for number in _NUMBER.findall(text)}
    for start, end in sentences(text):
        found.update(name.lower() for name in _NAME.findall(text[start:end]))
    return found


def _packed(hashes: Iterable[int], most: int) -> str:
    return b64encode(np.array(sorted(set(hashes))[:most], "<u4").tobytes()).decode()


@lru_cache(maxsize=4_096)
def _unpacked(text: str) -> frozenset[int]:
    return frozenset(np.frombuffer(b64decode(text), "<u4").tolist())


def _id(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))
