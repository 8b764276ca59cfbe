"""The child process that reads documents, and its MessagePack protocol.

Started as `python -m contexture.adapters.documents._worker BYTES`. Requests are read from stdin and replies are written
to stdout. Replies are decoded by type, so a compromised reader cannot make its parent execute anything. Memory
(RLIMIT_AS) is limited for the process, and CPU seconds (RLIMIT_CPU) for each file.
"""

import os
import struct
import sys
import zlib
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, msgpack

from contexture.adapters.documents.file_types import read_document
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

LENGTH_PREFIX_BYTES = 8
"""Size of the length prefix of a message."""


class ReadRequest(Struct, frozen=True):
    """Request to read the file at `path`; `name` is its original file name."""

    path: str
    name: str
    limits: ReadLimits


class ReadProgress(Struct, frozen=True, tag=True):
    """Pages done and pages in total."""

    done: int
    total: int


class ReadFailure(Struct, frozen=True, tag=True):
    """The file cannot be read; `reason` says why."""

    reason: str


class ReadResult(Struct, frozen=True, tag=True):
    """The document that was read."""

    document: ReadDocument


ReadReply = ReadProgress | ReadFailure | ReadResult

_reply_decoder = msgpack.Decoder(ReadReply)
_request_decoder = msgpack.Decoder(ReadRequest)


def encode_message(message: ReadRequest | ReadReply) -> bytes:
    """Encode a message with its length prefix."""
    body = msgpack.encode(message)
    return len(body).to_bytes(LENGTH_PREFIX_BYTES, "big") + body


def decode_reply(body: bytes) -> ReadReply:
    """Decode a reply; raises `msgspec.ValidationError` or `msgspec.DecodeError`."""
    return _reply_decoder.decode(body)


def decode_request(body: bytes) -> ReadRequest:
    """Decode a request."""
    return _request_decoder.decode(body)


_PARSER_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError, SyntaxError,
    TypeError, ValueError, struct.error, zlib.error,
)  # fmt: skip


def main() -> None:
    """Serve read requests from stdin until it is closed."""
    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output printed by libraries must not mix with replies
    _limit_memory(int(sys.argv[1]))
    while True:
        head = orders.read(LENGTH_PREFIX_BYTES)
        if len(head) < LENGTH_PREFIX_BYTES:
            return
        order = decode_request(orders.read(int.from_bytes(head, "big")))
        _limit_cpu_seconds(order.limits.seconds)
        _send_reply(answers, _handle_request(order, answers))


def _handle_request(order: ReadRequest, answers: BinaryIO) -> ReadReply:
    def progress(done: int, total: int) -> None:
        _send_reply(answers, ReadProgress(done, total))

    try:
        return ReadResult(read_document(Path(order.path), order.name, order.limits, progress))
    except InvalidRequest as refusal:
        return ReadFailure(_hide_path(str(refusal), order))
    except MemoryError:
        return ReadFailure(f"reading it takes more than {order.limits.memory_bytes} bytes of memory")
    except _PARSER_ERRORS as failure:  # a fault of a reader: refuse the file, serve the next one
        reason = f"the reader failed, which is not a fault of the file: {type(failure).__name__}: {failure}"
        return ReadFailure(_hide_path(reason, order))


def _hide_path(reason: str, order: ReadRequest) -> str:
    """The reason with the name of the file instead of its path, which is temporary and of no use to anybody."""
    return reason.replace(order.path, order.name).replace(f"{Path(order.path).parent}{os.sep}", "")


def _send_reply(answers: BinaryIO, answer: ReadReply) -> None:
    answers.write(encode_message(answer))
    answers.flush()


def _limit_memory(most: int) -> None:
    try:
        import resource
    except ImportError:  # no resource limits on this system
        return
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_cpu_seconds(more: float) -> None:
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + more) + 1, hard))


if __name__ == "__main__":
    main()
