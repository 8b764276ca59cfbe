"""Finds lists of contents: titles with page numbers at one right edge, with or without leaders between them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contexture.adapters.documents.pdf._elements import PdfTable
from contexture.adapters.documents.pdf.layout import Rectangle, TextLine, Word

_PAGE_NUMBER = re.compile(r"\d{1,4}|[ivxlc]{1,6}|[A-Z]-\d{1,3}")
_LEADER = re.compile(r"(?:\s*[.·…_]){3,}\s*")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_EDGE_POINTS = 3.0  # page numbers whose right edges differ by less are in one column
_MIN_ENTRIES = 4
_MIN_PLAIN_ENTRIES = 8  # of a list without leaders: fewer could be rows of a table
_MIN_LEADER_SHARE = 0.3
_MAX_BARE_ROWS = 2  # rows without a number between two entries: titles of parts, or the first line of a title
_MAX_ROW_DISTANCE = 4.2  # times the font size


@dataclass(frozen=True, slots=True)
class _Entry:
    """A row with its title, its page number, and whether leaders lead to it."""

    title: str
    number: str
    right: float
    has_leader: bool


def take_contents(rows: Sequence[Sequence[TextLine]]) -> tuple[list[TextLine], list[PdfTable]]:
    """Lines outside of lists of contents, and these lists; rows are those of the whole page, top to bottom."""
    entries = [_parse_entry(row) for row in rows]
    free: list[TextLine] = []
    found: list[PdfTable] = []
    at = 0
    while at < len(rows):
        end = _find_end(rows, entries, at)
        if end == at:
            free += rows[at]
            at += 1
        else:
            found.append(_build_list(rows[at:end], entries[at:end]))
            at = end
    return free, found


def _parse_entry(row: Sequence[TextLine]) -> _Entry | None:
    """The entry of a row that ends in a page number; None for other rows, and for entries beside each other."""
    words = [word for line in row for word in line.words]
    text = " ".join(word.text for word in words)
    number = words[-1].text if words else ""
    # PDF files write leaders as words of their own, or in one word with the number.
    joined = re.fullmatch(rf"(?P<title>.*?)(?P<leader>(?:\s*[.·…_]){{3,}})\s*(?P<number>{_PAGE_NUMBER.pattern})", text)
    if joined:
        title, number = joined["title"], joined["number"]
    elif len(row) > 1 and _PAGE_NUMBER.fullmatch(number) and len(row[-1].words) == 1:
        title = " ".join(word.text for word in words[:-1])
    else:
        return None
    if not _LETTERS.search(title) or _LEADER.search(title):
        return None
    return _Entry(title.strip(), number, words[-1].right, joined is not None)


def _find_end(rows: Sequence[Sequence[TextLine]], entries: Sequence[_Entry | None], start: int) -> int:
    """Index after the last entry of the list that begins at `start`; `start` if none does."""
    first = entries[start]
    if first is None:
        return start
    inside, end, last = [first], start + 1, first
    for at in range(start + 1, len(rows)):
        if at - end > _MAX_BARE_ROWS or _distance(rows[at - 1], rows[at]) > _MAX_ROW_DISTANCE:
            break
        entry = entries[at]
        if entry is None:
            continue
        if abs(entry.right - last.right) > _EDGE_POINTS or not _is_after(last.number, entry.number):
            break
        inside.append(entry)
        end, last = at + 1, entry
    return end if _is_list(inside) else start


def _distance(above: Sequence[TextLine], below: Sequence[TextLine]) -> float:
    return (below[0].bottom - above[0].bottom) / max(below[0].size, 1.0)


def _is_after(number: str, other: str) -> bool:
    """Whether a page number does not precede another; numbers of different kinds are not compared."""
    return not (number.isdigit() and other.isdigit()) or int(number) <= int(other)


def _is_list(entries: Sequence[_Entry]) -> bool:
    if len(entries) < _MIN_ENTRIES or len({entry.number for entry in entries}) == 1:
        return False
    leaders = sum(entry.has_leader for entry in entries)
    return leaders >= _MIN_LEADER_SHARE * len(entries) or len(entries) >= _MIN_PLAIN_ENTRIES


def _build_list(rows: Sequence[Sequence[TextLine]], entries: Sequence[_Entry | None]) -> PdfTable:
    """The list, with an item for each entry; a title that begins in the row above goes on in lower case."""
    items: list[tuple[str, str]] = []
    waiting = ""
    for row, entry in zip(rows, entries, strict=True):
        title, number = (entry.title, entry.number) if entry else (" ".join(line.text for line in row), "")
        if not entry and waiting and _PAGE_NUMBER.fullmatch(title):
            title, number = "", title  # on a baseline of its own
        if waiting and title and not title[:1].islower():
            items.append((waiting, ""))
            waiting = ""
        waiting = f"{waiting} {title}".strip()
        if number:
            items.append((waiting, number))
            waiting = ""
    words = [word for row in rows for line in row for word in line.words]
    return PdfTable(_bounds(words), tuple(items), is_list=True)


def _bounds(words: Sequence[Word]) -> Rectangle:
    return Rectangle(
        min(word.left for word in words), min(word.top for word in words),
        max(word.right for word in words), max(word.bottom for word in words),
    )  # fmt: skip
