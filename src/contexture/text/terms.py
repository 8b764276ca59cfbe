"""Stemmed, stop-free terms of a text as 32-bit ids, each word by the rules of its own script.

Cyrillic words are stemmed as Russian and all others as English, whatever the text's main language,
so that an English name inside a Russian article is found by the same name in an English question.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import cast

import Stemmer

from contexture.text.stopwords import STOPWORDS

AVERAGE_LENGTH = 120.0
"""A constant, not a statistic: an average over the store would change with records nobody may see."""

_K1 = 1.2
_B = 0.75
_MAX_WORD = 64
_STOP = STOPWORDS["en"] | STOPWORDS["ru"]
_CJK = "\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
_TOKEN = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_TOKEN_ASCII = re.compile(r"[a-z0-9]+")
_CAMEL_ASCII = re.compile(r"[a-z][A-Z]")
_APOSTROPHE = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
_CAMEL = re.compile(r"(?<=[a-z\u0430-\u044f])(?=[A-Z\u0410-\u042f])")
_CAMEL_WORD = re.compile(r"\b[^\W\d_]+[a-z\u0430-\u044f][A-Z\u0410-\u042f][^\W\d_]*\b")
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")

Stem = Callable[[str], str]


def _stemmer(language: str) -> Stem:
    return cast("Stem", Stemmer.Stemmer(language).stemWord)  # pyright: ignore[reportUnknownMemberType]


_ENGLISH = _stemmer("english")
_RUSSIAN = _stemmer("russian")


def words(text: str) -> list[str]:
    """Lower-case words in order, stop words included; a CJK character is a word.

    A name written together (`AdamSmith`) gives its parts as well, so either spelling finds it.
    """
    if text.isascii():
        parted = _CAMEL_WORD.sub(_with_parts, text) if _CAMEL_ASCII.search(text) else text
        plain = _APOSTROPHE.sub(" ", parted) if "'" in parted else parted
        return _TOKEN_ASCII.findall(plain.lower())
    folded = unicodedata.normalize("NFKC", text)
    parted = _CAMEL_WORD.sub(_with_parts, folded)
    return _TOKEN.findall(_APOSTROPHE.sub(" ", parted.lower().replace("ё", "е")))


def _with_parts(joined: re.Match[str]) -> str:
    return f"{joined.group()} {_CAMEL.sub(' ', joined.group())}"


@lru_cache(maxsize=200_000)
def term_id(word: str) -> int | None:
    """The id of a lower-case word's stem; None for a stop word."""
    if word in _STOP:
        return None
    if len(word) > _MAX_WORD:
        word = word[:_MAX_WORD]
    return zlib.crc32(stem(word).encode("utf-8", "surrogatepass"))


def stem(word: str) -> str:
    """The stem of a lower-case word, by the rules of its script."""
    return _RUSSIAN(word) if _CYRILLIC.search(word) else _ENGLISH(word)


def terms(text: str) -> list[int]:
    """Ids of the stemmed non-stop words of `text`, in order, with repeats."""
    return [found for word in words(text) if (found := term_id(word)) is not None]


def document_weights(text: str) -> Mapping[int, float]:
    """BM25 term weights of a stored text, without IDF: that depends on who asks."""
    counts = Counter(terms(text))
    length = sum(counts.values())
    norm = _K1 * (1 - _B + _B * length / AVERAGE_LENGTH)
    return {term: count * (_K1 + 1) / (count + norm) for term, count in counts.items()}
