"""Articles as redacted sentences: reading and citing them."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from contexture.errors import RedactionFailed
from contexture.graph.store import blank_hidden
from contexture.ledger import Trace
from contexture.news.articles import ARTICLES, Article
from contexture.news.boilerplate import is_sentence
from contexture.pipeline.masking import SecretMask
from contexture.pipeline.redaction import RedactionOperator, apply_redactions, redact_text, scan_text
from contexture.ports import Redactor
from contexture.retrieval.prepare import clip_spans
from contexture.text.segmentation import invert_ranges, split_range
from contexture.text.terms import extract_terms
from contexture.types import Candidate, Citation, Scope, content_hash

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
    published: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleSentence:
    """A redacted sentence of an article; `start` and `end` are offsets in the stored text.

    `lead` marks the first sentence of the story; `whole` is false for headings, names and labels.
    """

    source: ArticleSource
    start: int
    end: int
    text: str
    terms: frozenset[int]
    lead: bool
    whole: bool = True

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
class FoundRange:
    """Characters `start` to `end` of a stored article that a search found, and how well they match."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleMatch:
    """An article that a search found, how well it matches, and the ranges that do."""

    article_id: str
    score: float = 0.0
    passages: tuple[FoundRange, ...] = ()


def make_match(article_id: str, score: float, found: Sequence[Candidate]) -> ArticleMatch:
    """The match of an article whose passages were found."""
    ranges = (
        FoundRange(start=each.citation.start, end=each.citation.end, score=each.score)
        for each in found
        if each.citation is not None
    )
    return ArticleMatch(article_id=article_id, score=score, passages=tuple(ranges))


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadArticle:
    """An article's metadata and the redacted sentences of its story, in order.

    `score` is how well a search matched the article, and `passages` are the ranges that matched.
    """

    source: ArticleSource
    sentences: tuple[ArticleSentence, ...]
    score: float = 0.0
    passages: tuple[FoundRange, ...] = ()

    def passage_score(self, sentence: ArticleSentence) -> float:
        """The score of the found passage that a sentence is in; 0 if it is in none."""
        inside = (each.score for each in self.passages if each.start <= sentence.start < each.end)
        return max(inside, default=0.0)

    @property
    def lead(self) -> ArticleSentence | None:
        """The first sentence of the story; None if the article has none."""
        return next((sentence for sentence in self.sentences if sentence.lead), None)


_NO_NEWSROOM = frozenset("www co com org net gov ac edu news".split())


def newsroom_names(source: str) -> frozenset[str]:
    """What a source domain calls its newsroom: its labels without those that many domains have."""
    return frozenset(source.casefold().split(".")[:-1]) - _NO_NEWSROOM


def split_story(text: str, boilerplate: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets of the sentences of an article without its boilerplate; a heading on a line of its own is apart."""
    found: list[tuple[int, int]] = []
    for start, end in invert_ranges(boilerplate, len(text)):
        for first, last in split_range(text, start, end):
            found += _split_headings(text, first, last)
    return found


def _split_headings(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A sentence, without the lines before it that do not continue in it."""
    cut = text.find("\n", start, end)
    while cut >= 0 and not _HEADING_GAP.match(text, cut):
        cut = text.find("\n", cut + 1, end)
    if cut < 0:
        return [(start, end)]
    rest = _HEADING_GAP.match(text, cut)
    return [(start, cut), *_split_headings(text, rest.end() - 1, end)] if rest else [(start, end)]


_HEADING_GAP = re.compile(r"\s*\n\s*[\"'«“(]?[A-ZА-ЯЁ0-9]")


def is_question(line: str) -> bool:
    """Whether a sentence asks."""
    return line.rstrip("\"'»”’)").endswith(("?", "？"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleReader:
    """Reads and redacts articles for one execution; equal values get equal placeholders in all of them.

    `load` returns the articles of these ids that the scope may read, in their order.
    """

    load: Callable[[Scope, Sequence[str]], Awaitable[Sequence[Article]]]
    redactor: Redactor
    operator: RedactionOperator
    mask: SecretMask

    async def read_matches(self, scope: Scope, matches: Sequence[ArticleMatch], trace: Trace) -> list[ReadArticle]:
        """Return the matched articles visible to the scope, with how well they match, in the given order."""
        known = {each.article_id: each for each in matches}
        read = await self.read(scope, list(known), trace)
        pairs = ((each, known[each.source.article_id]) for each in read)
        return [replace(each, score=match.score, passages=match.passages) for each, match in pairs]

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
            published=article.published,
        )
        ranges = split_story(blank_hidden(text, hidden), article.boilerplate)[:_MAX_SENTENCES]
        lines = [
            self._mask_line(apply_redactions(text[start:end], clip_spans(hidden, start, end), self.operator).text)
            for start, end in ranges
        ]
        whole = [is_sentence(line) for line in lines]
        lead = next((at for at, line in enumerate(lines) if whole[at] and not is_question(line)), 0)
        return ReadArticle(
            source=source,
            sentences=tuple(
                ArticleSentence(
                    source=source,
                    start=start,
                    end=end,
                    text=line,
                    terms=frozenset(extract_terms(line)),
                    lead=at == lead,
                    whole=whole[at],
                )
                for at, ((start, end), line) in enumerate(zip(ranges, lines, strict=True))
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One numbered reference: the characters of an article or a memory that support a statement.

    `text` is the redacted text at that location; `citation` points to the stored text.
    """

    number: int
    article_id: str
    title: str
    url: str
    source: str
    date: str
    lang: str
    text: str
    citation: Citation


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
        return self.register(sentence.citation, lambda number: make_evidence(number, sentence))

    def register(self, citation: Citation, make: Callable[[int], Evidence]) -> int:
        """The evidence number of a citation; on first use `make` builds its evidence."""
        key = (citation.collection, citation.record_id, citation.start, citation.end)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            self._evidence.append(make(self._numbers[key]))
        return self._numbers[key]


def make_evidence(number: int, sentence: ArticleSentence) -> Evidence:
    """The evidence that a sentence, or a run of sentences, is."""
    source = sentence.source
    return Evidence(
        number=number,
        article_id=source.article_id,
        title=source.title,
        url=source.url,
        source=source.name,
        date=source.date,
        lang=source.lang,
        text=sentence.text,
        citation=sentence.citation,
    )


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
