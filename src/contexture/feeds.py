"""Feeds as the rest of the package knows them: what a parser gives, what a fetcher gives, and their contracts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedEntry:
    """One entry of a feed; what it does not say is empty. `title` and `body` may be HTML."""

    guid: str = ""
    url: str = ""
    title: str = ""
    body: str = ""
    published: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """The entries of a feed in its order; `problem` says what is wrong with it, in one line, or is empty."""

    url: str = ""
    entries: tuple[FeedEntry, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """What a server said about the version it sent, to be shown to it next time."""

    etag: str = ""
    modified: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A feed's bytes, the address they finally came from, and the mark of this version."""

    data: bytes
    url: str
    mark: Mark


class FeedParser(Protocol):
    """Reads RSS and Atom; never touches the network or a file."""

    def parse(self, data: bytes, *, url: str = "") -> Feed:
        """What can be read of a feed that came from `url`, however broken it is; nothing raises."""
        ...


class FeedFetcher(Protocol):
    """Brings a feed over HTTP, within limits of size and time."""

    async def fetch(self, url: str, mark: Mark) -> Fetched | None:
        """The feed, or None when it is still the version that `mark` names; failures are `SourceError`."""
        ...


class FeedMarks(Protocol):
    """Remembers the mark of the version that was last loaded."""

    def get(self, key: str) -> Mark:
        """The mark under this key; an empty one when there is none."""
        ...

    def put(self, key: str, mark: Mark) -> None:
        """Remember a mark once what it stands for is stored."""
        ...
