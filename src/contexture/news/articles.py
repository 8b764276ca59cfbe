"""Articles as their readers and writers know them, and what may be asked of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from contexture.errors import InvalidRequest
from contexture.news.copies import UNLIKE, Print
from contexture.retrieval.prepare import valid
from contexture.types import PUBLIC, Candidate

LONGEST = {"article_id": 1_024, "url": 4_096, "source": 1_024, "lang": 35}
"""Characters that a field may have; every answer that shows an article repeats them."""

_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Other:
    """The same story, told almost word for word by another source."""

    source: str
    url: str
    article_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Article:
    """A dated text with a source.

    `source` is a domain such as `example.org`; without one it is taken from `url`. `lang` is detected when it is
    not given, and an article that is not dated is dated by its loading. `readers` are principals (`public`,
    `user:anna`, `group:sales`). `also` lists its copies among what a search found; a writer leaves it empty.
    """

    article_id: str
    title: str
    text: str
    url: str = ""
    source: str = ""
    published: datetime | None = None
    lang: str = ""
    readers: tuple[str, ...] = (PUBLIC,)
    also: tuple[Other, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewsQuestion:
    """What to look for, published from `since` up to but not at `before`.

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
    """An article that matches: without its text, with those of its passages that were found, best first.

    The article's title is as it was stored; the candidates carry what redaction must take out of it and of the
    text. `dated_by_loading` says that nobody knows when it was published, and `print` what copies have in common.
    """

    article: Article
    candidates: tuple[Candidate, ...]
    score: float
    dated_by_loading: bool
    print: Print = UNLIKE


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """How many articles were written, how many of those a search will show under a better copy, how many were known."""

    added: int
    collapsed: int
    unchanged: int


def check(articles: Sequence[Article]) -> None:
    """Refuse what cannot be stored, naming its place and the field."""
    for at, article in enumerate(articles):
        problem = _problem(article)
        if problem:
            raise InvalidRequest(f"articles[{at}]: {problem}")


def _problem(article: Article) -> str:
    if not article.article_id or not valid(article.article_id):
        return f"`article_id` must be a text that is not empty and valid Unicode, not {article.article_id!r}"
    if not article.text.strip() and not article.title.strip():
        return "an article needs a `title` or a `text`"
    long = next((name for name, most in LONGEST.items() if len(getattr(article, name)) > most), None)
    if long is not None:
        return f"`{long}` has {len(getattr(article, long)):,} characters; at most {LONGEST[long]:,} are kept"
    strange = next((name for name in article.readers if not (_PRINCIPAL.fullmatch(name) and valid(name))), None)
    if strange is not None:
        return f"`readers` may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"
    return "" if article.readers else "`readers` is empty, so that nobody could read it"
