"""Names without a model: phrases of capitalised words that a text does not only begin sentences with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from contexture.text.sentences import sentences
from contexture.text.stopwords import STOPWORDS
from contexture.types import Mention

_CAPITAL = r"[A-ZА-ЯЁ\u00c0-\u00de][\w'\u2019-]*"
_PHRASE = re.compile(rf"\b{_CAPITAL}(?:\.?[ \u00a0](?:(?:of|de|von|van|for) )?{_CAPITAL}){{0,5}}")
_STOP = STOPWORDS["en"] | STOPWORDS["ru"]
_DATED = frozenset(
    """monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december понедельник вторник среда четверг пятница суббота воскресенье""".split()
)
_CUES = (
    ("organization", frozenset(
        """inc ltd corp corporation company group bank ministry university institute agency council commission committee
        department union association parliament court party energy airlines motors holdings systems labs union
        банк министерство университет институт агентство совет комиссия комитет компания группа партия суд завод
        """.split()
    )),
    ("place", frozenset(
        """city river island islands street province region county bay lake mount valley port strait sea ocean
        область край город река озеро остров море""".split()
    )),
)  # fmt: skip
_BEFORE = (
    ("person", re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|President|Minister|Chancellor|Mayor|Senator|Judge)\.? )$")),
    ("place", re.compile(r"(?:\b(?:in|near|from|across|outside|в|во|под|из) )$")),
)
_REACH = 24


class CapitalisedPhrases:
    """Implements the `EntityRecognizer` port by capital letters alone; of most names it cannot say what they name.

    A single word that only ever begins a sentence is no name: any word may stand there.
    """

    @property
    def name(self) -> str:
        """Names the rules."""
        return "phrases-1"

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """Phrases in order."""
        del lang
        places = sentences(text)
        starts = {start for start, _ in places}
        matches = [match for start, end in places for match in _PHRASE.finditer(text, start, end)]
        found = [_trimmed(text, *match.span(), starts) for match in matches]
        spans = [span for span in found if span is not None]
        sure = {text[start:end] for start, end in spans if start not in starts or " " in text[start:end]}
        return [_mention(text, start, end) for start, end in spans if text[start:end] in sure]


def _trimmed(text: str, start: int, end: int, starts: set[int]) -> tuple[int, int] | None:
    """The phrase without words at its ends that are only capitalised by their place; None when nothing is left."""
    words = list(_words(text, start, end))
    while words and _is_plain(text[slice(*words[0])]) and (words[0][0] in starts or len(words) == 1):
        words.pop(0)
    while words and text[slice(*words[-1])].casefold() in _DATED:
        words.pop()
    return (words[0][0], words[-1][1]) if words else None


def _words(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return ((start + word.start(), start + word.end()) for word in re.finditer(r"\S+", text[start:end]))


def _is_plain(word: str) -> bool:
    folded = word.casefold().strip(".'\u2019")
    return folded in _STOP or folded in _DATED or len(folded) == 1


def _mention(text: str, start: int, end: int) -> Mention:
    name = text[start:end]
    return Mention(start, end, _kind(name, text[max(0, start - _REACH) : start]), name)


def _kind(name: str, before: str) -> str:
    words = frozenset(name.casefold().split())
    for kind, cues in _CUES:
        if words & cues:
            return kind
    return next((kind for kind, cue in _BEFORE if cue.search(before)), "name")
