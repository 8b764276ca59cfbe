"""Orders the passages that a search found: named signals, and one linear model per kind of record.

| signal | meaning |
|---|---|
| `bm25` | BM25 over what the scope may read |
| `lexical` | BM25 relative to the best one, less when even the best shares few of the question's words |
| `lexical_unnamed` | of a message, if the question names who says one of those found: `lexical` without such names |
| `cosine` | cosine to the question, of the passage or of the mean with its context |
| `semantic` | the cosine, calibrated: unrelated pairs are below .3, true pairs about .8 |
| `contrast` | how far the cosine is above that of unrelated texts, from 0 to 1; this one is ranked by |
| `neighbour` | what the better neighbour in the record or session scores |
| `question_before` | what the question that a message follows scores |
| `speaker` | 1 if the message is from the speaker that the question names |
| `time` | 1 if the record is from the time that the question names, less the further away |
| `title` | share of the question's words in the title |
| `length` | length of the passage, 1 from 400 characters on |

The weights are in `ranking.toml`. Signals depend on the passages found, never on anything the scope may not read.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec

from contexture.retrieval._time_ranges import DateRange
from contexture.retrieval.encoders import Similarity
from contexture.text.terms import extract_terms, index_terms, is_cyrillic, question_terms, split_words
from contexture.types import BM25, Hit

LEXICAL = "lexical"
LEXICAL_UNNAMED = "lexical_unnamed"
SEMANTIC = "semantic"
COSINE = "cosine"
CONTRAST = "contrast"
NEIGHBOUR = "neighbour"
QUESTION_BEFORE = "question_before"
SPEAKER = "speaker"
TIME = "time"
TITLE = "title"
LENGTH = "length"

_LIFT_FROM = 0.2  # weaker neighbours raise nothing: any two English texts have something in common
_FULL_LENGTH = 400
_SPEAKER_LABEL = re.compile(r"^([^\W\d_][\w .'-]{0,30}?)\s?:\s", re.MULTILINE)
_DIALOGUE_SHARE = 0.5


class RankingWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weight of each signal; `lexical`, `lexical_unnamed` and `semantic` add up to 1.

    A message without `lexical_unnamed` has the weight of that on `lexical`.
    """

    lexical: float
    semantic: float
    lexical_unnamed: float = 0.0
    neighbour: float = 0.0
    question_before: float = 0.0
    speaker: float = 0.0
    time: float = 0.0
    title: float = 0.0
    length: float = 0.0


@dataclass(frozen=True, slots=True)
class RankingModel:
    """The weights by kind of record (`prose`, `dialogue`, `turn`) and by language of the question."""

    by_kind: Mapping[str, RankingWeights]
    by_language: Mapping[tuple[str, str], RankingWeights]

    def weights(self, kind: str, lang: str) -> RankingWeights:
        """The weights for a kind of record and a question in this language."""
        return self.by_language.get((kind, lang), self.by_kind[kind])


def load_ranking_model(path: Path | None = None) -> RankingModel:
    """Read the weights that ship with the package, or those of another file of the same form."""
    tables = tomllib.loads((path or Path(__file__).with_name("ranking.toml")).read_text("utf-8"))
    by_kind: dict[str, RankingWeights] = {}
    by_language: dict[tuple[str, str], RankingWeights] = {}
    for kind, table in tables.items():
        numbers = {name: value for name, value in table.items() if not isinstance(value, dict)}
        by_kind[kind] = msgspec.convert(numbers, RankingWeights)
        for lang, inner in table.items():
            if isinstance(inner, dict):
                by_language[kind, lang] = msgspec.convert(inner, RankingWeights)
    return RankingModel(by_kind, by_language)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedQuestion:
    """What the ranking needs to know about a question; `terms` are the ids of each of its words."""

    text: str
    lang: str
    terms: tuple[frozenset[int], ...]
    time: DateRange | None = None
    words: frozenset[str] = field(default_factory=frozenset[str])

    @classmethod
    def parse(cls, text: str, lang: str, terms: tuple[frozenset[int], ...], time: DateRange | None) -> RankedQuestion:
        """The question with its words."""
        return cls(text=text, lang=lang, terms=terms, time=time, words=frozenset(split_words(text)))


@dataclass(frozen=True, slots=True)
class RankedHit:
    """A hit with its score and the signals behind it."""

    hit: Hit
    score: float
    signals: Mapping[str, float]


def rank_hits(
    hits: Sequence[Hit], similar: Sequence[Similarity | None], question: RankedQuestion, model: RankingModel
) -> list[RankedHit]:
    """Score every hit, in the order given.

    A channel that found nothing has no weight, so that scores keep their scale. Scores lie between 0 and 1, except that
    a passage can exceed 1 where everything speaks for it.
    """
    kinds = [_kind_of(hit) for hit in hits]
    weights = [model.weights(kind, question.lang) for kind in kinds]
    lexical = _lexical_signals(hits, question)
    has_words, has_vectors = any(lexical), any(each is not None for each in similar)
    speakers = _find_speakers(hits, kinds)
    named = {name for name in set(speakers) if name and frozenset(split_words(name)) & question.words}
    signals = [
        _hit_signals(hit, share, each, speaker in named and len(named) == 1, question)
        for hit, share, each, speaker in zip(hits, lexical, similar, speakers, strict=True)
    ]
    for at, share in _unnamed_signals(hits, named, question).items():
        signals[at][LEXICAL_UNNAMED] = share
    own = [
        _own_score(each, weight, has_words=has_words, has_vectors=has_vectors)
        for each, weight in zip(signals, weights, strict=True)
    ]
    positions = _Positions(hits, own)
    ranked: list[RankedHit] = []
    for at, hit in enumerate(hits):
        weight = weights[at]
        lifts = {NEIGHBOUR: positions.best_neighbour(at)}
        if kinds[at] == "turn":
            lifts[QUESTION_BEFORE] = positions.question_before(at)
        gain = weight.neighbour * lifts[NEIGHBOUR] + weight.question_before * lifts.get(QUESTION_BEFORE, 0.0)
        score = (own[at] + gain) / (1 + weight.neighbour + weight.question_before)
        ranked.append(RankedHit(hit, score, {**signals[at], **lifts}))
    return ranked


def _kind_of(hit: Hit) -> str:
    if hit.record.session:
        return "turn"
    return "dialogue" if _is_dialogue(hit.text) else "prose"


@lru_cache(maxsize=8_192)
def _is_dialogue(text: str) -> bool:
    """Whether at least half of the lines, and at least two, begin with a speaker's name and a colon."""
    lines = [line for line in text.split("\n") if line.strip()]
    labels = len(_SPEAKER_LABEL.findall(text))
    return labels > 1 and labels >= _DIALOGUE_SHARE * len(lines)


def _lexical_signals(hits: Sequence[Hit], question: RankedQuestion) -> list[float]:
    """BM25 relative to the best hit, times the root of the share of the question's terms that the best hit has.

    So one rare word that only one passage has does not outweigh everything else.
    """
    best = max(hits, key=lambda hit: (hit.scores.get(BM25, 0.0), hit.record.id, hit.ordinal), default=None)
    peak = 0.0 if best is None else best.scores.get(BM25, 0.0)
    if best is None or peak <= 0:
        return [0.0] * len(hits)
    factor = math.sqrt(word_coverage(best, question.terms)) / peak
    return [hit.scores.get(BM25, 0.0) * factor for hit in hits]


def _unnamed_signals(hits: Sequence[Hit], names: AbstractSet[str], question: RankedQuestion) -> dict[int, float]:
    """By position of a message: its lexical signal for the question without these names of speakers.

    Empty if the question has none of them, or nothing else that a message has.
    """
    ids = frozenset[int]().union(*question_terms(" ".join(sorted(names)), question.lang))
    rest = tuple(each for each in question.terms if ids.isdisjoint(each))
    if not rest or len(rest) == len(question.terms):
        return {}
    scores = {
        at: math.fsum(score for term, score in hit.term_scores.items() if term not in ids)
        for at, hit in enumerate(hits)
        if hit.term_scores is not None
    }
    best = max(scores, key=lambda at: (scores[at], hits[at].record.id, hits[at].ordinal), default=None)
    if best is None or scores[best] <= 0:
        return {}
    held = hits[best].term_scores or {}
    factor = math.sqrt(sum(not each.isdisjoint(held) for each in rest) / len(rest)) / scores[best]
    return {at: score * factor for at, score in scores.items()}


def word_coverage(hit: Hit, terms: Sequence[frozenset[int]]) -> float:
    """The share of a question's words that a passage has: as the index reports, else counted in its text.

    The index counts ids, of which a word may have several, so that words with several are counted in the text.
    """
    if not terms:
        return 0.0
    if hit.matched is not None and all(len(ids) == 1 for ids in terms):
        return min(1.0, hit.matched / len(terms))
    held = passage_terms(hit.text, hit.record.lang)
    return sum(not held.isdisjoint(ids) for ids in terms) / len(terms)


@lru_cache(maxsize=4_096)
def passage_terms(text: str, lang: str) -> frozenset[int]:
    """The terms of a passage; cached, because a conversation finds the same passages turn after turn."""
    return frozenset((*index_terms(text, lang), *extract_terms(text)))


def _find_speakers(hits: Sequence[Hit], kinds: Sequence[str]) -> list[str]:
    """By hit, who says a message; empty for anything else."""
    return [_speaker_of(hit) if kind == "turn" else "" for hit, kind in zip(hits, kinds, strict=True)]


def _speaker_of(hit: Hit) -> str:
    speaker = hit.record.payload.get("speaker")
    if isinstance(speaker, str):
        return speaker.lower()
    label = _SPEAKER_LABEL.match(hit.text)
    return label.group(1).lower() if label else ""


def _hit_signals(
    hit: Hit,
    lexical: float,
    similar: Similarity | None,
    is_speaker: bool,  # noqa: FBT001 - one of the signals
    question: RankedQuestion,
) -> dict[str, float]:
    signals = {BM25: hit.scores.get(BM25, 0.0), LEXICAL: lexical}
    if similar is not None:
        signals[COSINE], signals[SEMANTIC], signals[CONTRAST] = similar.cosine, similar.calibrated, similar.contrast
    if is_speaker:
        signals[SPEAKER] = 1.0
    if question.time is not None and hit.record.time is not None:
        signals[TIME] = question.time.closeness(hit.record.time)
    if hit.record.title and question.terms:
        signals[TITLE] = _title_coverage(hit.record.title, hit.record.lang, question)
    signals[LENGTH] = min(1.0, len(hit.text) / _FULL_LENGTH)
    return signals


def _title_coverage(title: str, lang: str, question: RankedQuestion) -> float:
    """The share of a question's words that a title has.

    Cyrillic words match no others, and finding their lemmas is slow: a title of them alone is not analysed for a
    question without any.
    """
    if not is_cyrillic(question.text) and all(map(is_cyrillic, split_words(title))):
        return 0.0
    held = passage_terms(title, lang)
    return sum(not held.isdisjoint(ids) for ids in question.terms) / len(question.terms)


def _own_score(
    signals: Mapping[str, float],
    weights: RankingWeights,
    *,
    has_words: bool,
    has_vectors: bool,
) -> float:
    lexical = (weights.lexical + weights.lexical_unnamed) * has_words
    semantic = weights.semantic * has_vectors
    total = lexical + semantic
    if not total:
        return 0.0
    words = weights.lexical * signals[LEXICAL] + weights.lexical_unnamed * signals.get(
        LEXICAL_UNNAMED, signals[LEXICAL]
    )
    base = (words * has_words + semantic * signals.get(CONTRAST, 0.0)) / total
    extra = (
        weights.speaker * signals.get(SPEAKER, 0.0)
        + weights.time * signals.get(TIME, 0.0)
        + weights.title * signals.get(TITLE, 0.0)
        + weights.length * signals[LENGTH]
    )
    return base + extra


_Position = tuple[str, int, int]


class _Positions:
    """Finds the scores of neighbouring hits.

    Neighbours are passages next to each other in one record, and records next to each other in one session.
    """

    def __init__(self, hits: Sequence[Hit], scores: Sequence[float]) -> None:
        self._hits = hits
        self._keys = [_position_of(hit) for hit in hits]
        counts = Counter(name for name, *_ in self._keys)
        self._crowded = {name for name, count in counts.items() if count > 1}
        self._scores: dict[_Position, float] = defaultdict(float)
        self._questions: dict[tuple[str, int], float] = defaultdict(float)
        for hit, key, score in zip(hits, self._keys, scores, strict=True):
            self._scores[key] = max(self._scores[key], score)
            if key[0] in self._crowded and "?" in hit.text:
                place = (key[0], key[1])
                self._questions[place] = max(self._questions[place], score)

    def best_neighbour(self, at: int) -> float:
        """The score of the better neighbour above the lowest that counts; 0 without a neighbour."""
        key = self._keys[at]
        if key[0] not in self._crowded:
            return 0.0
        near = (self._scores.get(each, 0.0) for each in _neighbour_positions(self._hits[at], key))
        return max(0.0, max(near) - _LIFT_FROM)

    def question_before(self, at: int) -> float:
        """The score of the message before, if it asks something."""
        name, position, _ = self._keys[at]
        return max(0.0, self._questions.get((name, position - 1), 0.0) - _LIFT_FROM)


def _position_of(hit: Hit) -> _Position:
    """The position of a hit: in its session, or in its record."""
    record = hit.record
    if record.session and record.position is not None:
        return (f"session {record.session}", record.position, hit.ordinal)
    return (f"record {record.id}", 0, hit.ordinal)


def _neighbour_positions(hit: Hit, place: _Position) -> tuple[_Position, ...]:
    name, position, ordinal = place
    inside = ((name, position, ordinal - 1), (name, position, ordinal + 1))
    if hit.record.session and hit.record.position is not None:
        return (*inside, (name, position - 1, 0), (name, position + 1, 0))
    return inside
