"""`IngestJobs`: loads that run after their request was answered, one at a time, with tenants taking turns."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from contexture.errors import ContextError, NotFound, TooManyRequests
from contexture.ingestion.loader import LoadReport
from contexture.ports import Clock
from contexture.service.wire.builds import IngestJobJson, JobState, load_report_object
from contexture.types import Scope

MAX_WAITING = 8
"""Jobs of one tenant that may wait; each holds the body of its request in memory."""

_MAX_ENDED = 256  # ended jobs whose outcome can still be read
_RETRY_SECONDS = 10.0


LoadFunction = Callable[[Callable[[LoadReport], None]], Awaitable[LoadReport]]
"""Loads something and returns the report; calls back with reports that it goes on to fill."""


@dataclass(eq=False, slots=True)
class IngestJob:
    """A load and its outcome; `items` is how many records and files it was asked to load."""

    job_id: str
    scope: Scope
    collection: str
    items: int
    created_at: datetime
    load: LoadFunction | None
    report: LoadReport
    state: JobState = JobState.WAITING
    error: str = ""
    task: asyncio.Task[LoadReport] | None = None

    def describe(self, unembedded: int) -> IngestJobJson:
        """The job as its routes return it."""
        return {
            "job_id": self.job_id,
            "state": self.state,
            "created_at": self.created_at,
            "items": self.items,
            "report": load_report_object(self.report),
            "error": self.error,
            "unembedded": unembedded,
        }


class IngestJobs:
    """The jobs of this process. They end with it: a load is repeatable, so that its request can be sent again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: OrderedDict[str, IngestJob] = OrderedDict()
        self._waiting: OrderedDict[str, deque[IngestJob]] = OrderedDict()
        self._runner: asyncio.Task[None] | None = None

    def submit(self, scope: Scope, collection: str, items: int, load: LoadFunction) -> IngestJob:
        """Queue a load; raises `TooManyRequests` if the tenant has too many waiting ones."""
        queue = self._waiting.setdefault(scope.tenant, deque())
        if len(queue) >= MAX_WAITING:
            raise TooManyRequests(f"{MAX_WAITING} jobs are waiting already", after=_RETRY_SECONDS)
        job = IngestJob(
            job_id=f"job-{secrets.token_hex(8)}",
            scope=scope,
            collection=collection,
            items=items,
            created_at=self._clock.now(),
            load=load,
            report=LoadReport(),
        )
        queue.append(job)
        self._jobs[job.job_id] = job
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="contexture-jobs")
        return job

    def find(self, scope: Scope, job_id: str) -> IngestJob:
        """A job of this user; raises `NotFound` for an unknown one and for those of others."""
        job = self._jobs.get(job_id)
        if job is None or (job.scope.tenant, job.scope.user) != (scope.tenant, scope.user):
            raise NotFound(f"no job {job_id!r} is known here; a job is forgotten when the service restarts")
        return job

    async def cancel(self, scope: Scope, job_id: str) -> IngestJob:
        """End a job; what it has written stays. An ended job stays as it is."""
        job = self.find(scope, job_id)
        if job.state is JobState.WAITING:
            job.state, job.load = JobState.CANCELLED, None
        elif job.state is JobState.RUNNING and job.task is not None:
            job.task.cancel()
            await asyncio.wait([job.task])
        return job

    async def close(self) -> None:
        """End all jobs."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        while self._waiting:
            tenant, queue = self._waiting.popitem(last=False)
            job = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind the other tenants
            if job.state is JobState.WAITING:
                await self._run_job(job)
            ended = [name for name, each in self._jobs.items() if each.load is None]
            for name in ended[: max(0, len(ended) - _MAX_ENDED)]:
                del self._jobs[name]

    async def _run_job(self, job: IngestJob) -> None:
        assert job.load is not None  # noqa: S101 - only ended jobs have none
        job.state = JobState.RUNNING

        def follow(report: LoadReport) -> None:
            job.report = report

        job.task = asyncio.ensure_future(job.load(follow))
        try:
            await asyncio.wait([job.task])
        finally:  # also when the service ends
            job.task.cancel()
            job.load = None
        if job.task.cancelled():
            job.state = JobState.CANCELLED
        elif (failure := job.task.exception()) is None:
            job.state, job.report = JobState.DONE, job.task.result()
        else:
            job.state = JobState.FAILED
            job.error = str(failure) if isinstance(failure, ContextError) else "the load failed unexpectedly"
            structlog.get_logger().error("job failed", job=job.job_id, failure=type(failure).__name__)
