"""Figures of an answer that its sources give for something else: another label, another year or another period.

A figure is reported only if the source itself has the label with another figure: other words for a label are no fault.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal

from contexture.text.segmentation import split_sentences
from contexture.text.terms import extract_terms

_SCALE = r"thousand|million|billion|trillion|mln|bn|тыс\w*|млн|млрд|трлн|миллион\w*|миллиард\w*"
_POWERS = {
    power: re.compile(words)
    for power, words in {3: "thou|тыс", 6: "mil|mln|млн|миллион", 9: "bil|bn|млрд|миллиард", 12: "tril|трлн"}.items()
}
_FIGURE = re.compile(
    r"(?<![\w.,])[$€£₽]?\s?\(?(?P<number>\d{1,3}(?:[ \u00a0,]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)\)?"
    rf"(?P<percent>[ \u00a0]?(?:%|percent\b|per cent\b|процент\w*))?(?P<scale>[ \u00a0]?(?:{_SCALE})\b)?(?!\w)",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_FISCAL = re.compile(r"\bfiscal\b|\bFY", re.IGNORECASE)
_OTHER_YEAR = re.compile(
    r"\b(?:year|period|quarter) (?:ago|earlier|before)|\b(?:prior|previous|preceding|last)\b"
    r"|\b(?:годом ранее|прошл\w+|предыдущ\w+)",
    re.IGNORECASE,
)
_IN_ORDER = re.compile(r"\brespectively\b|\bсоответственно\b", re.IGNORECASE)
_PERIOD = re.compile(r"\b(\d{1,2}|three|six|nine|twelve)[ -](weeks?|months?)\b", re.IGNORECASE)
_COUNTS = {"three": "3", "six": "6", "nine": "9", "twelve": "12"}
_CLAUSE_END = re.compile(
    r"[;:/]|\((?!\s?[$€£₽]?\d)|(?<!\d)\)|,(?!\d)|\b(?:to|from|до|с)\b(?=\s[$€£₽(]?\s?\d)"
    r"|\b(?:and|but|while|whereas|versus|vs|compared|against|и|а|но|тогда как|против)\b",
    re.IGNORECASE,
)
_NO_TERMS = re.compile(rf"[\d.,%$€£₽]+|\b(?:{_SCALE})\b", re.IGNORECASE)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря)"
)
_DAY = re.compile(
    rf"\b(?:19|20)\d\d-\d\d-\d\d\b|\b{_MONTH}\.? \d{{1,2}}\b(?![.,]?\d)|(?<![\d.,])\d{{1,2}}\.? {_MONTH}\b",
    re.IGNORECASE,
)
_STARTS_WITH_FIGURE = re.compile(r"\s*(?:up to |about |approximately )?[$€£₽(]*\d")
_MIN_SCALED_DIGITS = 2  # of a rounded figure, such as 1.6 billion: fewer agree with too many figures
_FAR_BETTER = 2  # times as many terms
_MAX_SHORT_CLAIM = 3  # terms of a claim that one term can be the label of


@dataclass(frozen=True, slots=True)
class _LabelledFigure:
    """A figure, the terms, years and periods that it stands with, and where it is.

    `power` is 6 for a million, and 0 without such a word. `row` has the terms of the row's label, none in a sentence.
    `place` counts sentences from 0 and rows below 0.
    """

    value: str
    percent: bool
    power: int
    labels: frozenset[int]
    row: frozenset[int]
    years: frozenset[str]
    periods: frozenset[str]
    place: int


def find_misplaced_figures(said: str, sources: Sequence[str]) -> tuple[str, ...]:
    """Return the figures of a sentence that its sources give only for another label, year or period."""
    claimed = list(_read_clauses(said, 0))
    if not claimed:
        return ()
    if len(claimed) == 1:  # no other figure that some of the words could belong to
        claimed = [replace(claimed[0], labels=frozenset(extract_terms(_NO_TERMS.sub(" ", said))))]
    known = [figure for source in sources for figure in _read_source(source)]
    return tuple(dict.fromkeys(each.value for each in claimed if _is_misplaced(each, claimed, known)))


def find_scaled_figures(said: str) -> frozenset[str]:
    """Return the figures of a sentence that a word such as "billion" scales, as they are written without separators."""
    return frozenset(_plain_number(found["number"]) for found in _FIGURE.finditer(said) if found["scale"])


def is_rounded_from(scaled: str, figure: str) -> bool:
    """Whether a scaled figure, such as 1.58 of "1.58 billion", is another one, such as 1577, in a larger unit."""
    if sum(letter.isdigit() for letter in scaled.strip("0.")) < _MIN_SCALED_DIGITS:
        return False
    wanted, value = Decimal(scaled.replace(",", ".")), Decimal(figure.replace(",", "."))
    step = Decimal(1).scaleb(int(wanted.as_tuple().exponent))
    return any((value.scaleb(-power)).quantize(step, ROUND_HALF_UP) == wanted for power in (3, 6, 9) if value >= 1)


def _is_misplaced(claim: _LabelledFigure, claimed: Sequence[_LabelledFigure], known: Sequence[_LabelledFigure]) -> bool:
    same = [each for each in known if _is_same_figure(claim, each)]
    if not same:  # a figure that no source has at all is reported as such
        return _has_other_unit(claim, known)
    others = [each for each in known if not _is_same_figure(claim, each)]
    return (
        _has_other_row(claim, same, others)
        or _has_other_label(claim, claimed, same, others)
        or _has_other_column(claim, same, others, lambda each: each.years)
        or _has_other_column(claim, same, others, lambda each: each.periods)
    )


def _is_same_figure(claim: _LabelledFigure, known: _LabelledFigure) -> bool:
    """Whether a figure of a source is the claimed one; a table may have percent in its header only."""
    if claim.percent != known.percent and not (claim.percent and known.row):
        return False
    if claim.value == known.value:
        return not _differ_in_power(claim, known)
    return bool(claim.power) and is_rounded_from(claim.value, known.value)


def _has_other_unit(claim: _LabelledFigure, known: Sequence[_LabelledFigure]) -> bool:
    """Whether the sources have the number only as a percentage instead of an amount, or as one of another size."""
    equal = [each for each in known if each.value == claim.value]
    return bool(equal) and all(
        (claim.power and each.percent) or (claim.percent and each.power) or _differ_in_power(claim, each)
        for each in equal
    )


def _differ_in_power(claim: _LabelledFigure, known: _LabelledFigure) -> bool:
    return bool(claim.power and known.power) and claim.power != known.power


def _read_power(scale: str | None) -> int:
    word = (scale or "").strip().lower()
    return next((power for power, pattern in _POWERS.items() if pattern.match(word)), 0)


def _has_other_row(claim: _LabelledFigure, same: Sequence[_LabelledFigure], others: Sequence[_LabelledFigure]) -> bool:
    """Whether the claim fits the label of another row of a table far better than the label of the figure's row."""
    if any(not each.row or each.row <= claim.labels for each in same):
        return False
    shared = max(len(claim.labels & each.row) for each in same)
    least = 1 if len(claim.labels) <= _MAX_SHORT_CLAIM else 2
    fitting = [(len(claim.labels & each.row), each.row <= claim.labels) for each in others if each.row]
    return any(
        (whole and count >= least and count > shared) or count >= max(2, _FAR_BETTER * shared)
        for count, whole in fitting
    )


def _has_other_label(
    claim: _LabelledFigure,
    claimed: Sequence[_LabelledFigure],
    same: Sequence[_LabelledFigure],
    others: Sequence[_LabelledFigure],
) -> bool:
    """Whether another figure fits the label better than this one beside it in a sentence, or far better elsewhere."""
    shared = frozenset[int]().union(*(each.labels for each in claimed if each is not claim))
    own = claim.labels - shared
    if any(each.row and own & each.labels for each in same):
        return False  # cells of one row share its label
    places = {each.place for each in same}
    known = max(len(own & each.labels) for each in same)
    return any(
        len(own & each.labels) > (known if each.place in places else max(1, _FAR_BETTER * known))
        for each in others
        if each.percent == claim.percent
    )


def _has_other_column(
    claim: _LabelledFigure,
    same: Sequence[_LabelledFigure],
    others: Sequence[_LabelledFigure],
    read: Callable[[_LabelledFigure], frozenset[str]],
) -> bool:
    """Whether a table has the figure in a column of another year or period, and its row has one in a column of this."""
    wanted = read(claim)
    if not wanted or not all(read(each) for each in same) or any(wanted & read(each) for each in same):
        return False
    rows = {each.row for each in same}
    return any(wanted & read(each) for each in others if each.row in rows and each.place < 0)


def _read_source(source: str) -> Iterator[_LabelledFigure]:
    """Figures of a source: of its table rows with row label and header, and of its sentences clause by clause."""
    header: list[str] = []
    prose: list[str] = []
    for number, line in enumerate(source.split("\n")):
        if not line.lstrip().startswith("|"):
            header = []
            prose.append(line)
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not header:
            header = cells
        else:
            yield from _read_row(cells, header, -1 - number)
    text = "\n".join(prose)
    for start, end in split_sentences(text):
        yield from _read_clauses(text[start:end], start + 1)


def _read_row(cells: Sequence[str], header: Sequence[str], place: int) -> Iterator[_LabelledFigure]:
    label = frozenset(extract_terms(_NO_TERMS.sub(" ", cells[0])))
    for at, cell in enumerate(cells[1:], start=1):
        head = header[at] if at < len(header) else ""
        for found in _FIGURE.finditer(_DAY.sub(" ", cell)):
            yield _LabelledFigure(
                value=_plain_number(found["number"]),
                percent=bool(found["percent"]) or cell.endswith("%"),
                power=0,
                labels=label | frozenset(extract_terms(_YEAR.sub(" ", head))),
                row=label,
                years=frozenset(_YEAR.findall(head)),
                periods=_find_periods(head),
                place=place,
            )


def _read_clauses(sentence: str, place: int) -> Iterator[_LabelledFigure]:
    """Figures of a sentence with the terms of the clause each is in; years and days are no figures.

    A clause that begins with its figure, as in "from 6 % to 14 %", has the terms of the one before, too.
    """
    every = _find_years(sentence)
    in_order = _IN_ORDER.search(sentence) is not None
    terms = frozenset[int]()
    for clause in _CLAUSE_END.split(_DAY.sub(" ", sentence)):
        above = terms if _STARTS_WITH_FIGURE.match(clause) else frozenset[int]()
        terms = above | frozenset(extract_terms(_NO_TERMS.sub(" ", clause)))
        years = frozenset[str]() if in_order or _OTHER_YEAR.search(clause) else _find_years(clause) or every
        for found in _FIGURE.finditer(clause):
            if not _YEAR.fullmatch(found["number"]):
                yield _LabelledFigure(
                    value=_plain_number(found["number"]),
                    percent=bool(found["percent"]),
                    power=_read_power(found["scale"]),
                    labels=terms,
                    row=frozenset(),
                    years=years,
                    periods=_find_periods(clause) or _find_periods(sentence),
                    place=place,
                )


def _find_years(text: str) -> frozenset[str]:
    """The years of a text; a fiscal year may end in the next calendar year."""
    years = frozenset(_YEAR.findall(text))
    return years | {str(int(year) + 1) for year in years} if _FISCAL.search(text) else years


def _find_periods(text: str) -> frozenset[str]:
    return frozenset(
        f"{_COUNTS.get(count.lower(), count)} {unit.lower().rstrip('s')}" for count, unit in _PERIOD.findall(text)
    )


def _plain_number(number: str) -> str:
    return re.sub(r"[ \u00a0,](?=\d{3}\b)", "", number)
