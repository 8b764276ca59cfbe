"""A 64-bit hash that stays close for texts that are close, and the shingles that settle doubts."""

from __future__ import annotations

import zlib

import numpy as np

from contexture.text.terms import words

_SHINGLE = 3
_BITS = np.arange(64, dtype=np.uint64)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(31)


def shingles(text: str) -> frozenset[int]:
    """Ids of every run of three words; a shorter text is one shingle."""
    tokens = words(text)
    if len(tokens) < _SHINGLE:
        return frozenset({_id(" ".join(tokens))} if tokens else ())
    return frozenset(_id(" ".join(tokens[at : at + _SHINGLE])) for at in range(len(tokens) - _SHINGLE + 1))


def simhash(text: str) -> int:
    """The similarity hash of a text; texts without words hash to 0."""
    found = shingles(text)
    if not found:
        return 0
    spread = np.fromiter(found, dtype=np.uint64, count=len(found)) * _SPREAD
    spread = (spread ^ (spread >> _HALF)) * _MIX
    votes = ((spread[:, None] >> _BITS) & np.uint64(1)).sum(axis=0)
    winners = votes * 2 > len(found)
    return int((winners.astype(np.uint64) << _BITS).sum())


def distance(left: int, right: int) -> int:
    """How many of the 64 bits differ."""
    return (left ^ right).bit_count()


def _id(shingle: str) -> int:
    return zlib.crc32(shingle.encode("utf-8", "surrogatepass"))
