"""Articles as redacted sentences: reading, citing, comparing and selecting them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from contexture.answer.commands.answer import Evidence
from contexture.errors import RedactionFailed
from contexture.graph.store import blank_hidden
from contexture.ledger import Trace
from contexture.news.articles import ARTICLES, Article, asks_for_latest
from contexture.pipeline.masking import SecretMask
from contexture.pipeline.redaction import RedactionOperator, apply_redactions, redact_text, scan_text
from contexture.ports import Redactor
from contexture.retrieval.prepare import clip_spans
from contexture.text.segmentation import split_sentences
from contexture.text.terms import extract_terms
from contexture.types import Citation, Scope, content_hash

_MAX_SENTENCES = 200
_MAX_SENTENCE_CHARACTERS = 600  # longer ones are tables without full stops


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleSource:
    """The redacted metadata of an article."""

    article_id: str
    title: str
    url: str
    name: str
    date: str
    lang: str
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleSentence:
    """A redacted sentence of an article; `start` and `end` are offsets in the stored text."""

    source: ArticleSource
    start: int
    end: int
    text: str
    terms: frozenset[int]
    lead: bool

    @property
    def key(self) -> tuple[str, int]:
        """Identifies and orders sentences: article id and start offset."""
        return self.source.article_id, self.start

    @property
    def citation(self) -> Citation:
        """The citation of its characters in the store."""
        return Citation(
            collection=ARTICLES.name,
            record_id=self.source.article_id,
            title=self.source.title,
            start=self.start,
            end=self.end,
            hash=self.source.hash,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadArticle:
    """An article's metadata and its redacted sentences, in order."""

    source: ArticleSource
    sentences: tuple[ArticleSentence, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleReader:
    """Reads and redacts articles for one execution; equal values get equal placeholders in all of them.

    `load` returns the articles of these ids that the scope may read, in their order.
    """

    load: Callable[[Scope, Sequence[str]], Awaitable[Sequence[Article]]]
    redactor: Redactor
    operator: RedactionOperator
    mask: SecretMask

    async def read(self, scope: Scope, ids: Sequence[str], trace: Trace) -> list[ReadArticle]:
        """Return the articles visible to the scope, in the requested order; one that cannot be redacted is left out."""
        found: list[ReadArticle] = []
        for article in await self.load(scope, ids) if ids else ():
            try:
                found.append(self._read_article(article))
            except RedactionFailed as failure:
                trace.add_degradation(f"redactor:{type(self.redactor).__name__}", str(failure))
        return found

    def _read_article(self, article: Article) -> ReadArticle:
        text, lang = article.text, article.lang
        hidden = scan_text(text, self.redactor, lang=lang)
        source = ArticleSource(
            article_id=article.article_id,
            title=self.redact_line(article.title, lang),
            url=self.redact_line(article.url, lang),
            name=self.redact_line(article.source, lang),
            date=article.published.date().isoformat() if article.published else "",
            lang=lang,
            hash=content_hash(text),
        )
        # Split as the graph does, so that its mentions can be mapped to sentences.
        places = split_sentences(blank_hidden(text, hidden))[:_MAX_SENTENCES]
        shown = [
            self._mask_line(apply_redactions(text[start:end], clip_spans(hidden, start, end), self.operator).text)
            for start, end in places
        ]
        return ReadArticle(
            source=source,
            sentences=tuple(
                ArticleSentence(
                    source=source, start=start, end=end, text=line, terms=frozenset(extract_terms(line)), lead=at == 0
                )
                for at, ((start, end), line) in enumerate(zip(places, shown, strict=True))
            ),
        )

    def redact_line(self, text: str, lang: str = "") -> str:
        """A text redacted, on one line, clipped to the sentence limit; raises `RedactionFailed`."""
        return self._mask_line(redact_text(text, self.redactor, self.operator, lang=lang).text) if text else ""

    def is_secret(self, name: str) -> bool:
        """Whether a name contains a known secret."""
        return self.mask.mask_passage(name) != name

    def redact(self, text: str, lang: str = "") -> str:
        """A multi-line text redacted, with known secrets masked; raises `RedactionFailed`."""
        return self.mask.mask(redact_text(text, self.redactor, self.operator, lang=lang).text)

    def _mask_line(self, text: str) -> str:
        line = self.mask.mask_passage(" ".join(text.split()))
        return line if len(line) <= _MAX_SENTENCE_CHARACTERS else line[: _MAX_SENTENCE_CHARACTERS - 1].rstrip() + "…"


@dataclass(slots=True)
class EvidenceRegistry:
    """Assigns evidence numbers to cited places, in the order of first citation."""

    _numbers: dict[tuple[str, str, int, int], int] = field(default_factory=dict[tuple[str, str, int, int], int])
    _evidence: list[Evidence] = field(default_factory=list[Evidence])

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Everything cited so far, by number."""
        return tuple(self._evidence)

    def cite(self, sentence: ArticleSentence) -> int:
        """The evidence number of a sentence; registers it on first use."""
        source = sentence.source
        return self.register(
            sentence.citation,
            lambda number: Evidence(
                number=number,
                article_id=source.article_id,
                title=source.title,
                url=source.url,
                source=source.name,
                date=source.date,
                lang=source.lang,
                text=sentence.text,
                citation=sentence.citation,
            ),
        )

    def register(self, citation: Citation, make: Callable[[int], Evidence]) -> int:
        """The evidence number of a citation; on first use `make` builds its evidence."""
        key = (citation.collection, citation.record_id, citation.start, citation.end)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            self._evidence.append(make(self._numbers[key]))
        return self._numbers[key]


def all_sentences(readings: Sequence[ReadArticle]) -> list[ArticleSentence]:
    """The sentences of all articles, one after the other."""
    return [sentence for reading in readings for sentence in reading.sentences]


def join_sentences(found: Sequence[ArticleSentence]) -> ArticleSentence:
    """Consecutive sentences of one article as one sentence."""
    return replace(
        found[0],
        end=found[-1].end,
        text=" ".join(sentence.text for sentence in found),
        terms=frozenset[int]().union(*(sentence.terms for sentence in found)),
    )


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


_MIN_RELATIVE_SCORE = 0.5  # minimum score, relative to the best sentence
_DUPLICATE_SIMILARITY = 0.8  # similarity at which a sentence is a near-duplicate
_LEAD_BONUS = 0.1  # score bonus of the first sentence of an article
_MIN_COVERAGE = 0.75


def select_sentences(readings: Sequence[ReadArticle], question: str, most: int) -> list[ArticleSentence]:
    """Return at most `most` sentences that match the question, best first, without questions and near-duplicates.

    If no word matches, as across languages, the first sentences of the articles are returned.
    """
    pool = all_sentences(readings)
    like = SentenceSimilarity(pool)
    wanted = extract_subject_terms(question)
    scores = {each.key: _score_sentence(each, wanted, like) for each in pool if not each.text.endswith(("?", "？"))}
    best = max(scores.values(), default=0.0)
    if not best:
        return [reading.sentences[0] for reading in readings if reading.sentences][:most]
    close = [each for each in pool if scores.get(each.key, 0.0) >= max(best * _MIN_RELATIVE_SCORE, 1e-9)]
    return drop_similar(sorted(close, key=lambda each: (-scores[each.key], each.key)), like, most)


def drop_similar(found: Sequence[ArticleSentence], like: SentenceSimilarity, most: int) -> list[ArticleSentence]:
    """Return the first `most` sentences, skipping those that repeat an earlier one."""
    kept: list[ArticleSentence] = []
    for sentence in found:
        if len(kept) == most:
            break
        if all(like(sentence, other) < _DUPLICATE_SIMILARITY for other in kept):
            kept.append(sentence)
    return kept


def covers_question(found: Sequence[ArticleSentence], question: str, share: float = _MIN_COVERAGE) -> bool:
    """Whether the sentences together mention this share of the question's subject terms.

    A question without subject terms is covered by any sentence.
    """
    wanted = extract_subject_terms(question)
    said = wanted & frozenset[int]().union(*(sentence.terms for sentence in found))
    return bool(found) and len(said) >= share * len(wanted)


def _score_sentence(sentence: ArticleSentence, wanted: frozenset[int], like: SentenceSimilarity) -> float:
    matched = like.weight(sentence.terms & wanted)
    return matched * (1 + _LEAD_BONUS * sentence.lead) if matched else 0.0


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
    pieces = [piece.strip(" ,.") for joint in _PART_SEPARATORS.split(question) for piece in _VERSUS.split(joint)]
    found: dict[frozenset[int], str] = {}
    for piece in pieces:
        said = frozenset(extract_terms(piece))
        if said:
            found.setdefault(said, piece)
    return tuple(found.values())[:MAX_PARTS] or (question,)
