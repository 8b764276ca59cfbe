"""Large loads run as jobs: accepted at once, followed, cancelled, fair to tenants, and private to their user."""

from __future__ import annotations

import asyncio

import pytest

from contexture import Settings
from contexture.errors import NotFound, TooManyRequests
from contexture.ingestion.loader import LoadReport
from contexture.service._jobs import MAX_WAITING, IngestJobs
from contexture.service.wire.builds import JobState
from contexture.testing.doubles import FixedClock
from contexture.types import Scope
from support.service import service_client, small_engine

RECORDS = [{"id": f"r{at}", "text": f"The pump number {at} leaks."} for at in range(70)]
ANNA = Scope(tenant="acme", user="anna")


async def until_ended(job):
    """Let the jobs run until this one has ended."""
    while job.state in {JobState.WAITING, JobState.RUNNING}:  # noqa: ASYNC110 - jobs tell their states only
        await asyncio.sleep(0)


async def ended(client, place, **headers):
    """The job, once it has ended."""
    while True:
        job = (await client.get(place, headers=headers)).json()
        if job["state"] not in {"waiting", "running"}:
            return job
        await asyncio.sleep(0)  # in process, an answer may come without a turn of the event loop


async def test_a_job_loads_what_its_request_holds(tmp_path):
    """It is accepted at once; then its records are found, and its report says so."""
    async with small_engine(Settings(home=tmp_path)) as engine, service_client(engine) as client:
        engine._preparer.defers = True
        body = {"records": [*RECORDS, {"id": 5}]}
        answer = await client.post("/v1/ingest/jobs", json=body)
        job = await ended(client, answer.headers["Location"])
        found = await client.post("/v1/search", json={"query": "pump number 7"})
        await engine.embed_rest()
        later = await client.get(answer.headers["Location"])

    assert (202, "waiting", 71) == (answer.status_code, answer.json()["state"], answer.json()["items"])
    assert ("done", 70, "") == (job["state"], job["report"]["added"], job["error"])
    assert ["records"] == [each["path"] for each in job["report"]["failed"]]
    assert "r7" == found.json()["results"][0]["citation"]["record_id"]
    assert ["vectors"] == [each["source"] for each in found.json()["degradations"]]
    assert (70, 0) == (job["unembedded"], later.json()["unembedded"])


async def test_a_job_belongs_to_its_user(tmp_path):
    """Others can neither read nor end it, and are told what an unknown job gives."""
    async with small_engine(Settings(home=tmp_path)) as engine, service_client(engine) as client:
        answer = await client.post("/v1/ingest/jobs", json={"records": RECORDS})
        place, eve = answer.headers["Location"], {"X-Contexture-User": "eve"}
        refused = [await client.request(how, place, headers=eve) for how in ("GET", "DELETE")]
        unknown = await client.get("/v1/ingest/jobs/job-none")

        assert [404, 404, 404] == [each.status_code for each in (*refused, unknown)]
        assert "done" == (await ended(client, place))["state"]


async def test_a_bad_request_is_refused_before_it_is_a_job(tmp_path):
    """What the direct route refuses, a job refuses as well, at once."""
    async with small_engine(Settings(home=tmp_path)) as engine, service_client(engine) as client:
        answers = [
            await client.post("/v1/ingest/jobs", json=body)
            for body in ({"records": RECORDS, "collection": "memories"}, {"rows": []})
        ]

    assert [422, 422] == [each.status_code for each in answers]


class Loads:
    """Loads that run until they are let go; remembers in which order they began."""

    def __init__(self):
        self.began: list[str] = []
        self.gate = asyncio.Event()

    def make(self, name):
        """A load with a name."""

        async def load(follow):
            self.began.append(name)
            report = LoadReport(read=1)
            follow(report)
            await self.gate.wait()
            return report

        return load


async def test_tenants_take_turns_and_each_has_a_limit():
    """The second tenant's job runs after one of the first tenant's, not after all of them."""
    jobs, loads = IngestJobs(FixedClock()), Loads()
    some = [jobs.submit(ANNA, "documents", 1, loads.make(f"a{at}")) for at in range(MAX_WAITING)]
    with pytest.raises(TooManyRequests):
        jobs.submit(ANNA, "documents", 1, loads.make("one too many"))
    other = jobs.submit(Scope(tenant="globex", user="gus"), "documents", 1, loads.make("g0"))
    loads.gate.set()
    await until_ended(some[-1])

    assert ["a0", "g0", "a1"] == loads.began[:3]
    assert JobState.DONE == other.state
    await jobs.close()


async def test_waiting_and_running_jobs_can_be_cancelled():
    """A waiting one never begins, a running one ends with what it has; ended ones stay as they are."""
    jobs, loads = IngestJobs(FixedClock()), Loads()
    running, waiting = (jobs.submit(ANNA, "documents", 1, loads.make(name)) for name in ("a", "b"))
    while not loads.began:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0)
    await jobs.cancel(ANNA, waiting.job_id)
    await jobs.cancel(ANNA, running.job_id)
    loads.gate.set()
    last = jobs.submit(ANNA, "documents", 1, loads.make("c"))
    await until_ended(last)

    assert (JobState.CANCELLED, JobState.CANCELLED) == (running.state, waiting.state)
    assert (["a", "c"], 1) == (loads.began, running.report.read)
    assert JobState.DONE == (await jobs.cancel(ANNA, last.job_id)).state
    with pytest.raises(NotFound):
        await jobs.cancel(Scope(tenant="acme", user="eve"), last.job_id)
    await jobs.close()


async def test_a_failing_job_says_why_and_the_next_one_runs():
    """Only errors that are meant for callers are shown to them."""

    async def explode(_):
        raise ValueError("password=hunter2")

    async def refuse(_):
        raise NotFound("there is no such thing")

    jobs, loads = IngestJobs(FixedClock()), Loads()
    loads.gate.set()
    failing = [jobs.submit(ANNA, "documents", 1, load) for load in (explode, refuse)]
    last = jobs.submit(ANNA, "documents", 1, loads.make("c"))
    await until_ended(last)

    assert ["the load failed unexpectedly", "there is no such thing"] == [job.error for job in failing]
    assert {JobState.FAILED} == {job.state for job in failing}
    await jobs.close()
