"""Large loads run as jobs: accepted at once, followed, cancelled, fair to tenants, and private to their user."""

from __future__ import annotations

import asyncio

import pytest

from contexture import Settings
from contexture.errors import NotFound, Overloaded, TooManyRequests
from contexture.ingestion.blocks.bulk import PIECE_SIZE, BulkWriter
from contexture.ingestion.loader import LoadReport
from contexture.retrieval.compute_thread import RequestsInProgress
from contexture.service._jobs import MAX_ENDED, MAX_WAITING, IngestJobs
from contexture.service.wire.builds import JobState
from contexture.testing.blocks_tree import make_block
from contexture.testing.doubles import NOON, FixedClock
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
    jobs, loads = IngestJobs(FixedClock(), Settings(), RequestsInProgress()), Loads()
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
    jobs, loads = IngestJobs(FixedClock(), Settings(), RequestsInProgress()), Loads()
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
    jobs, loads = IngestJobs(FixedClock(), settings, RequestsInProgress()), Loads()
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
    jobs, loads = IngestJobs(FixedClock(), Settings(), RequestsInProgress()), Loads()
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
    jobs, loads = IngestJobs(FixedClock(), Settings(), RequestsInProgress()), Loads()
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

    jobs, loads = IngestJobs(FixedClock(), Settings(), RequestsInProgress()), Loads()
    loads.gate.set()
    failing = [jobs.submit(ANNA, "documents", 1, load) for load in (explode, refuse)]
    last = jobs.submit(ANNA, "documents", 1, loads.make("c"))
    await until_ended(last)

    assert ["the load failed unexpectedly", "there is no such thing"] == [job.error for job in failing]
    assert {JobState.FAILED} == {job.state for job in failing}
    await jobs.close()


BLOCKS = [
    *({"id": f"b{at}", "text": f"Valve number {at} is open.", "parent": "p", "order": at} for at in range(150)),
    {"id": "p", "type": "page", "text": "Valves", "readers": ["user:anna", "user:boris"]},
]
BORIS, EVE = {"X-Contexture-User": "boris"}, {"X-Contexture-User": "eve"}


async def load_blocks(client, *rows, headers=None, **further):
    """Write blocks in a job of this user; returns the job once it has ended."""
    answer = await client.post("/v1/ingest/jobs", json={"blocks": list(rows), **further}, headers=headers)
    assert 202 == answer.status_code, answer.text
    return await ended(client, answer.headers["Location"], **(headers or {}))


def problems(job):
    """What the job reports of single blocks, by their position."""
    return {each["line"]: each["message"] for each in job["report"]["failed"] if each["path"] == "blocks"}


async def test_blocks_are_written_by_a_job_in_pieces(client, engine):
    """Pages are written before what is below them; the caller is the author, and readers are inherited."""
    sizes = []
    put = engine.workspace.put

    async def count(scope, blocks, **options):
        sizes.append(len(blocks))
        return await put(scope, blocks, **options)

    engine.workspace.put = count
    job = await load_blocks(client, *[{**each, "author": "boss"} for each in BLOCKS])
    again = await load_blocks(client, *BLOCKS)
    shown = (await client.get("/v1/blocks/b149", headers=BORIS)).json()
    hidden = await client.get("/v1/blocks/b149", headers=EVE)
    found = await engine.search("valve", collection="blocks", scope=ANNA)

    assert ("done", 151, 151, 151, []) == (
        job["state"],
        job["items"],
        job["report"]["read"],
        job["report"]["added"],
        job["report"]["failed"],
    )
    assert (0, 151) == (again["report"]["added"], again["report"]["unchanged"])
    assert max(sizes) <= PIECE_SIZE
    assert ("anna", "p") == (shown["block"]["author"], shown["block"]["parent"])
    assert 404 == hidden.status_code
    assert found.found


async def test_a_job_reports_each_block_that_is_refused(client, engine):
    """What may not be written is named with its position, what is below it is not written, and the rest is."""
    await client.post("/v1/ingest/blocks", json={"blocks": [PRIVATE_PAGE, SHARED_PAGE]})
    rows = [
        {"id": "good", "text": "written"},
        {"id": "secret", "type": "page", "text": "taken over"},
        {"id": "shared", "type": "page", "text": "taken over"},
        {"id": "below", "text": "into a hidden page", "parent": "secret"},
        {"id": "lost", "text": "no parent", "parent": "never"},
        {"id": "late", "type": "todo", "text": "t", "properties": {"due": "soon"}},
        {"id": "strange", "text": "t", "readers": ["boris"]},
        {"id": "old", "text": "t", "version": 7},
        {"id": "good", "text": "again"},
        {"id": "x", "text": "a circle", "parent": "y"},
        {"id": "y", "text": "a circle", "parent": "x"},
        {"id": "below good", "text": "written", "parent": "good"},
    ]
    job = await load_blocks(client, *rows, headers=BORIS)
    said = problems(job)
    direct = await client.post("/v1/ingest/blocks", json={"blocks": [rows[1]]}, headers=BORIS)
    stored = {each.id: each.text for each in await engine.blocks.get(ANNA, [each["id"] for each in rows])}

    assert ("done", 12, 2) == (job["state"], job["report"]["read"], job["report"]["added"])
    assert [2, 3, 4, 5, 6, 7, 8, 9, 10, 11] == sorted(said)
    assert said[2] == direct.json()["error"]["message"]
    assert said[6].startswith("`due` of block 'late' must be an ISO date")
    assert "its parent 'secret' was refused" in said[4]
    assert "blocks[0]" in said[9]
    expected = {"good": "written", "below good": "written", "secret": "private", "shared": "shared"}
    assert expected == stored


PRIVATE_PAGE = {"id": "secret", "type": "page", "text": "private", "readers": ["user:anna"]}
SHARED_PAGE = {"id": "shared", "type": "page", "text": "shared", "editors": ["user:anna"]}


async def test_a_page_that_is_refused_gives_its_blocks_no_other_readers(client, engine):
    """A block is not written below the page as it was, which more people may read."""
    await client.post("/v1/ingest/blocks", json={"blocks": [{"id": "p", "type": "page", "text": "open to all"}]})
    page = {"id": "p", "type": "page", "text": "for me", "readers": ["user:anna"], "version": 9}
    job = await load_blocks(client, page, {"id": "b", "text": "a secret", "parent": "p"})

    assert [1, 2] == sorted(problems(job))
    assert not await engine.blocks.get(ANNA, ["b"])


async def test_an_import_in_a_job_widens_no_readers(client, engine):
    """The readers that are kept are named in a warning."""
    await client.post("/v1/ingest/blocks", json={"blocks": [PRIVATE_PAGE]})
    wider = {**PRIVATE_PAGE, "text": "changed", "readers": ["public"]}
    job = await load_blocks(client, wider, importing={})
    (stored,) = await engine.blocks.get(ANNA, ["secret"])

    assert [1] == [each["line"] for each in job["report"]["warnings"]]
    assert ("changed", ("user:anna",)) == (stored.text, stored.readers)


async def test_bodies_of_jobs_are_refused_as_by_the_route_of_their_kind(client):
    """Fields are named as they were sent; records and blocks need jobs of their own."""
    for body, route in (
        ({"blocks": [{"id": "x", "type": "poem"}]}, "blocks"),
        ({"blocks": {}}, "blocks"),
        ({"blocks": [{"id": "x", "colour": "red"}]}, "blocks"),
        ({"blocks": [], "records": []}, "blocks"),
        ({"records": 5}, "documents"),
        ({"rows": []}, "documents"),
        ([], "documents"),
        (5, "documents"),
    ):
        job, direct = [await client.post(f"/v1/ingest/{each}", json=body) for each in ("jobs", route)]
        assert 422 == job.status_code == direct.status_code
        assert direct.json()["error"]["message"] == job.json()["error"]["message"]


async def test_a_bulk_write_waits_between_its_pieces(engine):
    """As long as the piece before took, and not after the last one."""
    pauses = []

    async def note(seconds):
        pauses.append(seconds)

    blocks = [make_block(f"b{at}", text="x") for at in range(2 * PIECE_SIZE + 1)]
    report = await BulkWriter(engine.workspace, ANNA, now=NOON, sleep=note).write_all(blocks)

    assert (len(blocks), 2) == (report.added, len(pauses))
    assert min(pauses) > 0


async def test_blocks_of_a_job_that_is_cancelled_stay(client, engine):
    """It ends between two pieces, and sending the request again writes the rest; others cannot end it."""
    wrote, gate = asyncio.Event(), asyncio.Event()
    put = engine.workspace.put

    async def halt(scope, blocks, **options):
        done = await put(scope, blocks, **options)
        wrote.set()
        await gate.wait()
        return done

    engine.workspace.put = halt
    answer = await client.post("/v1/ingest/jobs", json={"blocks": BLOCKS})
    await wrote.wait()
    place = answer.headers["Location"]
    refused = [(await client.request(how, place, headers=EVE)).status_code for how in ("GET", "DELETE")]
    job = (await client.delete(place)).json()
    engine.workspace.put = put
    stored = await engine.blocks.get(ANNA, [each["id"] for each in BLOCKS])
    rest = await load_blocks(client, *BLOCKS)

    assert ([404, 404], "cancelled", PIECE_SIZE) == (refused, job["state"], len(stored))
    assert (151 - PIECE_SIZE, PIECE_SIZE) == (rest["report"]["added"], rest["report"]["unchanged"])
