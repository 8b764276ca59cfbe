"""Parses RSS and Atom feeds with feedparser."""

from __future__ import annotations

import calendar
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from time import struct_time
from typing import Any, cast

import feedparser  # pyright: ignore[reportMissingTypeStubs] - it ships none; `_parse_feed` is the only caller

from contexture.feeds import Feed, FeedEntry

_HARMLESS_ERRORS = ("CharacterEncodingOverride", "NonXMLContentType")  # reported for feeds that were parsed completely
_PARSER_ERRORS = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)


class FeedparserParser:
    """Implements `FeedParser` with feedparser; a malformed feed yields the entries that can be read."""

    def parse(self, data: bytes, *, url: str = "") -> Feed:
        """Parse the readable entries of a feed; `problem` says what is wrong with it."""
        try:
            found = _parse_feed(data, url)
        except _PARSER_ERRORS as failure:  # hostile input makes the parser fail in unexpected ways
            return Feed(url=url, problem=f"cannot be read as a feed: {type(failure).__name__}")
        entries = tuple(each for row in _feed_entries(found) if (each := _build_entry(row)) is not None)
        return Feed(
            url=_get_text(found.get("feed", {}), "link") or url, entries=entries, problem=_describe_problem(found)
        )


def _parse_feed(data: bytes, url: str) -> Mapping[str, Any]:
    headers = {"content-location": url} if url else {}
    # A stream, because feedparser would fetch a string that looks like a URL.
    found = feedparser.parse(BytesIO(data), response_headers=headers, sanitize_html=False)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
    return cast("Mapping[str, Any]", found)


def _feed_entries(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return found.get("entries", ())


def _build_entry(row: Mapping[str, Any]) -> FeedEntry | None:
    entry = FeedEntry(
        guid=_get_text(row, "id"),
        url=_get_text(row, "link"),
        title=_get_text(row, "title"),
        body=_entry_body(row),
        published=_get_time(row, "published_parsed") or _get_time(row, "updated_parsed"),
    )
    return entry if entry.title or entry.body else None


def _entry_body(row: Mapping[str, Any]) -> str:
    """Longest of the contents and the summary: feeds put the article into either."""
    parts: Sequence[Mapping[str, Any]] = row.get("content") or ()
    return max((*(_get_text(part, "value") for part in parts), _get_text(row, "summary")), key=len)


def _get_text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value.strip() if isinstance(value, str) else ""


def _get_time(row: Mapping[str, Any], name: str) -> datetime | None:
    value = row.get(name) if name in row else None  # for a missing time, feedparser returns another one
    if not isinstance(value, struct_time):
        return None
    try:
        return datetime.fromtimestamp(calendar.timegm(value), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _describe_problem(found: Mapping[str, Any]) -> str:
    if not found.get("version") and not _feed_entries(found):
        return "not an RSS or Atom feed"
    fault = found.get("bozo_exception")
    if not found.get("bozo") or type(fault).__name__ in _HARMLESS_ERRORS:
        return ""
    said = " ".join(str(fault).split())[:200]
    return f"malformed; only the readable part is loaded: {said or type(fault).__name__}"
