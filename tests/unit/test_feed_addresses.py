"""Which servers a feed may be fetched from: no name and no redirection leads into a private network."""

from __future__ import annotations

import httpx
import pytest

from contexture import Settings, wiring
from contexture.adapters.feeds.http import HttpFeedFetcher, PublicOnlyTransport, is_public
from contexture.errors import SourceUnavailable
from contexture.feeds import FeedValidators

NAMES = {
    "feed.example": ["93.184.216.34"],
    "both.example": ["93.184.216.34", "10.0.0.1"],
    "inner.example": ["::ffff:192.168.1.1"],
    "nobody.example": [],
}


async def resolve(host, port):
    """What our names lead to; an address leads to itself."""
    return NAMES.get(host, [host])


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",  # noqa: S104 - judged, not bound
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::a00:1",
        "64:ff9b:1::808:808",
        "64:ff9b:1:ffff::1",
        "::8.8.8.8",
        "::127.0.0.1",
        "ff02::1",
        "not an address",
    ],
)
def test_what_is_not_public(address):
    """This machine, private networks, the metadata services of clouds, and whatever holds such an address."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::808:808"])
def test_what_is_public(address):
    """Anything else."""
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8420/v1/sessions",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:7f00:1]/",
        "http://0/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://user@10.0.0.1/",
    ],
)
async def test_an_address_of_this_machine_is_refused(url):
    """However it is written; the system itself says where it leads."""
    with pytest.raises(SourceUnavailable, match="CONTEXTURE_FEED_PRIVATE"):
        await HttpFeedFetcher(timeout=60).fetch(url, FeedValidators())


def server(request: httpx.Request) -> httpx.Response:
    """Redirects to where the path says, and tells how it was reached."""
    if request.url.path.startswith("/to/"):
        return httpx.Response(302, headers={"Location": request.url.path.removeprefix("/to/")})
    return httpx.Response(200, json=[request.url.host, request.headers["host"], request.extensions["sni_hostname"]])


async def get(url):
    """What a client over the transport gets."""
    transport = PublicOnlyTransport(httpx.MockTransport(server), resolve=resolve)
    async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
        return await client.get(url)


async def test_the_checked_address_is_the_one_that_is_reached():
    """A name that leads elsewhere a moment later gains nothing, and certificates are checked against the name."""
    assert ["93.184.216.34", "feed.example", "feed.example"] == (await get("https://feed.example/a")).json()


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1/", "http://both.example/", "http://inner.example/", "http://nobody.example/"]
)
@pytest.mark.parametrize("first", ["", "http://feed.example/to/"])
async def test_neither_a_name_nor_a_redirection_leads_inside(target, first):
    """One private address among several is enough."""
    with pytest.raises(SourceUnavailable, match="private network"):
        await get(first + target)


async def test_a_redirection_to_a_public_server_is_followed():
    """Feeds move."""
    assert "93.184.216.34" == (await get("http://feed.example/to/https://feed.example/b")).json()[0]


async def test_the_setting_lets_private_servers_be_fetched():
    """Then a refused connection is only that."""
    wire = wiring.feed_source(Settings(feed_private=True))
    with pytest.raises(SourceUnavailable, match="cannot be fetched"):
        await wire.fetcher.fetch("http://127.0.0.1:9/", FeedValidators())
