"""The shipped memory contract, run over the service in process, guarded, and behind HTTP."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.memory_client import RemoteMemory
from contexture.config import Settings
from contexture.conversation import Memory
from contexture.engine import Contexture
from contexture.memory.guard import GuardedMemory, MemoryGuard
from contexture.memory.service import LocalMemory
from contexture.resilience import CircuitBreaker, HealthMonitor
from contexture.service.app import create_app
from contexture.testing.doubles import NOON, FixedClock
from support.memory_conformance import TEA, MemoryConformance, asking
from support.workbench import Parts, workbench


@pytest.fixture
async def local(new_folder):
    """The service in process over a store of its own."""
    async with workbench(new_folder()) as bench:
        yield LocalMemory(index=bench.index, preparer=bench.preparer, search=bench.search, clock=FixedClock())


class TestLocalMemory(MemoryConformance):
    """The service in process keeps the contract."""

    @pytest.fixture
    def memory(self, local):
        """As it is."""
        return local


class TestGuardedMemory(MemoryConformance):
    """A guard changes nothing while all is well."""

    @pytest.fixture
    def memory(self, local):
        """Behind a breaker."""
        return GuardedMemory(local, MemoryGuard(health=HealthMonitor(), breaker=CircuitBreaker("memory")))


class TestRemoteMemory(MemoryConformance):
    """The client and the routes together keep the contract."""

    @pytest.fixture
    async def engine(self, new_folder):
        """An engine over doubles; its clock stands at noon."""
        folder, speakers = new_folder(), Parts().encoders
        store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=speakers.vectors, threads=1))
        engine = Contexture(Settings(home=folder, redaction="none", max_loads=8), store, speakers, FixedClock())
        yield engine
        await engine.close()

    @pytest.fixture
    async def memory(self, engine):
        """A client of the service, without a key, as on one machine."""
        app = create_app(engine, keys=None, settings=engine.settings)
        remote = RemoteMemory("http://127.0.0.1", transport=httpx.ASGITransport(app=app))
        yield remote
        await remote.close()

    async def test_expired_memories_are_gone(self, memory, scope, engine):
        """The service's own clock decides: what has lived its time is neither found nor removed again."""
        (written,) = await memory.remember(scope, [Memory(text=TEA, ttl_seconds=90.5)])
        assert [written] == [each.id for each in await memory.recall(scope, asking("jasmine tea"))]
        late = replace(asking("jasmine tea"), now=NOON + timedelta(seconds=91))

        assert not await engine.memory.recall(scope, late)
