"""Quotations in an answer, compared with the sources letter by letter.

White space, hyphenation, Markdown, and the kinds of quotation marks and dashes are normalised. An ellipsis or an
insertion in brackets splits a quotation into parts, which must follow each other in one source.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_QUOTED = re.compile(
    r"“(?P<curly>[^“”]{1,2000})”|«(?P<angle>[^«»]{1,2000})»|„(?P<low>[^„“”]{1,2000})[“”]"
    r"|(?<![\w\"])\"(?P<straight>[^\"\n]{1,2000})\"(?!\w)|(?<!\w)‘(?P<single>[^‘’]{1,200})’(?!\w)"
)
_OMISSION = re.compile(r"\s*(?:\[\s*(?:\.{3}|…)\s*\]|\(\s*(?:\.{3}|…)\s*\)|\.{3,}|…|\[[^\[\]]{1,80}\])\s*")
_LETTER = re.compile(r"[^\W_]")
_LINE_HYPHEN = re.compile(r"(?<=\w)[-\u00ad\u2010]\s+(?=[^\W\d_])|\u00ad")
_MARKUP = re.compile(r"[|#*_`\\>]+|(?m:^\s*[-•]\s+)")
_SIGNS = str.maketrans(
    {
        "’": "'",
        "‘": "'",
        "“": '"',
        "”": '"',
        "„": '"',
        "«": '"',
        "»": '"',
        "–": "-",
        "—": "-",
        "−": "-",
        "‐": "-",
        "‑": "-",
    }
)
_EDGES = " \t.,;:!?'\"-…"


@dataclass(frozen=True, slots=True)
class Quotation:
    """The text between quotation marks, and where it is in the answer, marks included."""

    text: str
    start: int
    end: int


def find_quotations(answer: str) -> Iterator[Quotation]:
    """Yield the quotations of an answer, in order."""
    for found in _QUOTED.finditer(answer):
        text = next(part for part in found.groups() if part is not None)
        if _LETTER.search(text):
            yield Quotation(text, found.start(), found.end())


def is_quoted_from(quote: str, sources: Sequence[str]) -> bool:
    """Whether one of the sources contains a quotation."""
    parts = [normal for part in _OMISSION.split(quote) if (normal := normalise_quote(part).strip(_EDGES))]
    return any(_contains_in_order(normalise_quote(source), parts) for source in sources)


def normalise_quote(text: str) -> str:
    """The text in lower case with equal signs for equal characters, without Markdown, and with single spaces."""
    plain = unicodedata.normalize("NFKC", text).translate(_SIGNS)
    joined = _LINE_HYPHEN.sub("", _MARKUP.sub(" ", plain))
    return " ".join(joined.casefold().split())


def _contains_in_order(source: str, parts: Sequence[str]) -> bool:
    tight = source.replace("-", "")
    at = 0
    for part in parts:
        bare = part.replace("-", "")
        found = _find_whole_words(tight, bare, at)
        if found < 0:
            return False
        at = found + len(bare)
    return True


def _find_whole_words(text: str, part: str, start: int) -> int:
    """Where `part` occurs without continuing a word at either end; -1 if nowhere."""
    at = text.find(part, start)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(part) : at + len(part) + 1]
        if not (_is_word(before) and _is_word(part[:1])) and not (_is_word(after) and _is_word(part[-1:])):
            return at
        at = text.find(part, at + 1)
    return -1


def _is_word(letter: str) -> bool:
    return letter.isalnum()
