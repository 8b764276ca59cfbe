"""A load that is killed at any point loses nothing, repeats no record, and is completed by running it again."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contexture import Settings
from support.processes import child_environment
from support.service import small_engine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LOADER = Path(__file__).with_name("loader.py")
RECORDS = 600


def run_loader(folder: Path, rows: Path, lines: int | None) -> list[str]:
    """Run the loader, kill it after so many lines of output if that is given, and return what it said."""
    command = [sys.executable, str(LOADER), str(folder), str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as process:
        assert process.stdout is not None
        if lines is None:
            return process.stdout.read().splitlines()
        said = [line for _ in range(lines) if (line := process.stdout.readline().strip())]
        process.send_signal(signal.SIGKILL)
    return said


@pytest.mark.parametrize("seed", range(2))
async def test_a_load_that_is_killed_is_completed_by_repeating_it(seed: int, new_folder: Callable[[], Path]) -> None:
    """Every record is there once, found by words and by meaning, and no passage waits for a vector."""
    chance, folder = random.Random(seed), new_folder()
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": f"r{at}", "text": f"Pump {at} leaks."}) + "\n" for at in range(RECORDS)))
    home = folder / "home"
    for _ in range(3):
        run_loader(home, rows, chance.randint(1, 12))
    assert "done" == run_loader(home, rows, None)[-1]

    async with small_engine(Settings(home=home)) as engine:
        found = await engine.search(f"pump {seed}")
        stored = await engine.index.scroll(engine.scope, "documents", limit=10 * RECORDS)
        assert 0 == await engine.count_unembedded("documents")
    with sqlite3.connect(home / "truth.sqlite") as db:
        passages, filled = db.execute("SELECT count(*), sum(length(data) > 1) FROM vectors").fetchone()
    db.close()

    assert {f"r{at}" for at in range(RECORDS)} == {record.id for record in stored}
    assert (RECORDS, RECORDS) == (passages, filled)
    assert () == found.degradations
    assert f"r{seed}" in [each.record_id for each in found.found]
