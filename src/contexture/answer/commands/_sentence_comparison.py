"""Compares two sentences from different sources: whether they agree, contradict, or one updates a figure of the other.

Works on words, names, figures and polarity, in English and Russian. Sentences in different languages are compared by
their figures, names and a similarity that the caller gives.
"""
# ruff: noqa: E501 - lists of words read best on one line

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import product

from contexture.graph.entities import name_key
from contexture.text.language import STOPWORDS
from contexture.text.terms import find_lemmas, find_verb, split_words, stem


class SentenceRelation(StrEnum):
    """How two sentences relate."""

    AGREEMENT = "agreement"
    UPDATE = "update"
    CONFLICT = "conflict"
    UNRELATED = "unrelated"


class Tense(StrEnum):
    """When something happens, as its sentence says."""

    PAST = "past"
    FUTURE = "future"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedSentence:
    """A sentence, its language, and the time its source published it."""

    text: str
    lang: str = "en"
    time: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceVerdict:
    """The relation of two sentences; `about` is the unit of the figure, or `statement`, that makes them differ."""

    relation: SentenceRelation
    about: str = ""


UNRELATED = SentenceVerdict(relation=SentenceRelation.UNRELATED)
AGREEMENT = SentenceVerdict(relation=SentenceRelation.AGREEMENT)

_MIN_SHARED = 0.6  # share of the shorter sentence's content words that both have
_MIN_SHARED_PREDICATE = 0.6  # the same without names
_MIN_SHARED_FOR_FIGURES = 0.6
# The same shares of the longer sentence's words: a short sentence is easily contained in a long one about other things.
_MIN_SHARED_OF_LONGER, _MIN_SHARED_OF_LONGER_FOR_FIGURES, _MIN_SHARED_OF_LONGER_FOR_CONFLICT = 0.3, 0.4, 0.5
_MIN_COMMON_WORDS = 3
_MIN_SHARED_WITH_FIGURE, _MIN_COMMON_NAMES = 0.4, 2  # of sentences with one figure and one verb
_MIN_MEANING = 0.6  # similarity across languages at which two sentences speak of the same
_SAME_TEXT_MEANING = 0.8
_MIN_SHARED_OTHER_VERB = 0.75  # share of the predicate at which two sentences with other verbs say the same
_MIN_TERMS = 2
_MAX_RATIO = 50  # of two figures of one thing
_ONE_NEWS_CYCLE = timedelta(hours=12)  # calendar days would depend on the time zone
_ONE_STORY = timedelta(days=7)  # beyond it two sentences agree only with a common figure: a record is broken again


def compare_sentences(one: ComparedSentence, other: ComparedSentence, meaning: float | None = None) -> SentenceVerdict:
    """How two sentences relate; `meaning` is their similarity, needed when their languages differ.

    Agreement needs the same subject, predicate, tense and polarity, and no figure that differs. Figures conflict when
    the same unit of the same thing at the same place has different values within half a day; of two that are further
    apart the later one is an update. A sentence that begins with a pronoun is unrelated, as its subject is unknown.
    """
    if refers_back(one.text) or refers_back(other.text):
        return UNRELATED
    left, right = _analyse(one.text), _analyse(other.text)
    if one.lang != other.lang:
        return _compare_languages(one, other, left, right, meaning or 0.0)
    if _differ_in_place(left, right) or (left.figures and right.figures and _differ_in_part(one.text, other.text)):
        return UNRELATED
    if _count_same_event(left, right):
        return _judge_figures(one, other, "people")
    if min(len(left.terms), len(right.terms)) < _MIN_TERMS or _has_pair(
        left.terms, right.terms, _stem_lists().successive
    ):
        return UNRELATED
    unit = _differing_unit(left.figures, right.figures)
    if unit:
        same = min(_measure_overlap(left, right, _stem_lists().levels)) >= _MIN_SHARED_FOR_FIGURES
        same = same and _share_of_longer(left, right, _stem_lists().levels) >= _MIN_SHARED_OF_LONGER_FOR_FIGURES
        same = same and _are_comparable(left.figures, right.figures, unit)
        return _judge_figures(one, other, unit) if same else UNRELATED
    verdict = _judge_words(left, right)
    return UNRELATED if verdict == AGREEMENT and _is_another_story(one, other, left, right) else verdict


# What a figure is of, by kind: the same thing of another year, quarter or part has another figure, which is no update.
_PARTS: tuple[tuple[re.Pattern[str], ...], ...] = tuple(
    tuple(re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE) for words in alternatives)
    for alternatives in (
        (
            "first|1st|перв(?:ый|ая|ое|ого|ой|ом|ую)",
            "second|2nd|втор(?:ой|ая|ое|ого|ом|ую)",
            "third|3rd|трет(?:ий|ья|ье|ьего|ьей|ьем|ью)",
            "fourth|4th|четверт(?:ый|ая|ое|ого|ой|ом|ую)",
        ),
        ("q1", "q2", "q3", "q4"),
        (r"north(?:ern)?|северн\w+", r"south(?:ern)?|южн\w+", r"east(?:ern)?|восточн\w+", r"west(?:ern)?|западн\w+"),
        (r"men|boys|мужчин\w*", r"women|girls|женщин\w*"),
        (r"adults?|взросл\w+", "children|дет(?:и|ей|ям)"),
        (r"imports?|imported|импорт\w*", r"exports?|exported|экспорт\w*"),
        (r"domestic|внутренн\w+", r"foreign|international|внешн\w+|международн\w+"),
    )
)
_OWN_YEAR = re.compile(r"\b(?:in|for|of|during|fiscal|fy|в|за)\s?(?:the year\s)?((?:19|20)\d\d)\b", re.IGNORECASE)
_OWN_MONTH = re.compile(
    r"\b(?:in|for|during|в|за)\s(january|february|march|april|may|june|july|august|september|october|november|december"
    r"|январ|феврал|март|апрел|ма[йея]|июн|июл|август|сентябр|октябр|ноябр|декабр)", re.IGNORECASE,
)  # fmt: skip
_STATE = re.compile(r"\b(?:is|are|stands?|remains?|has|have|составляет|равн[аоы])\b", re.IGNORECASE)


def _differ_in_part(one: str, other: str) -> bool:
    """Whether two sentences are of different years, months, quarters or parts of one thing.

    A state that holds now, such as a rate "in May", has a newer figure in a later month.
    """
    for pattern in (_OWN_YEAR, _OWN_MONTH):
        mine, theirs = ({found.lower() for found in pattern.findall(text)} for text in (one, other))
        if mine and theirs and mine.isdisjoint(theirs) and not (pattern is _OWN_MONTH and _STATE.search(other + one)):
            return True
    return any(_have_other_part(one, other, alternatives) for alternatives in _PARTS)


def _have_other_part(one: str, other: str, alternatives: Sequence[re.Pattern[str]]) -> bool:
    mine, theirs = ({at for at, each in enumerate(alternatives) if each.search(text)} for text in (one, other))
    return bool(mine and theirs) and mine.isdisjoint(theirs)


_REFERENCE_BACK = re.compile(
    r"^\W*(?:(?:and|but|so|и|а|но)\s)?(?:he|she|they|it|this|that|these|those|his|her|their|its|"
    r"он|она|оно|они|это|эт[аи]|этот|его|е[её]|их)\b",
    re.IGNORECASE,
)


def refers_back(text: str) -> bool:
    """Whether a sentence begins with a pronoun, so that another one says what it is about."""
    return bool(_REFERENCE_BACK.search(text))


def _is_another_story(one: ComparedSentence, other: ComparedSentence, left: _Analysis, right: _Analysis) -> bool:
    """Whether two sentences were published too far apart to tell one story, and have no figure that says they do."""
    apart = one.time is not None and other.time is not None and abs(one.time - other.time) > _ONE_STORY
    return apart and not _has_common_figure(left.figures, right.figures)


def _are_comparable(left: Sequence[Quantity], right: Sequence[Quantity], unit: str) -> bool:
    """Whether figures of a unit are of one order: of two cases and 3,500 cases one counts a part of the other."""
    pairs = product(_of_unit(left, unit), _of_unit(right, unit))
    return any(max(one.high, other.high) <= _MAX_RATIO * min(one.low, other.low) for one, other in pairs)


def _measure_overlap(left: _Analysis, right: _Analysis, ignored: frozenset[str] = frozenset()) -> tuple[float, float]:
    """The shares of common words and of common words other than names, without `ignored`."""
    one, other = left.terms - ignored, right.terms - ignored
    return _share(one, other), _share(one - left.names, other - right.names)


def _share_of_longer(left: _Analysis, right: _Analysis, ignored: frozenset[str] = frozenset()) -> float:
    """The share of the longer sentence's words, without `ignored`, that the shorter one has."""
    short, long = sorted((left.terms - ignored, right.terms - ignored), key=lambda each: (len(each), sorted(each)))
    return _count_common(short, long) / len(long) if long else 0.0


def _count_common(one: frozenset[str], other: frozenset[str]) -> int:
    """How many words of the first set match a word of the second."""
    return sum(any(_is_same_word(word, each) for each in other) for word in one)


def _count_same_event(left: _Analysis, right: _Analysis) -> bool:
    """Whether both count the people to whom one thing happened at one place, and count differently.

    What happened may be told in other words, so the share of common words does not decide here. Deaths and injuries
    have a cause, which both must name.
    """
    effects = left.effects & right.effects
    if not effects or left.effects != right.effects or not left.named_places & right.named_places:
        return False
    if effects & _CAUSED:
        known = effects | _COUNTED
        causes = [each.terms - each.names - known for each in (left, right)]
        if not any(_is_same_word(one, other) for one in causes[0] for other in causes[1]):
            return False
    return _differing_unit(left.figures, right.figures) == "people"


def _judge_words(left: _Analysis, right: _Analysis) -> SentenceVerdict:
    if _tell_same_figure(left, right):
        return AGREEMENT
    shared, predicate = _measure_overlap(left, right)
    if shared < _MIN_SHARED or predicate < _MIN_SHARED_PREDICATE:
        return UNRELATED
    if left.figures and right.figures and not _has_common_figure(left.figures, right.figures):
        return UNRELATED
    opposed = _has_pair(left.terms, right.terms, _stem_lists().contradictory)
    longer = _share_of_longer(left, right)
    if opposed != (left.negated != right.negated):
        enough = longer >= _MIN_SHARED_OF_LONGER_FOR_CONFLICT
        return SentenceVerdict(relation=SentenceRelation.CONFLICT, about="statement") if enough else UNRELATED
    if longer < _MIN_SHARED_OF_LONGER or _count_common(left.terms, right.terms) < _MIN_COMMON_WORDS:
        return UNRELATED
    if {left.tense, right.tense} == {Tense.PAST, Tense.FUTURE} or _differ_in_verb(left, right, predicate):
        return UNRELATED
    return AGREEMENT


def _tell_same_figure(left: _Analysis, right: _Analysis) -> bool:
    """Whether both have one figure, a verb and two names in common, so that fewer common words are enough."""
    if not _has_common_figure(left.figures, right.figures) or left.negated != right.negated:
        return False
    if {left.tense, right.tense} == {Tense.PAST, Tense.FUTURE}:
        return False
    enough = _count_common(left.verbs, right.verbs) >= 1 and _count_common(left.names, right.names) >= _MIN_COMMON_NAMES
    return enough and _share(left.terms, right.terms) >= _MIN_SHARED_WITH_FIGURE


def _differ_in_verb(left: _Analysis, right: _Analysis, predicate: float) -> bool:
    """Whether the verbs have none in common, so that few common words more are needed to say the same."""
    if not left.verbs or not right.verbs or predicate >= _MIN_SHARED_OTHER_VERB:
        return False
    return not any(_is_same_word(one, other) for one in left.verbs for other in right.verbs)


def _judge_figures(one: ComparedSentence, other: ComparedSentence, unit: str) -> SentenceVerdict:
    later = one.time is not None and other.time is not None and abs(one.time - other.time) > _ONE_NEWS_CYCLE
    relation = SentenceRelation.UPDATE if later else SentenceRelation.CONFLICT
    return SentenceVerdict(relation=relation, about=unit)


def _compare_languages(
    one: ComparedSentence, other: ComparedSentence, left: _Analysis, right: _Analysis, meaning: float
) -> SentenceVerdict:
    if meaning < _MIN_MEANING:
        return UNRELATED
    unit = _differing_unit(left.figures, right.figures)
    if unit:
        return _judge_figures(one, other, unit)
    if left.negated != right.negated or {left.tense, right.tense} == {Tense.PAST, Tense.FUTURE}:
        return UNRELATED
    agrees = meaning >= _SAME_TEXT_MEANING or _has_common_figure(left.figures, right.figures)
    return AGREEMENT if agrees else UNRELATED


@dataclass(frozen=True, kw_only=True, slots=True)
class _Analysis:
    terms: frozenset[str]
    names: frozenset[str]
    places: frozenset[str]
    named_places: frozenset[str]  # those of who says it too
    figures: tuple[Quantity, ...]
    effects: frozenset[str]
    verbs: frozenset[str]
    negated: bool
    tense: Tense | None


@lru_cache(maxsize=4_096)
def _analyse(text: str) -> _Analysis:
    denied, whole = bool(_DENIAL.search(text)), text
    text = _ATTRIBUTION_AFTER.sub(".", _ATTRIBUTION_BEFORE.sub("", _DENIAL.sub("", text)))
    effects = frozenset(name for name, pattern in _EFFECTS.items() if pattern.search(text))
    negated = bool(_NEGATION.search(_CONTRAST.sub("", text))) != bool(_AGAINST.search(text))
    tense, verbs = _find_tense(text), _find_verbs(text)
    text = _TOLL.sub(r"\1\2 people", text)
    figures = tuple(_mark_change(text, each) for each in find_quantities(text))
    rest = _blank(text, [figure.span for figure in figures])
    for name, pattern in _EFFECTS.items():
        rest = pattern.sub(f" {name} ", rest)
    words = [word for word in split_words(rest) if not word.isdigit()]
    terms = frozenset(_base(word) for word in words if word not in _IGNORED and len(word) > 1) - _stem_lists().ignored
    names = frozenset(_base(word) for found in _NAME.finditer(text) for word in split_words(found[0]))
    initial = frozenset(_base(word) for word in split_words(text)[:1])  # capitalised whether a name or not
    inner = _find_inner_names(text)
    inner_stems = frozenset(_base(word) for name in inner for word in split_words(name))
    return _Analysis(
        terms=terms | {figure.unit for figure in figures if figure.unit in _COUNTED},
        names=(names & terms) - (initial - inner_stems),
        places=_place_keys(inner),
        named_places=_place_keys(_find_inner_names(whole)),
        figures=figures,
        effects=effects,
        verbs=verbs - _stem_lists().ignored,
        negated=negated != denied,
        tense=tense,
    )


def _find_inner_names(text: str) -> list[str]:
    """The names of a sentence, except a word that only begins it."""
    return [found[1] or found[2] for found in _INNER_NAME.finditer(text)]


def _place_keys(names: Iterable[str]) -> frozenset[str]:
    return frozenset(key for name in names if name.lower() not in _IGNORED and (key := name_key(name)))


def _mark_change(text: str, figure: Quantity) -> Quantity:
    """A figure that says by how much something changed, or how many more there are, has another unit than a total."""
    start, end = figure.span
    changed = _CHANGE_BEFORE.search(text, max(0, start - 40), start) or _FURTHER.search(text, max(0, start - 12), end)
    return replace(figure, unit=f"{figure.unit} change") if changed else figure


def _find_tense(text: str) -> Tense | None:
    if _FUTURE.search(text):
        return Tense.FUTURE
    tenses = {verb.tense for word in split_words(text) if _CYRILLIC.search(word) and (verb := find_verb(word))}
    if "futr" in tenses:
        return Tense.FUTURE
    return Tense.PAST if "past" in tenses or _ENGLISH_PAST.search(text) else None


def _find_verbs(text: str) -> frozenset[str]:
    """The stems of words that are verbs: in Russian by its morphology, in English by their endings."""
    russian = (word for word in split_words(text) if _CYRILLIC.search(word) and find_verb(word))
    english = (found[0].lower() for found in _ENGLISH_PAST.finditer(text))
    return frozenset(_base(word) for word in (*russian, *english) if word not in _IGNORED)


def _blank(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of the smaller set that matches a word of the other."""
    small, large = sorted((one, other), key=lambda each: (len(each), sorted(each)))
    if not small:
        return 0.0
    return _count_common(small, large) / len(small)


_MIN_PREFIX, _MIN_PREFIX_SHARE = 4, 0.75


def _is_same_word(one: str, other: str) -> bool:
    """Whether two stems belong to one word; forms of a Russian verb have stems that differ at their end."""
    if one == other:
        return True
    if not (_CYRILLIC.search(one) and _CYRILLIC.search(other)):
        return False
    return _common_prefix(one, other) >= max(_MIN_PREFIX, _MIN_PREFIX_SHARE * max(len(one), len(other)))


def _common_prefix(one: str, other: str) -> int:
    """How many characters two words begin with in common."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _differ_in_place(left: _Analysis, right: _Analysis) -> bool:
    """Whether each sentence names something that the other does not, and neither name is part of the other's text."""
    return bool(_find_unmatched(left.places, right)) and bool(_find_unmatched(right.places, left))


def _find_unmatched(names: Iterable[str], other: _Analysis) -> list[str]:
    known = " ".join(sorted(other.places)).split()
    return [
        name
        for name in names
        if not any(_is_same_name(word, each) for word in name.split() for each in known)
        and not any(_is_same_name(word, name_key(each)) for word in name.split() for each in other.terms)
    ]


def _is_same_name(one: str, other: str) -> bool:
    return _common_prefix(one, other) >= max(_MIN_PREFIX - 1, _MIN_PREFIX_SHARE * max(len(one), len(other)))


def _has_pair(left: frozenset[str], right: frozenset[str], pairs: StemPairs) -> bool:
    return any(
        (left & one and right & other and not left & other and not right & one)
        or (left & other and right & one and not left & one and not right & other)
        for one, other in pairs
    )


def _base(word: str) -> str:
    """The stem of a lower-case word; of a Russian one that of its dictionary form, without the reflexive ending."""
    if not _CYRILLIC.search(word):
        return stem(word)
    verb = find_verb(word)
    return stem((verb.lemma if verb else find_lemmas(word)[0]).removesuffix("ся").removesuffix("сь"))


def _stems(words: str) -> frozenset[str]:
    return frozenset(_base(word) for word in words.split())


_CONTRADICTORY = (
    ("approve approved approves backed passed adopted accepted", "reject rejected rejects blocked defeated vetoed"),
    ("confirm confirmed confirms admitted acknowledged", "deny denied denies disputed refuted"),
    (
        "rose risen rise increased increase grew climbed",
        "fell fall fallen decreased decrease dropped declined shrank",
    ),
    ("won win wins", "lost lose loses"),
    ("guilty convicted", "innocent acquitted"),
    ("allowed allows permitted legal", "banned bans prohibited illegal forbade"),
    ("safe", "unsafe dangerous"),
    ("alive survived", "dead died killed"),
    ("supports supported support", "opposes opposed oppose"),
    (
        "принял приняла приняли принят одобрил одобрила одобрили одобрен",
        "отклонил отклонила отклонили отклонён отверг отвергла отвергли",
    ),
    (
        "подтвердил подтвердила подтвердили признал признала",
        "опроверг опровергла опровергли отрицает отрицал отрицала",
    ),
    (
        "вырос выросла выросло выросли увеличился повысил",
        "упал упала упало упали снизился снизил сократился уменьшился",
    ),
    ("выиграл выиграла выиграли победил победила", "проиграл проиграла проиграли"),
    ("разрешил разрешила разрешили разрешён", "запретил запретила запретили запрещён"),
    ("виновен виновна осуждён", "невиновен оправдан оправдана"),
    ("поддержал поддержала поддержали", "выступил против"),
)
"""Words of which two sentences about one thing cannot both be true."""

_SUCCESSIVE = (
        ("stopped stop stops halted suspended paused", "resumed resume resumes restarted restart continue continues"),
        ("opened opens open", "closed closes close shut"),
        ("began begins begin started starts start launched", "ended ends end finished concluded"),
        ("arrested detained", "released freed"),
        ("arrived arrives", "left leaves departed"),
        ("hired hires", "fired fires dismissed"),
        ("прекратил прекратила прекратили остановил остановила остановили приостановил приостановили", "возобновил возобновила возобновили возобновят возобновит продолжил продолжат"),
        ("открыл открыла открыли открылся", "закрыл закрыла закрыли закрылся"),
        ("начал начала начали начался начнётся", "закончил закончила закончили завершил завершили завершился"),
        ("задержал задержали арестовал арестовали", "освободил освободили отпустил отпустили"),
)  # fmt: skip
"""Words for events that follow each other, so that sentences with them neither agree nor contradict."""

_EFFECTS: dict[str, re.Pattern[str]] = {
    name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for name, words in {
        "strike": r"strikes?|striking|walkouts?|walk(?:ed|ing|s)? out|stop(?:ped|ping)? work(?:ing)?|down(?:ed)? tools|(?:go|went|gone|are|is|were|was) on strike"
        r"|забастовк\w+|стачк\w+|бастуют|бастовали|забастовали|прекратили работу|остановили работу|вышли на забастовку",
        "evacuation": r"evacuat(?:ed|ion|ions)|(?:were|was|are) moved to safety|forced from their homes|эвакуирова\w+|эвакуаци\w+",
        "arrest": r"arrest(?:ed|s)?|detain(?:ed)?|taken into custody|арестова\w+|задержа(?:л|ла|ли|н|на|ны)",
        "layoff": r"laid off|lay(?:ing)? off|lay-?offs?|made redundant|redundanc(?:y|ies)|job cuts|сокращени\w+ штата|уволен[аы]?|уволил[аи]?",
        "death": r"kill(?:s|ed|ing)?|died|dead|dies|deaths?|death toll|fatalit(?:y|ies)|lost their lives|(?:число|количество) (?:погибших|жертв)|погиб(?:ли|ла|ло|ших|шими)?|жертв(?:ами|ы)?|умерли|скончались",
        "injury": r"injur(?:ed|ies|es|ing|y)|wounded|hurt|(?:число|количество) (?:пострадавших|раненых)|пострада(?:ли|л|ла|вших)|ранен(?:ы|о|ия|ых)?|травмирован\w*",
        "protest": r"protest(?:ed|s)?|demonstrat(?:ed|ion|ions)|rall(?:ied|y|ies)|took to the streets|протестовали|митингова\w+|митинг\w*|вышли на улицы",
    }.items()
}
"""What happens to people who are counted, with the words for it; the name stands for all of them in a comparison."""

_CAUSED = frozenset({"death", "injury"})
# "The death toll has risen to 63" counts people without naming them.
_TOLL = re.compile(
    r"\b((?:death toll|number of (?:dead|deaths|victims|injured)|(?:число|количество) (?:погибших|жертв|пострадавших|раненых))"
    r"\b[^.;]*?\b(?:to|at|of|is|was|reached|hit|до|составил[оа]?|достигло)\s(?:at least |не менее )?)(\d[\d ,.]*\d|\d)(?!\s?(?:people|человек|[\d%]))",
    re.IGNORECASE,
)
_CHANGE_BEFORE = re.compile(
    r"\b(?:(?:rose|risen|rise|fell|fallen|fall|grew|grown|climbed|dropped|declined|gained|lost|jumped|increased|decreased|up|down|cut|raised)"
    r"(?:\s(?:by|about|around|nearly|almost|another|more than))*"
    r"|(?:вырос\w*|возрос\w*|упал\w*|снизил\w*|сократил\w*|увеличил\w*|подорожал\w*|подешевел\w*|повыс\w*)(?:\s\w+){0,2}?\sна)\s[$€£]?$",
    re.IGNORECASE,
)

# "At least two other people" are not all of them.
_FURTHER = re.compile(
    r"\b(?:other|another|additional|further|others|(?<!no )more(?! than)|ещ[её]|других|другие|друг[иу]х)\b",
    re.IGNORECASE,
)

_SAID = r"(?:said|says?|told \w+|reported|announced|estimates?|estimated|announced that|confirmed that|сообщил[аи]?|сообщает|заявил[аи]?|объявил[аи]?|утверждает|утверждают|считает|считают|сказал[аи]?|рассказал[аи]?|оценил[аи]?)"
# Who says something is not part of what is said.
_ATTRIBUTION_BEFORE = re.compile(
    rf"^(?:according to|по словам|по данным|согласно)\s[^,]{{1,60}},\s|^(?:[^\s,.]+\s){{1,5}}{_SAID}(?:\son\s\w+day)?,?\s(?:that\s|что\s)?(?=\S+\s)",
    re.IGNORECASE,
)
_ATTRIBUTION_AFTER = re.compile(
    rf",\s(?:[^\s,.]+\s){{0,10}}{_SAID}(?:\s[^,.]{{0,40}})?\.$|,\s(?:said|says|сообщил[аи]?|сказал[аи]?)\s[^.]{{1,160}}\.$"
    r"|,?\s(?:according to|по словам|по данным|следует из|согласно)\s[^,.]{1,80}\.$",
    re.IGNORECASE,
)
_COUNTED = frozenset("people vote car ship home flight case".split())
"""Units that name what is counted; the others only measure."""
_MEASURES = frozenset("% mph km/h m/s km m mile acre hectare dollar euro pound rouble degree".split())

# A denial of what follows; the rest of the sentence is compared as its opposite.
_DENIAL = re.compile(
    r"^(?:[^\s,.]+\s){1,5}(?:denied|denies|rejected claims|отрицает|отрицал[аи]?|опроверг(?:ла|ли)?|опровергает)(?:,?\s(?:that|что))\s",
    re.IGNORECASE,
)
_AGAINST = re.compile(
    r"\b(?:vot(?:e|es|ed|ing)|ruled|decided|spoke|came out|(?:про)?голосова\w+|выступ\w+|высказал\w+)\s(?:\w+\s){0,2}?(?:against|против)\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|never|cannot|не|нет|никогда|ни)\b|n['\u2019]t\b", re.IGNORECASE)
# What stands behind "but" says something else, so its negation does not deny the rest.
_CONTRAST = re.compile(r"(?:,|\s[–—-])\s(?:but|though|although|while|whereas|но|а|хотя)\s.*$", re.IGNORECASE)
_FUTURE = re.compile(
    r"\b(?:will|won['\u2019]t|going to|plans? to|expected to|set to|agree[sd]? to|promised to|vowed to|буд(?:ет|ут)|намерен[аы]?|планиру\w+)\b",
    re.IGNORECASE,
)
_ENGLISH_PAST = re.compile(
    r"\b(?:[a-z]{3,}ed|took|taken|went|gone|came|met|won|lost|fell|fallen|rose|risen|hit|began|begun|left|built|"
    r"bought|sold|found|held|gave|given|made|paid|struck|shot|sank|sunk|broke|broken|spoke|wrote|written|chose|chosen|"
    r"drew|drove|flew|froze|frozen|led|ran|sent|shut|stood|stole|stolen|swore|swept|threw|thrown|withdrew|was|were|had)\b",
    re.IGNORECASE,
)
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")
_NAME = re.compile(r"[A-ZА-ЯЁ][\w'\u2019-]+(?:\s+[A-ZА-ЯЁ][\w'\u2019-]+)*")
_INNER_NAME = re.compile(
    r"(?<=[^.!?…\s]\s)[«\"“(]?([A-ZА-ЯЁ][\w'\u2019-]+(?:\s+[A-ZА-ЯЁ][\w'\u2019-]+)*)|(?<=[«\"“])([A-ZА-ЯЁ][\w-]+)"
)
_TIME_WORDS = """monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december today yesterday tomorrow week month year day next last now this early late
    понедельник вторник среда среду четверг пятница пятницу суббота субботу воскресенье января февраля марта апреля мая июня
    июля августа сентября октября ноября декабря сегодня вчера завтра неделя неделе неделю неделей месяц год году года день следующей прошлой
    теперь сейчас morning afternoon evening утром вечером ночью"""
_REPORTING_WORDS = """said says say told according reported reports report about around nearly almost more than least some
    also новый сообщил сообщила сообщили заявил заявила заявили сказал сказала около почти более свыше примерно словам данным объявил объявила объявили still only just уже еще
    пока будет будут million millions billion billions thousands hundreds dozens миллионов тысяч сотни сотен десятки десятков"""
_LEVEL_WORDS = """stood stands reached reaches totalled remain remained slowed fell fallen dropped cut raised rose risen grew grown climbed hit burned spread
    составил составляет достиг достигла вырос выросла упал упала снизился снизилась замедлилась сократилась увеличилась остается осталось подорожал
    подешевел стоил стоит повысил понизил"""
_IGNORED = STOPWORDS["en"] | STOPWORDS["ru"] | frozenset(f"{_TIME_WORDS} {_REPORTING_WORDS}".split())


StemPairs = tuple[tuple[frozenset[str], frozenset[str]], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _StemLists:
    """The lists of words above by stem; verbs of `levels` only say how much there is."""

    contradictory: StemPairs
    successive: StemPairs
    ignored: frozenset[str]
    levels: frozenset[str]


@lru_cache(maxsize=1)
def _stem_lists() -> _StemLists:
    """Made on first use: reading Russian words loads a dictionary."""
    return _StemLists(
        contradictory=tuple((_stems(one), _stems(other)) for one, other in _CONTRADICTORY),
        successive=tuple((_stems(one), _stems(other)) for one, other in _SUCCESSIVE),
        ignored=_stems(f"{_TIME_WORDS} {_REPORTING_WORDS}"),
        levels=_stems(_LEVEL_WORDS),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A figure from `low` to `high`, which are equal unless it is a range, with its normalised unit and its place."""

    low: float
    high: float
    unit: str
    span: tuple[int, int]


_SCALES = {
    **dict.fromkeys(("thousand", "тыс", "тысяча", "тысячи", "тысяч", "тысячам", "k"), 1e3),
    **dict.fromkeys(("million", "mln", "m", "млн", "миллион", "миллиона", "миллионов", "миллионам"), 1e6),
    **dict.fromkeys(("billion", "bn", "b", "млрд", "миллиард", "миллиарда", "миллиардов"), 1e9),
    **dict.fromkeys(("trillion", "tn", "трлн", "триллион", "триллиона", "триллионов"), 1e12),
}
_ENGLISH_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SPELLED: dict[str, float] = {
    **{name: float(at) for at, name in enumerate(_ENGLISH_UNITS) if at > 1},
    **{name: 10.0 * at for at, name in enumerate(_ENGLISH_TENS, start=2)},
    **{
        f"{ten}-{unit}": 10.0 * at + one
        for at, ten in enumerate(_ENGLISH_TENS, start=2)
        for one, unit in enumerate(_ENGLISH_UNITS[:10])
        if one
    },
    "dozen": 12.0,
    **{
        name: float(at)
        for at, names in enumerate(
            (
                "два|две|двое|двух|двоих три|трое|трех|трёх|троих четыре|четверо|четырех|четырёх|четверых "
                "пять|пятеро|пяти|пятерых шесть|шестеро|шести|шестерых семь|семеро|семи|семерых восемь|восьми "
                "девять|девяти десять|десяти одиннадцать|одиннадцати двенадцать|двенадцати"
            ).split(),
            start=2,
        )
        for name in names.split("|")
    },
    **dict(
        zip(
            "двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто сто двести триста".split(),
            (20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0),
            strict=True,
        )
    ),
}
_UNIT_NAMES = {
    "%": "% percent процент процента процентов проценту процентах",
    "people": """people persons person dockers docker strikers striker докеров докера докеры забастовщиков рабочих работников workers worker employees staff protesters demonstrators passengers residents miners soldiers
        victims patients deaths dead fatalities injured killed arrests survivors человек человека людей людям рабочих рабочие сотрудников
        работников жителей пассажиров погибших пострадавших раненых задержанных""",
    "mph": "mph",
    "km/h": "km/h kph км/ч",
    "m/s": "m/s м/с",
    "km": "km kilometers kilometres kilometer kilometre км километр километра километров",
    "m": "m metre metres meter meters м метр метра метров",
    "mile": "mile miles миля мили миль",
    "acre": "acre acres акр акра акров",
    "hectare": "hectare hectares ha га гектар гектара гектаров",
    "dollar": "dollar dollars usd доллар доллара долларов",
    "euro": "euro euros eur евро",
    "pound": "pound pounds",
    "rouble": "rouble roubles ruble rubles rub руб рубль рубля рублей рублям",
    "vote": "vote votes голос голоса голосов голосами",
    "car": "car cars vehicle vehicles машина машины машин автомобиль автомобиля автомобилей",
    "ship": "ship ships vessel vessels судно судна судов корабль корабля кораблей",
    "home": "home homes house houses household households дом дома домов",
    "case": "case cases infection infections случай случая случаев случаи",
    "flight": "flight flights рейс рейса рейсов",
    "point": "point points пункт пункта пунктов",
    "degree": "degree degrees градус градуса градусов",
}
_UNITS = {word: unit for unit, words in _UNIT_NAMES.items() for word in words.split()}
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "₽": "rouble"}
_DIGITS = r"\d{1,3}(?:[ \u00a0\u202f,]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?"
_SPELLED_PATTERN = "|".join(sorted(_SPELLED, key=len, reverse=True))
_VALUE = rf"(?:{_DIGITS}|\b(?:{_SPELLED_PATTERN})\b)"
_SCALE_PATTERN = "|".join(sorted(_SCALES, key=len, reverse=True))
_QUANTITY = re.compile(
    rf"(?P<sign>[$€£₽])?(?<![\w.])(?P<low>{_VALUE})"
    rf"(?:\s?(?:[-–—]|and|to|до|и|or|или)\s?[$€£₽]?(?P<high>{_VALUE}))?"
    rf"(?:[ \u00a0-]?(?P<scale>{_SCALE_PATTERN})\b\.?)?"
    r"(?P<unit>[ \u00a0-]?(?:%|метр\w*\sв\sсекунду|километр\w*\sв\sчас|miles\sper\shour|per\scent\b|[a-zа-яё]+(?:/[a-zа-яё]+)?))?",
    re.IGNORECASE,
)
_COMPOUND_UNITS = (
    (re.compile(r"метр\w*\sв\sсекунду"), "m/s"),
    (re.compile(r"километр\w*\sв\sчас"), "km/h"),
    (re.compile(r"miles\sper\shour"), "mph"),
    (re.compile(r"per\scent"), "%"),
)
_YEARS = range(1900, 2101)
_MONTH_STEMS = re.compile(
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|янв|фев|мар|апр|ма[яй]|июн|июл|авг|сен|окт|ноя|дек", re.IGNORECASE
)
_FOLLOWING_WORD = re.compile(r"[ \u00a0-]+([^\W\d_]+)")
_MAX_ADJECTIVES = 3
_ALTERNATIVES = ("or", "или")  # "probable or confirmed cases"
_FUNCTION_WORDS = STOPWORDS["en"] | STOPWORDS["ru"]


def find_quantities(text: str) -> tuple[Quantity, ...]:
    """The figures of a text that have a unit, in order; years, dates and bare numbers are left out.

    Units and spellings are normalised: `150-mph` and `150 mph`, `2 million` and `2,000,000`, `40-50` and `between 40 and
    50`. An unknown unit is the stem of the word that follows.
    """
    return tuple(found for match in _QUANTITY.finditer(text) if (found := _parse_quantity(text, match)))


def _parse_quantity(text: str, match: re.Match[str]) -> Quantity | None:
    unit, end = _parse_unit(text, match)
    scale = _SCALES.get((match["scale"] or "").lower().rstrip("."), 1.0)
    low = _parse_value(match["low"]) * scale
    high = _parse_value(match["high"]) * scale if match["high"] else low
    bare = match["low"].isdigit() and not match["scale"] and not match["sign"]
    if not unit or (bare and low in _YEARS and unit not in _MEASURES):
        return None
    return Quantity(low=min(low, high), high=max(low, high), unit=unit, span=(match.start(), end))


def _parse_unit(text: str, match: re.Match[str]) -> tuple[str, int]:
    """The unit of a figure and where it ends; adjectives before a known unit are skipped."""
    if match["sign"]:
        last = next(name for name in ("scale", "high", "low") if match[name])
        return _CURRENCIES[match["sign"]], match.end(last)
    word = (match["unit"] or "").strip(" \u00a0-").lower()
    compound = next((name for pattern, name in _COMPOUND_UNITS if pattern.fullmatch(word)), None)
    if compound or word in _UNITS:
        return compound or _UNITS[word], match.end()
    at, first = match.end(), word
    for _ in range(_MAX_ADJECTIVES):
        following = _FOLLOWING_WORD.match(text, at)
        if following and following[1].lower() in _ALTERNATIVES:
            following = _FOLLOWING_WORD.match(text, following.end())
        if following is None or following[1].lower() in _FUNCTION_WORDS:
            break
        if following[1].lower() in _UNITS:
            return _UNITS[following[1].lower()], following.end()
        at = following.end()
    if not first or first in _IGNORED or _MONTH_STEMS.match(first):
        return "", match.end()
    return stem(first), match.start("unit")


def _parse_value(number: str) -> float:
    if number.lower() in _SPELLED:
        return _SPELLED[number.lower()]
    grouped = re.sub(r"[ \u00a0\u202f]|,(?=\d{3}\b)", "", number)
    return float(grouped.replace(",", "."))


def _differing_unit(left: Sequence[Quantity], right: Sequence[Quantity]) -> str:
    """A unit that both use with values of which none overlap; empty if there is none."""
    units = sorted({each.unit for each in left} & {each.unit for each in right})
    return next((unit for unit in units if not _has_common_figure(_of_unit(left, unit), _of_unit(right, unit))), "")


def _of_unit(found: Sequence[Quantity], unit: str) -> list[Quantity]:
    return [each for each in found if each.unit == unit]


def _has_common_figure(left: Sequence[Quantity], right: Sequence[Quantity]) -> bool:
    return any(
        one.unit == other.unit and one.low <= other.high and other.low <= one.high
        for one, other in product(left, right)
    )
