"""`IngestJobs`: loads that run after their request was answered, one of a tenant at a time."""

import asyncio
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from contexture.config import Settings
from contexture.errors import ContextError, NotFound, Overloaded, TooManyRequests
from contexture.ingestion.loader import LoadReport
from contexture.ports import Clock
from contexture.retrieval.compute_thread import RequestsInProgress
from contexture.service.wire.builds import IngestJobJson, JobState, load_report_object
from contexture.types import Scope

MAX_WAITING = 8
"""Jobs of one tenant that may wait; each holds the body of its request in memory."""

MAX_ENDED = 256
"""Ended jobs whose outcome can still be read; beyond it, the oldest of the tenant with the most is dropped."""

_RETRY_SECONDS = 10.0


LoadFunction = Callable[[Callable[[LoadReport], None]], Awaitable[LoadReport]]
"""Loads something and returns the report; calls back with reports that it goes on to fill."""


@dataclass(eq=False, slots=True)
class IngestJob:
    """A load and its outcome.

    `items` is how many records and files it was asked to load, `size` the bytes of its request, which it holds until it
    ends.
    """

    job_id: str
    scope: Scope
    collection: str
    items: int
    size: int
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
    """The jobs of this process. They end with it: a load is repeatable, so that its request can be sent again.

    At most `max_loads` jobs run at once, one of each tenant, and tenants take turns. The requests of all jobs hold at
    most `max_bytes_in_flight`, and those of one tenant its share of that, except that everybody may have one job.
    """

    def __init__(self, clock: Clock, settings: Settings, requests: RequestsInProgress) -> None:
        self._clock = clock
        self._requests = requests
        self._max_running = settings.max_loads
        self._max_bytes = max(settings.max_bytes_in_flight, settings.max_body_bytes)
        self._bytes_share = int(self._max_bytes * settings.max_share)
        self._jobs: OrderedDict[str, IngestJob] = OrderedDict()
        self._waiting: OrderedDict[str, deque[IngestJob]] = OrderedDict()
        self._running: dict[str, asyncio.Task[None]] = {}

    def submit(self, scope: Scope, collection: str, items: int, load: LoadFunction, *, size: int = 0) -> IngestJob:
        """Queue a load; raises `TooManyRequests` if the tenant's jobs are too many or too large, or `Overloaded`."""
        self._check_limits(scope.tenant, size)
        job = IngestJob(
            job_id=f"job-{secrets.token_hex(8)}",
            scope=scope,
            collection=collection,
            items=items,
            size=size,
            created_at=self._clock.now(),
            load=load,
            report=LoadReport(),
        )
        self._waiting.setdefault(scope.tenant, deque()).append(job)
        self._jobs[job.job_id] = job
        asyncio.get_running_loop().call_soon(self._start_waiting)
        return job

    def _check_limits(self, tenant: str, size: int) -> None:
        if len(self._waiting.get(tenant, ())) >= MAX_WAITING:
            raise TooManyRequests(f"{MAX_WAITING} jobs are waiting already", after=_RETRY_SECONDS)
        unfinished = [job for job in self._jobs.values() if job.load is not None]
        mine = [job for job in unfinished if job.scope.tenant == tenant]
        if mine and sum(job.size for job in mine) + size > self._bytes_share:
            raise TooManyRequests(
                f"the requests of your jobs may hold {self._bytes_share} bytes; wait until one has ended",
                after=_RETRY_SECONDS,
            )
        if mine and sum(job.size for job in unfinished) + size > self._max_bytes:
            raise Overloaded("the jobs of others hold too many bytes; retry later")

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
            self._waiting[scope.tenant].remove(job)
            self._drop_ended()
        elif job.state is JobState.RUNNING and job.task is not None:
            job.task.cancel()
            await asyncio.wait([job.task])
        return job

    async def cancel_all(self, scope: Scope) -> None:
        """End all jobs of a user, who is being forgotten."""
        for job in [*self._jobs.values()]:
            if (job.scope.tenant, job.scope.user) == (scope.tenant, scope.user):
                await self.cancel(scope, job.job_id)

    async def close(self) -> None:
        """End all jobs."""
        self._waiting.clear()
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start_waiting(self) -> None:
        """Start waiting jobs of tenants without a running one, while slots are free."""
        for tenant, queue in [*self._waiting.items()]:
            if tenant in self._running:
                continue
            if not queue:
                del self._waiting[tenant]
            elif len(self._running) < self._max_running:
                self._waiting.move_to_end(tenant)  # behind the other tenants
                self._running[tenant] = self._start(queue.popleft())

    def _start(self, job: IngestJob) -> asyncio.Task[None]:
        load = job.load
        assert load is not None  # noqa: S101 - only ended jobs have none

        async def run() -> LoadReport:
            with self._requests.enter(job.scope.tenant, is_long=True):
                return await load(follow)

        def follow(report: LoadReport) -> None:
            job.report = report

        job.state = JobState.RUNNING
        job.task = asyncio.create_task(run())
        return asyncio.create_task(self._finish(job, job.task), name="contexture-job")

    async def _finish(self, job: IngestJob, task: asyncio.Task[LoadReport]) -> None:
        try:
            await _wait_until_ended(job, task)
        finally:
            del self._running[job.scope.tenant]
            self._drop_ended()
            self._start_waiting()

    def _drop_ended(self) -> None:
        ended = [job for job in self._jobs.values() if job.load is None]
        for _ in range(len(ended) - MAX_ENDED):
            ((largest, _),) = Counter(job.scope.tenant for job in ended).most_common(1)
            oldest = next(job for job in ended if job.scope.tenant == largest)
            ended.remove(oldest)
            del self._jobs[oldest.job_id]


async def _wait_until_ended(job: IngestJob, task: asyncio.Task[LoadReport]) -> None:
    """Wait for a load, and note its outcome."""
    try:
        await asyncio.wait([task])
    finally:  # also when the service ends
        task.cancel()
        job.load = None
    if task.cancelled():
        job.state = JobState.CANCELLED
    elif (failure := task.exception()) is None:
        job.state, job.report = JobState.DONE, task.result()
    else:
        job.state = JobState.FAILED
        job.error = str(failure) if isinstance(failure, ContextError) else "the load failed unexpectedly"
        structlog.get_logger().error("job failed", job=job.job_id, failure=type(failure).__name__)
