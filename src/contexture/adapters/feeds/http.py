"""Feeds over HTTP, within limits: only when someone asks for an address."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

import httpx

from contexture.adapters.feeds.addresses import PublicTransport
from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable
from contexture.feeds import Fetched, Mark

REDIRECTS = 5
"""Times that a server may send us elsewhere."""

_NOT_MODIFIED = 304
# Compressed bytes could grow a thousandfold after the limit has been checked.
_PLAIN = "identity"


class HttpFeeds:
    """Implements the `FeedFetcher` contract over http and https; the environment's proxies are not used.

    Servers on this machine and in private networks are fetched only with `private`, redirections included: an
    address that someone else wrote must not reach what only we can.
    """

    def __init__(self, *, timeout: float = 20.0, largest: int = 8 * 2**20, private: bool = False) -> None:
        self._timeout = timeout
        self._largest = largest
        self._private = private

    async def fetch(self, url: str, mark: Mark) -> Fetched | None:
        """The feed, or None when it is still the version that `mark` names.

        Refused are other schemes, more than `REDIRECTS` redirections, answers beyond the limit of size and those that
        do not come whole in time.
        """
        if _scheme(url) not in ("http", "https"):
            raise InvalidRequest(f"only http and https addresses are fetched, not {url!r}")
        try:
            async with asyncio.timeout(self._timeout):
                return await self._fetched(url, mark)
        except (TimeoutError, httpx.TimeoutException) as failure:
            raise SourceTimeout(f"{url} did not answer within {self._timeout:g} s") from failure
        except httpx.TooManyRedirects as failure:
            raise SourceUnavailable(f"{url} redirects more than {REDIRECTS} times") from failure
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise SourceUnavailable(f"{url} cannot be fetched: {failure or type(failure).__name__}") from failure

    async def _fetched(self, url: str, mark: Mark) -> Fetched | None:
        plain = httpx.AsyncHTTPTransport(trust_env=False)
        client = httpx.AsyncClient(
            timeout=self._timeout,
            follow_redirects=True,
            max_redirects=REDIRECTS,
            trust_env=False,
            transport=plain if self._private else PublicTransport(plain),
        )
        async with client, client.stream("GET", url, headers=_headers(mark)) as response:
            if response.status_code == _NOT_MODIFIED:
                return None
            if response.is_error:
                raise SourceUnavailable(f"{url} answers {response.status_code} {response.reason_phrase}".rstrip())
            data = await self._read(url, response)
            seen = Mark(etag=response.headers.get("etag", ""), modified=response.headers.get("last-modified", ""))
            return Fetched(data=data, url=str(response.url), mark=seen)

    async def _read(self, url: str, response: httpx.Response) -> bytes:
        if response.headers.get("content-encoding", _PLAIN) != _PLAIN:
            raise SourceUnavailable(f"{url} answers compressed although it was asked not to")
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > self._largest:
                raise SourceUnavailable(f"{url} is larger than {self._largest} bytes")
        return bytes(data)


def _scheme(url: str) -> str:
    """The scheme of an address; empty when it is not one."""
    try:
        return httpx.URL(url).scheme
    except httpx.InvalidURL:
        return ""


def _headers(mark: Mark) -> dict[str, str]:
    conditions = {"If-None-Match": mark.etag, "If-Modified-Since": mark.modified}
    return {
        "User-Agent": f"contexture/{version('contexture')}",
        "Accept": "application/atom+xml, application/rss+xml, application/xml;q=0.9, */*;q=0.5",
        "Accept-Encoding": _PLAIN,
        **{name: value for name, value in conditions.items() if value},
    }
