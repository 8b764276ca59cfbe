"""The language of a text: script first, then function words."""

from __future__ import annotations

import re
from collections import Counter

from contexture.text.stopwords import STOPWORDS

UNKNOWN = "und"

_SAMPLE = 2_000
_SCRIPTS = (
    ("ru", re.compile(r"[\u0400-\u04ff]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
)
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_WORD = re.compile(r"[a-z\u00df-\u024f]+")
_UKRAINIAN = re.compile(r"[іїєґ]", re.IGNORECASE)
_LATIN_LANGUAGES = tuple(lang for lang in STOPWORDS if lang not in ("ru", "uk"))
_SPOKEN = {
    word: tuple(lang for lang in _LATIN_LANGUAGES if word in STOPWORDS[lang])
    for word in frozenset[str]().union(*(STOPWORDS[lang] for lang in _LATIN_LANGUAGES))
}
_KANA_WEIGHT = 3  # Japanese mixes kana with Han; Chinese has no kana at all


def detect(text: str) -> str:
    """The ISO 639-1 code of the main language, or `und` when there are no letters to tell by.

    Script decides where it can. Latin text is English unless the function words of another
    language outnumber the English ones, so short English labels stay English.
    """
    sample = text[:_SAMPLE]
    if sample.isascii():
        return _latin_language(sample) if _LATIN.search(sample) else UNKNOWN
    latin = len(_LATIN.findall(sample))
    counts = {lang: len(pattern.findall(sample)) for lang, pattern in _SCRIPTS}
    counts["ja"] *= _KANA_WEIGHT
    best = max(counts, key=lambda lang: counts[lang])
    if counts[best] == 0 and latin == 0:
        return UNKNOWN
    if counts[best] * 2 >= latin:
        return "uk" if best == "ru" and len(_UKRAINIAN.findall(sample)) * 20 > counts["ru"] else best
    return _latin_language(sample)


def _latin_language(sample: str) -> str:
    scores: Counter[str] = Counter()
    for word, times in Counter(_WORD.findall(sample.lower())).items():
        for lang in _SPOKEN.get(word, ()):
            scores[lang] += times
    best = max(_LATIN_LANGUAGES, key=lambda lang: (scores[lang], lang == "en"))
    return best if scores[best] > scores["en"] else "en"
