"""The shipped memory contract, run over the service in process, guarded, and behind HTTP."""

from __future__ import annotations

import pytest

from contexture.memory.guarded import Guard, GuardedMemory
from contexture.memory.service import LocalMemory
from contexture.resilience.breaker import Breaker
from contexture.resilience.health import HealthMonitor
from contexture.testing.doubles import FixedClock
from contexture.testing.memory import MemoryConformance
from contexture.testing.workbench import workbench


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
        return GuardedMemory(local, Guard(health=HealthMonitor(), breaker=Breaker("memory")))
