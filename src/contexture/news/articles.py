"""News articles and questions: public types, validation, source domains, and the mapping to index records and back."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import urlsplit

from contexture.errors import InvalidRequest
from contexture.ledger import Trace
from contexture.news._fingerprint import NO_FINGERPRINT, Fingerprint, make_fingerprint
from contexture.news.boilerplate import find_boilerplate
from contexture.retrieval.prepare import SKIPPED_FIELD
from contexture.text.language import detect_language
from contexture.text.segmentation import TextRange, invert_ranges
from contexture.text.terms import split_words, stem
from contexture.text.unicode import is_valid_unicode, repair_text
from contexture.types import PUBLIC, Candidate, Collection, Equals, FieldType, Record, Scope

MAX_FIELD_LENGTHS = {"article_id": 1_024, "url": 4_096, "source": 1_024, "lang": 35}
"""Maximum characters of each field, limited because every answer that shows an article repeats them."""

_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleCopy:
    """A copy of an article from another source."""

    source: str
    url: str
    article_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Article:
    """A dated text with a source.

    `source` is a domain such as `example.org`; by default it is taken from `url`. `lang` is detected when it is
    not given, and an article without a date gets its loading time. `readers` are principals (`public`,
    `user:anna`, `group:sales`). `also` lists the copies that a search found, and `boilerplate` the offsets of the text
    that are not part of the story; leave both empty when writing.
    """

    article_id: str
    title: str
    text: str
    url: str = ""
    source: str = ""
    published: datetime | None = None
    lang: str = ""
    readers: tuple[str, ...] = (PUBLIC,)
    also: tuple[ArticleCopy, ...] = ()
    boilerplate: tuple[TextRange, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewsQuestion:
    """A search for articles published from `since` (inclusive) to `before` (exclusive).

    NewsQuestion(text="port strike", since=now - timedelta(days=1))                     # the last day
    NewsQuestion(text="port strike", since=now - week, before=now - day, langs=("ru",))  # the week before it

    A source matches its own articles and those of its subdomains.
    """

    text: str
    since: datetime | None = None
    before: datetime | None = None
    langs: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundArticle:
    """An article that matches: without its text, with the passages that were found, best first.

    The title is as stored, not redacted; the candidates carry the redaction spans of title and text.
    `dated_by_loading` is true when the publication date is unknown. `print` is the fingerprint used to detect copies.
    """

    article: Article
    candidates: tuple[Candidate, ...]
    score: float
    dated_by_loading: bool
    print: Fingerprint = NO_FINGERPRINT


class ArticleFinder(Protocol):
    """Port: finds articles that a scope may read; `NewsStore` implements it."""

    async def find(
        self, scope: Scope, question: NewsQuestion, *, k: int, rerank: bool, trace: Trace
    ) -> Sequence[FoundArticle]:
        """The best `k` matching articles, best first."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedArticles:
    """How many articles were written, how many of those have a better copy stored, and how many were unchanged."""

    added: int
    collapsed: int
    unchanged: int


def check_articles(articles: Sequence[Article]) -> None:
    """Raise `InvalidRequest` for an article that cannot be stored, naming its position and field."""
    for at, article in enumerate(articles):
        problem = _find_problem(article)
        if problem:
            raise InvalidRequest(f"articles[{at}]: {problem}")


def _find_problem(article: Article) -> str:
    if not article.article_id or not is_valid_unicode(article.article_id):
        return f"`article_id` must be a non-empty string of valid Unicode, not {article.article_id!r}"
    if not article.text.strip() and not article.title.strip():
        return "an article needs a `title` or a `text`"
    long = next((name for name, most in MAX_FIELD_LENGTHS.items() if len(getattr(article, name)) > most), None)
    if long is not None:
        return f"`{long}` has {len(getattr(article, long)):,} characters; the limit is {MAX_FIELD_LENGTHS[long]:,}"
    strange = next(
        (name for name in article.readers if not (_PRINCIPAL.fullmatch(name) and is_valid_unicode(name))), None
    )
    if strange is not None:
        return f"`readers` may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"
    return "" if article.readers else "`readers` is empty, so nobody could read it"


_HOST_EDGES = re.compile(r"^(?:www\.|[\s.])+|[\s.]+$")
_MIN_LABELS = 2  # a top-level domain such as `org` is not a source
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x20]+")  # browsers ignore them inside a scheme
_SCHEME = re.compile(r"([a-z][a-z0-9+-]*):(?!\d)", re.IGNORECASE)
_WEB_SCHEMES = ("http", "https")


def normalize_domain(source: str) -> str:
    """The domain of a host or URL, in lower case and without `www.`; any other name in lower case."""
    given = repair_text(source).strip().lower()
    host = _url_host(given) if "//" in given else given.split("/", 1)[0]
    return _HOST_EDGES.sub("", host.partition(":")[0])


def safe_web_url(url: str) -> str:
    """The URL without surrounding white space, or "" unless its scheme is http, https or missing.

    Schemes such as `javascript:` and `data:` are dropped because clients turn article URLs into links.
    """
    scheme = _SCHEME.match(_CONTROL_CHARACTERS.sub("", url))
    return url.strip() if scheme is None or scheme[1].lower() in _WEB_SCHEMES else ""


def domain_with_parents(source: str) -> tuple[str, ...]:
    """A domain and its parent domains, without the top-level domain."""
    parts = source.split(".")
    return tuple(".".join(parts[at:]) for at in range(max(1, len(parts) - _MIN_LABELS + 1)))


def _url_host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


ARTICLES = Collection(name="articles", fields={"domains": FieldType.KEYWORD, "undated": FieldType.FLAG})
"""The collection of articles; filters may also use `time`, `lang` and `source`, which every record has."""

UNDATED_FILTER = Equals("undated", True)
"""Matches articles without a publication date, which are dated by their loading time."""

ARTICLE_KIND = "article"
MAX_TITLE_CHARS = 500
"""Maximum characters of a title, limited because every passage of an article carries it."""

_TIME_TOLERANCE_SECONDS = 0.001  # seconds: times are stored as floats


def article_to_record(article: Article, now: datetime, is_repeated: Callable[[str], bool] | None = None) -> Record:
    """The record of an article loaded at `now`; an article without a text is indexed by its title.

    `is_repeated` says whether its source repeats a line in unrelated articles. A title over `MAX_TITLE_CHARS` is
    shortened and ends with `…`; a URL that `safe_web_url` rejects is left out.
    """
    text = repair_text(article.text if article.text.strip() else article.title)
    url = safe_web_url(repair_text(article.url))
    source = article_source(article)
    skipped = tuple((found.start, found.end) for found in find_boilerplate(text, is_repeated=is_repeated))
    return Record(
        id=article.article_id,
        text=text,
        acl=tuple(sorted(set(article.readers))),
        title=_shorten_title(repair_text(article.title)),
        kind=ARTICLE_KIND,
        lang=repair_text(article.lang).strip().lower() or detect_language(text),
        source=source,
        time=assume_utc(article.published or now),
        payload={
            "url": url,
            "domains": list(domain_with_parents(source)) if source else [],
            "undated": article.published is None,
            "print": make_fingerprint(_story_text(text, skipped)),
            SKIPPED_FIELD: [list(found) for found in skipped],
        },
    )


def article_source(article: Article) -> str:
    """The domain of an article: that of its source, or else of its URL."""
    return normalize_domain(article.source) or normalize_domain(safe_web_url(repair_text(article.url)))


def _story_text(text: str, skipped: Sequence[TextRange]) -> str:
    """The text without its boilerplate, which differs between copies; the whole text if nothing else is left."""
    return "".join(text[start:end] for start, end in invert_ranges(skipped, len(text))).strip() or text


def record_to_article(record: Record) -> Article:
    """The article stored in a record; the record of a hit has no text, so neither has the article."""
    return Article(
        article_id=record.id,
        title=record.title,
        text=record.text,
        url=record.payload.get("url", ""),
        source=record.source,
        published=record.time,
        lang=record.lang,
        readers=record.acl,
        boilerplate=_read_boilerplate(record) if record.text else (),
    )


def _read_boilerplate(record: Record) -> tuple[TextRange, ...]:
    """The stored offsets of an article's boilerplate; found again for an article stored without them."""
    if SKIPPED_FIELD in record.payload:
        return tuple((start, end) for start, end in record.payload[SKIPPED_FIELD])
    return tuple((found.start, found.end) for found in find_boilerplate(record.text))


def is_undated(record: Record) -> bool:
    """Whether an article is dated by its loading time because its publication date is unknown."""
    return bool(record.payload.get("undated"))


def is_unchanged(stored: Record, record: Record) -> bool:
    """Whether writing `record` would change nothing; an undated article keeps its first loading time."""
    if is_undated(stored) != is_undated(record) or not (is_undated(record) or _is_same_time(stored.time, record.time)):
        return False
    return _comparable_fields(stored) == _comparable_fields(record)


def _comparable_fields(record: Record) -> tuple[object, ...]:
    payload = record.payload
    marks = [tuple(found) for found in payload.get(SKIPPED_FIELD, ())]
    return record.text, record.title, record.lang, record.source, set(record.acl), payload.get("url"), marks


def assume_utc(time: datetime) -> datetime:
    """The time, in UTC when it has no zone."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def shift_time(time: datetime, by: timedelta) -> datetime | None:
    """The time shifted by `by`, or None when the result is out of range."""
    try:
        return time + by
    except OverflowError:
        return None


def _shorten_title(title: str) -> str:
    """The title, cut between words: half of an e-mail address would not be recognised and redacted."""
    if len(title) <= MAX_TITLE_CHARS:
        return title
    head = title[: MAX_TITLE_CHARS - 1]
    return (head.rpartition(" ")[0] or head).rstrip() + "…"


def _is_same_time(one: datetime | None, other: datetime | None) -> bool:
    return (
        one is not None
        and other is not None
        and abs((assume_utc(one) - assume_utc(other)).total_seconds()) < _TIME_TOLERANCE_SECONDS
    )


_NEWS_WORDS = frozenset(
    map(
        stem,
        """news headline headlines new latest newest recent recently today happened happening update updates
        новости новостей новость новое нового последние последних свежие свежее сегодня сегодняшние случилось произошло
        происходит событие события событий""".split(),
    )
)
_FILLER_WORDS = frozenset(
    map(
        stem,
        """a all and any are been day did for from give going has have here hour hours i in is just last main me most
        month now of on or out please right s show since so tell the there this to top up was week were what whats
        which world
        а в во все всё главные главное день дня за и из какие какое какой месяц мир мира мире мне на недели неделю
        пожалуйста покажи расскажи сейчас тут у час часа часов что это эти""".split(),
    )
)


def asks_for_latest(text: str) -> bool:
    """Whether a question asks for news and names no subject: "what happened today?"."""
    spoken = {stem(word) for word in split_words(text)}
    return not spoken.isdisjoint(_NEWS_WORDS) and spoken <= _NEWS_WORDS | _FILLER_WORDS
