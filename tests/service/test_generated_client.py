"""A client that is generated from OpenAPI has types for every argument and every answer, and works."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from contexture import Settings
from contexture.service.app import create_app
from contexture.testing.doubles import FixedClock
from support.service import small_engine

pytestmark = pytest.mark.slow

CALLS = Path(__file__).with_name("client_calls.txt")
GENERATING = {
    "content_type_overrides": {"image/jpeg": "application/octet-stream"},
    "post_hooks": [],  # it would be formatted
}
CHECKING = {
    "include": ["calls.py"],
    "typeCheckingMode": "strict",
    "reportAny": "error",  # what an answer holds is known, wherever it is used
}


@pytest.fixture
def service(settings: Settings):
    """The service, called without a socket by a client that is not asynchronous; its engine lives in its own loop."""

    @asynccontextmanager
    async def lifespan(outer: FastAPI) -> AsyncIterator[None]:
        async with small_engine(settings) as engine:
            inner = create_app(engine, keys=None, settings=settings, clock=FixedClock(), members={})
            outer.mount("/", inner)
            yield

    with TestClient(FastAPI(lifespan=lifespan, openapi_url=None), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def folder(service: TestClient, tmp_path: Path) -> Path:
    """A folder with the client and a module that calls every route with it."""
    (tmp_path / "openapi.json").write_text(service.get("/openapi.json").text)
    (tmp_path / "generating.json").write_text(json.dumps(GENERATING))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(CHECKING))
    (tmp_path / "calls.py").write_text(CALLS.read_text("utf-8"))
    arguments = ["--path", "openapi.json", "--config", "generating.json", "--output-path", "contexture_client"]
    run("openapi_python_client", "generate", *arguments, "--meta", "none", "--fail-on-warning", folder=tmp_path)
    return tmp_path


def run(module: str, *arguments: str, folder: Path) -> None:
    """Run a module of Python in a folder; fail with what it says."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_a_generated_client_calls_every_route_with_types(service: TestClient, folder: Path, monkeypatch) -> None:
    """Nothing was left out of the client, a call of every route type-checks, and every answer can be read."""
    operations = {path.stem for path in folder.glob("contexture_client/api/*/*.py")} - {"__init__"}
    called = set(re.findall(r"(\w+) as \w+", CALLS.read_text("utf-8")))
    run("basedpyright", "--level", "error", "--pythonpath", sys.executable, folder=folder)
    monkeypatch.syspath_prepend(str(folder))
    client = importlib.import_module("contexture_client").AuthenticatedClient("http://127.0.0.1", token="")
    importlib.import_module("calls").call_every_route(client.set_httpx_client(service))

    assert called == operations
