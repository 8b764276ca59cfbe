"""Splits a text into sentences, in any indexed script, and into passages of whole sentences for search."""

import re
from collections.abc import Iterator, Sequence

_ABBREVIATIONS = frozenset(
    """mr mrs ms dr prof st sr jr vs etc inc ltd co corp fig figs eq no vol pp al approx dept est gen gov hon rev sgt
    capt cmdr col lt maj rep reps sen sens v jan feb mar apr jun jul aug sep sept oct nov dec e.g i.e u.s u.k a.m p.m cf
    г гг т.д т.п т.е т.к т.ч тыс млн млрд руб ул стр рис им проф акад см ср др пр св обл""".split()
)
_SENTENCE_END = re.compile(
    r"[.!?…。！？]+[\"'»”’)\]]*(?=\s|$)|[。！？]|\n{2,}"
    r"|\n(?=\s*(?:[-*+•]|\d+[.)]|#{1,6}|\|)\s|[^\s:]{1,40}: )"
)
_LAST_WORD = re.compile(r"([^\s(\"'«“]+)$")
_INITIAL = re.compile(r"(?:[A-ZА-ЯЁ]\.){0,3}[A-ZА-ЯЁ]$")


def split_sentences(text: str) -> tuple[tuple[int, int], ...]:
    """Offsets of the sentences of `text`, in order, trimmed of white space, never overlapping.

    Every character that is not white space belongs to exactly one sentence. Known abbreviations
    and initials do not end a sentence; a blank line does, and so does a line that starts a list item or a
    speaker's turn (`Name: …`).
    """
    found: list[tuple[int, int]] = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if _is_abbreviation(text, start, end):
            continue
        _add_trimmed(found, text, start, end.end())
        start = end.end()
    _add_trimmed(found, text, start, len(text))
    return tuple(found)


def _add_trimmed(found: list[tuple[int, int]], text: str, start: int, end: int) -> None:
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


TextRange = tuple[int, int]

_VISIBLE = re.compile(r"\S")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=#{1,6}\s)")


def split_passages(
    text: str, *, target: int = 600, skipped: Sequence[TextRange] = ()
) -> tuple[tuple[TextRange, tuple[TextRange, ...]], ...]:
    """Passages of about `target` characters with the sentences in each, in order, never overlapping.

    Sentences are not split, except that one longer than twice the target is cut at white space. The end
    of a paragraph is the preferred boundary once half the target is reached. Passages cover every
    character that is not white space and not in `skipped`, which holds ranges in order.
    """
    groups: list[list[TextRange]] = []
    for start, end in invert_ranges(skipped, len(text)):
        fresh = True  # a passage is one range, so it cannot continue behind what is skipped
        for piece in (part for found in split_range(text, start, end) for part in _cut_long(text, found, 2 * target)):
            if not fresh and _fits_passage(text, groups[-1], piece, target):
                groups[-1].append(piece)
            else:
                groups.append([piece])
            fresh = False
    return tuple(((group[0][0], group[-1][1]), tuple(group)) for group in groups)


def split_range(text: str, start: int, end: int) -> Iterator[TextRange]:
    """Offsets of the sentences of `text[start:end]`, as `split_sentences` gives them, in `text`."""
    return ((start + first, start + last) for first, last in split_sentences(text[start:end]))


def invert_ranges(ranges: Sequence[TextRange], length: int) -> list[TextRange]:
    """The parts of a text of this length that no range covers, in order; the ranges are in order."""
    found: list[TextRange] = []
    done = 0
    for start, end in ranges:
        if start > done:
            found.append((done, start))
        done = max(done, end)
    return [*found, (done, length)] if done < length else found


def _fits_passage(text: str, group: list[TextRange], piece: TextRange, target: int) -> bool:
    """Whether the next piece still fits the passage; slightly exceeding the target avoids very short passages."""
    start, end = group[0][0], group[-1][1]
    size = end - start
    if piece[1] - start > target + target // 4 or size >= target:
        return False
    if text.startswith("#", piece[0]):
        return size < target // 4  # a heading belongs to what follows it
    return size < target // 2 or _PARAGRAPH.search(text, end, piece[0] + 1) is None


def _cut_long(text: str, piece: TextRange, limit: int) -> list[TextRange]:
    """The piece, cut at white space where it is longer than `limit`."""
    start, end = piece
    parts: list[TextRange] = []
    while end - start > limit:
        cut = text.rfind(" ", start + limit // 2, start + limit)
        cut = cut if cut > start else start + limit
        parts.append((start, cut))
        rest = _VISIBLE.search(text, cut, end)
        start = rest.start() if rest else end
    return [*parts, (start, end)] if end > start else parts
