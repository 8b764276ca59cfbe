"""When two names are the same name: spelling, inflection, script, initials, surnames."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from contexture.graph.values import NAME, PERSON
from contexture.text.terms import stem

_NOT_NAMES = frozenset(
    "the a an inc ltd llc corp corporation co plc gmbh ag sa nv ооо оао пао ао зао гк mr mrs ms dr sir".split()
)
_SMALL = frozenset("of and for the de la du von van der и по для".split())
_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019]s\b|['\u2019]$")
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")
_LATIN = {
    **dict(zip("абвгдезийклмнопрстуфыэ", "abvgdeziyklmnoprstufye", strict=True)),
    "ж": "zh",
    "х": "kh",
    "ц": "ts",
    "ч": "ch",
    "ш": "sh",
    "щ": "shch",
    "ю": "yu",
    "я": "ya",
    "ъ": "",
    "ь": "",
    "і": "i",
    "ї": "yi",
    "є": "ye",
    "ґ": "g",
}
_ALIKE = ((re.compile("x"), "ks"), (re.compile("iy\\b|yy\\b|ii\\b"), "y"))
_IA = re.compile("iy?a")
_TWICE = re.compile(r"(\w)\1")
_SHORTEST, _LONGEST = 2, 6  # letters of an abbreviation


@lru_cache(maxsize=20_000)
def key_of(name: str) -> str:
    """What all spellings of a name share: no case, no legal form, Cyrillic stemmed and written in Latin letters.

    `key_of("Газпрома") == key_of("PAO Gazprom") == "gazprom"`; empty when nothing is left.
    """
    folded = _POSSESSIVE.sub("", unicodedata.normalize("NFKC", name)).casefold().replace("ё", "е")
    words = [word for word in _WORD.findall(folded) if word not in _NOT_NAMES]
    joined = " ".join(_latin(stem(word)) if _CYRILLIC.search(word) else word for word in words)
    for pattern, letters in _ALIKE:
        joined = pattern.sub(letters, joined)
    return joined


def same_names(found: Mapping[str, tuple[str, Sequence[str]]]) -> dict[str, str]:
    """The key that stands for each key, given the kind and the spellings of each.

    An abbreviation joins the one name whose initials it spells, a surname the one person who bears it, a Cyrillic
    name the Latin one that sounds alike. Where two would fit, nothing is joined: a wrong link is worse than none.
    """
    stands = {key: key for key in found}
    heard = _by_sound(found)
    for key, (kind, spellings) in sorted(found.items()):
        fitting = [*_sounding(key, spellings, heard)]
        if " " not in key:
            fitting += [*_spelled(key, spellings, found), *_borne(key, kind, found)]
        if len(set(fitting)) == 1:
            stands[key] = fitting[0]
    return {key: _last(key, stands) for key in stands}


def _last(key: str, stands: Mapping[str, str]) -> str:
    """What stands for what stands for a key: a surname may lead to a person, and the person to another script."""
    seen = {key}
    while stands[key] not in seen:
        key = stands[key]
        seen.add(key)
    return key


def _by_sound(found: Mapping[str, tuple[str, Sequence[str]]]) -> dict[str, set[str]]:
    """Keys of Latin names by how they sound."""
    heard: dict[str, set[str]] = {}
    for key, (_, spellings) in found.items():
        for name in spellings:
            if not _CYRILLIC.search(name):
                heard.setdefault(_sound(name), set()).add(key)
    return heard


def _sounding(key: str, spellings: Iterable[str], heard: Mapping[str, set[str]]) -> set[str]:
    """Latin names that sound like a Cyrillic one."""
    cyrillic = [name for name in spellings if _CYRILLIC.search(name)]
    return {other for name in cyrillic for other in heard.get(_sound(name), ()) if other != key}


def _sound(name: str) -> str:
    """A name in Latin letters without the differences that transliterations make."""
    folded = _latin(unicodedata.normalize("NFKC", name).casefold().replace("ё", "е"))
    for pattern, letters in (*_ALIKE, (_IA, "ia"), (_TWICE, r"\1")):
        folded = pattern.sub(letters, folded)
    return " ".join(word for word in _WORD.findall(folded) if word not in _NOT_NAMES)


def _spelled(key: str, spellings: Iterable[str], found: Mapping[str, tuple[str, Sequence[str]]]) -> list[str]:
    """Names whose initials spell the abbreviation."""
    short = next((name for name in spellings if name.isupper() and _SHORTEST <= len(name) <= _LONGEST), "")
    if not short:
        return []
    wanted = short.casefold()
    return [
        other
        for other, (_, names) in sorted(found.items())
        if other != key and any(wanted in _initials(n) for n in names)
    ]


def _initials(name: str) -> tuple[str, str]:
    """The initials of a name of several words, with and without its small words."""
    words = [word for word in _WORD.findall(name.casefold()) if word not in _NOT_NAMES]
    if len(words) < _SHORTEST:
        return "", ""
    return "".join(word[0] for word in words), "".join(word[0] for word in words if word not in _SMALL)


def _borne(key: str, kind: str, found: Mapping[str, tuple[str, Sequence[str]]]) -> list[str]:
    """People of whose names this is the last word."""
    if kind not in (PERSON, NAME):
        return []
    return [other for other, (of, _) in sorted(found.items()) if of == PERSON and other.endswith(f" {key}")]


def _latin(word: str) -> str:
    return "".join(_LATIN.get(letter, letter) for letter in word)
