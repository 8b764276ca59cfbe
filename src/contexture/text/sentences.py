"""Where sentences begin and end, in any of the scripts we index."""

from __future__ import annotations

import re

_ABBREVIATIONS = frozenset(
    """mr mrs ms dr prof st sr jr vs etc inc ltd co corp fig figs eq no vol pp al approx dept est gen gov hon rev sgt
    capt col lt jan feb mar apr jun jul aug sep sept oct nov dec e.g i.e u.s u.k a.m p.m cf
    г гг т.д т.п т.е т.к т.ч тыс млн млрд руб ул стр рис им проф акад см ср др пр св обл""".split()
)
_END = re.compile(
    r"[.!?…。！？]+[\"'»”’)\]]*(?=\s|$)|[。！？]|\n{2,}"
    r"|\n(?=\s*(?:[-*+•]|\d+[.)]|#{1,6}|\|)\s|[^\s:]{1,40}: )"
)
_LAST_WORD = re.compile(r"([^\s(\"'«“]+)$")
_INITIAL = re.compile(r"[A-ZА-ЯЁ]$")


def sentences(text: str) -> tuple[tuple[int, int], ...]:
    """Offsets of the sentences of `text`, in order, trimmed of white space, never overlapping.

    Every character that is not white space belongs to exactly one sentence. Known abbreviations
    and initials do not end one; a blank line, and a line that starts a list item or a speaker's turn
    (`Name: …`), does.
    """
    found: list[tuple[int, int]] = []
    start = 0
    for end in _END.finditer(text):
        if _is_abbreviation(text, start, end):
            continue
        _add(found, text, start, end.end())
        start = end.end()
    _add(found, text, start, len(text))
    return tuple(found)


def _add(found: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        begin = start + len(piece) - len(piece.lstrip())
        found.append((begin, begin + len(stripped)))


def _is_abbreviation(text: str, start: int, end: re.Match[str]) -> bool:
    if end.group() != ".":
        return False
    last = _LAST_WORD.search(text, max(start, end.start() - 24), end.start())
    if last is None:
        return False
    word = last.group(1)
    return word.lower() in _ABBREVIATIONS or _INITIAL.fullmatch(word) is not None
