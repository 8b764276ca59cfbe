"""Terms of a text as 32-bit ids, without stop words.

Texts are compared by stems: Cyrillic words are stemmed as Russian and all others as English, whatever the text's main
language, so that an English name inside a Russian article is found by the same name in an English question.

An index holds more: every lemma of a Cyrillic word, the stems of German, French and Spanish texts, and the parts of
words such as `fy2018`. Lemmas have ids of their own, so that they never match a stem. A question has lemmas and stems,
so that it also finds records that were written when the index held stems only.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import chain
from typing import Any, TypeVar, cast

import Stemmer

from contexture.text.language import STOPWORDS

AVERAGE_DOCUMENT_TERMS = 120.0
"""Average length for BM25; a constant, because a real average would depend on records that the scope may not see."""

_K1 = 1.2
_B = 0.75
_MAX_WORD_CHARS = 64
_STOP_WORDS = STOPWORDS["en"] | STOPWORDS["ru"]
_CJK = "\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
_TOKEN = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_TOKEN_ASCII = re.compile(r"[a-z0-9]+")
_CAMEL_ASCII = re.compile(r"[a-z][A-Z]")
_APOSTROPHE = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
_CAMEL = re.compile(r"(?<=[a-z\u0430-\u044f])(?=[A-Z\u0410-\u042f])")
_CAMEL_PAIR = re.compile(r"[a-z\u0430-\u044f][A-Z\u0410-\u042f]")
_CAMEL_WORD = re.compile(r"\b[^\W\d_]+[a-z\u0430-\u044f][A-Z\u0410-\u042f][^\W\d_]*\b")
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")
_LETTERS_AND_DIGITS = re.compile(r"[^\W\d_]{2,}|\d{2,}")

Stem = Callable[[str], str]
_T = TypeVar("_T")


def _make_stemmer(language: str) -> Stem:
    return cast("Stem", Stemmer.Stemmer(language, 0).stemWord)  # pyright: ignore[reportUnknownMemberType]


_stem_english = _make_stemmer("english")
_stem_russian = _make_stemmer("russian")
_STEMMERS = {"de": _make_stemmer("german"), "fr": _make_stemmer("french"), "es": _make_stemmer("spanish")}


class WordTable(dict[str, _T]):
    """What a function gives for each word: computed once, and again after the table was full and has been emptied."""

    def __init__(self, compute: Callable[[str], _T], *, most: int) -> None:
        super().__init__()
        self._compute = compute
        self._most = most

    def __missing__(self, word: str) -> _T:
        if len(self) >= self._most:
            self.clear()
        found = self[word] = self._compute(word)
        return found


def split_words(text: str) -> list[str]:
    """Lower-case words in order, stop words included; a CJK character is a word.

    A camel-case name (`AdamSmith`) also gives its parts, so that either spelling finds it.
    """
    if text.isascii():
        parted = _CAMEL_WORD.sub(_with_camel_parts, text) if _CAMEL_ASCII.search(text) else text
        plain = _APOSTROPHE.sub(" ", parted) if "'" in parted else parted
        return _TOKEN_ASCII.findall(plain.lower())
    folded = text if unicodedata.is_normalized("NFKC", text) else unicodedata.normalize("NFKC", text)
    parted = _CAMEL_WORD.sub(_with_camel_parts, folded) if _CAMEL_PAIR.search(folded) else folded
    return _TOKEN.findall(_APOSTROPHE.sub(" ", parted.lower().replace("ё", "е")))


def _with_camel_parts(joined: re.Match[str]) -> str:
    return f"{joined.group()} {_CAMEL.sub(' ', joined.group())}"


@lru_cache(maxsize=200_000)
def term_id(word: str) -> int | None:
    """The id of a lower-case word's stem; None for a stop word."""
    if word in _STOP_WORDS:
        return None
    if len(word) > _MAX_WORD_CHARS:
        word = word[:_MAX_WORD_CHARS]
    return _hash_term(stem(word))


def is_cyrillic(text: str) -> bool:
    """Whether any character is Cyrillic."""
    return _CYRILLIC.search(text) is not None


def stem(word: str) -> str:
    """The stem of a lower-case word, by the rules of its script."""
    return _stem_russian(word) if is_cyrillic(word) else _stem_english(word)


def extract_terms(text: str) -> list[int]:
    """Ids of the stemmed non-stop words of `text`, in order, with repeats."""
    return [found for word in split_words(text) if (found := term_id(word)) is not None]


def index_terms(text: str, lang: str = "") -> list[int]:
    """Ids under which an index holds the words of a text in this language, in order, with repeats."""
    return list(_index_words(split_words(text), lang))


def _index_words(words: Iterable[str], lang: str) -> Iterator[int]:
    return chain.from_iterable(map(_index_table(lang if lang in _STEMMERS else "").__getitem__, words))


@cache
def _index_table(lang: str) -> WordTable[tuple[int, ...]]:
    return WordTable(partial(_index_ids, lang=lang), most=200_000)


def question_terms(text: str, lang: str = "") -> tuple[frozenset[int], ...]:
    """By word of a question, without repeats, every id under which an index may hold it."""
    words = dict.fromkeys(split_words(text))
    held = _index_table(lang if lang in _STEMMERS else "")
    found = (frozenset((*held[word], *_stem_ids(word))) for word in words if word not in _STOP_WORDS)
    return tuple(dict.fromkeys(ids for ids in found if ids))


def _index_ids(word: str, lang: str) -> tuple[int, ...]:
    if word in _STOP_WORDS or (lang in _STEMMERS and word in STOPWORDS[lang]):
        return ()
    spelled = word[:_MAX_WORD_CHARS]
    if is_cyrillic(spelled):
        return tuple(_hash_term(f"ru {lemma}") for lemma in find_lemmas(spelled))
    base = _STEMMERS[lang](spelled) if lang in _STEMMERS else _stem_english(spelled)
    return tuple(dict.fromkeys(map(_hash_term, (base, *_alphanumeric_parts(spelled)))))


def _stem_ids(word: str) -> tuple[int, ...]:
    found = term_id(word)
    return () if found is None else (found,)


def _alphanumeric_parts(word: str) -> list[str]:
    """The letters and the digits of a word that has both, such as `fy2018`."""
    if word.isalpha() or word.isdigit():
        return []
    return [part if part.isdigit() else _stem_english(part) for part in _LETTERS_AND_DIGITS.findall(word)]


@lru_cache(maxsize=50_000)
def find_lemmas(word: str) -> tuple[str, ...]:
    """Every dictionary form that a lower-case Russian word may have, the likeliest first, with one spelling of ё."""
    parsed = _russian_morphology().parse(word)
    return tuple(dict.fromkeys(cast("str", each.normal_form).replace("ё", "е") for each in parsed))


_NAME_TAGS = frozenset({"Name", "Surn", "Patr", "Geox", "Orgn"})


@lru_cache(maxsize=50_000)
def find_name_lemma(word: str) -> str | None:
    """The nominative of a lower-case Russian word that is a name in the dictionary; None for any other word.

    A surname is given in its masculine form, because "Лаврова" is also the genitive of "Лавров". A word that is
    likelier an adjective, as "красного" of a red cross, is no name.
    """
    if not _russian_morphology().word_is_known(word):
        return None
    readings = _russian_morphology().parse(word)
    names = [each for each in readings if _NAME_TAGS & each.tag.grammemes and each.tag.number == "sing"]
    if not names or (readings[0] not in names and readings[0].tag.POS == "ADJF"):
        return None
    return cast("str", names[0].normal_form).replace("ё", "е")


@dataclass(frozen=True, slots=True)
class RussianVerb:
    """The dictionary form of a verb, and its tense: `past`, `pres` or `futr`; a short participle is past."""

    lemma: str
    tense: str


@lru_cache(maxsize=50_000)
def find_verb(word: str) -> RussianVerb | None:
    """The verb that a lower-case Russian word is; None if its likeliest reading is no verb.

    A short adjective that may be a participle, as in "завод закрыт", is one.
    """
    readings = _russian_morphology().parse(word)
    if readings[0].tag.POS not in ("VERB", "PRTS", "ADJS"):
        return None
    found = next((each for each in readings if each.tag.POS in ("VERB", "PRTS")), None)
    if found is None:
        return None
    tense = "past" if found.tag.POS == "PRTS" else str(found.tag.tense)
    return RussianVerb(cast("str", found.normal_form).replace("ё", "е"), tense)


@lru_cache(maxsize=1)
def _russian_morphology() -> Any:
    return import_module("pymorphy3").MorphAnalyzer(lang="ru")


def _hash_term(term: str) -> int:
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def bm25_weights(text: str, lang: str = "") -> Mapping[int, float]:
    """BM25 term weights of a stored text, without IDF, which depends on the records the scope may read."""
    return weigh_words(split_words(text), lang)


def weigh_words(words: Iterable[str], lang: str = "") -> Mapping[int, float]:
    """BM25 term weights of a stored text with these words, which `split_words` gives."""
    counts = Counter(_index_words(words, lang))
    norm = _K1 * (1 - _B + _B * counts.total() / AVERAGE_DOCUMENT_TERMS)
    by_count = {count: count * (_K1 + 1) / (count + norm) for count in set(counts.values())}
    return {term: by_count[count] for term, count in counts.items()}
