"""Articles as sentences that may be shown, each knowing where it stands, and the numbers under which they are cited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from contexture.answer.commands.values import Evidence
from contexture.errors import RedactionFailed
from contexture.graph.extract import readable
from contexture.ledger import Trace
from contexture.news.articles import Article
from contexture.news.records import ARTICLES
from contexture.news.store import NewsStore
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator
from contexture.pipeline.redact import apply, redact_text, scanned
from contexture.ports import Redactor
from contexture.retrieval.prepare import clipped
from contexture.text.sentences import sentences
from contexture.text.terms import terms
from contexture.types import Citation, Scope, content_hash

_MOST_SENTENCES = 200
_MOST_CHARACTERS = 600  # of one sentence: a table without full stops is not one


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """An article without its text, as it may be shown."""

    article_id: str
    title: str
    url: str
    name: str
    date: str
    lang: str
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """A sentence of an article as it may be shown; `start` and `end` are its place in the stored text."""

    source: Source
    start: int
    end: int
    text: str
    terms: frozenset[int]
    lead: bool

    @property
    def place(self) -> tuple[str, int]:
        """What orders sentences, and tells them apart."""
        return self.source.article_id, self.start

    @property
    def citation(self) -> Citation:
        """Where it stands in the store."""
        return Citation(
            collection=ARTICLES.name,
            record_id=self.source.article_id,
            title=self.source.title,
            start=self.start,
            end=self.end,
            hash=self.source.hash,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """An article and its sentences, in order."""

    source: Source
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Reads articles for one execution: what is hidden in one is hidden alike in all."""

    news: NewsStore
    redactor: Redactor
    operator: Operator
    mask: Mask

    async def read(self, scope: Scope, ids: Sequence[str], trace: Trace) -> list[Reading]:
        """The articles that the scope may see, in the order asked for; one that cannot be redacted is left out."""
        found: list[Reading] = []
        for article in await self.news.get(scope, ids) if ids else ():
            try:
                found.append(self._reading(article))
            except RedactionFailed as failure:
                trace.degraded(f"redactor:{type(self.redactor).__name__}", str(failure))
        return found

    def _reading(self, article: Article) -> Reading:
        text, lang = article.text, article.lang
        hidden = scanned(text, self.redactor, lang=lang)
        source = Source(
            article_id=article.article_id,
            title=self.shown(article.title, lang),
            url=self.shown(article.url, lang),
            name=self.shown(article.source, lang),
            date=article.published.date().isoformat() if article.published else "",
            lang=lang,
            hash=content_hash(text),
        )
        # The same stretches as the graph's, so that what it found can be shown.
        places = sentences(readable(text, hidden))[:_MOST_SENTENCES]
        shown = [
            self._shown(apply(text[start:end], clipped(hidden, start, end), self.operator).text)
            for start, end in places
        ]
        return Reading(
            source=source,
            sentences=tuple(
                Sentence(source=source, start=start, end=end, text=line, terms=frozenset(terms(line)), lead=at == 0)
                for at, ((start, end), line) in enumerate(zip(places, shown, strict=True))
            ),
        )

    def shown(self, text: str, lang: str = "") -> str:
        """A text on one line, as it may be shown; raises `RedactionFailed`."""
        return self._shown(redact_text(text, self.redactor, self.operator, lang=lang).text) if text else ""

    def hides(self, name: str) -> bool:
        """Whether a name is, or holds, a secret that is known now."""
        return self.mask.piece(name) != name

    def redacted(self, text: str, lang: str = "") -> str:
        """A longer text as it may be shown, with its lines; raises `RedactionFailed`."""
        return self.mask.mask(redact_text(text, self.redactor, self.operator, lang=lang).text)

    def _shown(self, text: str) -> str:
        line = self.mask.piece(" ".join(text.split()))
        return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1].rstrip() + "…"


@dataclass(slots=True)
class Notebook:
    """Gives each place that is cited a number, in the order in which they are first cited."""

    _numbers: dict[tuple[str, str, int, int], int] = field(default_factory=dict[tuple[str, str, int, int], int])
    _evidence: list[Evidence] = field(default_factory=list[Evidence])

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Everything cited so far, by number."""
        return tuple(self._evidence)

    def cite(self, sentence: Sentence) -> int:
        """The number of a sentence."""
        source = sentence.source
        return self.enter(
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

    def enter(self, citation: Citation, make: Callable[[int], Evidence]) -> int:
        """The number of a place; a new one is made into an evidence."""
        key = (citation.collection, citation.record_id, citation.start, citation.end)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            self._evidence.append(make(self._numbers[key]))
        return self._numbers[key]


def all_sentences(readings: Sequence[Reading]) -> list[Sentence]:
    """The sentences of all articles, one after the other."""
    return [sentence for reading in readings for sentence in reading.sentences]


def joined(found: Sequence[Sentence]) -> Sentence:
    """Sentences of one article that follow each other, as one."""
    return replace(
        found[0],
        end=found[-1].end,
        text=" ".join(sentence.text for sentence in found),
        terms=frozenset[int]().union(*(sentence.terms for sentence in found)),
    )
