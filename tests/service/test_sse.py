"""Streams of events: their form, their errors, their silence, and clients that leave."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.errors import SourceUnavailable
from contexture.service._sse import EventStream, ServerEvent


async def run(stream, *, leave=None):
    """The bytes a stream sends; the client leaves when `leave` is set."""
    sent = []

    async def receive():
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await stream({"type": "http", "path": "/", "state": {"correlation_id": "abc"}}, receive, send)
    return sent


def body(sent):
    """What the client reads."""
    return b"".join(message.get("body", b"") for message in sent)


async def events(*data):
    """Events with these data."""
    for each in data:
        yield ServerEvent(event="token", data=each)


async def test_events_are_sent_in_order():
    """Each has its name and its data as JSON, and the stream ends."""
    sent = await run(EventStream(events("a", {"b": 1})))

    assert b'event: token\ndata: "a"\n\nevent: token\ndata: {"b":1}\n\n' == body(sent)
    assert (b"content-type", b"text/event-stream; charset=utf-8") in sent[0]["headers"]
    assert sent[-1]["more_body"] is False


@given(data=st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_text_can_end_an_event(data):
    """Whatever characters it holds, an event is one line of data, and reads back as it was."""
    shown = ServerEvent(event="x\ndata: y", id="1\n2", data=data).encode()
    *head, empty, end = shown.split(b"\n")

    assert (b"", b"") == (empty, end)
    assert [b"event: x data: y", b"id: 1 2"] == head[:2]
    assert 3 == len(head)
    assert data == json.loads(head[2].removeprefix(b"data: "))


async def test_an_error_of_ours_is_an_event_in_our_shape():
    """What was sent before it stands, and the stream ends properly."""

    async def failing():
        yield ServerEvent(data=1)
        raise SourceUnavailable("the model is gone")

    sent = await run(EventStream(failing()))
    last = body(sent).split(b"event: error\ndata: ")[1]

    assert ("UNAVAILABLE", "the model is gone", "abc") == (
        json.loads(last)["error"]["code"],
        json.loads(last)["error"]["user_message"],
        json.loads(last)["meta"]["correlation_id"],
    )
    assert sent[-1]["more_body"] is False


async def test_what_nobody_foresaw_is_raised():
    """The server logs it; the stream is not ended as if it were whole."""

    async def broken():
        yield ServerEvent(data=1)
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        await run(EventStream(broken()))


async def test_silence_is_filled_with_comments():
    """A stream that waits is kept alive, and what it waits for still comes."""
    go = asyncio.Event()

    async def slow():
        await go.wait()
        yield ServerEvent(data="late")

    async def receive():
        await asyncio.Event().wait()

    sent = []

    async def send(message):
        sent.append(message.get("body", b""))
        if sent.count(b": keep-alive\n\n") == 2:
            go.set()

    await EventStream(slow(), keep_alive=0.001)({"type": "http", "path": "/"}, receive, send)

    assert b'data: "late"\n\n' in sent
    assert 2 <= sent.count(b": keep-alive\n\n")


@pytest.mark.parametrize("where", ["waiting", "between"])
async def test_a_client_that_leaves_stops_the_work(where):
    """The work is cancelled where it stands, and what it holds is let go before the request ends."""
    leave, closed = asyncio.Event(), []

    async def working():
        try:
            yield ServerEvent(data=1)
            leave.set()
            while where == "between":
                yield ServerEvent(data=2)
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    sent = await run(EventStream(working()), leave=leave)

    assert [True] == closed
    assert all(message.get("more_body", True) for message in sent)
