"""An article as a record of the index, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from contexture.news.articles import Article
from contexture.news.copies import print_of
from contexture.news.domains import domain_of, domains, web_address
from contexture.retrieval.prepare import mended
from contexture.text.language import detect
from contexture.types import Collection, Equals, FieldType, Record

ARTICLES = Collection(name="articles", fields={"domains": FieldType.KEYWORD, "undated": FieldType.FLAG})
"""Where articles live; filters also name `time`, `lang` and `source`, which every record has."""

UNDATED = Equals("undated", True)
"""Passes articles that are dated by their loading."""

KIND = "article"
TITLE_CHARS = 500
"""Characters of a title; every passage of an article carries it."""

_TICK = 0.001  # seconds: times are stored as floats


def record_of(article: Article, now: datetime) -> Record:
    """The record of an article that is loaded at `now`; without a text its title is its text.

    A title that is too long to be one ends with `…`, and an address that leads out of the web is left out.
    """
    text = mended(article.text if article.text.strip() else article.title)
    url = web_address(mended(article.url))
    source = domain_of(article.source) or domain_of(url)
    return Record(
        id=article.article_id,
        text=text,
        acl=tuple(sorted(set(article.readers))),
        title=_title(mended(article.title)),
        kind=KIND,
        lang=mended(article.lang).strip().lower() or detect(text),
        source=source,
        time=aware(article.published or now),
        payload={
            "url": url,
            "domains": list(domains(source)) if source else [],
            "undated": article.published is None,
            "print": print_of(text),
        },
    )


def article_of(record: Record) -> Article:
    """The article that a record holds; the record of a hit has no text, and so the article has none."""
    return Article(
        article_id=record.id,
        title=record.title,
        text=record.text,
        url=record.payload.get("url", ""),
        source=record.source,
        published=record.time,
        lang=record.lang,
        readers=record.acl,
    )


def undated(record: Record) -> bool:
    """Whether an article is dated by its loading."""
    return bool(record.payload.get("undated"))


def same(stored: Record, record: Record) -> bool:
    """Whether writing `record` would change nothing; an article without a date keeps the one it was given first."""
    if undated(stored) != undated(record) or not (undated(record) or _together(stored.time, record.time)):
        return False
    told = (stored.text, stored.title, stored.lang, stored.source, set(stored.acl), stored.payload.get("url"))
    return told == (record.text, record.title, record.lang, record.source, set(record.acl), record.payload["url"])


def aware(time: datetime) -> datetime:
    """The time in its zone, or in UTC when it has none."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def moved(time: datetime, by: timedelta) -> datetime | None:
    """Another time, or None where the calendar ends before it."""
    try:
        return time + by
    except OverflowError:
        return None


def _title(title: str) -> str:
    """The title, cut after a word: half of an address is not known for one, and would not be redacted."""
    if len(title) <= TITLE_CHARS:
        return title
    head = title[: TITLE_CHARS - 1]
    return (head.rpartition(" ")[0] or head).rstrip() + "…"


def _together(one: datetime | None, other: datetime | None) -> bool:
    return one is not None and other is not None and abs((aware(one) - aware(other)).total_seconds()) < _TICK
