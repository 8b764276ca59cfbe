"""A process that dies between the block store and the index leaves nothing that the next one does not mend."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contexture.config import Settings
from contexture.types import Scope
from support.processes import child_environment
from support.service import small_engine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WRITER = Path(__file__).parent / "block_writer.py"
ANNA, BORIS = (Scope(tenant="acme", user=user) for user in ("anna", "boris"))


async def found(engine, scope):
    """What a search for the pump finds, by id, with the titles."""
    result = await engine.search("pump", collection="blocks", scope=scope)
    return {each.record_id: each.title for each in result.found}


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_the_index_follows_after_a_kill(moment: str, new_folder: Callable[[], Path]) -> None:
    """Titles and readers that were stored reach the index at the next opening; what is deleted stays deleted."""
    folder = new_folder()
    writer = await asyncio.create_subprocess_exec(
        sys.executable, str(WRITER), str(folder), moment, env=child_environment()
    )
    assert -signal.SIGKILL == await writer.wait()
    async with small_engine(Settings(home=folder, tenant="acme", user="anna")) as engine:
        behind = await engine.workspace.catch_up()

        assert {"a": "Works", "b": "Works"} == await found(engine, ANNA)
        assert {} == await found(engine, BORIS)
        assert (3, 0) == (behind, await engine.workspace.catch_up())
