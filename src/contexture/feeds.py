"""Feed types and ports: parsed feeds, fetched feeds, and the protocols of parser, fetcher and validator store."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedEntry:
    """One entry of a feed; missing fields are empty. `title` and `body` may be HTML."""

    guid: str = ""
    url: str = ""
    title: str = ""
    body: str = ""
    published: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """The entries of a feed in its order; `problem` describes in one line what is wrong with it, or is empty."""

    url: str = ""
    entries: tuple[FeedEntry, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedValidators:
    """The ETag and Last-Modified that a server sent with a version, for the next conditional request."""

    etag: str = ""
    modified: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedFeed:
    """A feed's bytes, the final URL after redirects, and the validators of this version."""

    data: bytes
    url: str
    mark: FeedValidators


class FeedParser(Protocol):
    """Port: parses RSS and Atom; performs no network or file access."""

    def parse(self, data: bytes, *, url: str = "") -> Feed:
        """The readable part of a feed fetched from `url`; never raises, even for malformed data."""
        ...


class FeedFetcher(Protocol):
    """Port: fetches a feed over HTTP, with limits on size and time."""

    async def fetch(self, url: str, mark: FeedValidators) -> FetchedFeed | None:
        """The feed, or None when it has not changed since the version `mark`; raises `SourceError` on failure."""
        ...


class FeedValidatorStore(Protocol):
    """Port: stores the validators of the version that was last loaded."""

    def get(self, key: str) -> FeedValidators:
        """The validators under this key; empty ones when there are none."""
        ...

    def put(self, key: str, mark: FeedValidators) -> None:
        """Store validators; call it only after the entries of that version are stored."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtractedPage:
    """The main text of a web page, and what the page says about itself; missing fields are empty."""

    title: str = ""
    text: str = ""
    url: str = ""
    published: datetime | None = None


class PageExtractor(Protocol):
    """Port: finds the main text of a web page; performs no network or file access."""

    def extract(self, html: str, *, url: str = "") -> ExtractedPage | None:
        """The main text of a page; None if there is none. Never raises, even for malformed HTML."""
        ...
