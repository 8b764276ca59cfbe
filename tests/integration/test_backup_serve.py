"""A backup taken while a service holds the store."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest
from typer.testing import CliRunner

from contexture.adapters.store_backup import verify_archive
from contexture.cli.main import app

pytestmark = [pytest.mark.integration, pytest.mark.slow]

START = "from contexture.cli.main import app; app()"


def test_a_store_is_saved_under_a_running_service(new_folder, tmp_path):
    """What the service acknowledged is in the backup, and the store it holds cannot be replaced."""
    home, runner = new_folder(), CliRunner()
    words = [sys.executable, "-c", START, "serve", "--home", home, "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            rows = [{"id": f"r{n}", "text": f"Pump {n} leaks."} for n in range(5)]
            token = json.loads((home / "serve.json").read_text())["token"]
            written = httpx.post(
                f"{url}/v1/ingest/documents",
                json={"records": rows},
                headers={"Authorization": f"Bearer {token}"},
                trust_env=False,
                timeout=60,
            )
            saved = runner.invoke(app, ["backup", str(tmp_path / "live.tar"), "--home", str(home)])
            refused = runner.invoke(app, ["restore", str(tmp_path / "live.tar"), "--home", str(home), "--force"])
        finally:
            process.kill()
    restored = runner.invoke(app, ["restore", str(tmp_path / "live.tar"), "--home", str(tmp_path / "new"), "--json"])

    assert written.json()["added"] == 5
    assert saved.exit_code == 0, saved.output
    assert refused.exit_code == 3
    assert restored.exit_code == 0, restored.output
    assert verify_archive(tmp_path / "live.tar").files["truth.sqlite"].rows["records"] == 5
