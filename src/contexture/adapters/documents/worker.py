"""The process that reads files: `python -m contexture.adapters.documents.worker BYTES`, orders in, answers out.

It may use so many bytes of memory, and for each file so many seconds of a processor; beyond that it ends.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from pathlib import Path
from typing import BinaryIO

from contexture.adapters.documents.kinds import read
from contexture.adapters.documents.messages import LENGTH, Answer, Order, Progress, Read, Refused, order_of, packed
from contexture.errors import InvalidRequest

_BROKEN = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError, SyntaxError,
    TypeError, ValueError, struct.error, zlib.error,
)  # fmt: skip


def main() -> None:
    """Serve orders until there are none."""
    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    _limit_memory(int(sys.argv[1]))
    while True:
        head = orders.read(LENGTH)
        if len(head) < LENGTH:
            return
        order = order_of(orders.read(int.from_bytes(head, "big")))
        _limit_seconds(order.limits.seconds)
        _say(answers, _read(order, answers))


def _read(order: Order, answers: BinaryIO) -> Answer:
    def progress(done: int, total: int) -> None:
        _say(answers, Progress(done, total))

    try:
        return Read(read(Path(order.path), order.name, order.limits, progress))
    except InvalidRequest as refusal:
        return Refused(str(refusal))
    except MemoryError:
        return Refused(f"reading it takes more than {order.limits.memory_bytes} bytes of memory")
    except _BROKEN as failure:  # a parser met something that its authors did not think of
        return Refused(f"the file is damaged: {type(failure).__name__}: {failure}")


def _say(answers: BinaryIO, answer: Answer) -> None:
    answers.write(packed(answer))
    answers.flush()


def _limit_memory(most: int) -> None:
    try:
        import resource
    except ImportError:  # not a system with such limits
        return
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_seconds(more: float) -> None:
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + more) + 1, hard))


if __name__ == "__main__":
    main()
