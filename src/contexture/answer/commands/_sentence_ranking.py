"""Ranks the sentences of articles for a question: by document, meaning and words together; splits questions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from contexture.answer.commands._article_sentences import ArticleSentence, ReadArticle, all_sentences, is_question
from contexture.errors import SourceError
from contexture.graph.entities import sound_skeleton
from contexture.ledger import Trace
from contexture.news.articles import asks_for_latest
from contexture.text.language import detect_language
from contexture.text.terms import extract_terms, find_name_lemma, is_cyrillic, split_words

CompareTexts = Callable[[str, str, Sequence[str], Sequence[str]], Awaitable[list[float]]]
"""Similarities from 0 to 1 of a text in a language to other texts in theirs, across languages too."""


class SentenceSimilarity:
    """Cosine-like similarity of the given sentences by shared terms: 0 with no shared term, 1 with all shared.

    Terms are weighted by inverse sentence frequency, so a common subject alone does not make sentences similar.
    """

    def __init__(self, found: Sequence[ArticleSentence]) -> None:
        holders = Counter(term for sentence in found for term in sentence.terms)
        total = len(found)
        self._term_weights = {term: math.log(1 + total / count) for term, count in holders.items()}

    def __call__(self, one: ArticleSentence, other: ArticleSentence) -> float:
        """From 0 to 1, the same in both directions."""
        shared = self._sum_weights(one.terms & other.terms)
        if not shared:
            return 0.0
        return shared / math.sqrt(self._sum_weights(one.terms) * self._sum_weights(other.terms))

    def weight(self, terms: frozenset[int]) -> float:
        """Return the summed weight of these terms; terms that are in no sentence weigh nothing."""
        return self._sum_weights(terms)

    def _sum_weights(self, terms: frozenset[int]) -> float:
        return math.fsum(self._term_weights.get(term, 0.0) for term in sorted(terms))


_DUPLICATE_SIMILARITY = 0.8  # similarity at which a sentence is a near-duplicate
_MIN_COVERAGE = 0.75
_MAX_EMBEDDED = 40  # sentences compared by embedding, which takes milliseconds each
_PER_ARTICLE = 6  # of those, sentences of one article

_TITLE_WEIGHT, _LEAD_WEIGHT, _RECENCY_WEIGHT = 0.35, 0.1, 0.2
_NAMES_WEIGHT, _MIN_NAMES_HEARD = 0.35, 0.5  # of names that an article in another language has
_ROUNDUP_PENALTY = 0.3  # a roundup says in one sentence what another article reports
_RECENCY_DAYS = 7.0
_MEANING, _WORDS, _PASSAGE, _FIRST, _FIGURE = 0.4, 0.3, 0.3, 0.1, 0.2
_ASKS_FOR_FIGURE = re.compile(
    r"\bhow (?:many|much|old|long|far|high)\b|\bwhat (?:percentage|share|magnitude|number)\b|"
    r"\bсколько\b|\bкак(?:ой|ая|ое|ова) (?:процент|доля|магнитуда|сумма|цена)\b",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d")
_MIN_ARTICLE_SCORE = 0.5  # relative to the best article
_MIN_MEANING, _MIN_MEANING_WITHOUT_NAMES = 0.5, 0.75  # similarity of a sentence that speaks of what was asked
_MIN_MEANING_OTHER_LANGUAGE = 0.8  # the same in another language, in an article without the names of the question
_MIN_MEANING_BY_NAMES = 0.4  # the same in another language, in an article with all of several names
_MIN_MEANING_OF_WORDS, _MIN_WORDS = 0.3, 0.5  # the same with many words in common
_MIN_WORDS_OF_ANY_MEANING = 0.75
_MIN_WORDS_ALONE = 0.34  # share of words when similarity is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedSentence:
    """A sentence with its score; `meaning` is its similarity to the question, `words` the share of its words it has.

    `meaning` is None if it is not known. `least_meaning` is the similarity at which it speaks of what was asked,
    whatever its words. `named` is whether its article has a name of the question, if there is one.
    """

    sentence: ArticleSentence
    score: float
    meaning: float | None
    words: float
    named: bool = True
    least_meaning: float = _MIN_MEANING

    @property
    def is_relevant(self) -> bool:
        """Whether the sentence speaks of what was asked; without any name of the question it must say the same."""
        if self.meaning is None:
            return self.words >= _MIN_WORDS_ALONE
        words = _MIN_WORDS if self.meaning >= _MIN_MEANING_OF_WORDS else _MIN_WORDS_OF_ANY_MEANING
        return self.meaning >= self.least_meaning or (self.named and self.words >= words)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceRanker:
    """Ranks sentences for questions asked on the day `today`; without `compare`, or if it fails, by words alone."""

    compare: CompareTexts | None
    today: date
    trace: Trace

    async def rank(self, readings: Sequence[ReadArticle], question: str) -> list[list[RankedSentence]]:
        """The sentences of each article, best first, the articles best first; questions and headings are left out."""
        pool = [each for each in all_sentences(readings) if each.whole and not is_question(each.text)]
        pool = pool or all_sentences(readings)
        asks_for_figure = bool(_ASKS_FOR_FIGURE.search(question))
        words = _WordShares(pool, extract_subject_terms(question), asks_for_figure=asks_for_figure)
        chosen = _shortlist(readings, pool, words)
        meaning = await self._compare(question, chosen)
        names, lang = _QuestionNames.from_question(question), detect_language(question)
        ranked: list[tuple[float, list[RankedSentence]]] = []
        top = max((each.score for each in readings), default=0.0) or 1.0
        for reading in readings:
            own = [each for each in chosen if each.source == reading.source]
            nearest = max((meaning.get(each.key, 0.0) for each in own), default=0.0)
            heard = names.share_heard(reading) if reading.source.lang != lang else None
            named, least = names.judge(reading, nearest, heard)
            found = [
                replace(_rank_sentence(each, reading, words, meaning), named=named, least_meaning=least) for each in own
            ]
            if found:
                found.sort(key=lambda each: (-each.score, each.sentence.key))
                rating = self._rate_article(reading, question, meaning, top) + _NAMES_WEIGHT * (heard or 0.0)
                ranked.append((rating + found[0].score, found))
        ranked.sort(key=lambda each: (-each[0], each[1][0].sentence.key))
        best = ranked[0][0] if ranked else 0.0
        return [found for score, found in ranked if score >= _MIN_ARTICLE_SCORE * best]

    async def select(self, readings: Sequence[ReadArticle], question: str, most: int) -> list[ArticleSentence]:
        """At most `most` sentences that answer the question, best first, each article's best before any second.

        Empty when no sentence speaks of what was asked.
        """
        ranked = await self.rank(readings, question)
        ordered = [found[at] for at in range(2) for found in ranked if len(found) > at]
        relevant = [each.sentence for each in ordered if each.is_relevant] or [
            each.sentence for each in ordered if _is_told_by_title(each, question)
        ]
        return drop_similar(relevant, SentenceSimilarity([each.sentence for each in ordered]), most)

    async def _compare(self, question: str, chosen: Sequence[ArticleSentence]) -> Mapping[tuple[str, int], float]:
        if self.compare is None or not chosen or asks_for_latest(question):
            return {}
        lang = detect_language(question)
        texts, langs = [each.text for each in chosen], [each.source.lang for each in chosen]
        try:
            found = await self.compare(question, lang, texts, langs)
        except SourceError as failure:
            self.trace.add_degradation("sentences", failure)
            return {}
        return {each.key: similarity for each, similarity in zip(chosen, found, strict=True)}

    def _rate_article(
        self,
        reading: ReadArticle,
        question: str,
        meaning: Mapping[tuple[str, int], float],
        top: float,
    ) -> float:
        """How likely an article answers: by its search score, title, lead and age; roundups come last."""
        lead = reading.lead
        asked, title = frozenset(extract_terms(question)), frozenset(extract_terms(reading.source.title))
        return (
            reading.score / top
            + _TITLE_WEIGHT * (len(title & asked) / len(title) if title else 0.0)
            + _LEAD_WEIGHT * (meaning.get(lead.key, 0.0) if lead else 0.0)
            + _RECENCY_WEIGHT * self._recency(reading)
            - _ROUNDUP_PENALTY * is_roundup(reading)
        )

    def _recency(self, reading: ReadArticle) -> float:
        if not reading.source.date:
            return 0.0
        days = (self.today - date.fromisoformat(reading.source.date)).days
        return math.exp(-max(0, days) / _RECENCY_DAYS)


_NAME = re.compile(r"(?<=[^.!?…]\s)[A-ZА-ЯЁ][\w'\u2019-]+")
_CAPITALISED = re.compile(r"\b[A-ZА-ЯЁ][\w'\u2019-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class _QuestionNames:
    """The names of a question: their terms, and how they sound, which is the same in both scripts."""

    terms: frozenset[int]
    sounds: frozenset[str]

    @classmethod
    def from_question(cls, question: str) -> _QuestionNames:
        """The capitalised words of a question; its first one if a dictionary, a hyphen or other letters say so."""
        words = _NAME.findall(question)
        first = _CAPITALISED.match(question)
        if first and (
            "-" in first[0] or find_name_lemma(first[0].lower()) or is_cyrillic(first[0]) != is_cyrillic(question)
        ):
            words.append(first[0])
        terms = frozenset(term for name in words for term in extract_terms(name)) & extract_subject_terms(question)
        parts = (part for name in words for part in split_words(name))
        return cls(terms=terms, sounds=frozenset(sound for part in parts if (sound := sound_skeleton(part))))

    def judge(self, reading: ReadArticle, nearest: float, heard: float | None) -> tuple[bool, float]:
        """Whether an article has a name of the question, and the similarity from which its sentences are relevant.

        `heard` is the share of the names that an article in another language has, None in the same language. `nearest`
        is the highest similarity of its sentences, which decides where no name does.
        """
        if heard is None:
            named = self._occur_in(reading)
            return named, _MIN_MEANING if named else _MIN_MEANING_WITHOUT_NAMES
        if heard == 1 and len(self.sounds) > 1:
            return True, _MIN_MEANING_BY_NAMES
        named = heard > _MIN_NAMES_HEARD or nearest >= _MIN_MEANING_OTHER_LANGUAGE
        return named, _MIN_MEANING if named else _MIN_MEANING_OTHER_LANGUAGE

    def _occur_in(self, reading: ReadArticle) -> bool:
        """Whether an article has one of the names; true if there are none."""
        texts = [frozenset(extract_terms(reading.source.title)), *(each.terms for each in reading.sentences)]
        return not self.terms or any(not self.terms.isdisjoint(terms) for terms in texts)

    def share_heard(self, reading: ReadArticle) -> float:
        """The share of the names that sound like capitalised words of an article; 0 without names."""
        if not self.sounds:
            return 0.0
        texts = (reading.source.title, *(each.text for each in reading.sentences))
        said = {sound_skeleton(word) for text in texts for word in _CAPITALISED.findall(text)}
        return len(self.sounds & said) / len(self.sounds)


def _is_told_by_title(found: RankedSentence, question: str) -> bool:
    """Whether the title of an article has the words of the question, and a sentence like it in meaning other ones."""
    wanted, title = extract_subject_terms(question), frozenset(extract_terms(found.sentence.source.title))
    covered = bool(wanted) and len(wanted & title) >= _MIN_COVERAGE * len(wanted)
    return covered and found.meaning is not None and found.meaning >= _MIN_MEANING_OF_WORDS


class _WordShares:
    """The share of the wanted terms that a sentence has, rare terms counting more."""

    def __init__(self, pool: Sequence[ArticleSentence], wanted: frozenset[int], *, asks_for_figure: bool) -> None:
        holders = Counter(term for sentence in pool for term in sentence.terms & wanted)
        total = max(1, len(pool))
        self._weights = {term: math.log(1 + total / max(1, holders[term])) for term in sorted(wanted)}
        self._sum = math.fsum(self._weights.values())
        self.asks_for_figure = asks_for_figure

    def __call__(self, sentence: ArticleSentence) -> float:
        shared = math.fsum(weight for term, weight in self._weights.items() if term in sentence.terms)
        return shared / self._sum if self._sum else 0.0


def _shortlist(
    readings: Sequence[ReadArticle], pool: Sequence[ArticleSentence], words: _WordShares
) -> list[ArticleSentence]:
    """The sentences worth comparing: of each article its lead and those in found passages or with most words."""
    most = max(1, min(_PER_ARTICLE, _MAX_EMBEDDED // max(1, len(readings))))
    found: list[ArticleSentence] = []
    for reading in readings:
        own = [each for each in pool if each.source == reading.source]
        own.sort(key=lambda each: (-words(each) - reading.passage_score(each) - _FIRST * each.lead, each.start))
        lead = [each for each in own if each.lead]
        found += list(dict.fromkeys([*own[:most], *lead]))
    return found


def _rank_sentence(
    sentence: ArticleSentence,
    reading: ReadArticle,
    words: _WordShares,
    meaning: Mapping[tuple[str, int], float],
) -> RankedSentence:
    similarity, share = meaning.get(sentence.key), words(sentence)
    score = (
        _MEANING * (similarity or 0.0)
        + _FIGURE * (words.asks_for_figure and bool(_DIGITS.search(sentence.text)))
        + _WORDS * share
        + _PASSAGE * reading.passage_score(sentence)
        + _FIRST * sentence.lead
    )
    return RankedSentence(sentence=sentence, score=score, meaning=similarity, words=share)


_MIN_NUMBERED_HEADINGS = 3
_NUMBERED_HEADING = re.compile(r"\d{1,2}[.)]\s+\S")
_ROUNDUP_TITLE = re.compile(
    r"\b\d+ (?:\w+ )?(?:things|stories|takeaways)\b|\bthings to know\b|\bneed to know\b|\bround-?up\b|\bin brief\b|"
    r"\bbriefing\b|\bheadlines\b|\bdigest\b|\bnewsletter\b|\bshort list\b|\blive (?:updates|blog)\b|\bnews quiz\b|"
    r"\bглавн(?:ое|ые новости) за\b|\bдайджест\b|\bитоги (?:дня|недели)\b|\bкоротко\b|"
    r"\bобзор (?:событий|прессы|новостей)\b|"
    r"\bхроника (?:дня|недели)\b|\bсобытия (?:дня|недели)\b|\bчто произошло за\b",
    re.IGNORECASE,
)


def is_roundup(reading: ReadArticle) -> bool:
    """Whether an article only sums up several stories: by its title, or by numbered headings."""
    numbered = sum(not each.whole and bool(_NUMBERED_HEADING.match(each.text)) for each in reading.sentences)
    return numbered >= _MIN_NUMBERED_HEADINGS or bool(_ROUNDUP_TITLE.search(reading.source.title))


def list_leads(readings: Sequence[ReadArticle]) -> list[ArticleSentence]:
    """The leads of articles in their order, those of roundups only if there are no others."""
    stories = [reading for reading in readings if not is_roundup(reading)]
    return [lead for reading in stories or readings if (lead := reading.lead)]


def drop_similar(found: Sequence[ArticleSentence], like: SentenceSimilarity, most: int) -> list[ArticleSentence]:
    """Return the first `most` sentences, skipping those that repeat an earlier one."""
    kept: list[ArticleSentence] = []
    for sentence in found:
        if len(kept) == most:
            break
        if all(like(sentence, other) < _DUPLICATE_SIMILARITY for other in kept):
            kept.append(sentence)
    return kept


def covers_question(
    found: Sequence[ArticleSentence], question: str, share: float = _MIN_COVERAGE, *, titled: bool = False
) -> bool:
    """Whether the sentences, with the titles of their articles if `titled`, mention this share of the subject terms.

    A question without subject terms is covered by any sentence.
    """
    wanted = extract_subject_terms(question)
    titles = [frozenset(extract_terms(each.source.title)) for each in found if titled]
    said = wanted & frozenset[int]().union(*(sentence.terms for sentence in found), *titles)
    return bool(found) and len(said) >= share * len(wanted)


MAX_PARTS = 4

_QUESTION_WORDS = (
    "who|whom|whose|what|when|where|why|how|which|кто|кого|кому|что|чем|когда|где|куда|почему|зачем|как|"
    "какой|какая|какие|каков|сколько|чей"
)
_PART_SEPARATORS = re.compile(
    rf"[?？;]+\s*|(?:,\s*|\s+)(?:and|or|but|и|или|а|но|а также|as well as)\s+(?=(?:{_QUESTION_WORDS})\b)"
    rf"|,\s+(?=(?:{_QUESTION_WORDS})\b)",
    re.IGNORECASE,
)
_QUESTION_WORD = re.compile(rf"\b(?:{_QUESTION_WORDS})\b", re.IGNORECASE)
_QUESTION_TERMS = frozenset(
    extract_terms(
        """many much long far often happened happen latest recent news tell explain describe say says know
        сколько много давно часто случилось произошло последние свежие новости расскажи объясни известно"""
    )
)
_VERSUS = re.compile(r"\s+(?:vs\.?|versus|compared (?:to|with)|против|по сравнению с)\s+", re.IGNORECASE)


def extract_subject_terms(question: str) -> frozenset[int]:
    """Return the terms that an answer must mention: those of the question without question words.

    Empty if the question asks for any news.
    """
    if asks_for_latest(question):
        return frozenset()
    wanted = frozenset(extract_terms(question))
    return wanted - _QUESTION_TERMS or wanted


def split_question(question: str) -> tuple[str, ...]:
    """Split a question into at most four parts that can be answered separately, in order.

    Returns at least the question itself.
    """
    pieces = [piece.strip(" ,.") for joint in _split_clauses(question) for piece in _VERSUS.split(joint)]
    found: dict[frozenset[int], str] = {}
    for piece in pieces:
        said = frozenset(extract_terms(piece))
        if said:
            found.setdefault(said, piece)
    return tuple(found.values())[:MAX_PARTS] or (question,)


def _split_clauses(question: str) -> list[str]:
    """The clauses of a question; "According to the mayor, when ..." is one, because its beginning asks nothing."""
    found: list[str] = []
    start = 0
    for joint in _PART_SEPARATORS.finditer(question):
        clause = question[start : joint.start()]
        if joint.group().startswith(("?", "？", ";")) or _QUESTION_WORD.search(clause):
            found.append(clause)
            start = joint.end()
    return [*found, question[start:]]
