"""Failures in the log: of what kind and where, and nothing of what callers sent."""

from __future__ import annotations

import asyncio
import logging

import pytest
from structlog.testing import capture_logs

from contexture.service import server as serving
from contexture.service.app import create_app
from contexture.service.error_log import LibraryLogHandler, capture_bus_log, capture_server_log, traceback_locations


@pytest.fixture
def server_log():
    """The server's logger as `serve` leaves it, put back afterwards."""
    logger = logging.getLogger("uvicorn.error")
    before = logger.handlers[:], logger.propagate
    capture_server_log()
    capture_server_log()
    yield logger
    logger.handlers, logger.propagate = before


def failing():
    """A failure that knows too much."""
    raise ValueError("hunter2")


def test_a_place_is_a_file_a_line_and_a_function():
    """Neither the message nor a value is in it."""
    with pytest.raises(ValueError, match="hunter2") as told:
        failing()
    places = traceback_locations(told.value)

    assert places[-1].endswith(" failing")
    assert not any("hunter2" in place for place in places)


def test_the_servers_log_is_part_of_ours(server_log):
    """Once, in our shape, without messages of failures; those of the application were logged already."""
    with capture_logs() as logged:
        server_log.error("cannot bind")
        try:
            failing()
        except ValueError as failure:
            server_log.error("Exception in ASGI application\n", exc_info=failure)
            server_log.error("Traceback of the lifespan", exc_info=failure)

    assert [("server", "cannot bind"), ("server failed", None)] == [
        (each["event"], each.get("said")) for each in logged
    ]
    assert "hunter2" not in str(logged)
    assert 1 == sum(isinstance(each, LibraryLogHandler) for each in server_log.handlers)


def test_what_a_bus_says_again_and_again_is_told_once_a_minute():
    """Whatever numbers are in it; other lines, and failures of other kinds, are told at once."""
    log = LibraryLogHandler(logging.WARNING, "bus", quiet=60.0)

    def say(second, said, failure=None):
        record = logging.LogRecord("nats", logging.ERROR, "", 0, said, None, (type(failure), failure, None))
        record.created = float(second)
        log.handle(record)

    with capture_logs() as logged:
        for second in range(0, 120, 10):
            say(second, f"connect failed after {second} ms")
            say(second, "lost", EOFError("hunter2"))
        say(1, "no route")
        say(1, "lost", OSError("hunter2"))

    assert 2 == sum("connect failed" in each.get("said", "") for each in logged)
    assert ["EOFError", "EOFError", "OSError"] == [each["error"] for each in logged if "error" in each]
    assert "no route" in [each.get("said") for each in logged]


async def test_a_request_under_way_is_finished_when_the_service_is_told_to_stop(
    engine, settings, monkeypatch, server_log
):
    """Its answer comes whole, and only then does the service end."""
    begun, go = asyncio.Event(), asyncio.Event()
    search = engine.search

    async def slow(*words, **named):
        begun.set()
        await go.wait()
        return await search(*words, **named)

    monkeypatch.setattr(engine, "search", slow)
    bound = serving.bind_socket("127.0.0.1", 0)
    app = create_app(engine, keys=None, settings=settings)
    server = serving._UvicornServer(serving._uvicorn_config(app, 30))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    body = b'{"query": "pump"}'
    head = (
        b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(*bound.getsockname())
    writer.write(head + body)
    await begun.wait()
    server.should_exit = True
    while server.servers[0].is_serving():  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0)
    still = not running.done()
    go.set()
    answer = await reader.read()
    writer.close()
    await running

    assert still
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b'"results"' in answer


def test_what_the_libraries_of_a_bus_log_is_part_of_our_log():
    """A failure says of what kind it is and where, and repeats nothing of what was sent."""
    logger = logging.getLogger("contexture.bus")
    before = list(logger.handlers)
    with capture_logs() as lines:
        capture_bus_log()
        logger.warning("connection lost")
        logger.error("a handler failed", exc_info=ValueError("what a caller sent"))
    logger.handlers[:], logger.propagate = before, True

    assert [("bus", "connection lost"), ("bus failed", None)] == [(line["event"], line.get("said")) for line in lines]
    assert "what a caller sent" not in str(lines)
