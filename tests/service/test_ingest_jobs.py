"""Large loads run as jobs: accepted at once, followed, cancelled, fair to tenants, and private to their user."""

from __future__ import annotations

import asyncio

import pytest

from contexture import Settings
from contexture.errors import NotFound, Overloaded, TooManyRequests
from contexture.ingestion.loader import LoadReport
from contexture.service._jobs import MAX_ENDED, MAX_WAITING, IngestJobs
from contexture.service.wire.builds import JobState
from contexture.testing.doubles import FixedClock
from contexture.types import Scope
from support.service import service_client, small_engine

RECORDS = [{"id": f"r{at}", "text": f"The pump number {at} leaks."} for at in range(70)]
ANNA, GUS = Scope(tenant="acme", user="anna"), Scope(tenant="globex", user="gus")


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
            for body in (
                {"records": RECORDS, "collection": "memories"},
                {"rows": []},
                {"collection": "0"},
                {"collection": "1st", "records": RECORDS},
                {"files": [{"filename": "a.md", "content": "\u0084"}]},
            )
        ]

    assert [422, 422, 422, 422, 422] == [each.status_code for each in answers]


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
    jobs, loads = IngestJobs(FixedClock(), Settings()), Loads()
    some = [jobs.submit(ANNA, "documents", 1, loads.make(f"a{at}")) for at in range(MAX_WAITING)]
    with pytest.raises(TooManyRequests):
        jobs.submit(ANNA, "documents", 1, loads.make("one too many"))
    other = jobs.submit(GUS, "documents", 1, loads.make("g0"))
    loads.gate.set()
    await until_ended(some[-1])

    assert ["a0", "g0", "a1"] == loads.began[:3]
    assert JobState.DONE == other.state
    await jobs.close()


async def test_a_long_job_does_not_keep_other_tenants_waiting():
    """Each tenant's jobs run one after the other; another tenant's runs beside them."""
    jobs, loads = IngestJobs(FixedClock(), Settings()), Loads()
    long = [jobs.submit(ANNA, "documents", 1, loads.make(name)) for name in ("a0", "a1")]
    jobs.submit(GUS, "documents", 1, loads.make("g0"))
    while len(loads.began) < 2:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert (["a0", "g0"], JobState.WAITING) == (loads.began, long[1].state)
    loads.gate.set()
    await until_ended(long[1])
    await jobs.close()


async def test_requests_of_waiting_jobs_share_the_memory():
    """A tenant's hold its share, all of them the limit, and everybody may have one job."""
    settings = Settings(max_bytes_in_flight=100, max_body_bytes=100, max_share=0.5, max_loads=1)
    jobs, loads = IngestJobs(FixedClock(), settings), Loads()
    first = jobs.submit(ANNA, "documents", 1, loads.make("a0"), size=90)
    with pytest.raises(TooManyRequests, match="may hold 50 bytes"):
        jobs.submit(ANNA, "documents", 1, loads.make("a1"), size=1)
    waiting = jobs.submit(GUS, "documents", 1, loads.make("g0"), size=10)
    with pytest.raises(Overloaded):
        jobs.submit(GUS, "documents", 1, loads.make("g1"), size=10)
    await jobs.cancel(GUS, waiting.job_id)
    jobs.submit(GUS, "documents", 1, loads.make("g2"), size=10)
    loads.gate.set()
    await until_ended(first)

    jobs.submit(ANNA, "documents", 1, loads.make("a2"), size=1)
    await jobs.close()


async def test_the_outcomes_of_a_quiet_tenant_outlast_many_jobs_of_another():
    """Beyond the limit, the oldest outcome of the tenant with the most is dropped; cancelled ones leave the queue."""
    jobs, loads = IngestJobs(FixedClock(), Settings()), Loads()
    loads.gate.set()
    quiet = jobs.submit(GUS, "documents", 1, loads.make("g0"))
    await until_ended(quiet)
    many = [jobs.submit(ANNA, "documents", 1, loads.make("a"))]
    for _ in range(MAX_ENDED + 10):
        many.append(jobs.submit(ANNA, "documents", 1, loads.make("a")))
        await jobs.cancel(ANNA, many[-1].job_id)
    await until_ended(many[0])
    await asyncio.sleep(0)

    assert quiet is jobs.find(GUS, quiet.job_id)
    with pytest.raises(NotFound):
        jobs.find(ANNA, many[1].job_id)
    await jobs.close()


async def test_a_forgotten_user_has_no_jobs(tmp_path):
    """A job that waits would store what is being forgotten."""
    async with small_engine(Settings(home=tmp_path)) as engine, service_client(engine) as client:
        places = [
            (await client.post("/v1/ingest/jobs", json={"records": RECORDS, "collection": name})).headers["Location"]
            for name in ("one", "two")
        ]
        forgotten = await client.post("/v1/forget", json={"user_id": engine.scope.user})
        states = {(await client.get(place)).json()["state"] for place in places}

    assert (200, {"cancelled"}) == (forgotten.status_code, states)


async def test_waiting_and_running_jobs_can_be_cancelled():
    """A waiting one never begins, a running one ends with what it has; ended ones stay as they are."""
    jobs, loads = IngestJobs(FixedClock(), Settings()), Loads()
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

    jobs, loads = IngestJobs(FixedClock(), Settings()), Loads()
    loads.gate.set()
    failing = [jobs.submit(ANNA, "documents", 1, load) for load in (explode, refuse)]
    last = jobs.submit(ANNA, "documents", 1, loads.make("c"))
    await until_ended(last)

    assert ["the load failed unexpectedly", "there is no such thing"] == [job.error for job in failing]
    assert {JobState.FAILED} == {job.state for job in failing}
    await jobs.close()
