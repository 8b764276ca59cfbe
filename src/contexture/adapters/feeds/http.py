"""Feeds over HTTP: fetched from public addresses only, with limits on size, time and redirects, parsed by feedparser.

Stores the ETag and Last-Modified of each feed for conditional requests.
"""

import asyncio
import calendar
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import struct_time
from typing import Any, TypeAlias, cast

import feedparser  # pyright: ignore[reportMissingTypeStubs] - it ships none; `_parse_feed` is the only caller
import httpx
import msgspec

from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable, StoreUnwritable
from contexture.feeds import Feed, FeedEntry, FeedValidators, FetchedFeed

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


MAX_REDIRECTS = 5
"""Maximum number of redirects followed."""

_NOT_MODIFIED = 304
# Compressed bodies are refused: they could grow a thousandfold after the size limit was checked.
_IDENTITY_ENCODING = "identity"


class HttpFeedFetcher:
    """Implements `FeedFetcher` over http and https; proxies of the environment are not used.

    Servers on this machine and in private networks are fetched only with `allow_private`, also after redirects,
    because a URL from outside must not reach internal services (SSRF).
    """

    def __init__(self, *, timeout: float = 20.0, max_bytes: int = 8 * 2**20, allow_private: bool = False) -> None:
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._allow_private = allow_private

    async def fetch(self, url: str, mark: FeedValidators) -> FetchedFeed | None:
        """Fetch a feed; None if it is still the version that `mark` names.

        Raises `InvalidRequest` for other schemes, `SourceTimeout` if the answer is not complete in time, and
        `SourceUnavailable` for errors, more than `MAX_REDIRECTS` redirects or an answer above the size limit.
        """
        if _parse_scheme(url) not in ("http", "https"):
            raise InvalidRequest(f"only http and https addresses are fetched, not {url!r}")
        try:
            async with asyncio.timeout(self._timeout):
                return await self._fetch(url, mark)
        except (TimeoutError, httpx.TimeoutException) as failure:
            raise SourceTimeout(f"{url} did not answer within {self._timeout:g} s") from failure
        except httpx.TooManyRedirects as failure:
            raise SourceUnavailable(f"{url} redirects more than {MAX_REDIRECTS} times") from failure
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise SourceUnavailable(f"{url} cannot be fetched: {failure or type(failure).__name__}") from failure

    async def _fetch(self, url: str, mark: FeedValidators) -> FetchedFeed | None:
        plain = httpx.AsyncHTTPTransport(trust_env=False)
        client = httpx.AsyncClient(
            timeout=self._timeout,
            follow_redirects=True,
            max_redirects=MAX_REDIRECTS,
            trust_env=False,
            transport=plain if self._allow_private else PublicOnlyTransport(plain),
        )
        async with client, client.stream("GET", url, headers=_build_headers(mark)) as response:
            if response.status_code == _NOT_MODIFIED:
                return None
            if response.is_error:
                raise SourceUnavailable(f"{url} answered with {response.status_code} {response.reason_phrase}".rstrip())
            data = await self._read_body(url, response)
            seen = FeedValidators(
                etag=response.headers.get("etag", ""), modified=response.headers.get("last-modified", "")
            )
            return FetchedFeed(data=data, url=str(response.url), mark=seen)

    async def _read_body(self, url: str, response: httpx.Response) -> bytes:
        if response.headers.get("content-encoding", _IDENTITY_ENCODING) != _IDENTITY_ENCODING:
            raise SourceUnavailable(f"{url} sent a compressed response, which was not requested")
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > self._max_bytes:
                raise SourceUnavailable(f"{url} is larger than {self._max_bytes} bytes")
        return bytes(data)


def _parse_scheme(url: str) -> str:
    """Scheme of a URL; empty if the URL is invalid."""
    try:
        return httpx.URL(url).scheme
    except httpx.InvalidURL:
        return ""


def _build_headers(mark: FeedValidators) -> dict[str, str]:
    conditions = {"If-None-Match": mark.etag, "If-Modified-Since": mark.modified}
    return {
        "User-Agent": f"contexture/{version('contexture-ai')}",
        "Accept": "application/atom+xml, application/rss+xml, application/xml;q=0.9, */*;q=0.5",
        "Accept-Encoding": _IDENTITY_ENCODING,
        **{name: value for name, value in conditions.items() if value},
    }


HostResolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NEVER_PUBLIC = (
    ipaddress.ip_network("64:ff9b:1::/48"),  # NAT64 of a network's own choice, which may lead inside it
    ipaddress.ip_network("::/96"),  # IPv4 addresses in a form that is no longer used
)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """IP addresses of a host name in the system's order; raises `SourceUnavailable` if there is none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        raise SourceUnavailable(f"the host name {host!r} cannot be resolved") from failure
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def is_public(address: str) -> bool:
    """Whether an IP address is globally routable; IPv4 addresses embedded in IPv6 are checked as such."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(found in network for network in _NEVER_PUBLIC):
        return False
    if isinstance(found, ipaddress.IPv6Address):
        held = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if found in _NAT64:
            held = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if held is not None:
            return is_public(str(held))
    return found.is_global and not found.is_multicast


class PublicOnlyTransport(httpx.AsyncBaseTransport):
    """httpx transport that connects only to public addresses and pins the checked address.

    This protects against SSRF and DNS rebinding. Every redirect is checked again. A host name is refused if any of its
    addresses is not public.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, resolve: HostResolver = resolve_host) -> None:
        self._inner = inner
        self._resolve = resolve

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; raises `SourceUnavailable` before connecting if any address of the host is not public."""
        url, host = request.url, request.url.host
        addresses = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        closed = next((each for each in addresses if not is_public(each)), None)
        if closed is not None or not addresses:
            raise SourceUnavailable(
                f"{host} is on this machine or in a private network; to fetch from there, set "
                "CONTEXTURE_FEED_PRIVATE=true"
            )
        checked = httpx.Request(
            request.method,
            url.copy_with(host=addresses[0]),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._inner.handle_async_request(checked)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


class FeedMarkFile:
    """ETag and Last-Modified of each feed in a JSON file; implements `FeedValidatorStore`.

    A missing or damaged file only means that feeds are fetched again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str) -> FeedValidators:
        """Validators stored under a key; empty ones if there are none."""
        return self._load_marks().get(key, FeedValidators())

    def put(self, key: str, mark: FeedValidators) -> None:
        """Store validators under a key; the file is replaced atomically."""
        data = msgspec.json.encode({**self._load_marks(), key: mark})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._path.parent, prefix=self._path.name, delete=False) as file:
                file.write(data)
            os.replace(file.name, self._path)  # noqa: PTH105 - both ends are paths already
        except OSError as failure:
            raise StoreUnwritable(f"cannot write {str(self._path)!r}: {failure.strerror}") from failure

    def _load_marks(self) -> dict[str, FeedValidators]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, FeedValidators])
        except (OSError, msgspec.DecodeError):
            return {}
