"""Entities, relations and paths of a graph, and the rules that decide when two names mean the same entity.

The rules cover spelling, inflection, script, initials and surnames.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from contexture.text.terms import find_name_lemma

PERSON = "person"
ORGANIZATION = "organization"
PLACE = "place"
NAME = "name"
KINDS = (PLACE, PERSON, ORGANIZATION, NAME)
"""Kinds of entities, the most reliably recognised first; the last is for names of unknown kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """Characters `start` to `end` of a record: the sentence that supports a relation."""

    record_id: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Entity:
    """A named entity; `aliases` are its other names, `records` the ids of records that mention it."""

    key: str
    name: str
    kind: str
    aliases: tuple[str, ...]
    records: tuple[str, ...]
    mentions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Relation:
    """Two entities that sentences mention together; `label` is the text between them if that is short."""

    head: str
    tail: str
    label: str
    strength: float
    support: tuple[Support, ...]

    def other(self, key: str) -> str:
        """The entity at the other end."""
        return self.tail if key == self.head else self.head


@dataclass(frozen=True, kw_only=True, slots=True)
class EntityPath:
    """Entities from one end to the other, and the relation of each step; shorter and stronger paths score higher."""

    entities: tuple[str, ...]
    relations: tuple[Relation, ...]
    score: float


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Entities and relations, the most important first."""

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = field(default=())

    @cached_property
    def entities_by_key(self) -> dict[str, Entity]:
        """Entities by key."""
        return {entity.key: entity for entity in self.entities}

    @cached_property
    def relations_by_key(self) -> dict[str, list[Relation]]:
        """The relations of each entity, strongest first."""
        found: dict[str, list[Relation]] = {entity.key: [] for entity in self.entities}
        for relation in self.relations:
            found[relation.head].append(relation)
            found[relation.tail].append(relation)
        return found


_IGNORED_WORDS = frozenset(
    "the a an inc ltd llc corp corporation co plc gmbh ag sa nv ооо оао пао ао зао гк mr mrs ms dr sir".split()
)
_SMALL_WORDS = frozenset("of and for the de la du von van der и по для".split())
_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019]s\b|['\u2019]$")
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")
_TRANSLITERATION = {
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
_SPELLING_RULES = ((re.compile("x"), "ks"), (re.compile("iy\\b|yy\\b|ii\\b"), "y"))
_IA = re.compile("iy?a")
_DOUBLED_LETTER = re.compile(r"(\w)\1")
_MIN_ABBREVIATION, _MAX_ABBREVIATION = 2, 6  # letters of an abbreviation


@lru_cache(maxsize=20_000)
def name_key(name: str) -> str:
    """A key shared by all spellings of a name: case-folded, without legal form or inflection, in Latin letters.

    `name_key("Газпрома") == name_key("Gazprom Inc") == "gazprom"`; empty when nothing is left.
    """
    folded = _POSSESSIVE.sub("", unicodedata.normalize("NFKC", name)).casefold().replace("ё", "е")
    words = [word for word in _WORD.findall(folded) if word not in _IGNORED_WORDS]
    words = [word for at, word in enumerate(words) if not at or word != words[at - 1]]
    joined = " ".join(_transliterate(_uninflect(word)) if _CYRILLIC.search(word) else word for word in words)
    for pattern, letters in _SPELLING_RULES:
        joined = pattern.sub(letters, joined)
    return joined


_FINAL_VOWEL = re.compile("[ая]$")  # Александра is also the genitive of Александр
_CASE_ENDING = re.compile(
    "(?<=...)(?:[ая]ми?|[ое]в|[оеы]го|[оеы]му|[ыи]ми|[ая]х|[оеиы][йм]|[ыи]х|[оеую]ю|[ая]я|[аяыиуюеоьй])$"
)  # at least three letters stay


def _uninflect(word: str) -> str:
    """What the cases of a lower-case Russian word have in common: of a name its nominative, else its stem.

    Endings are removed until nothing changes: "росатома" becomes "росатом", and that "росат", as "росатом" does itself.
    """
    lemma = find_name_lemma(word)
    if lemma is not None:
        return _FINAL_VOWEL.sub("", lemma)
    while (shorter := _CASE_ENDING.sub("", word)) != word:
        word = shorter
    return word


_MIN_FULL_NAME_SHARE = 0.15  # how often a person's full name is used for each use of the surname alone
_MIN_DOMINANCE = 3  # how often a name is used for each use of all others that fit, before it counts as meant


def merge_names(
    found: Mapping[str, tuple[str, Sequence[str]]], mentions: Mapping[str, int] | None = None
) -> dict[str, str]:
    """The merged key of each key, given the kind, the spellings and, if known, the number of mentions of each.

    An abbreviation is merged with the name whose initials it spells, a surname with the person who has it, a short name
    with the company, a Cyrillic name with the Latin name that sounds the same. An ambiguous key is not merged unless
    one name is mentioned at least three times as often as the others: a wrong merge is worse than none.
    """
    stands = {key: key for key in found}
    heard = _group_by_sound(found)
    for key, (kind, spellings) in sorted(found.items()):
        fitting = [*_match_by_sound(key, spellings, heard)]
        if " " not in key:
            fitting += _match_abbreviation(key, spellings, found) + _match_short_name(key, kind, found)
            if kind in (PERSON, NAME):
                fitting += _match_surname(key, found)
            elif kind == ORGANIZATION and not fitting:  # models take frequent surnames for companies
                enough = _MIN_FULL_NAME_SHARE * (mentions or {}).get(key, 0)
                fitting += [each for each in _match_surname(key, found) if 0 < enough <= (mentions or {}).get(each, 0)]
        meant = _find_dominant(fitting, mentions or {})
        if meant:
            stands[key] = meant
    return {key: _resolve_key(key, stands) for key in stands}


def _find_dominant(fitting: Iterable[str], mentions: Mapping[str, int]) -> str:
    """The only key, or the one mentioned far more often than all others; empty if none is."""
    ordered = sorted(set(fitting), key=lambda each: (-mentions.get(each, 0), each))
    if len(ordered) > 1:
        best, *others = (mentions.get(each, 0) for each in ordered)
        return ordered[0] if best >= max(1, _MIN_DOMINANCE * sum(others)) else ""
    return ordered[0] if ordered else ""


_COMPANY_WORDS = "airlines airways motors group holdings bank university industries foods technologies entertainment"


def _match_short_name(key: str, kind: str, found: Mapping[str, tuple[str, Sequence[str]]]) -> list[str]:
    """Keys of organizations that are this key and a word for a kind of company."""
    if kind != ORGANIZATION:
        return []
    names = (f"{key} {word}" for word in _COMPANY_WORDS.split())
    return [name for name in names if name in found and found[name][0] == ORGANIZATION]


def _resolve_key(key: str, stands: Mapping[str, str]) -> str:
    """The end of a chain of merges: a surname may lead to a person, and the person to a name in another script."""
    seen = {key}
    while stands[key] not in seen:
        key = stands[key]
        seen.add(key)
    return key


def _group_by_sound(found: Mapping[str, tuple[str, Sequence[str]]]) -> dict[str, set[str]]:
    """Keys of Latin names by `_sound_key`, and those of several words by how each word sounds."""
    heard: dict[str, set[str]] = {}
    for key, (_, spellings) in found.items():
        for name in spellings:
            if not _CYRILLIC.search(name):
                for sound in _sounds(name):
                    heard.setdefault(sound, set()).add(key)
    return heard


def _sounds(name: str) -> list[str]:
    """How a name sounds: exactly, and if it has several words that can be told from others, roughly."""
    rough = [sound_skeleton(word) for word in name.split()]
    return [_sound_key(name), *([" ".join(rough)] if len(rough) > 1 and all(rough) else [])]


def _match_by_sound(key: str, spellings: Iterable[str], heard: Mapping[str, set[str]]) -> set[str]:
    """Keys of Latin names that sound like one of these Cyrillic spellings."""
    cyrillic = [name for name in spellings if _CYRILLIC.search(name)]
    sounds = (sound for name in cyrillic for sound in _sounds(name))
    return {other for sound in sounds for other in heard.get(sound, ()) if other != key}


def _sound_key(name: str) -> str:
    """A name in Latin letters, with differences between transliteration schemes removed."""
    folded = _transliterate(unicodedata.normalize("NFKC", name).casefold().replace("ё", "е"))
    for pattern, letters in (*_SPELLING_RULES, (_IA, "ia"), (_DOUBLED_LETTER, r"\1")):
        folded = pattern.sub(letters, folded)
    return " ".join(word for word in _WORD.findall(folded) if word not in _IGNORED_WORDS)


_CONSONANT_RULES = tuple(
    (re.compile(pattern), letters)
    for pattern, letters in (
        ("dzh|zh|dj", "j"),
        ("s?ch(?=[lmnrw])|sh|sch", "S"),
        ("t?ch", "C"),
        ("ph", "f"),
        ("kh", "h"),
        ("c(?=[eiy])|ts|z", "s"),
        ("ck|[cq]", "k"),
        ("w", "v"),
        ("(?<=.)[aeiouyh]", ""),
        ("^[aeiouy]", "A"),
        (r"(.)\1+", r"\1"),
    )
)
_MIN_CONSONANTS = 3  # counting a vowel before them as one


@lru_cache(maxsize=50_000)
def sound_skeleton(word: str) -> str:
    """The consonants of one word of a name and the kind of a vowel, equal for most spellings in both scripts.

    `sound_skeleton("Маска") == sound_skeleton("Musk")`; empty for a word that is too short to be told from others.
    """
    found = key = name_key(word).replace("qu", "kv")
    for pattern, letters in _CONSONANT_RULES:
        found = pattern.sub(letters, found)
    return found + _vowel_class(key) if len(found) >= _MIN_CONSONANTS else ""


_FIRST_VOWELS = re.compile(r"[^aeiouy]+(?:y(?=[aou]))?([aeiouy]+)(?=.)")  # a last one may be an ending
_FRONT_VOWELS = re.compile(r"[eiy]|[ao][iy]")


def _vowel_class(key: str) -> str:
    """Whether the vowels behind the first consonants are front ones, as in Biden, or back ones, as in Putin."""
    found = _FIRST_VOWELS.search(key)
    return "" if found is None else "+" if _FRONT_VOWELS.match(found[1]) else "-"


def _match_abbreviation(
    key: str, spellings: Iterable[str], found: Mapping[str, tuple[str, Sequence[str]]]
) -> list[str]:
    """Keys of names whose initials spell the abbreviation."""
    short = next(
        (name for name in spellings if name.isupper() and _MIN_ABBREVIATION <= len(name) <= _MAX_ABBREVIATION), ""
    )
    if not short:
        return []
    wanted = short.casefold()
    return [
        other
        for other, (_, names) in sorted(found.items())
        if other != key and any(wanted in _initials(n) for n in names)
    ]


def _initials(name: str) -> tuple[str, str]:
    """The initials of a name of several words, with and without words such as "of"; "" for a single word."""
    words = [word for word in _WORD.findall(name.casefold()) if word not in _IGNORED_WORDS]
    if len(words) < _MIN_ABBREVIATION:
        return "", ""
    return "".join(word[0] for word in words), "".join(word[0] for word in words if word not in _SMALL_WORDS)


def _match_surname(key: str, found: Mapping[str, tuple[str, Sequence[str]]]) -> list[str]:
    """Keys of persons whose last name, or else whose first name, is this key."""
    people = [other for other, (of, _) in sorted(found.items()) if of == PERSON]
    surnames = [other for other in people if other.endswith(f" {key}")]
    return surnames or [other for other in people if other.startswith(f"{key} ")]


def _transliterate(word: str) -> str:
    return "".join(_TRANSLITERATION.get(letter, letter) for letter in word)
