"""`WriteQueue`: the writes of a store, one after another in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from contexture.errors import SourceTimeout, SourceUnavailable

_T = TypeVar("_T")

SLOW_SECONDS = 10.0
"""A write that has been running for longer is reported as stuck."""


@dataclass(eq=False, slots=True)
class _Job:
    work: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future[Any])
    context: Context = field(default_factory=copy_context)
    cancelled: bool = False


class WriteQueue:
    """Runs writes one at a time; tenants take turns, and the writes of one tenant run in order.

    A waiting write occupies no thread that reads need. When its caller is cancelled, a waiting write is not run, and a
    running one ends at its next `check_cancelled`.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._guard = threading.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="contexture-write")
        self._running: tuple[_Job, float] | None = None
        self._closed = False

    async def run(self, tenant: str, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, or raise its exception."""
        job = _Job(work)
        with self._guard:
            if self._closed:
                raise SourceUnavailable("the store is closed")
            self._waiting.setdefault(tenant, deque()).append(job)
            self._executor.submit(self._run_next)
        try:
            return await asyncio.wrap_future(job.result)
        except asyncio.CancelledError:
            job.cancelled = True
            raise

    def check_cancelled(self) -> None:
        """Raise `SourceTimeout` if the caller of the running write is gone; call it before the write is committed."""
        running = self._running
        if running is not None and running[0].cancelled:
            raise SourceTimeout("the write was cancelled; nothing was stored")

    def running_seconds(self) -> float:
        """For how long the current write has been running; 0 without one."""
        running = self._running
        return 0.0 if running is None else monotonic() - running[1]

    def close(self) -> None:
        """Wait for all writes and end the thread; further ones raise `SourceUnavailable`."""
        with self._guard:
            self._closed = True
        self._executor.shutdown()

    def _run_next(self) -> None:
        with self._guard:
            tenant, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._waiting[tenant] = jobs  # behind the other tenants
        if not job.result.set_running_or_notify_cancel():
            return
        self._running = job, monotonic()
        try:
            found = job.context.run(job.work)
        except BaseException as failure:  # noqa: BLE001 - raised again where the caller awaits it
            job.result.set_exception(failure)
        else:
            job.result.set_result(found)
        finally:
            self._running = None
