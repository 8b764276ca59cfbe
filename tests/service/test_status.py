"""Health, readiness, metrics, and what a policy says to each route."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from types import SimpleNamespace

import httpx
import pytest
import structlog

from contexture import Settings
from contexture.adapters import installed_packages
from contexture.adapters.documents.ocr import load_tesseract
from contexture.adapters.index import disk_space
from contexture.adapters.memory_client import Refused
from contexture.conversation import Decision, HealthState, Memory
from contexture.errors import SourceUnavailable, StoreDamaged
from contexture.service.app import create_app
from contexture.testing.bus import InMemoryBus
from contexture.types import PUBLIC, Record
from support.damage import overwrite_leaf_page
from support.service import service_client, small_engine


class Refusing:
    """A policy that denies everything and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    async def decide(self, scope, action, resource):
        """Denied."""
        self.asked.append((scope.user, action, dict(resource)))
        return Decision(allowed=False, reason="closed on Sundays")


class Hanging(Refusing):
    """A policy that could not say in time whether it works."""

    async def state(self):
        """As the policy's own timeout ends it."""
        return HealthState.DEGRADED


async def test_readiness_comes_with_the_warm_up(engine):
    """503 before the index and the embedders have answered once, 200 after."""
    app = create_app(engine, keys=None, settings=engine.settings)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        before = await client.get("/ready")
        async with app.router.lifespan_context(app):
            while not app.state.readiness.is_ready:  # noqa: ASYNC110 - as those do who watch over a service
                await asyncio.sleep(0)
            after = await client.get("/ready")

    assert (503, False) == (before.status_code, before.json()["ready"])
    assert (200, {"ready": True, "steps": {"index": "done", "embedders": "done"}}) == (after.status_code, after.json())


async def test_a_part_that_cannot_be_warmed_is_named(engine, monkeypatch):
    """Readiness never comes, the reason is shown, and health says which component is down."""

    async def broken():
        raise SourceUnavailable("the weights are gone")

    monkeypatch.setattr(engine, "warm_embedders", broken)
    app = create_app(engine, keys=None, settings=engine.settings)
    await app.state.readiness.warm_up()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        ready, health = await client.get("/ready"), await client.get("/health")

    assert "failed: the weights are gone" == ready.json()["steps"]["embedders"]
    assert (200, "down", "down") == (
        health.status_code,
        health.json()["status"],
        health.json()["components"]["embedders"]["state"],
    )


async def test_health_names_every_component(client, engine):
    """Each has a state of the same three; the worst is the whole's."""
    engine.health.record_failure()
    found = (await client.get("/health")).json()

    assert {"store", "integrity", "memory", "outbox", "embedders", "policy", "models", "ocr"} == (
        found["components"].keys()
    )
    assert "degraded" == found["components"]["memory"]["state"]
    assert "normal" == found["components"]["store"]["state"]


async def test_a_full_disk_shows(client, monkeypatch):
    """Everything can still be read, so the service is not down."""
    monkeypatch.setattr(disk_space, "disk_usage", lambda _: SimpleNamespace(free=100))
    found = await client.get("/health")
    store = found.json()["components"]["store"]

    assert (200, "degraded", "the disk has less than 64 MB left") == (
        found.status_code, store["state"], store["reason"],
    )  # fmt: skip


@pytest.mark.parametrize(("state", "shown"), [("normal", "normal"), ("down", "degraded")])
async def test_a_bus_shows_where_there_is_one(engine, state, shown):
    """One that does not answer is degraded, and one that cannot say how it does is taken to work."""

    class Told(InMemoryBus):
        async def state(self):
            return HealthState(state)

    async with service_client(engine, bus=Told()) as client:
        found = (await client.get("/health")).json()
    async with service_client(engine, bus=InMemoryBus()) as client:
        silent = (await client.get("/health")).json()

    assert shown == found["components"]["bus"]["state"]
    assert {"state": "normal"} == silent["components"]["bus"]


async def test_parked_memories_show(client, engine):
    """How many the memory service refused too often, and nothing about them; asking writes no file."""
    before = (await client.get("/health")).json()["components"]["outbox"]
    file = engine.settings.home / "outbox.sqlite"
    made = file.exists()
    await engine.outbox.put(engine.scope, Memory(text="refused"), Memory(text="waits"))
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE items SET parked = 1, failure = 'refused' WHERE seq = 1")
    found = (await client.get("/health")).json()

    assert ({"state": "normal", "parked": 0, "damaged": 0}, False) == (before, made)
    assert {"state": "degraded", "parked": 1, "damaged": 0} == found["components"]["outbox"]
    assert "refused" not in str(found)


async def test_a_broken_outbox_is_replaced_and_shows(client, engine):
    """Memories are kept again at once, and the file that was broken is named until somebody removes it."""
    (engine.settings.home / "outbox.sqlite").write_bytes(b"no database" * 100)
    found = (await client.get("/health")).json()["components"]["outbox"]
    await engine.outbox.put(engine.scope, Memory(text="kept"))

    assert "degraded" == found["state"]
    assert "what could not be read is in 'outbox.sqlite.damaged-1'" in found["reason"]


async def test_a_damaged_database_is_down_with_the_way_back(client, engine):
    """A check in the background finds it; paths are not told."""
    await engine.add([Record(id=f"r{n}", text=f"Pump {n} leaks. " * 50, acl=(PUBLIC,)) for n in range(20)])
    engine.index._sqlite_store._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    monitor = client._transport.app.state.integrity
    await monitor._check()
    before = (await client.get("/health")).json()["components"]["integrity"]
    await asyncio.to_thread(overwrite_leaf_page, engine.settings.home / "truth.sqlite")
    await monitor._check()
    found = await client.get("/health")
    integrity = found.json()["components"]["integrity"]

    assert ("normal", True) == (before["state"], "checked" in before)
    assert (503, "down") == (found.status_code, integrity["state"])
    assert "the database 'truth.sqlite' is damaged" in integrity["reason"]
    assert "contexture restore FILE --force" in integrity["reason"]


async def test_damage_that_a_request_meets_shows_at_once(client, engine, monkeypatch):
    """Health does not wait for the next check, which then confirms or withdraws it."""

    async def broken(*_words, **_named):
        raise StoreDamaged("the database 'x' is damaged")

    monkeypatch.setattr(engine, "search", broken)
    answer = await client.post("/v1/search", json={"query": "pump"})
    found = (await client.get("/health")).json()["components"]["integrity"]
    await client._transport.app.state.integrity._check()
    after = (await client.get("/health")).json()["components"]["integrity"]

    assert (503, False) == (answer.status_code, answer.json()["error"]["retryable"])
    assert ("down", "the database 'x' is damaged") == (found["state"], found["reason"])
    assert "normal" == after["state"]


async def test_a_damaged_cache_only_degrades(client, engine):
    """It can be created again, and nothing is lost."""
    (engine.settings.home / "graph.sqlite").write_bytes(b"no database" * 1_000)
    await client._transport.app.state.integrity._check()
    found = await client.get("/health")

    assert (200, "degraded") == (found.status_code, found.json()["components"]["integrity"]["state"])
    assert "contexture rebuild" in found.json()["components"]["integrity"]["reason"]


async def test_missing_libraries_of_models_and_text_recognition_show(client, engine, monkeypatch):
    """Answers still come, from the next model and without the text of scans."""
    load_tesseract.cache_clear()
    engine.settings = engine.settings.model_copy(update={"chat_model": "local"})
    monkeypatch.setattr(
        installed_packages, "import_module", lambda name: (_ for _ in ()).throw(
            OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        )
    )  # fmt: skip
    found = (await client.get("/health")).json()["components"]

    assert ("degraded", ["local"]) == (found["models"]["state"], found["models"]["names"])
    assert (
        "the local model needs the system library libgomp.so.1: apt-get install libgomp1" == found["models"]["reason"]
    )
    if find_spec("tesserocr"):
        assert ("degraded", "tesseract") == (found["ocr"]["state"], found["ocr"]["kind"])
        assert "apt-get install libgomp1" in found["ocr"]["reason"]
    else:
        assert {"state": "normal", "kind": "not installed"} == found["ocr"]


@pytest.mark.parametrize(
    ("rules", "state"),
    [("package contexture\nallow := true", "normal"), ("package contexture\nallow if {", "down"), (None, "down")],
)
async def test_a_policy_that_denies_everything_shows(engine, tmp_path, rules, state):
    """One whose files stopped compiling, or are gone, is down before anybody is denied; paths are not told."""
    rego = pytest.importorskip("contexture.adapters.policy.rego", exc_type=ImportError)
    file = tmp_path / "rules.rego"
    file.write_text("package contexture\nallow := false")
    engine.policy = rego.RegoPolicy(tmp_path, timeout=30)
    file.unlink() if rules is None else file.write_text(rules)
    async with service_client(engine) as client:
        found = (await client.get("/health")).json()["components"]["policy"]

    assert (state, state == "down") == (found["state"], "reason" in found)
    assert str(tmp_path) not in str(found)


async def test_a_policy_that_hangs_is_degraded(engine):
    """Health still answers, and says so."""
    engine.policy = Hanging()
    async with service_client(engine) as client:
        found = (await client.get("/health")).json()["components"]["policy"]

    assert {"state": "degraded", "kind": "Hanging", "reason": "the policy does not answer in time"} == found


async def test_a_closed_store_is_down(settings):
    """Without the store nothing works, and health says so with 503."""
    async with small_engine(settings) as engine, service_client(engine) as client:
        await engine.index.close()
        found = await client.get("/health")

    assert (503, "down") == (found.status_code, found.json()["components"]["store"]["state"])


async def test_requests_are_counted_by_route_and_not_by_path(client):
    """Labels are few, whatever callers ask for."""
    for path in ("/v1/builds/ctx-1", "/v1/builds/ctx-2", "/wp-admin", "/etc"):
        await client.get(path)
    shown = (await client.get("/metrics")).text

    assert 'contexture_http_requests_total{method="GET",route="/v1/builds/{build_id}",status="404"} 2.0' in shown
    assert 'contexture_http_requests_total{method="GET",route="unmatched",status="404"} 2.0' in shown
    assert "wp-admin" not in shown


async def test_two_services_measure_apart(engine):
    """Each application has a registry of its own."""
    async with service_client(engine) as one, service_client(engine) as other:
        await one.get("/nowhere")

        assert "unmatched" in (await one.get("/metrics")).text
        assert "unmatched" not in (await other.get("/metrics")).text


@pytest.mark.parametrize(
    ("method", "path", "body", "action"),
    [
        ("POST", "/v1/search", {"query": "pump"}, "search"),
        ("POST", "/v1/context/query", {"query": "pump"}, "context.build"),
        ("POST", "/v1/ingest/documents", {"records": [{"id": "x", "text": "y"}]}, "ingest"),
        ("DELETE", "/v1/ingest/documents", {"ids": ["pump"]}, "delete"),
    ],
)
async def test_a_denied_action_does_nothing(engine, method, path, body, action):
    """The policy is asked with who and what; its reason reaches the caller, and nothing was done."""
    engine.policy = Refusing()
    async with service_client(engine) as client:
        answer = await client.request(method, path, json=body)

    assert (403, "closed on Sundays") == (answer.status_code, answer.json()["error"]["user_message"])
    assert [("anna", action)] == [each[:2] for each in engine.policy.asked]
    assert ["pump"] == [record.id for record in await engine.index.get(engine.scope, "documents", ["pump", "x"])]


async def test_the_log_says_when_there_is_no_policy(settings, tmp_path):
    """Whoever starts a service without one is told; with one the log is silent about it."""
    pytest.importorskip("contexture.adapters.policy.rego", exc_type=ImportError)
    (tmp_path / "rules.rego").write_text("package contexture\nallow := true")
    said = []
    for chosen in (settings, Settings(home=settings.home, policy_folder=tmp_path)):
        async with small_engine(chosen) as engine:
            app = create_app(engine, keys=None, settings=chosen)
            with structlog.testing.capture_logs() as logged:
                async with app.router.lifespan_context(app):
                    pass
        said.append([each["event"] for each in logged if "policy" in each["event"]])

    assert [["no policy is configured: everything inside a caller's scope is allowed"], []] == said


async def test_a_memory_service_that_refuses_us_shows_at_once(engine, client):
    """In health and metrics, until it answers again."""

    class Refusing:
        async def recall(self, scope, query):
            raise Refused("the memory service rejected the request with status 401: bad key")

    own = engine._memory._service
    engine._memory._service = Refusing()
    built = await engine.build_turn({"user_message": "Where is the pump?"})
    health = (await client.get("/health")).json()["components"]["memory"]
    metrics = (await client.get("/metrics")).text
    engine._memory._service = own
    await engine.build_turn({"user_message": "Where is the pump?"})

    assert any("bad key" in each.reason for each in built.degradations)
    assert ("degraded", True) == (health["state"], "bad key" in health["reason"])
    assert "contexture_memory_refused 1.0" in metrics
    assert "reason" not in (await client.get("/health")).json()["components"]["memory"]
