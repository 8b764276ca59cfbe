"""Copies of a text that are easier to match, with offsets that map back: `MappedText` and `fold_text`."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, pairwise

_TAGS = range(0xE0000, 0xE1000)
# All blocks with characters that are folded; the others are ideographs, syllables, pictures and private use.
_FOLDED_BLOCKS = (
    range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x10000), range(0x10000, 0x12000),
    range(0x16A60, 0x16B60), range(0x1BCA0, 0x1BCA4), range(0x1D100, 0x1D800), range(0x1E140, 0x1E300),
    range(0x1E950, 0x1E960), range(0x1F100, 0x1F190), range(0x1FBF0, 0x1FBFA), _TAGS,
)  # fmt: skip
_MORE_DASHES = "\u02d7\u2043\u2212\u30fc"  # modifier minus, hyphen bullet, minus, prolonged sound mark
_MORE_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # joiners and fillers that are letters to Unicode
_KEPT = "№…‥"  # read as they are by the rules, or too common to be worth a copy
_GENERAL_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]"
)
_LONG_DASH_BY_NUMBER = re.compile("[–—](?:(?<=[0-9@].)|(?=[ ]?[0-9+(]))")
_BMP_END = 0xFFFF
_NOT_PLAIN = ("<super>", "<sub>", "<fraction>")  # a footnote number or an exponent does not continue a number


class MappedText:
    """A copy of a text with some stretches replaced, and the way back from its offsets.

    copy = MappedText("4111 1111", [(4, 5, "")])
    copy.text                     # '41111111'
    copy.to_original(0, 8)        # (0, 9)
    """

    __slots__ = ("_ends", "_new_ends", "_new_starts", "_starts", "text")

    def __init__(self, text: str, edits: Sequence[tuple[int, int, str]]) -> None:
        pieces: list[str] = []
        done = length = 0
        self._starts = [start for start, _, _ in edits]
        self._ends = [end for _, end, _ in edits]
        self._new_starts: list[int] = []
        self._new_ends: list[int] = []
        for start, end, new in edits:
            length += start - done
            self._new_starts.append(length)
            length += len(new)
            self._new_ends.append(length)
            pieces += (text[done:start], new)
            done = end
        self.text = "".join((*pieces, text[done:]))

    @property
    def replacements(self) -> Iterable[tuple[int, int]]:
        """The stretches of the copy that replace something."""
        return zip(self._new_starts, self._new_ends, strict=True)

    def to_original(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original behind `start` to `end` of the copy, without characters removed at its edges."""
        at = bisect_right(self._new_starts, start) - 1
        if at >= 0:
            ahead = start - self._new_ends[at]
            start = self._starts[at] if ahead < 0 else self._ends[at] + ahead
        at = bisect_left(self._new_starts, end) - 1
        if at >= 0:
            end = self._ends[at] + max(0, end - self._new_ends[at])
        return start, end


def fold_text(text: str) -> MappedText | None:
    """A copy in plain characters: NFKC where that is ASCII, one space, one dash, ASCII digits, nothing invisible.

    None when there is nothing to fold, at once for ASCII text. Long dashes between words are not worth a copy.
    """
    if text.isascii():
        return None
    table, odd, worth_a_copy, far = _foldings()
    hit = worth_a_copy.search(text)
    if hit and hit[0] > "\uffff":  # most often a picture
        hit = far.search(text)
    if hit is None and _LONG_DASH_BY_NUMBER.search(text) is None:
        return None
    edits = [(match.start(), match.end(), table.get(match[0], match[0])) for match in odd.finditer(text)]
    if "@" in text:
        edits = [
            (at, end, "" if new == " " and "@" in text[max(0, at - 1) : end + 1] else new) for at, end, new in edits
        ]
    return MappedText(text, edits)


@cache
def _foldings() -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What each folded character becomes, a pattern for any, and two for those that matter: a quick and an exact one.

    The quick one takes every character beyond U+FFFF, because a set of them is slow to look up.
    """
    table: dict[str, str] = {}
    for char in map(chr, chain.from_iterable(_FOLDED_BLOCKS)):
        folded = fold_char(char)
        if folded != char:
            table[char] = folded
    near = [char for char in table if char <= "\uffff"]
    far = "".join(rf"\U{block[0]:08x}-\U{block[-1]:08x}" for block in _FOLDED_BLOCKS if block[0] > _BMP_END)
    worth = _to_ranges(char for char in near if char not in "–—")
    quick = rf"[{worth}\U00010000-\U0010ffff]"
    return table, re.compile(f"[{_to_ranges(near)}{far}]"), re.compile(quick), re.compile(f"[{worth}{far}]")


def _to_ranges(chars: Iterable[str]) -> str:
    """The inside of a character class."""
    codes = sorted(map(ord, chars))
    starts = [code for before, code in pairwise((-1, *codes)) if code != before + 1]
    ends = [code for code, after in pairwise((*codes, -1)) if after != code + 1]
    return "".join(rf"\U{start:08x}-\U{end:08x}" for start, end in zip(starts, ends, strict=True))


def fold_char(char: str) -> str:
    """What a character folds to: plain characters, nothing if it is invisible, or itself."""
    if char in _KEPT:
        return char
    category = unicodedata.category(char)
    if category == "Cf" or char in _MORE_INVISIBLE or ord(char) in _TAGS or _GENERAL_MARKS.match(char):
        return ""
    if category == "Zs":
        return " "
    if category in ("Zl", "Zp") or char == "\x85":
        return "\n"
    if category == "Pd" or char in _MORE_DASHES:
        return "-"
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if char in "。｡":
        return "."  # a dot in the domain names of addresses
    plain = unicodedata.normalize("NFKC", char)
    exact = not unicodedata.decomposition(char).startswith(_NOT_PLAIN)
    return plain if exact and plain.isascii() and plain.isprintable() and not plain.isspace() else char
