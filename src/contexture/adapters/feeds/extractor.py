"""Extracts the main text of web pages with trafilatura (extra `web`)."""

from datetime import UTC, datetime
from typing import Any, cast

try:
    import trafilatura  # pyright: ignore[reportMissingTypeStubs] - it ships none; `_extract` is the only caller
except ImportError as missing:
    raise ImportError('TrafilaturaExtractor needs trafilatura: pip install "contexture-ai[web]"') from missing

from contexture.feeds import ExtractedPage

_FAILURES = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError, OverflowError)


class TrafilaturaExtractor:
    """Implements `PageExtractor` with trafilatura; navigation, comments, asides and footers are left out."""

    def extract(self, html: str, *, url: str = "") -> ExtractedPage | None:
        """The main text of a page with a line per paragraph; None if none is found."""
        try:
            found = _extract(html, url)
        except _FAILURES:  # hostile input makes the extractor fail in unexpected ways
            return None
        text = str(found.get("text") or "").strip() if found else ""
        if not found or not text:
            return None
        return ExtractedPage(
            title=str(found.get("title") or ""),
            text=text,
            url=str(found.get("url") or url),
            published=_parse_date(str(found.get("date") or "")),
        )


def _extract(html: str, url: str) -> dict[str, Any] | None:
    found = trafilatura.bare_extraction(  # pyright: ignore[reportUnknownMemberType] - untyped
        html, url=url or None, include_comments=False, include_tables=True, with_metadata=True
    )
    return None if found is None else cast("dict[str, Any]", found.as_dict())  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue] - untyped


def _parse_date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None
    except ValueError:
        return None
