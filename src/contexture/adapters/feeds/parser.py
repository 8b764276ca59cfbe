"""RSS and Atom through feedparser."""

from __future__ import annotations

import calendar
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from time import struct_time
from typing import Any, cast

import feedparser  # pyright: ignore[reportMissingTypeStubs] - it ships none; `_parsed` is the only caller

from contexture.feeds import Feed, FeedEntry

_MILD = ("CharacterEncodingOverride", "NonXMLContentType")  # said of feeds that were read whole
_SLIPS = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)


class FeedparserParser:
    """Implements the `FeedParser` contract; a broken feed gives the entries before and around the break."""

    def parse(self, data: bytes, *, url: str = "") -> Feed:
        """What can be read of a feed; what is wrong with it is in `problem`."""
        try:
            found = _parsed(data, url)
        except _SLIPS as failure:  # hostile bytes reach corners of the parser that it does not expect itself
            return Feed(url=url, problem=f"cannot be read as a feed: {type(failure).__name__}")
        entries = tuple(each for row in _rows(found) if (each := _entry(row)) is not None)
        return Feed(url=_text(found.get("feed", {}), "link") or url, entries=entries, problem=_problem(found))


def _parsed(data: bytes, url: str) -> Mapping[str, Any]:
    headers = {"content-location": url} if url else {}
    # A stream, because a text could be taken for an address and fetched.
    found = feedparser.parse(BytesIO(data), response_headers=headers, sanitize_html=False)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
    return cast("Mapping[str, Any]", found)


def _rows(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return found.get("entries", ())


def _entry(row: Mapping[str, Any]) -> FeedEntry | None:
    entry = FeedEntry(
        guid=_text(row, "id"),
        url=_text(row, "link"),
        title=_text(row, "title"),
        body=_body(row),
        published=_time(row, "published_parsed") or _time(row, "updated_parsed"),
    )
    return entry if entry.title or entry.body else None


def _body(row: Mapping[str, Any]) -> str:
    """The longest of the contents and the summary: feeds put the article into either."""
    parts: Sequence[Mapping[str, Any]] = row.get("content") or ()
    return max((*(_text(part, "value") for part in parts), _text(row, "summary")), key=len)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value.strip() if isinstance(value, str) else ""


def _time(row: Mapping[str, Any], name: str) -> datetime | None:
    value = row.get(name) if name in row else None  # asked for what is not there, it answers with another time
    if not isinstance(value, struct_time):
        return None
    try:
        return datetime.fromtimestamp(calendar.timegm(value), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _problem(found: Mapping[str, Any]) -> str:
    if not found.get("version") and not _rows(found):
        return "not an RSS or Atom feed"
    fault = found.get("bozo_exception")
    if not found.get("bozo") or type(fault).__name__ in _MILD:
        return ""
    said = " ".join(str(fault).split())[:200]
    return f"malformed, what could be read is loaded: {said or type(fault).__name__}"
