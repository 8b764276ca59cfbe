"""The packages of `examples`, installed by pip: in the library, on the command line and in a service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGES = ("index_backend", "builder")
ROWS = [
    {"id": "new", "title": "Pump", "text": "The pump was mended. Ask anna@example.org.", "time": "2026-03-02"},
    {"id": "old", "title": "Leak", "text": "The pump leaks near the valve.", "time": "2026-01-05"},
    {"id": "mine", "title": "Secret", "text": "The pump has a secret valve.", "acl": ["user:boris"]},
]
DIGEST = {"query": "What about the pump?", "max_tokens": 300}
NOW = "2026-04-01T09:00:00Z"
LIBRARY = """
import json, sys
import contexture
from contexture import Record
from contexture.capsule import pack_capsule

with contexture.open_sync(sys.argv[1]) as ctx:
    ctx.add([Record(id="pump", text="The pump leaks near the valve.", acl=("public",))])
    found = ctx.search("pump")
    built = ctx.build_kind("digest", {"query": "pump", "max_tokens": 200})
    capsule = ctx.capsule(built.context.build_id)
    entry = ctx.explain(built.context.build_id, built.ledger.entries[0].id).entry
    replayed, _ = contexture.replay(pack_capsule(capsule))
    print(json.dumps([type(ctx.engine.index).__name__, found.found[0].record_id, built.to_dict()["kind"], entry.state,
                      replayed.digest == built.capsule.digest, len(built.context.citations)]))
"""


@pytest.fixture(scope="module")
def environment(lasting_folder: Callable[[], Path]) -> dict[str, str]:
    """The variables of a process that has both packages, and a third one that cannot be imported."""
    target = lasting_folder() / "packages"
    sources = [str(shutil.copytree(EXAMPLES / name, target.parent / name)) for name in PACKAGES]
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, *sources], check=True)
    broken = target / "contexture_broken-3.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: contexture-broken\nVersion: 3.0\n")
    (broken / "entry_points.txt").write_text("[contexture.rerankers]\nbroken = no_such_module:make\n")
    path = os.pathsep.join(filter(None, (str(target), os.environ.get("PYTHONPATH", ""))))  # noqa: TID251 - handed on
    return {**os.environ, "PYTHONPATH": path, "CONTEXTURE_STORE": "plain:"}  # noqa: TID251 - same


@pytest.fixture
def home(new_folder: Callable[[], Path]) -> Path:
    """A folder for a store, and a file of records beside it."""
    folder = new_folder()
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return folder / "home"


def program(*words: object) -> list[str]:
    """The words that start a command in a process of its own."""
    return [sys.executable, "-c", "from contexture.cli.main import app; app()", *map(str, words)]


def run(environment: dict[str, str], *words: object, code: int = 0) -> Any:
    """The JSON that a command answers with."""
    done = subprocess.run(program(*words, "--json"), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


@contextmanager
def serving(environment: dict[str, str], home: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of a running service, and its process."""
    with subprocess.Popen(
        program("serve", "--home", home, "--port", 0, "--json"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process
        finally:
            process.terminate()


def test_in_the_library(environment: dict[str, str], home: Path) -> None:
    """Records are in the index of one package, and a context is built, explained and replayed by the other."""
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY, home], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["PlainIndex", "pump", "digest", "kept", True, 1]
    assert (home / "plain.sqlite").is_file()
    assert not (home / "truth.sqlite").exists()


def test_on_the_command_line(environment: dict[str, str], home: Path, tmp_path: Path) -> None:
    """`ingest`, `search`, `build`, `explain`, `replay` and `doctor` need nothing but the setting."""
    added = run(environment, "ingest", home.with_name("rows.jsonl"), "--home", home)
    found = run(environment, "search", "leaking pump", "--home", home)
    built = run(
        environment, "build", "digest", json.dumps(DIGEST), "--home", home, "--now", NOW, "--capsule", tmp_path / "c"
    )
    explained = run(environment, "explain", built["build_id"], built["ledger"][0]["id"], "--home", home)
    replayed = run(environment, "replay", tmp_path / "c")
    refused = run(environment, "build", "digest", '{"query": "", "colour": 1}', "--home", home, code=2)

    assert 3 == added["added"]
    assert {"old", "new"} == {each["citation"]["record_id"] for each in found["results"]}
    text = built["messages"][1]["content"]
    assert text.index("Leak, 2026-01-05") < text.index("Pump, 2026-03-02")
    assert "<EMAIL_1>" in text
    assert "secret" not in str(built)
    assert "Today is 2026-04-01." in built["messages"][0]["content"]
    assert built["tokens"] <= built["max_tokens"] == 300
    assert ["old", "new"] == [each["record_id"] for each in built["citations"]]
    assert "kept" == explained["candidate"]["state"]
    assert (True, built["digest"]) == (replayed["identical"], replayed["digest"])
    assert "field 'query'" in refused["error"]["user_message"]


def test_the_doctor_lists_them_and_names_what_is_broken(environment: dict[str, str], home: Path) -> None:
    """With package and version; a package that cannot be imported is no reason to fail."""
    answer = run(environment, "doctor", "--home", home)
    listed = {(each["group"], each["name"]): each for each in answer["plugins"]}
    index, builder = listed["contexture.index", "plain"], listed["contexture.builders", "digest"]
    broken = listed["contexture.rerankers", "broken"]
    checks = {each["name"]: each["detail"] for each in answer["checks"]}

    assert ("contexture-plain-index", "1.0.0", "") == (index["distribution"], index["version"], index["problem"])
    assert ("contexture-digest", "1.0.0", "") == (builder["distribution"], builder["version"], builder["problem"])
    assert "the reranker 'broken' of contexture-broken 3.0 cannot be imported" in broken["problem"]
    assert "the index 'plain' of contexture-plain-index 1.0.0" == checks["index"]
    assert "contexture-ai" == listed["contexture.embedders", "minilm"]["distribution"]


def test_in_a_service(environment: dict[str, str], home: Path) -> None:
    """The route is described by the request model and checks rights; the command line goes through the service."""
    key = run(
        environment, "keys", "add", "anna", "--tenant", "local", "--user", "local", "--scope", "read", "--home", home
    )
    with serving(environment, home) as (url, process):
        run(environment, "ingest", home.with_name("rows.jsonl"), "--home", home)
        built = run(environment, "build", "digest", json.dumps(DIGEST), "--home", home)
        locked = subprocess.run(
            [sys.executable, "-c", LIBRARY, home], env=environment, capture_output=True, text=True, check=False
        )
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key['key']}"}, timeout=60) as client:
            described = client.get("/openapi.json").json()
            answer = client.post("/v1/context/digest", json=DIGEST)
            wrong = client.post("/v1/context/digest", json={"query": "pump", "max_tokens": 0})
            candidate = quote(built["ledger"][0]["id"], safe="")
            explained = client.get(f"/v1/builds/{built['build_id']}/explain/{candidate}")
            stranger = client.post("/v1/context/digest", json=DIGEST, headers={"Authorization": "Bearer no"})
            health = client.get("/health")
        process.terminate()
        log = process.stderr.read() if process.stderr else ""

    body = described["paths"]["/v1/context/digest"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "DigestRequest" in str(body)
    assert (200, built["messages"]) == (answer.status_code, answer.json()["messages"])
    assert (422, 401) == (wrong.status_code, stranger.status_code)
    assert "kept" == explained.json()["candidate"]["state"]
    assert health.is_success
    assert "StoreLocked" in locked.stderr
    assert "a plug-in cannot be used" in log
    assert "contexture-broken 3.0" in log
