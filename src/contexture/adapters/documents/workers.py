"""Reads files in other processes, which are ended when a file takes too long or too much."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import msgspec

from contexture.adapters.documents.messages import LENGTH, Order, Progress, Read, Refused, answer_of, packed
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_MODULE = "contexture.adapters.documents.worker"
_LARGEST = 4 * 2**30
_ENDED = (asyncio.IncompleteReadError, BrokenPipeError, ConnectionError, msgspec.DecodeError, msgspec.ValidationError)


class ReadingWorkers:
    """Up to `count` processes that read one file each at a time; use it as an async context."""

    def __init__(self, *, count: int = 2, limits: ReadLimits | None = None) -> None:
        self._limits = limits or ReadLimits()
        self._free = asyncio.Semaphore(count)
        self._idle: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def read(
        self, path: Path, name: str, progress: Callable[[int, int], None], *, draw: bool | None = None
    ) -> ReadDocument:
        """The pages of a file that is called `name`; one that cannot be read, or not in time, is `InvalidRequest`."""
        limits = self._limits if draw is None else replace(self._limits, draw=draw)
        order = Order(str(path), name, limits)  # the process starts in the same folder
        async with self._free:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                async with AsyncExitStack() as undo:
                    undo.push_async_callback(_end, worker)  # else it would go on with a file that nobody waits for
                    async with asyncio.timeout(limits.seconds):
                        answer = await _ask(worker, order, progress)
                    undo.pop_all()
            except TimeoutError as late:
                raise InvalidRequest(f"reading it takes longer than {limits.seconds:g} seconds") from late
            except _ENDED as failure:
                raise InvalidRequest(_why(worker, limits)) from failure
            self._idle.append(worker)
        if isinstance(answer, Read):
            return answer.document
        raise InvalidRequest(answer.reason)

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await _end(self._idle.pop())

    async def _start(self) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            str(self._limits.memory_bytes),
            stdin=PIPE,
            stdout=PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )


async def _ask(worker: Process, order: Order, progress: Callable[[int, int], None]) -> Read | Refused:
    assert worker.stdin is not None  # noqa: S101 - it was started with pipes
    assert worker.stdout is not None  # noqa: S101 - same
    worker.stdin.write(packed(order))
    await worker.stdin.drain()
    while True:
        length = int.from_bytes(await worker.stdout.readexactly(LENGTH), "big")
        if length > _LARGEST:
            raise ConnectionError("an answer longer than any")
        answer = answer_of(await worker.stdout.readexactly(length))
        if not isinstance(answer, Progress):
            return answer
        progress(answer.done, answer.total)


async def _end(worker: Process) -> None:
    if worker.returncode is None:
        with suppress(ProcessLookupError):
            worker.kill()
    await worker.wait()


def _why(worker: Process, limits: ReadLimits) -> str:
    code = worker.returncode
    return f"the process that read it ended ({code}): it may need more than {limits.memory_bytes} bytes or crash PDFium"
