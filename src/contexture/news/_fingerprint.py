"""Fingerprints of articles, to tell copies of one story from different stories with similar wording.

A copy shares most of its three-word runs with the other article and contradicts none of its numbers, names, negations
and directions: "prices rose 3 %" and "prices rose 4 %" are two stories. Fingerprints are computed when an article is
written.
"""

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

from contexture.text.segmentation import split_sentences
from contexture.text.simhash import shingles
from contexture.text.terms import split_words

MIN_SIMILARITY = 0.7
"""Jaccard similarity of three-word runs from which two articles may be copies."""

MAX_REPRINT_DELAY = timedelta(days=3)
"""Maximum time between copies of one story; a later article is another story."""

_SKETCH_SIZE = 64
_MAX_FACTS = 256
_MIN_WORDS = 8  # shorter texts may be similar by chance
_CLAUSE_WORDS = 5  # additional words required for each additional negation or direction
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NAME = re.compile(r"(?<=[\w,;:»”)\]] )[«“\"(]*([^\W\d_a-zа-яё][\w-]*)")
_POLARITY_WORDS = frozenset(
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
class Fingerprint:
    """The fingerprint of an article's wording: length in words, and hashes of its word runs, facts and turns.

    `runs` is a sample. Facts are numbers and names; turns are negations and directions, one for each occurrence.
    """

    length: int
    runs: frozenset[int]
    facts: frozenset[int]
    turns: frozenset[int]


NO_FINGERPRINT = Fingerprint(0, frozenset(), frozenset(), frozenset())
"""A fingerprint that matches no other."""


def make_fingerprint(text: str) -> dict[str, Any]:
    """The fingerprint of a text, in the form stored in a record's payload."""
    spoken = split_words(text)
    runs = (
        {_hash_word(" ".join(run)) for run in shingles(" ".join(spoken))} if len(spoken) >= _MIN_WORDS else set[int]()
    )
    return {
        "length": len(spoken),
        "runs": _pack_hashes(runs, _SKETCH_SIZE),
        "facts": _pack_hashes(map(_hash_word, _extract_facts(text)), _MAX_FACTS),
        "turns": _pack_hashes(map(_hash_word, _extract_polarity(spoken)), _MAX_FACTS),
    }


def read_fingerprint(payload: Mapping[str, Any]) -> Fingerprint:
    """The fingerprint in a record's payload; a missing one matches nothing."""
    found: Mapping[str, Any] = payload.get("print") or {}
    runs, facts, turns = (_unpack_hashes(found.get(name, "")) for name in ("runs", "facts", "turns"))
    return Fingerprint(found.get("length", 0), runs, facts, turns)


def is_copy(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether two articles have nearly the same words, and one contains all facts and turns of the other."""
    if one.runs.isdisjoint(other.runs):
        return False
    return _similarity(one.runs, other.runs) >= MIN_SIMILARITY and (
        _is_contained(one, other) or _is_contained(other, one)
    )


def _similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """The Jaccard similarity, estimated from the smallest hashes of the union (MinHash); exact for short texts."""
    sample = sorted(one | other)[:_SKETCH_SIZE]
    return sum(each in one and each in other for each in sample) / len(sample)


def _is_contained(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether `other` has all facts and turns of `one`; additional turns must come with additional words."""
    more = len(other.turns) - len(one.turns)
    room = other.length - one.length >= _CLAUSE_WORDS * more
    return room and _is_subset(one.facts, other.facts) and _is_subset(one.turns, other.turns)


def _is_subset(one: frozenset[int], other: frozenset[int]) -> bool:
    missing = one - other
    return not missing or (len(other) == _MAX_FACTS and min(missing) > max(other))


def _extract_facts(text: str) -> set[str]:
    """Numbers, and names inside sentences."""
    found = {number.strip(".,") for number in _NUMBER.findall(text)}
    for start, end in split_sentences(text):
        found.update(name.lower() for name in _NAME.findall(text[start:end]))
    return found


def _extract_polarity(spoken: Sequence[str]) -> list[str]:
    """Negations and directions, numbered so that repeated words stay distinct."""
    seen: Counter[str] = Counter()
    found: list[str] = []
    for word in spoken:
        if word in _POLARITY_WORDS:
            seen[word] += 1
            found.append(f"{word} {seen[word]}")
    return found


def _pack_hashes(hashes: Iterable[int], most: int) -> str:
    return b64encode(np.array(sorted(set(hashes))[:most], "<u4").tobytes()).decode()


@lru_cache(maxsize=4_096)
def _unpack_hashes(text: str) -> frozenset[int]:
    return frozenset(np.frombuffer(b64decode(text), "<u4").tolist())


def _hash_word(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))
