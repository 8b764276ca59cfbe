"""Entity recognition without a model: capitalised phrases that do not only occur at the start of a sentence."""

import re
from collections.abc import Iterator, Sequence

from contexture.text.language import STOPWORDS
from contexture.text.segmentation import split_sentences
from contexture.types import Mention

_CAPITAL = r"[A-ZА-ЯЁ\u00c0-\u00de][\w'\u2019-]*"
_PHRASE = re.compile(rf"\b{_CAPITAL}(?:\.?[ \u00a0](?:(?:of|de|von|van|for) )?{_CAPITAL}){{0,5}}")
_STOP = STOPWORDS["en"] | STOPWORDS["ru"]
_CALENDAR_WORDS = frozenset(
    """monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december понедельник вторник среда четверг пятница суббота воскресенье""".split()
)
_KIND_WORDS = (
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
_KIND_CONTEXTS = (
    ("person", re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|President|Minister|Chancellor|Mayor|Senator|Judge)\.? )$")),
    ("place", re.compile(r"(?:\b(?:in|near|from|across|outside|в|во|под|из) )$")),
)
_CONTEXT_CHARACTERS = 24


class CapitalisedPhrases:
    """Implements `EntityRecognizer` by capital letters alone, without a model.

    A single word that occurs only at the start of sentences is no entity, because any word is capitalised there.
    """

    @property
    def name(self) -> str:
        """Version of the rules."""
        return "phrases-1"

    def find(self, text: str, lang: str) -> Sequence[Mention]:
        """Mentions in order of position."""
        del lang
        places = split_sentences(text)
        starts = {start for start, _ in places}
        matches = [match for start, end in places for match in _PHRASE.finditer(text, start, end)]
        found = [_trim_phrase(text, *match.span(), starts) for match in matches]
        spans = [span for span in found if span is not None]
        sure = {text[start:end] for start, end in spans if start not in starts or " " in text[start:end]}
        return [_build_mention(text, start, end) for start, end in spans if text[start:end] in sure]


def _trim_phrase(text: str, start: int, end: int, starts: set[int]) -> tuple[int, int] | None:
    """Span of a phrase without ordinary or calendar words at its ends; None when nothing is left."""
    words = list(_word_spans(text, start, end))
    while words and _is_ordinary_word(text[slice(*words[0])]) and (words[0][0] in starts or len(words) == 1):
        words.pop(0)
    while words and text[slice(*words[-1])].casefold() in _CALENDAR_WORDS:
        words.pop()
    return (words[0][0], words[-1][1]) if words else None


def _word_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return ((start + word.start(), start + word.end()) for word in re.finditer(r"\S+", text[start:end]))


def _is_ordinary_word(word: str) -> bool:
    folded = word.casefold().strip(".'\u2019")
    return folded in _STOP or folded in _CALENDAR_WORDS or len(folded) == 1


def _build_mention(text: str, start: int, end: int) -> Mention:
    name = text[start:end]
    return Mention(start, end, _guess_kind(name, text[max(0, start - _CONTEXT_CHARACTERS) : start]), name)


def _guess_kind(name: str, before: str) -> str:
    words = frozenset(name.casefold().split())
    for kind, cues in _KIND_WORDS:
        if words & cues:
            return kind
    return next((kind for kind, cue in _KIND_CONTEXTS if cue.search(before)), "name")
