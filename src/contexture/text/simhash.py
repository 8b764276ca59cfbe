"""A 64-bit hash that stays close for texts that are close, and the shingles that settle doubts.

The hash is made once, when a text is stored, of its words; shingles are made while someone waits, so they are plainer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contexture.text.terms import words

Shingle: TypeAlias = tuple[str, ...]

_SHINGLE = 3
_BITS = np.arange(64, dtype=np.uint64)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(31)


@lru_cache(maxsize=512)
def shingles(text: str) -> frozenset[Shingle]:
    """Every run of three words without case; a shorter text is one shingle.

    Remembered, for a conversation says the same things turn after turn.
    """
    return shingles_of(text.casefold().split())


def shingles_of(tokens: Sequence[str]) -> frozenset[Shingle]:
    """Every run of three of these words; fewer words are one shingle."""
    if len(tokens) < _SHINGLE:
        return frozenset([tuple(tokens)] if tokens else ())
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def surely_shared(left: str, right: str) -> float:
    """A similarity that the shingles of two texts without case have at least, told by how they begin and end alike.

    Shingles that stand at the same place from either end are shared. There are at least as many different ones as
    there are different words to begin them, and at worst no other shingle of either text is shared.
    """
    begin = left.rfind(" ", 0, _common(left, right)) + 1
    end = _common(left[begin:][::-1], right[begin:][::-1])
    space = left.find(" ", len(left) - end)
    end = len(left) - space if space >= 0 else 0
    middles = [len(text[begin : len(text) - end].split()) for text in (left, right)]
    head, tail = left[:begin].split(), left[len(left) - end :].split()
    runs = head[: 1 - _SHINGLE], tail[: 1 - _SHINGLE]
    shared = len({*runs[0], *runs[1]})
    unlike = len(head) - len(runs[0]) + len(tail) - len(runs[1]) - (_SHINGLE - 1)
    return shared / (shared + sum(middles) + 2 * unlike) if shared else 0.0


def _common(left: str, right: str) -> int:
    """With how many characters two texts begin alike: compared in halves, so that none is looked at by itself."""
    same, most = 0, min(len(left), len(right))
    while same < most:
        middle = (same + most + 1) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same


def simhash(text: str) -> int:
    """The similarity hash of a text; texts without words hash to 0."""
    found = _shingles(text)
    if not len(found):
        return 0
    spread = found * _SPREAD
    spread = (spread ^ (spread >> _HALF)) * _MIX
    votes = ((spread[:, None] >> _BITS) & np.uint64(1)).sum(axis=0)
    winners = votes * 2 > len(found)
    return int((winners.astype(np.uint64) << _BITS).sum())


def distance(left: int, right: int) -> int:
    """How many of the 64 bits differ."""
    return (left ^ right).bit_count()


def _shingles(text: str) -> npt.NDArray[np.uint64]:
    tokens = words(text)
    if len(tokens) < _SHINGLE:
        return np.array([_id(" ".join(tokens))] if tokens else [], np.uint64)
    ids = np.array([_id(token) for token in tokens], np.uint64)
    return np.unique((ids[:-2] * _SPREAD ^ ids[1:-1]) * _MIX ^ ids[2:])


@lru_cache(maxsize=100_000)
def _id(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))
