"""Settings become a memory service, under our names and under those that other software sets."""

from __future__ import annotations

import json

import httpx
import pytest
from pydantic import ValidationError

from contexture.adapters.memory_client import RemoteMemory
from contexture.builders.sources import SourceFinder
from contexture.config import Settings
from contexture.conversation import HealthState
from contexture.engine import Contexture, open_store
from contexture.errors import SourceUnavailable
from contexture.memory.service import LocalMemory
from contexture.types import Scope
from support.memory_conformance import asking

ALIASES = {
    "SA01_SOMA_BASE_URL": ("memory_url", "http://127.0.0.1:9"),
    "SA01_SOMA_TIMEOUT_SECONDS": ("memory_timeout_seconds", 7.0),
    "SA01_SOMA_MAX_RETRIES": ("memory_max_retries", 4),
    "SA01_SOMA_RETRY_BASE_MS": ("memory_retry_base_ms", 20.0),
    "SA01_NAMESPACE": ("memory_universe", "prod"),
    "SA01_MEMORY_NAMESPACE": ("memory_namespace", "ltm"),
}


@pytest.mark.parametrize(("variable", "expected"), ALIASES.items())
def test_variables_of_other_software_are_read(monkeypatch, variable, expected):
    """Each is an alias of one of our settings, and ours wins."""
    name, value = expected
    monkeypatch.setenv(variable, str(value))
    assert getattr(Settings(), name) == value

    monkeypatch.setenv(f"CONTEXTURE_{name.upper()}", str(5))
    assert str(getattr(Settings(), name)) in {"5", "5.0"}


def test_the_defaults_are_the_documented_ones():
    """Timeout 30 s, 2 retries from 150 ms, namespace `wm`, no universe, the service in process."""
    settings = Settings()

    assert [getattr(settings, name) for name, _ in ALIASES.values()] == ["", 30.0, 2, 150.0, "", "wm"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout_seconds", 0), ("max_retries", -1), ("retry_base_ms", -1), ("top_k", 101), ("top_k_degraded", 101)],
)
def test_numbers_that_no_recall_could_work_with_are_refused(name, value):
    """A wrong setting is told at the start, and not by every turn."""
    with pytest.raises(ValidationError, match=f"memory_{name}"):
        Settings(**{f"memory_{name}": value})


async def test_memories_are_kept_here_unless_an_address_is_set(tmp_path):
    """An address makes the engine a client of the service behind it, and failures move the engine's health."""
    async with open_store(Settings(home=tmp_path / "a")) as engine:
        assert isinstance(engine._memory._service, LocalMemory)

    away = Settings(home=tmp_path / "b", memory_url="http://127.0.0.1:9", memory_max_retries=0)
    async with open_store(away) as engine:
        assert isinstance(engine._memory._service, RemoteMemory)
        assert engine.health.state() is HealthState.NORMAL
        with pytest.raises(SourceUnavailable):
            await engine.memory.recall(engine.scope, asking("tea"))
        assert engine.health.state() is HealthState.DEGRADED


async def test_the_key_and_the_question_reach_the_service():
    """What a wired client sends can be read by a service like ours."""
    seen = []

    def handle(request):
        seen.append(request)
        return httpx.Response(200, json={"candidates": []})

    memory = RemoteMemory("http://memory.test/base", api_key="k", transport=httpx.MockTransport(handle))
    await memory.recall(Scope.local(), asking("tea"))

    assert str(seen[0].url) == "http://memory.test/base/context/evaluate"
    assert json.loads(seen[0].content)["query"] == "tea"


@pytest.mark.parametrize("with_sources", [False, True])
async def test_a_turn_over_sources_loads_the_embedders_before_it_searches(tmp_path, monkeypatch, with_sources):
    """A memory service elsewhere needs no embedder here, but the sources are searched here, within a deadline."""
    done = []

    async def warm(engine):
        done.append("embedders")

    async def find(finder, asked, cleaner):
        done.append("search")
        return []

    monkeypatch.setattr(Contexture, "warm_embedders", warm)
    monkeypatch.setattr(SourceFinder, "find", find)
    away = Settings(home=tmp_path, memory_url="http://127.0.0.1:9", memory_max_retries=0)
    async with open_store(away) as engine:
        await engine.build_turn("What does the valve cost?", with_sources=with_sources)

    assert done[:2] == (["embedders", "search"] if with_sources else [])
