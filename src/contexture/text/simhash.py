"""A 64-bit similarity hash (simhash), and shingles for exact comparison.

The hash is computed once from a text's words, when it is stored; shingles are computed during a request, so they use a
simpler word split.
"""

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contexture.text.terms import WordTable, split_words

Shingle: TypeAlias = tuple[str, ...]

_SHINGLE_WORDS = 3
_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HASH_MIXER = np.uint64(0xBF58476D1CE4E5B9)
_HASH_SHIFT = np.uint64(31)


@lru_cache(maxsize=512)
def shingles(text: str) -> frozenset[Shingle]:
    """Every run of three case-folded words; a shorter text is one shingle.

    Cached, because a conversation repeats the same texts turn after turn.
    """
    return make_shingles(text.casefold().split())


def make_shingles(tokens: Sequence[str]) -> frozenset[Shingle]:
    """Every run of three of these words; fewer words are one shingle."""
    if len(tokens) < _SHINGLE_WORDS:
        return frozenset([tuple(tokens)] if tokens else ())
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def min_similarity(left: str, right: str) -> float:
    """A lower bound of the Jaccard similarity of two lower-case texts' shingles, from their common start and end.

    Shingles inside the common start and end are shared. There are at least as many distinct ones as distinct first
    words, and at worst no other shingle of either text is shared.
    """
    begin = left.rfind(" ", 0, _common_prefix_length(left, right)) + 1
    end = _common_prefix_length(left[begin:][::-1], right[begin:][::-1])
    space = left.find(" ", len(left) - end)
    end = len(left) - space if space >= 0 else 0
    middles = [len(text[begin : len(text) - end].split()) for text in (left, right)]
    head, tail = left[:begin].split(), left[len(left) - end :].split()
    runs = head[: 1 - _SHINGLE_WORDS], tail[: 1 - _SHINGLE_WORDS]
    shared = len({*runs[0], *runs[1]})
    unlike = len(head) - len(runs[0]) + len(tail) - len(runs[1]) - (_SHINGLE_WORDS - 1)
    return shared / (shared + sum(middles) + 2 * unlike) if shared else 0.0


def _common_prefix_length(left: str, right: str) -> int:
    """The length of the common prefix of two texts; a binary search over slices, faster than character by character."""
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
    return hash_words(split_words(text))


def hash_words(words: Sequence[str]) -> int:
    """The similarity hash of a text with these words, which `split_words` gives."""
    found = _hash_shingles(words)
    if not len(found):
        return 0
    spread = found * _HASH_MULTIPLIER
    spread = (spread ^ (spread >> _HASH_SHIFT)) * _HASH_MIXER
    bits = np.unpackbits(spread.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    winners = bits.sum(axis=0, dtype=np.uint32) * 2 > len(found)
    return int.from_bytes(np.packbits(winners, bitorder="little").tobytes(), "little")


def hamming_distance(left: int, right: int) -> int:
    """How many of the 64 bits differ."""
    return (left ^ right).bit_count()


def _hash_shingles(words: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The distinct hashes of every run of three words."""
    if len(words) < _SHINGLE_WORDS:
        return np.array([_hash_word(" ".join(words))] if words else [], np.uint64)
    ids = np.fromiter(map(_WORD_HASHES.__getitem__, words), np.uint64, len(words))
    hashes = (ids[:-2] * _HASH_MULTIPLIER ^ ids[1:-1]) * _HASH_MIXER ^ ids[2:]
    hashes.sort()
    is_first = np.ones(len(hashes), np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
    return hashes[is_first]


def _hash_word(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


_WORD_HASHES = WordTable(_hash_word, most=100_000)
