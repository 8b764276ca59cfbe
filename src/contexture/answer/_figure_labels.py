"""Figures of an answer that its sources give for something else: another label, or another year.

A figure is reported only if the source itself has the label with another figure: other words for a label are no fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contexture.text.segmentation import split_sentences
from contexture.text.terms import extract_terms

_FIGURE = re.compile(
    r"(?<![\w.,])[$€£₽]?\s?\(?(?P<number>\d{1,3}(?:[ \u00a0,]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)\)?"
    r"(?P<percent>[ \u00a0]?(?:%|percent\b|per cent\b|процент\w*))?(?!\w)"
)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_CLAUSE_END = re.compile(
    r"[;:()/]|,(?!\d)|\b(?:and|but|while|whereas|versus|vs|compared|against|to|from|и|а|но|тогда как|против|до|с)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _LabelledFigure:
    """A figure, the terms and the years that it stands with, and its sentence (from 0) or table row (below 0)."""

    value: str
    percent: bool
    labels: frozenset[int]
    years: frozenset[str]
    place: int


def find_misplaced_figures(said: str, sources: Sequence[str]) -> tuple[str, ...]:
    """Return the figures of a sentence that its sources give only for another label or year."""
    claimed = list(_read_clauses(said, 0))
    if not claimed:
        return ()
    known = [figure for source in sources for figure in _read_source(source)]
    return tuple(dict.fromkeys(each.value for each in claimed if _is_misplaced(each, claimed, known)))


def _is_misplaced(claim: _LabelledFigure, claimed: Sequence[_LabelledFigure], known: Sequence[_LabelledFigure]) -> bool:
    same = [each for each in known if each.value == claim.value and each.percent == claim.percent]
    if not same:
        return False  # a figure that no source has is reported as such
    others = [each for each in known if each.value != claim.value and each.percent == claim.percent]
    return _has_other_label(claim, claimed, same, others) or _has_other_year(claim, same, others)


def _has_other_label(
    claim: _LabelledFigure,
    claimed: Sequence[_LabelledFigure],
    same: Sequence[_LabelledFigure],
    others: Sequence[_LabelledFigure],
) -> bool:
    """Whether another figure, beside this one in the source, fits the label better than this one."""
    shared = frozenset[int]().union(*(each.labels for each in claimed if each is not claim))
    own = claim.labels - shared
    if any(each.place < 0 and own & each.labels for each in same):
        return False  # cells of one row share its label
    places = {each.place for each in same}
    known = max(len(own & each.labels) for each in same)
    return any(len(own & each.labels) > known for each in others if each.place in places)


def _has_other_year(claim: _LabelledFigure, same: Sequence[_LabelledFigure], others: Sequence[_LabelledFigure]) -> bool:
    """Whether a table has the figure in the column of another year, and another figure in the column of this one."""
    if len(claim.years) != 1 or not all(each.years for each in same) or any(claim.years & each.years for each in same):
        return False
    rows = {each.place for each in same}
    return any(claim.years & each.years for each in others if each.place in rows)


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
    label = frozenset(extract_terms(cells[0]))
    for at, cell in enumerate(cells[1:], start=1):
        head = header[at] if at < len(header) else ""
        for found in _FIGURE.finditer(cell):
            terms = label | frozenset(extract_terms(_YEAR.sub(" ", head)))
            percent = bool(found["percent"]) or cell.endswith("%")
            yield _LabelledFigure(_plain_number(found["number"]), percent, terms, frozenset(_YEAR.findall(head)), place)


def _read_clauses(sentence: str, place: int) -> Iterator[_LabelledFigure]:
    """Figures of a sentence with the terms of the clause each is in; years are no figures."""
    years = frozenset(_YEAR.findall(sentence))
    for clause in _CLAUSE_END.split(sentence):
        terms = frozenset(extract_terms(re.sub(r"[\d.,%$€£]+", " ", clause)))
        for found in _FIGURE.finditer(clause):
            if not _YEAR.fullmatch(found["number"]):
                yield _LabelledFigure(_plain_number(found["number"]), bool(found["percent"]), terms, years, place)


def _plain_number(number: str) -> str:
    return re.sub(r"[ \u00a0,](?=\d{3}\b)", "", number)
