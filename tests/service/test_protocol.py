"""Bytes on a real socket: what is not HTTP, what pretends to be two requests, and a stop with work under way."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from contextlib import asynccontextmanager

import pytest

from contexture.adapters.keys import ApiKeys
from contexture.service.app import serve
from contexture.service.server import bind_socket, socket_url
from contexture.testing.doubles import NOON

SEARCH = b'{"query": "pump"}'
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
SMUGGLED = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
STATUS = re.compile(rb"HTTP/1\.1 \d{3} ")
BROKEN = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 17\r\nContent-Length: 0\r\n\r\n" + SEARCH,
    "a length that is none": HEAD + b"Content-Length: +17\r\n\r\n" + SEARCH,
    "a line folded": HEAD + b"X-Contexture-User:\r\n anna\x00\r\n\r\n",
    "a NUL": HEAD + b"X-Contexture-User: anna\x00\r\n\r\n",
    "a space before the colon": HEAD + b"Content-Length : 17\r\n\r\n" + SEARCH,
    "an unknown encoding": HEAD + b"Transfer-Encoding: zip\r\n\r\n" + SEARCH,
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + SEARCH,
    "a length and chunks": HEAD
    + b"Content-Length: 17\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n"
    + SEARCH
    + b"\r\n0\r\n\r\n",
    "a head without end": HEAD + b"X-Long: " + b"a" * 100_000,
    "a long head": HEAD + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n",
    "a long address": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a version that is none": b"GET /health HTTP/3.7\r\nHost: 127.0.0.1\r\n\r\n",
}


@asynccontextmanager
async def served(engine):
    """A service in this process; gives its port, a header that opens it, and the task that ends when it has stopped."""
    keys = ApiKeys(engine.settings.home / "keys.sqlite")
    key = f"Authorization: Bearer {keys.add('x', engine.scope, now=NOON)[1]}\r\n".encode()
    bound, up = bind_socket("127.0.0.1", 0), asyncio.Event()
    running = asyncio.create_task(
        serve(engine, settings=engine.settings, keys=keys, bound=bound, started=lambda _: up.set())
    )
    await up.wait()
    try:
        yield int(socket_url(bound).rpartition(":")[2]), key, running
    finally:
        if not running.done():
            os.kill(os.getpid(), signal.SIGTERM)
        await running
        keys.close()


async def said(port, sent):
    """Everything that is answered to these bytes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    found = await reader.read()
    writer.close()
    return found


async def test_a_head_that_does_not_end_is_not_waited_for(engine):
    """It is refused while it grows."""
    async with served(engine) as (port, _, _):
        answer = await said(port, HEAD + b"X-Long: " + b"a" * 100_000)

    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_what_cannot_be_read_is_refused_in_our_shape(engine):
    """One answer, one closed connection, and the service goes on."""
    async with served(engine) as (port, _, _):
        answers = {name: await said(port, sent + SMUGGLED) for name, sent in BROKEN.items()}
        fine = await said(port, SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    for name, answer in answers.items():
        head, _, body = answer.partition(b"\r\n\r\n")
        assert len(STATUS.findall(answer)) == 1, name
        assert head.startswith(b"HTTP/1.1 4"), (name, head)
        assert "VALIDATION_FAILED" == json.loads(body)["error"]["code"], name
    assert fine.startswith(b"HTTP/1.1 200")


async def test_requests_may_follow_each_other_at_once(engine):
    """Each is answered, in order, and a long body is not taken for a long head."""
    long = json.dumps({"query": "pump", "collection": "x" * 200_000}).encode()
    asking = b"".join(
        HEAD + b"%bContent-Length: %d\r\n\r\n%b" % (extra, len(body), body)
        for extra, body in ((b"", SEARCH), (b"", long), (b"Connection: close\r\n", SEARCH))
    )
    async with served(engine) as (port, key, _):
        answer = await said(port, asking.replace(HEAD, HEAD + key))

    assert 3 == len(STATUS.findall(answer))
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_what_cannot_be_read_behind_a_request_does_not_cost_its_answer(engine):
    """The request is answered, the rest is not, and the connection is closed."""
    whole = b"Content-Length: %d\r\n\r\n%b" % (len(SEARCH), SEARCH)
    async with served(engine) as (port, key, _):
        answer = await said(port, HEAD + key + whole + BROKEN["garbage"] + SMUGGLED)

    assert [b"HTTP/1.1 200 "] == STATUS.findall(answer)


async def test_a_request_under_way_is_finished_before_the_end(engine, monkeypatch):
    """SIGTERM waits for the answer, takes no further connection, and takes back the announcement."""
    begun, go, search = asyncio.Event(), asyncio.Event(), engine.search

    async def slow(*words, **options):
        begun.set()
        await go.wait()
        return await search(*words, **options)

    monkeypatch.setattr(engine, "search", slow)
    asking = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(SEARCH) + SEARCH
    async with served(engine) as (port, key, running):
        asked = asyncio.create_task(said(port, HEAD + key + asking))
        await asyncio.wait({asked, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert begun.is_set(), asked.result()
        announced = (engine.settings.home / "serve.json").exists()
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                break
            writer.close()
        waiting = not running.done()
        go.set()
        answer = await asked
        await running

    assert (True, True) == (announced, waiting)
    assert answer.startswith(b"HTTP/1.1 200")
    assert not (engine.settings.home / "serve.json").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_addresses_can_be_typed(host):
    """The address that is shown leads to the socket."""
    with bind_socket(host, 0) as bound:
        port = bound.getsockname()[1]

        assert socket_url(bound) in {f"http://127.0.0.1:{port}", f"http://[::1]:{port}"}


def test_a_socket_on_every_interface_is_shown_as_loopback():
    """Nobody can type 0.0.0.0 into a browser with any hope."""
    with bind_socket("0.0.0.0", 0) as bound:  # noqa: S104 - the case
        assert f"http://127.0.0.1:{bound.getsockname()[1]}" == socket_url(bound)
