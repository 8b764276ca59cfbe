"""Checks an answer against its sources: citation markers, figures, names, and unsupported sentences."""

import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from contexture.answer._figure_labels import find_misplaced_figures, find_scaled_figures, is_rounded_from
from contexture.answer._quotations import find_quotations, is_quoted_from
from contexture.text.language import STOPWORDS
from contexture.text.segmentation import split_passages, split_sentences
from contexture.text.terms import extract_terms, split_words, stem, term_id

MIN_WORD_SHARE = 0.5
"""Share of a sentence's words that its sources must contain."""

MIN_SIMILARITY = 0.6
"""Calibrated similarity at which a source supports a sentence in other words or in another language."""

_CAPITALISED_NAME = re.compile(r"(?<![.!?…:\n«\"'“(]\s)(?<=\s)[A-ZА-ЯЁ][\w’'-]++(?!&)")
_PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]*_\d+>")
_MIN_NAME_PART = 4  # letters of a name that is looked for inside words
_MAX_COMPARED_PASSAGES = 16  # passages of the sources that are compared by embedding
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")

SimilarityFunction = Callable[[str, Sequence[str]], Awaitable[float]]
"""Returns how similar a sentence is to the most similar of some texts, from 0 to 1."""


class UnsupportedReason(StrEnum):
    """Why a sentence is unsupported."""

    MARKER = "no_marker"
    WORDS = "not_in_source"
    FIGURE = "figure_not_in_source"
    NAME = "name_not_in_source"
    QUOTE = "quotation_not_in_source"
    LABEL = "figure_of_another_label"


@dataclass(frozen=True, kw_only=True, slots=True)
class UnsupportedSentence:
    """A sentence of the answer, at characters `start` to `end`, that its sources do not support.

    `missing` lists the figures, names or quotations that the sources do not contain.
    """

    sentence: str
    start: int
    end: int
    lack: UnsupportedReason
    missing: tuple[str, ...] = ()


async def find_unsupported_sentences(
    answer: str, sources: Mapping[int, str], *, question: str = "", alike: SimilarityFunction | None = None
) -> tuple[UnsupportedSentence, ...]:
    """Return every sentence that cites no source, or that its cited sources do not support.

    Headings are skipped, and so are sentences which say that the sources have no answer. A quotation is compared with
    the sources that its sentence cites, or with all of them if it cites none.
    """
    found: list[UnsupportedSentence] = []
    moved = move_markers_before_stops(answer)
    sentences = _split_claims(moved)
    invented = _find_invented_quotations(moved, sentences, sources, question)
    for start, end in sentences:
        sentence = moved[start:end]
        said = strip_markers(sentence).strip()
        if not _makes_claim(said) and (start, end) not in invented:
            continue
        texts = [sources[number] for number in find_cited_numbers(sentence) if number in sources]
        lack, missing = UnsupportedReason.QUOTE, invented.get((start, end), ())
        if not missing:
            lack, missing = await _find_reason(said, texts, question, alike)
        if lack is not None:
            shown = " ".join(answer[start:end].split())
            found.append(UnsupportedSentence(sentence=shown, start=start, end=end, lack=lack, missing=missing))
    return tuple(found)


def _split_claims(answer: str) -> list[tuple[int, int]]:
    """Return the offsets of the sentences; a marker at the end of a line ends one, as in a list of quoted rows.

    Markers alone, as behind a closing quotation mark, belong to the sentence before them.
    """
    found: list[tuple[int, int]] = []
    for start, end in split_sentences(_OMITTED.sub(lambda gap: "," * len(gap[0]), answer)):
        stops = [*_MARKED_LINE_END.finditer(answer, start, end)]
        found += zip(
            [start, *(stop.end() for stop in stops)], [*(stop.start() + 1 for stop in stops), end], strict=True
        )
    claims: list[tuple[int, int]] = []
    for start, end in found:
        if claims and not strip_markers(answer[start:end]).strip():
            claims[-1] = (claims[-1][0], end)
        else:
            claims.append((start, end))
    return claims


def word_overlap(sentence: str, sources: Sequence[str]) -> float:
    """Return the share of a sentence's stemmed words that its sources contain."""
    said = set(extract_terms(sentence))
    held = set[int]().union(*(extract_terms(source) for source in sources))
    return len(said & held) / len(said) if said else 1.0


def _find_invented_quotations(
    answer: str, sentences: Sequence[tuple[int, int]], sources: Mapping[int, str], question: str
) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the quotations that no cited source contains, by the sentence in which they end."""
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for quote in find_quotations(answer):
        around = [each for each in sentences if each[0] < quote.end and quote.start < each[1]]
        if not around:
            continue
        cited = find_cited_numbers(answer[around[0][0] : around[-1][1]])
        texts = [sources[number] for number in cited if number in sources] or list(sources.values())
        if not is_quoted_from(quote.text, [*texts, question]):
            found[around[-1]] = (*found.get(around[-1], ()), quote.text)
    return found


_HOLD = r"(?:contain|hold|mention|state|say|provide|include|answer|specify|give|disclose|address|cover|show|have)\w*"
_TEXTS = r"(?:documents?|sources?|pages?|passages?|context|texts?|excerpts?|materials?)"
_TEXTS_RUSSIAN = r"(?:документ|источник|материал|текст|страниц)\w*"
_NO_ANSWER = re.compile(
    rf"\b{_TEXTS}\b[^.]{{0,40}}\b(?:do(?:es)? not|don't|doesn't|did not|cannot) {_HOLD}\b"
    rf"|\b{_TEXTS}\b[^.]{{0,40}}\b{_HOLD} no (?:information|answer|mention|figures?|data)\b"
    rf"|\bnot (?:\w+ )?(?:stated|mentioned|specified|found|disclosed|given|provided|answered)\b[^.]{{0,40}}\b{_TEXTS}\b"
    rf"|\bno (?:information|answer|mention)\b[^.]{{0,60}}\b{_TEXTS}\b"
    r"|\bI (?:cannot|can't|could not|couldn't) (?:find|answer|determine)\b"
    rf"|{_TEXTS_RUSSIAN}[^.]{{0,40}}\b(?:нет|не (?:содерж|указ|сообща|говор|отвеча|упомина)\w*)"
    rf"|\b(?:нет|не (?:указан|найден|содерж|упомин|сказан)\w*)[^.]{{0,60}}{_TEXTS_RUSSIAN}",
    re.IGNORECASE,
)

_PERIOD_NAME = re.compile(r"\b(?:FY\s?)?(?:19|20)\d\d\b|\bFY\s?\d\d\b|\bQ[1-4]\b", re.IGNORECASE)


def _makes_claim(said: str) -> bool:
    """Whether a sentence makes a claim.

    A heading, a line that introduces a list, and a sentence which says that the sources have no answer do not.
    """
    if not extract_terms(said) or said.startswith("#") or said.endswith((":", "：")):
        return False
    return not (_NO_ANSWER.search(said) and not extract_digits(_PERIOD_NAME.sub(" ", said)))


async def _find_reason(
    said: str, texts: Sequence[str], question: str, alike: SimilarityFunction | None
) -> tuple[UnsupportedReason | None, tuple[str, ...]]:
    if not texts:
        return UnsupportedReason.MARKER, ()
    if strange := _missing_figures(said, texts):
        return UnsupportedReason.FIGURE, strange
    if strange := find_misplaced_figures(said, texts):
        return UnsupportedReason.LABEL, strange
    if strange := _missing_names(said, [*texts, question]):
        return UnsupportedReason.NAME, strange
    if word_overlap(said, texts) >= MIN_WORD_SHARE or await _is_similar(said, texts, alike):
        return None, ()
    return UnsupportedReason.WORDS, ()


def _missing_figures(said: str, texts: Sequence[str]) -> tuple[str, ...]:
    held = frozenset[str]().union(*map(extract_digits, texts))
    missing = extract_digits(said) - held
    rounded = {each for each in missing & find_scaled_figures(said) if any(is_rounded_from(each, n) for n in held)}
    return tuple(sorted(missing - rounded))


def _missing_names(said: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names that no text contains; names in a script that the texts do not use are not checked."""
    named = [
        name
        for name in _CAPITALISED_NAME.findall(_PLACEHOLDER.sub(" ", said))
        if term_id(name.lower()) is not None and not _MONTHS.match(name)
    ]
    if not named:
        return ()
    joined = "\n".join(texts)
    held = set(extract_terms(joined))
    cyrillic = _CYRILLIC.search(joined) is not None
    return tuple(
        name
        for name in dict.fromkeys(named)
        if (cyrillic or not _CYRILLIC.search(name)) and not _contains_name(name, held, joined)
    )


def _contains_name(name: str, held: set[int], joined: str) -> bool:
    if name in joined or (len(name) >= _MIN_NAME_PART and name.casefold() in joined.casefold()):
        return True  # part of a file's name or of a compound, too
    return all(found is None or found in held for found in map(term_id, split_words(name)))


async def _is_similar(said: str, texts: Sequence[str], alike: SimilarityFunction | None) -> bool:
    if alike is None:
        return False
    pieces = [text[start:end] for text in texts for (start, end), _ in split_passages(text)]
    return bool(pieces) and await alike(said, pieces[:_MAX_COMPARED_PASSAGES]) >= MIN_SIMILARITY


# Bounded blanks and possessive runs: each character is examined once, so matching is linear for any text.
_GAP = r"\s{0,3}"
_SOURCE_WORD = rf"(?:(?:documents?|docs?\.?|sources?|документы?|источники?){_GAP})?[#№]?{_GAP}"
_SINGLE_REFERENCE = rf"{_SOURCE_WORD}\d{{1,3}}(?:{_GAP}[-–]{_GAP}\d{{1,3}})?"
_PAGE_TAIL = rf"(?::[^\[\]\n]{{0,300}}|,?{_GAP}(?:pages?|pp?\.|стр\.?|страницы?){_GAP}[\d\s,–-]{{1,40}})?"
# A bracket before a parenthesis is a Markdown link, and a list or range from 0 is mathematics.
_MARKER = re.compile(
    rf"(?<!\s)\s*+\[{_GAP}(?!0{_GAP}[,–-])(?P<names>{_SINGLE_REFERENCE}(?:{_GAP}(?:[,;&]|and|и){_GAP}{_SINGLE_REFERENCE}){{0,50}}){_GAP}{_PAGE_TAIL}{_GAP}\](?!\()",
    re.IGNORECASE,
)
_NUMBER_RANGE = re.compile(r"(\d{1,4})(?:\s*[-–]\s*(\d{1,4}))?")
_MARKERS_AFTER_STOP = re.compile(rf"(?<![.!?…])([.!?…]++)((?:{_GAP}\[[^\[\]\n]{{1,320}}\])+)")
_OMITTED = re.compile(r"\[\s?(?:\.{3}|…)\s?\]|\(\s?(?:\.{3}|…)\s?\)")  # from a quotation; ends no sentence
_MARKED_LINE_END = re.compile(r"(?<=\d)\]\s*\n\s*(?=\S)")
_MAX_RANGE = 50  # sources that a range such as [1-50] may cover


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedMarker:
    """A marker, or part of one, that named no known source: its text, and the unknown numbers."""

    marker: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanedMarkers:
    """A text whose markers all name known sources, and the markers that were removed."""

    text: str
    removed: tuple[RemovedMarker, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CitationMarker:
    """A marker of an answer at characters `start` to `end`: its source numbers, and the sentence that it supports."""

    numbers: tuple[int, ...]
    start: int
    end: int
    sentence_start: int
    sentence_end: int


def find_markers(answer: str) -> tuple[CitationMarker, ...]:
    """Return the markers of an answer, in order; one behind a full stop supports the sentence before it."""
    sentences = _split_claims(move_markers_before_stops(answer))
    found: list[CitationMarker] = []
    for match in _find_marker_matches(answer):
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        inside = [each for each in sentences if each[0] <= start < each[1]]
        first, last = inside[0] if inside else (start, match.end())
        numbers = tuple(_parse_numbers(match["names"]))
        found.append(
            CitationMarker(numbers=numbers, start=start, end=match.end(), sentence_start=first, sentence_end=last)
        )
    return tuple(found)


_OTHER_MARKERS = re.compile(
    r"\[\[(?P<linked>\d{1,3})\]\]\([^()\s]{0,2000}\)|【(?P<lens>\d{1,3})(?::\d{1,4})?†[^【】\n]{0,300}】"
    r"|(?<!^)\[\^(?P<note>[1-9]\d{0,2})\](?!:)"
)
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)


def normalize_markers(text: str) -> str:
    """Write markers of other styles, `[[1]](url)`, `【1†source】` and `[^1]`, as `[1]`; code is left alone."""
    return _outside_code(text, lambda part: _OTHER_MARKERS.sub(_to_plain_marker, part))


def _to_plain_marker(found: re.Match[str]) -> str:
    return f"[{found['linked'] or found['lens'] or found['note']}]"


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    at = 0
    for code in _CODE.finditer(text):
        parts += [change(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(text[at:])])


def _find_marker_matches(text: str) -> list[re.Match[str]]:
    """Markers outside of code."""
    code = [found.span() for found in _CODE.finditer(text)]
    return [
        found for found in _MARKER.finditer(text)
        if not any(start < found.end() and found.start() < end for start, end in code)
    ]  # fmt: skip


def remove_unknown_markers(text: str, known: Container[int]) -> CleanedMarkers:
    """Remove markers that name unknown sources; a marker that also names known ones keeps those.

    Code is left alone, and so is an unknown number in brackets directly behind a letter, such as `array[9]`.
    """
    removed: list[RemovedMarker] = []

    def keep(found: re.Match[str]) -> str:
        numbers = _parse_numbers(found["names"])
        before = found.string[: found.start()][-1:]
        if not found[0][:1].isspace() and (before.isalpha() or before == "_") and not any(n in known for n in numbers):
            return found[0]
        valid = [number for number in numbers if number in known]
        if len(valid) == len(numbers):
            return found[0]
        lost = tuple(number for number in numbers if number not in known)
        removed.append(RemovedMarker(marker=found[0].strip(), numbers=lost))
        space = found[0][: len(found[0]) - len(found[0].lstrip())]
        return f"{space}[{', '.join(map(str, valid))}]" if valid else ""

    cleaned = _outside_code(text, lambda part: _MARKER.sub(keep, part))
    return CleanedMarkers(text=cleaned.strip(), removed=tuple(removed))


def find_cited_numbers(text: str) -> tuple[int, ...]:
    """Return the source numbers in the markers of a text, each once, in order."""
    matches = _find_marker_matches(text)
    return tuple(dict.fromkeys(number for found in matches for number in _parse_numbers(found["names"])))


def strip_markers(text: str) -> str:
    """Return the text without any marker."""
    return _MARKER.sub("", text)


def move_markers_before_stops(text: str) -> str:
    """Move markers behind a full stop before it, so that they belong to the sentence it ends.

    The length is unchanged, so that sentence offsets remain valid for the given text.
    """
    return _MARKERS_AFTER_STOP.sub(lambda found: f"{found[2]}{found[1]}" if _MARKER.match(found[2]) else found[0], text)


def _parse_numbers(names: str) -> list[int]:
    found: dict[int, None] = {}
    for first, last in _NUMBER_RANGE.findall(names):
        start, end = int(first), int(last or first)
        run = range(start, end + 1) if start <= end <= start + _MAX_RANGE else (start, end)
        found.update(dict.fromkeys(run))
    return list(found)


_SCALES = {
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
    "mln": 1e6,
    "bn": 1e9,
    "тыс": 1e3,
    "тысяч": 1e3,
    "тысячи": 1e3,
    "млн": 1e6,
    "миллиона": 1e6,
    "миллионов": 1e6,
    "миллион": 1e6,
    "млрд": 1e9,
    "миллиарда": 1e9,
    "миллиардов": 1e9,
    "миллиард": 1e9,
    "трлн": 1e12,
}
_SPELLED_NUMBERS = {
    **{name: float(at) for at, name in enumerate("one two three four five six seven eight nine ten".split(), start=1)},
    "twelve": 12.0,
    "twenty": 20.0,
    "dozen": 12.0,
    "два": 2.0,
    "две": 2.0,
    "три": 3.0,
    "четыре": 4.0,
    "пять": 5.0,
    "шесть": 6.0,
    "семь": 7.0,
    "восемь": 8.0,
    "девять": 9.0,
    "десять": 10.0,
}
_CURRENCY_UNITS = {"$": "dollar", "€": "euro", "£": "pound", "₽": "rubl"}
_NUMBER_PATTERN = r"\d{1,3}(?:[ \u00a0,]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?"
_FIGURE = re.compile(
    rf"(?P<sign>[$€£₽])?(?<![\w.])(?P<number>{_NUMBER_PATTERN}|(?:{'|'.join(_SPELLED_NUMBERS)})\b)"
    rf"(?:[ \u00a0]?(?P<scale>{'|'.join(sorted(_SCALES, key=len, reverse=True))})\b\.?)?"
    r"(?P<percent>[ \u00a0]?(?:%|percent\b|per cent\b|процент\w*))?(?P<after>(?:[ \u00a0-]+[^\W\d_]+){0,3})",
    re.IGNORECASE,
)
_DIGITS = re.compile(rf"(?<![\w<])(?:{_NUMBER_PATTERN})(?![\w>])")
_STOP_WORDS = STOPWORDS["en"] | STOPWORDS["ru"]
_YEARS = range(1900, 2101)
_MONTHS = re.compile(
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|янв|фев|мар|апр|мая|июн|июл|авг|сен|окт|ноя|дек", re.IGNORECASE
)
PERCENT = "%"
PEOPLE = "people"
_PEOPLE_STEMS = frozenset(
    stem(word)
    for word in """people persons workers dockers employees staff strikers protesters demonstrators passengers residents
    miners soldiers victims patients members voters students injured killed dead arrested evacuated
    человек людей рабочих докеров сотрудников работников участников жителей пассажиров погибших пострадавших
    раненых задержанных избирателей студентов""".split()
)

ValuesByUnit: TypeAlias = dict[str, set[float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and the stem of its unit."""

    value: float
    unit: str


def extract_figures(text: str) -> tuple[Figure, ...]:
    """Return the figures with a unit; years, dates and bare numbers are skipped."""
    found = (_parse_figure(match) for match in _FIGURE.finditer(text))
    return tuple(figure for figure in found if figure is not None)


def extract_digits(text: str) -> frozenset[str]:
    """Return every number written in digits, without separators."""
    return frozenset(re.sub(r"[ \u00a0,]", "", match.group()).rstrip(".") for match in _DIGITS.finditer(text))


def find_differing_unit(one: str, other: str) -> str | None:
    """Return a unit that two texts use with different values; None if every shared unit has a common value."""
    left, right = group_by_unit(one), group_by_unit(other)
    shared = sorted(unit for unit in left.keys() & right.keys() if left[unit].isdisjoint(right[unit]))
    return shared[0] if shared else None


def group_by_unit(text: str) -> ValuesByUnit:
    """Return the values in a text, by unit."""
    found: ValuesByUnit = {}
    for figure in extract_figures(text):
        found.setdefault(figure.unit, set()).add(figure.value)
    return found


def _parse_figure(match: re.Match[str]) -> Figure | None:
    value = _parse_value(match["number"]) * _SCALES.get((match["scale"] or "").lower(), 1.0)
    unit = _parse_unit(match)
    if not unit or (value in _YEARS and not match["scale"] and unit != PERCENT and not match["sign"]):
        return None
    return Figure(value, unit)


def _parse_value(number: str) -> float:
    if number.lower() in _SPELLED_NUMBERS:
        return _SPELLED_NUMBERS[number.lower()]
    grouped = re.sub(r"[ \u00a0]|,(?=\d{3}\b)", "", number)
    return float(grouped.replace(",", "."))


def _parse_unit(match: re.Match[str]) -> str:
    if match["percent"]:
        return PERCENT
    if match["sign"]:
        return _CURRENCY_UNITS[match["sign"]]
    words = [word for word in re.findall(r"[^\W\d_]+", match["after"].lower()) if word not in _STOP_WORDS]
    if not words or _MONTHS.match(words[0]):
        return ""
    unit = stem(words[0])
    return PEOPLE if unit in _PEOPLE_STEMS else unit
