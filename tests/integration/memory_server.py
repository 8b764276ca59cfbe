"""A memory service for tests, as a process of its own: it behaves as `POST /behave {"as": ...}` told it to last."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ITEM = {"id": "m-1", "score": 0.9, "text": "the ferry leaves at nine", "metadata": {"source": "chat"}}
GOOD = {"candidates": [ITEM]}
ANSWERS = {
    "well": (200, json.dumps(GOOD).encode()),
    "garbage": (200, b"\x00\xff<html>{"),
    "500": (500, b"internal server error"),
    "wrong types": (200, json.dumps({"candidates": [{"id": 7.5, "score": "high", "text": None}]}).encode()),
    "empty": (200, b""),
}


class Behaviour:
    """What the server does, and a latch that lets go of those it keeps waiting."""

    name = "well"
    released = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """Answers everything according to the behaviour."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Change the behaviour, or show it."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/behave":
            Behaviour.released.set()
            Behaviour.name = json.loads(body)["as"]
            Behaviour.released = threading.Event()
            self.answer(200, b"{}")
        elif Behaviour.name == "hung":
            Behaviour.released.wait(60)
            self.close_connection = True
        elif Behaviour.name == "slow":
            self.drip(ANSWERS["well"][1])
        elif Behaviour.name == "cut":
            self.cut(ANSWERS["well"][1])
        else:
            self.answer(*ANSWERS[Behaviour.name])

    def do_GET(self) -> None:
        """Say how it is, in the way it answers everything."""
        if Behaviour.name == "hung":
            Behaviour.released.wait(60)
            self.close_connection = True
        else:
            self.answer(500 if Behaviour.name == "500" else 200, b"{}")

    def answer(self, status: int, body: bytes) -> None:
        """A whole answer."""
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drip(self, body: bytes) -> None:
        """An answer that never quite ends: a byte now and then, so that no single wait is long."""
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        released = Behaviour.released
        for byte in body:
            self.wfile.write(bytes([byte]))
            if released.wait(0.2):
                return

    def cut(self, body: bytes) -> None:
        """Half an answer, and then the line is dead."""
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def main() -> None:
    """Listen on the port given, and say so."""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=_leave, daemon=True).start()
    server.serve_forever()


def _leave() -> None:
    """End with the test that started it: its end of the pipe closes."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
