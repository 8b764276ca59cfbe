"""One row of JSON, or one entry of a feed, as an article."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from contexture.errors import InvalidRequest
from contexture.feeds import FeedEntry
from contexture.ingestion.markup import plain
from contexture.ingestion.rows import parse_time
from contexture.news.articles import Article
from contexture.news.domains import domain_of, web_address
from contexture.pages.identity import outsider
from contexture.types import PUBLIC, Scope

IDS = ("article_id", "id")
TIMES = ("published", "published_at", "date", "time", "timestamp", "created_at")
READERS = ("readers", "acl")
AGE = "age_hours"
FIELDS = frozenset({*IDS, *TIMES, *READERS, AGE, "title", "text", "url", "source", "lang"})
"""What a row may say about an article."""

_OLDEST = 24 * 365 * 1_000  # hours


def article_from(
    row: Mapping[str, Any], *, readers: tuple[str, ...], now: datetime, writer: Scope | None = None
) -> tuple[Article, tuple[str, ...]]:
    """The article a row describes, and what had to be ignored in it.

    `age_hours` dates it by its distance from `now`, for samples that are always fresh. A time that cannot be read is
    ignored; readers that cannot are not, because guessing them could show the article to anyone. A row without an
    id is known by its address, or else by its words, see `made_id`.
    """
    title, text, url = (_text(row, name) for name in ("title", "text", "url"))
    published, warnings = _published(row, now)
    admitted = _readers(row, readers)
    article = Article(
        article_id=next((found for name in IDS if (found := _text(row, name))), "")
        or made_id(url or f"{title}\n{text}", admitted, writer),
        title=title,
        text=text,
        url=url,
        source=_text(row, "source"),
        published=published,
        lang=_text(row, "lang"),
        readers=admitted,
    )
    return article, warnings


def row_of(article: Article) -> dict[str, Any]:
    """A row that `article_from` reads as this article."""
    found = msgspec.to_builtins(article)
    return {name: value for name, value in found.items() if value and name != "also"}


def entry_article(entry: FeedEntry, *, home: str, readers: tuple[str, ...], writer: Scope | None = None) -> Article:
    """An entry of the feed at `home` as an article: markup taken out, known again by its guid or address."""
    title, text, url = plain(entry.title), plain(entry.body), web_address(entry.url)
    source = domain_of(url) or domain_of(home)
    return Article(
        article_id=made_id(f"{source}\n{entry.guid or entry.url or title + text}", readers, writer),
        title=title,
        text=text,
        url=url,
        source=source,
        published=entry.published,
        readers=readers,
    )


def made_id(known_by: str, readers: Sequence[str] = (PUBLIC,), writer: Scope | None = None) -> str:
    """The same id for the same thing; what is not for everyone is another thing for other readers."""
    whose = () if PUBLIC in readers else (*sorted(set(readers)), *outsider(readers, writer))
    told = "\0".join((known_by, *whose))
    return f"art-{hashlib.sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}"


def _text(row: Mapping[str, Any], name: str) -> str:
    found = row.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidRequest(f"field {name!r} must be a text, not {found!r:.60}")
    return found


def _readers(row: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    name = next((name for name in READERS if row.get(name) is not None), None)
    if name is None:
        return default
    found = row[name]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in cast("list[object]", found)):
        raise InvalidRequest(f"field {name!r} must be a list of principals such as 'user:anna', not {found!r:.60}")
    return tuple(cast("list[str]", found))


def _published(row: Mapping[str, Any], now: datetime) -> tuple[datetime | None, tuple[str, ...]]:
    warnings: list[str] = []
    for name in TIMES:
        if row.get(name) in (None, ""):
            continue
        try:
            return parse_time(row[name]), tuple(warnings)
        except InvalidRequest as failure:
            warnings.append(f"field {name!r} is ignored: {failure}")
    age = row.get(AGE)
    if age is None:
        return None, tuple(warnings)
    if isinstance(age, bool) or not isinstance(age, int | float) or not 0 <= age <= _OLDEST:
        return None, (*warnings, f"field {AGE!r} is ignored: {age!r:.60} is not a number of hours")
    return now - timedelta(hours=age), tuple(warnings)
