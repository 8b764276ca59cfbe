"""What workspace builds and remembered searches tell Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from contexture import Settings
from contexture.testing.doubles import NOON
from contexture.workspace import Block, BlockType
from support.service import small_engine

PLAN = Block(id="plan", type=BlockType.PAGE, text="Plan of the pump")


async def test_builds_and_remembered_searches_are_counted(new_folder: Callable[[], Path]) -> None:
    """Phases, blocks by how they ended, what was lost, and how often memory answered."""
    async with small_engine(Settings(home=new_folder(), tenant="acme", user="anna")) as engine:
        await engine.workspace.put(engine.scope, [PLAN], now=NOON)
        for _ in range(2):
            await engine.build_workspace({"query": "pump", "hints": {"includeBlocks": ["nowhere"]}}, now=NOON)
        read = engine.registry.get_sample_value

        assert 2 == read("contexture_workspace_seconds_count", {"phase": "collect"})
        assert 2 == read("contexture_workspace_token_utilization_count")
        assert 2 == read("contexture_workspace_blocks_total", {"state": "kept"})
        assert 2 == read("contexture_workspace_degradation_total", {"source": "includeBlocks"})
        found = [read("contexture_search_cache_total", {"result": result}) for result in ("hit", "miss")]
        stats = engine.searcher.cache_stats()
        assert [stats.hits, stats.misses] == found
        assert stats.hits > 0
