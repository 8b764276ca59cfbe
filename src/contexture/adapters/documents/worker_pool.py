"""A pool of child processes that read documents; a process is killed when a file exceeds its time or memory limit."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import msgspec

from contexture.adapters.documents._worker import (
    LENGTH_PREFIX_BYTES,
    ReadFailure,
    ReadProgress,
    ReadRequest,
    ReadResult,
    decode_reply,
    encode_message,
)
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_WORKER_MODULE = "contexture.adapters.documents._worker"
_MAX_MESSAGE_BYTES = 4 * 2**30
_WORKER_DIED_ERRORS = (
    asyncio.IncompleteReadError,
    BrokenPipeError,
    ConnectionError,
    msgspec.DecodeError,
    msgspec.ValidationError,
)


class DocumentWorkerPool:
    """Up to `count` child processes, each reading one file at a time; use it as an async context manager."""

    def __init__(self, *, count: int = 2, limits: ReadLimits | None = None) -> None:
        self._limits = limits or ReadLimits()
        self._slots = asyncio.Semaphore(count)
        self._idle: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def read(
        self, path: Path, name: str, progress: Callable[[int, int], None], *, draw: bool | None = None
    ) -> ReadDocument:
        """Pages of the file at `path`; raises `InvalidRequest` when it cannot be read, or not within its limits.

        `name` is the original file name.
        """
        limits = self._limits if draw is None else replace(self._limits, draw=draw)
        order = ReadRequest(str(path), name, limits)  # may be relative: the process has the same working directory
        async with self._slots:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                async with AsyncExitStack() as undo:
                    undo.push_async_callback(_kill, worker)  # stops reading after a failure or cancellation
                    async with asyncio.timeout(limits.seconds):
                        answer = await _send_request(worker, order, progress)
                    undo.pop_all()
            except TimeoutError as late:
                raise InvalidRequest(f"reading it takes longer than {limits.seconds:g} seconds") from late
            except _WORKER_DIED_ERRORS as failure:
                raise InvalidRequest(_describe_exit(worker, limits)) from failure
            self._idle.append(worker)
        if isinstance(answer, ReadResult):
            return answer.document
        raise InvalidRequest(answer.reason)

    async def close(self) -> None:
        """Kill the idle processes."""
        while self._idle:
            await _kill(self._idle.pop())

    async def _start(self) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _WORKER_MODULE,
            str(self._limits.memory_bytes),
            stdin=PIPE,
            stdout=PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )


async def _send_request(
    worker: Process, order: ReadRequest, progress: Callable[[int, int], None]
) -> ReadResult | ReadFailure:
    assert worker.stdin is not None  # noqa: S101 - it was started with pipes
    assert worker.stdout is not None  # noqa: S101 - same
    worker.stdin.write(encode_message(order))
    await worker.stdin.drain()
    while True:
        length = int.from_bytes(await worker.stdout.readexactly(LENGTH_PREFIX_BYTES), "big")
        if length > _MAX_MESSAGE_BYTES:
            raise ConnectionError("the reader process sent a message above the size limit")
        answer = decode_reply(await worker.stdout.readexactly(length))
        if not isinstance(answer, ReadProgress):
            return answer
        progress(answer.done, answer.total)


async def _kill(worker: Process) -> None:
    if worker.returncode is None:
        with suppress(ProcessLookupError):
            worker.kill()
    await worker.wait()


def _describe_exit(worker: Process, limits: ReadLimits) -> str:
    code = worker.returncode
    return (
        f"the reader process exited ({code}): the file may need more than {limits.memory_bytes} bytes of memory, "
        "or crash PDFium"
    )
