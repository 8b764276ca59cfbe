"""The protocol below the application: what is not even HTTP is answered in our shape too."""

from __future__ import annotations

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from contexture.errors import InvalidRequest
from contexture.service.correlation import HEADER, new_id
from contexture.service.envelope import encoded, error_object

_SENTENCE = "this is not a request in HTTP/1.1 that can be read, so nothing was done"


class Protocol(H11Protocol):
    """Uvicorn's protocol with one answer of our own.

    Lengths that contradict each other, heads that are too long, bytes that no header may hold: the connection is
    closed after the answer, so that nothing behind it can be taken for a second request.
    """

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed, unless an answer is already on its way."""
        del msg
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            name = new_id()
            body = encoded(error_object(InvalidRequest(_SENTENCE), name))
            head = (
                "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"{HEADER}: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            self.transport.write(head.encode("ascii") + body)
        self.transport.close()
