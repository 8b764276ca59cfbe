"""`contexture chat` and a running service: found through the store, streamed, kept, and stopped without a loss."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from contexture.cli.main import app

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@contextmanager
def serving(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A running service and its address."""
    start = [sys.executable, "-c", "from contexture.cli.main import app; app()"]
    with subprocess.Popen(
        [*start, "serve", "--home", str(home), "--port", "0", "--json", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            if process.poll() is None:
                process.kill()


def chat(home: Path, *words: str):
    """What the command answers."""
    return CliRunner().invoke(app, ["chat", "--home", str(home), *words])


def test_a_conversation_goes_on_with_and_without_a_service(new_folder: Callable[[], Path]) -> None:
    """A session begun in a service goes on in the command's own process: events and memories are all there."""
    home = new_folder()
    with serving(home) as (process, url):
        told = chat(home, "--session", "trip", "The ferry to Bergen leaves at 9:40.")
        here = json.loads(chat(home, "--session", "trip", "--json", "When does the ferry leave?").stdout)
        unknown = chat(home, "--model", "litellm:gpt-9", "Hello")
        token = json.loads((home / "serve.json").read_text())["token"]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
            listed = client.get("/v1/sessions").json()
            streamed = client.post("/v1/chat", json={"message": "When does the ferry leave?", "stream": True}).text
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(30)
    alone = json.loads(chat(home, "--session", "trip", "--json", "Where does the ferry go?").stdout)

    assert (0, {"sessions": ["trip"]}) == (told.exit_code, listed)
    assert here["reply"].startswith("The ferry to Bergen leaves at 9:40.")
    assert (2, True) == (unknown.exit_code, "model 'litellm:gpt-9' is not configured" in unknown.output)
    assert ["context", "delta", "done"] == [
        line.removeprefix("event: ") for line in streamed.splitlines() if line.startswith("event: ")
    ]
    assert [5, 6] == [event["position"] for event in alone["events"]]
    assert "Bergen" in alone["reply"]


def test_a_service_whose_model_cannot_be_loaded_does_not_start(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is told at once, in one sentence."""
    monkeypatch.setenv("CONTEXTURE_CHAT_MODEL", "nonsense")
    result = CliRunner().invoke(app, ["serve", "--home", str(new_folder()), "--port", "0"])

    assert 2 == result.exit_code
    assert "no chat model is called 'nonsense'" in result.output
