"""Real processes on damaged files and full disks: everything is named, and nothing acknowledged is lost unsaid."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from contexture.adapters.store_damage import find_damage
from contexture.cli.main import app
from support.damage import FRAME, overwrite_bytes, overwrite_leaf_page
from support.processes import child_environment
from support.requests import READS, WRITES

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FULL_DISK = Path(__file__).with_name("full_disk.py")
WRITER = Path(__file__).with_name("writer.py")
START = "from contexture.cli.main import app; app()"
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
RECORDS = 60


def has_namespaces() -> bool:
    """Whether a process may mount a disk of its own."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def served(home: Path) -> Generator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A running service, and a client of it; it is killed at the end."""
    words = [sys.executable, "-c", START, "serve", "--home", str(home), "--port", "0", "--json"]
    environment = {**child_environment(), "CONTEXTURE_INTEGRITY_SECONDS": "0.01"}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            token = json.loads((home / "serve.json").read_text())["token"]
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=120) as client:
                yield process, client
        finally:
            process.kill()


def add_records(client: httpx.Client) -> None:
    """Write records that fill many pages of the database."""
    rows = [{"id": f"r{n:03d}", "text": f"Pump {n} leaks. " * 12} for n in range(RECORDS)]
    assert client.post("/v1/ingest/documents", json={"records": rows}).json()["added"] == RECORDS


def stop(process: subprocess.Popen[str]) -> int:
    """End a service as a supervisor does."""
    process.send_signal(signal.SIGTERM)
    return process.wait()


@pytest.mark.skipif(not has_namespaces(), reason="a disk of its own needs user namespaces")
def test_a_nearly_full_disk_refuses_every_write_and_no_read(tmp_path):
    """Every route that stores something answers 503 with what to do, deleting works, and all works with room again."""
    done = subprocess.run(
        [*NAMESPACE, sys.executable, str(FULL_DISK), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(),
    )
    found = json.loads(done.stdout)
    refused = {name: (status, "free some space first" in said) for name, (status, said) in found["full"].items()}

    assert dict.fromkeys(WRITES, (503, True)) == {name: refused[name] for name in WRITES}
    assert dict.fromkeys(READS, 200) == {name: refused[name][0] for name in READS}
    assert (3, True) == (found["keys"][0], "free some space first" in found["keys"][1])
    assert ("degraded", 200) == (found["health"]["state"], found["delete"])
    for moment in ("before", "after"):
        statuses = {name: status for name, (status, _) in found[moment].items() if name != "restore"}
        assert set(statuses.values()) == {200}, (moment, statuses)


def test_a_store_damaged_under_a_running_service_is_named_and_comes_back(tmp_path):
    """Health turns 503 by itself, no answer is a 500, a backup fails, and the salvaged store serves the rest."""
    home, new, run = tmp_path / "home", tmp_path / "new", CliRunner()
    with served(home) as (process, client):
        add_records(client)
        assert stop(process) == 0
    with served(home) as (process, client):
        assert client.get("/health").status_code == 200
        overwrite_leaf_page(home / "truth.sqlite")
        answers = (client.get("/health") for _ in range(5_000))
        health = next(each for each in answers if each.status_code != 200)
        reads = [client.get(f"/v1/records/documents/r{n:03d}") for n in range(RECORDS)]
        saved = run.invoke(app, ["backup", str(tmp_path / "x.tar"), "--home", str(home)])
        stop(process)
    salvaged = run.invoke(app, ["salvage", str(new), "--home", str(home), "--json"])
    with served(new) as (process, client):
        kept = [client.get(f"/v1/records/documents/r{n:03d}").status_code for n in range(RECORDS)]
        health_after = client.get("/health")
        assert stop(process) == 0

    assert (503, "down") == (health.status_code, health.json()["components"]["integrity"]["state"])
    assert {each.status_code for each in reads} <= {200, 503}
    assert all("contexture salvage FOLDER" in each.text for each in reads if each.status_code == 503)
    assert (3, False) == (saved.exit_code, (tmp_path / "x.tar").exists())
    assert salvaged.exit_code == 0, salvaged.output
    assert kept.count(200) == json.loads(salvaged.stdout)["records"] >= RECORDS * 0.7
    assert (200, "normal") == (health_after.status_code, health_after.json()["components"]["integrity"]["state"])


@pytest.mark.parametrize("name", ["truth.sqlite", "keys.sqlite"])
def test_a_service_does_not_start_on_a_damaged_database(tmp_path, name):
    """It ends with one line that names the database and the way back, and no traceback."""
    home = tmp_path / "home"
    with served(home) as (process, client):
        add_records(client)
        assert stop(process) == 0
    overwrite_bytes(home / name, 0, bytes(100))
    words = [sys.executable, "-c", START, "serve", "--home", str(home), "--port", "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=child_environment())
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]

    assert done.returncode == 3
    assert len(told) == 1
    assert f"{name}' is damaged" in told[0]
    assert "Traceback" not in done.stderr


def test_a_damaged_log_of_a_killed_writer_is_refused_until_somebody_chooses(tmp_path):
    """Nothing acknowledged is dropped without a word: the store does not open, and salvage keeps what comes before."""
    folder, run = tmp_path / "home", CliRunner()
    command = [sys.executable, str(WRITER), str(folder), "0", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.kill()
    log = folder / "truth.sqlite-wal"
    frames = (log.stat().st_size - 32) // FRAME
    overwrite_bytes(log, 32 + frames // 2 * FRAME + 500, b"\xa5" * 64)
    before = log.read_bytes()
    refused = run.invoke(app, ["search", "zebra", "--home", str(folder)])
    saved = run.invoke(app, ["salvage", str(tmp_path / "new"), "--home", str(folder)])

    assert refused.exit_code == 3
    assert "write-ahead log cannot be read" in refused.stderr
    assert before == log.read_bytes()
    assert saved.exit_code == 0, saved.output
    assert find_damage(tmp_path / "new" / "truth.sqlite") == ""
