"""`WriteQueue`: the writes of a store, in threads of their own; those of one tenant one after another."""

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
    """Runs up to `threads` writes at a time; tenants take turns, and the writes of one tenant run one by one, in order.

    A waiting write occupies no thread that reads need. When its caller is cancelled, a waiting write is not run, and a
    running one ends at its next `check_cancelled`.
    """

    def __init__(self, threads: int = 1) -> None:
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._guard = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="contexture-write")
        self._running: dict[str, tuple[_Job, float]] = {}
        self._local = threading.local()
        self._closed = False

    async def run(self, tenant: str, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, or raise its exception."""
        job = _Job(work)
        with self._guard:
            if self._closed:
                raise SourceUnavailable("the store is closed")
            self._waiting.setdefault(tenant, deque()).append(job)
            self._executor.submit(self._run_waiting)
        try:
            return await asyncio.wrap_future(job.result)
        except asyncio.CancelledError:
            job.cancelled = True
            raise

    def check_cancelled(self) -> None:
        """Raise `SourceTimeout` if the caller of this thread's write is gone; call it before the write is committed."""
        running: _Job | None = getattr(self._local, "job", None)
        if running is not None and running.cancelled:
            raise SourceTimeout("the write was cancelled; nothing was stored")

    def running_seconds(self) -> float:
        """For how long the slowest current write has been running; 0 without one."""
        with self._guard:
            started = [since for _, since in self._running.values()]
        return monotonic() - min(started) if started else 0.0

    def close(self) -> None:
        """Wait for all writes and end the threads; further ones raise `SourceUnavailable`."""
        with self._guard:
            self._closed = True
        self._executor.shutdown()

    def _run_waiting(self) -> None:
        """Run writes until those that wait are of tenants with a running write, whose threads go on with them."""
        while (found := self._take_next()) is not None:
            tenant, job = found
            try:
                self._run(job)
            finally:
                with self._guard:
                    del self._running[tenant]

    def _take_next(self) -> tuple[str, _Job] | None:
        with self._guard:
            tenant = next((each for each in self._waiting if each not in self._running), None)
            if tenant is None:
                return None
            jobs = self._waiting.pop(tenant)
            job = jobs.popleft()
            if jobs:
                self._waiting[tenant] = jobs  # behind the other tenants
            self._running[tenant] = job, monotonic()
            return tenant, job

    def _run(self, job: _Job) -> None:
        if not job.result.set_running_or_notify_cancel():
            return
        self._local.job = job
        try:
            found = job.context.run(job.work)
        except BaseException as failure:  # noqa: BLE001 - raised again where the caller awaits it
            job.result.set_exception(failure)
        else:
            job.result.set_result(found)
        finally:
            self._local.job = None
