"""Lets requests reach the public internet only, whatever a name or a redirection leads to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import httpx

from contexture.errors import SourceUnavailable

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


async def resolved(host: str, port: int) -> Sequence[str]:
    """The addresses that the system knows for a name, in its order of preference."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        raise SourceUnavailable(f"the name {host!r} leads nowhere") from failure
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet; one that holds another is judged by that."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        held = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if found in _NAT64:
            held = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if held is not None:
            return is_public(str(held))
    return found.is_global and not found.is_multicast


class PublicTransport(httpx.AsyncBaseTransport):
    """Sends a request to an address that was checked, so that a name cannot lead elsewhere a moment later.

    Every redirection comes through here again. One address that is not public is enough to refuse a name.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, resolve: Resolve = resolved) -> None:
        self._inner = inner
        self._resolve = resolve

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of a public server; any other is refused before it is connected to."""
        url, host = request.url, request.url.host
        addresses = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        closed = next((each for each in addresses if not is_public(each)), None)
        if closed is not None or not addresses:
            raise SourceUnavailable(
                f"{host} is on this machine or in a private network, which is fetched only with "
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
        """Let go of the connections."""
        await self._inner.aclose()
