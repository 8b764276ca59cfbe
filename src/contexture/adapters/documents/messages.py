"""What a reading process and its owner say to each other, in MessagePack.

It is decoded by type, because a reader of hostile files must not be able to make its owner run anything.
"""

from __future__ import annotations

from msgspec import Struct, msgpack

from contexture.documents import ReadDocument, ReadLimits

LENGTH = 8
"""Bytes that say how long the next message is."""


class Order(Struct, frozen=True):
    """Read the file at `path`, which is called `name`."""

    path: str
    name: str
    limits: ReadLimits


class Progress(Struct, frozen=True, tag=True):
    """So many pages are done of so many."""

    done: int
    total: int


class Refused(Struct, frozen=True, tag=True):
    """The file cannot be read, and why."""

    reason: str


class Read(Struct, frozen=True, tag=True):
    """The file was read."""

    document: ReadDocument


Answer = Progress | Refused | Read

_answers = msgpack.Decoder(Answer)
_orders = msgpack.Decoder(Order)


def packed(message: Order | Answer) -> bytes:
    """A message with its length before it."""
    body = msgpack.encode(message)
    return len(body).to_bytes(LENGTH, "big") + body


def answer_of(body: bytes) -> Answer:
    """The answer in some bytes; what is none raises `msgspec.ValidationError` or `msgspec.DecodeError`."""
    return _answers.decode(body)


def order_of(body: bytes) -> Order:
    """The order in some bytes."""
    return _orders.decode(body)
