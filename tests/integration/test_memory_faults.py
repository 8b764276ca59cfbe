"""A real memory server on loopback that is killed, hangs, dawdles and lies in the middle of a conversation."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from contexture.adapters.memory_client import RemoteMemory
from contexture.config import Settings
from contexture.conversation import HealthState
from contexture.errors import SourceError, SourceTimeout, SourceUnavailable
from contexture.memory.guard import GuardedMemory, MemoryGuard
from contexture.resilience import CircuitBreaker, HealthMonitor, RetryPolicy
from contexture.types import Scope
from support.memory_conformance import asking
from support.service import small_engine

pytestmark = pytest.mark.integration

SERVER = Path(__file__).with_name("memory_server.py")
SCOPE = Scope.local()
PATIENCE = 1.0
NORMAL, DEGRADED, DOWN = HealthState.NORMAL, HealthState.DEGRADED, HealthState.DOWN


class Server:
    """The process, on a port that stays the same when it is started again."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, str(SERVER), str(self.port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def behave(self, name: str) -> None:
        """Tell it how to answer from now on."""
        httpx.post(f"http://127.0.0.1:{self.port}/behave", json={"as": name}, timeout=10).raise_for_status()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that is well."""
    started = Server()
    yield started
    started.kill()


class Conversation:
    """A guarded client whose windows pass on a clock moved by hand; only the wait for one answer is real."""

    def __init__(self, port: int) -> None:
        self.time = 0.0
        self.remote = RemoteMemory(f"http://127.0.0.1:{port}", timeout=PATIENCE)
        clock: Callable[[], float] = lambda: self.time  # noqa: E731 - one line says it
        self.health = HealthMonitor(clock=clock)
        retries = RetryPolicy(max_retries=2, base_seconds=0.001, rng=random.Random(3))
        guard = MemoryGuard(
            health=self.health, breaker=CircuitBreaker("memory", clock=clock), retries=retries, patience=PATIENCE
        )
        self.memory = GuardedMemory(self.remote, guard, close=self.remote.close)

    async def turn(self) -> tuple[list[str], HealthState]:
        """What one turn recalls, and the state after it."""
        try:
            found = [each.id for each in await self.memory.recall(SCOPE, asking("ferry"))]
        except SourceError:
            found = []
        return found, self.health.state()


@pytest.fixture
async def talk(server):
    """A conversation with the server."""
    conversation = Conversation(server.port)
    yield conversation
    await conversation.memory.close()


FAULTS = ["hung", "slow", "garbage", "500", "wrong types", "empty", "cut"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_a_failure_inside_the_deadline_and_recovery_is_automatic(server, talk, fault):
    """The turn goes on without memories, the service is degraded, and the next good answer makes it well."""
    assert (["m-1"], NORMAL) == await talk.turn()

    server.behave(fault)
    assert ([], DEGRADED) == await talk.turn()

    server.behave("well")
    assert (["m-1"], NORMAL) == await talk.turn()


@pytest.mark.parametrize(
    ("fault", "error"),
    [("hung", SourceTimeout), ("slow", SourceTimeout), ("garbage", SourceUnavailable), ("500", SourceUnavailable)],
)
async def test_each_fault_has_its_name(server, talk, fault, error):
    """Waiting in vain is told apart from a bad answer."""
    server.behave(fault)

    with pytest.raises(error):
        await talk.memory.recall(SCOPE, asking("ferry"))


async def test_a_killed_server_walks_down_the_table_and_comes_back(server, talk):
    """NORMAL, DEGRADED, breaker open, DOWN, DEGRADED, and NORMAL with the first answer of the new process."""
    assert (["m-1"], NORMAL) == await talk.turn()
    server.kill()
    states = [(await talk.turn())[1] for _ in range(6)]
    assert states == [DEGRADED] * 5 + [DOWN]

    talk.time += 59.9
    assert talk.health.state() is DOWN
    talk.time += 0.1
    assert talk.health.state() is DEGRADED

    server.start()
    assert (["m-1"], NORMAL) == await talk.turn()


async def test_a_server_that_stays_away_is_degraded_again_and_again(server, talk):
    """After DOWN the service is tried once more; five further failures are needed for the next DOWN."""
    server.kill()
    for _ in range(6):
        await talk.turn()
    talk.time += 60
    states = [(await talk.turn())[1] for _ in range(5)]
    server.start()

    assert states == [DEGRADED] * 4 + [DOWN]
    talk.time += 75
    assert talk.health.state() is NORMAL
    assert (["m-1"], NORMAL) == await talk.turn()


async def test_the_open_breaker_spares_the_server(server, talk):
    """While it is open nothing is sent; when its time is over the next turn is answered."""
    server.behave("500")
    for _ in range(3):
        await talk.turn()
    server.behave("well")
    assert ([], DEGRADED) == await talk.turn()

    talk.time += 15
    assert (["m-1"], NORMAL) == await talk.turn()


@pytest.fixture
async def engine(server, new_folder):
    """An engine whose memories live on the server."""
    address = f"http://127.0.0.1:{server.port}"
    settings = Settings(home=new_folder(), memory_url=address, memory_retry_base_ms=1, timeout_seconds=PATIENCE)
    async with small_engine(settings) as found:
        yield found


async def built(engine):
    """What a turn says of the state in which it was built, of its memories, and of what it lost."""
    turn = await engine.build_turn({"user_message": "When does the ferry leave?"})
    return turn.debug["somabrain_state"], turn.debug["snippet_ids"], len(turn.degradations)


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_turn_is_built_whatever_the_server_does(server, engine, fault):
    """The loss is in the result, the next turn is careful, and the one after its success is not."""
    assert ("normal", ["m-1"], 0) == await built(engine)

    server.behave(fault)
    assert ("normal", [], 1) == await built(engine)

    server.behave("well")
    assert ("degraded", ["m-1"], 1) == await built(engine)
    assert ("normal", ["m-1"], 0) == await built(engine)


async def test_turns_go_on_without_a_server_and_find_it_again(server, engine):
    """They walk down the table, ask nobody while the service is down, and need nobody's help to recover."""
    time = [0.0]
    engine.health._clock = engine._memory._guard.breaker._clock = lambda: time[0]
    server.kill()
    told = [await built(engine) for _ in range(7)]
    server.start()

    assert ["normal", *["degraded"] * 5, "down"] == [state for state, _, _ in told]
    assert [1, 2, 2, 2, 2, 2, 1] == [lost for _, _, lost in told]  # the state is a loss of its own, and so is a failure
    assert ("down", [], 1) == await built(engine)
    time[0] += 60
    assert ("degraded", ["m-1"], 1) == await built(engine)
    assert ("normal", ["m-1"], 0) == await built(engine)
