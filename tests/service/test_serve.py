"""`contexture serve` as a process of its own: found, asked, locked, stopped."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

from contexture.cli.main import app

pytestmark = pytest.mark.slow

ANNA = ("--tenant", "acme", "--user", "anna")
ROWS = [
    {"id": "pump", "text": "The pump leaks. Mail anna@example.org about it."},
    {"id": "valve", "text": "The pump has a valve that anna mends.", "acl": ["user:anna"]},
    {"id": "old", "text": "An old pump stands in the yard.", "timestamp": "2020-01-01", "date": "2019-05-05T10:00:00Z"},
]
PATIENCE = 60
"""Seconds for an answer: a process that has just begun loads its models first."""

NOW = ("--now", "2026-06-01T12:00:00Z")


def run(*words, stdin=None, env=None):
    """The result of a command line; an exception that is not an exit is a test failure."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=stdin, env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def command(*words):
    """The words that start a command in a process of its own."""
    return [sys.executable, "-c", "from contexture.cli.main import app; app()", *map(str, words)]


@contextmanager
def serving(home, *words):
    """A running service and what it said when it started."""
    with subprocess.Popen(
        command("serve", "--home", home, "--port", 0, "--json", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            line = process.stdout.readline()
            yield process, json.loads(line) if line else process.stderr.read()
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="module")
def home(lasting_folder):
    """A store with three records."""
    folder = lasting_folder()
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    assert run("ingest", folder / "rows.jsonl", "--home", folder / "home", *ANNA).exit_code == 0
    return folder / "home"


@pytest.fixture(scope="module")
def script(home):
    """Command lines whose answers must not depend on where they are computed."""
    at = ("--home", home, *ANNA)
    (home.parent / "more.jsonl").write_text('{"id": "sieve", "text": "A sieve."}\n{\n{"id": "sieve", "text": "x"}\n')
    return [
        ("search", "pump", *at),
        ("search", "pump", *at, "--json"),
        ("search", "pump", *at, "--json", "--limit", 1, "--where", '{"equals": ["lang", "en"]}'),
        ("search", "pump", *at, "--collection", "none"),
        ("search", "pump", *at, "--where", '{"equals": ["none", 1]}', "--json"),
        ("search", "pump", "--home", home, "--tenant", "other", "--json"),
        ("build", "query", "who mends the pump?", *at, *NOW, "--max-tokens", 200, "--json"),
        ("build", "query", "who mends the pump?", *at, *NOW, "--max-tokens", 200),
        ("build", "query", "pump", *at, *NOW, "--max-tokens", 200, "--model", "cl100k_base", "--json"),
        ("build", "query", "pump", *at, *NOW, "--max-tokens", 3),
        ("build", "query", " ", *at),
        ("explain", "ctx-000000000000", *at),
        ("explain", "../../etc/passwd", *at),
        ("ingest", home.parent / "rows.jsonl", *at),
        ("ingest", home.parent / "rows.jsonl", *at, "--again", "--json"),
        ("ingest", home.parent / "more.jsonl", *at, "--json", "--acl", "user:boris"),
        ("ingest", home.parent / "more.jsonl", *at, "--json", "--acl", "user:boris"),
        ("search", "sieve", "--home", home, "--tenant", "acme", "--user", "boris", "--json"),
    ]


def shown(result):
    """What a command said and how it ended; ids that are made up anew each time are left out."""
    out = result.stdout
    if out.startswith("{") and "correlation_id" in out:
        out = json.dumps({**json.loads(out), "meta": {}})
    return result.exit_code, out, result.stderr


def forgotten(home):
    """Remove what the script loads, so that it can be run again."""
    with httpx.Client(timeout=PATIENCE) as client:
        found = json.loads((home / "serve.json").read_text())
        headers = {
            "Authorization": f"Bearer {found['token']}",
            "X-Contexture-Tenant": "acme",
            "X-Contexture-User": "boris",
        }
        return client.request(
            "DELETE", f"{found['url']}/v1/ingest/documents", json={"ids": ["sieve"]}, headers=headers
        ).json()


def test_commands_answer_alike_here_and_over_http(home, script, tmp_path):
    """Output, exit code and capsule are the same whether a command opens the store or asks who holds it."""
    build = ("build", "query", "pump", "--home", home, *ANNA, *NOW, "--capsule")
    here = [shown(run(*words)) for words in script]
    built = json.loads(here[6][1])["build_id"]
    dropped = ("explain", built, "pump#00000", "--home", home, *ANNA)
    ledger = ("explain", built, "--home", home, *ANNA)
    explained = [shown(run(*words)) for words in (dropped, ledger, (*dropped, "--json"), (*ledger, "--json"))]
    run(*build, tmp_path / "here.json")
    with serving(home) as (_, said):
        assert 1 == forgotten(home)["deleted"]
        there = [shown(run(*words)) for words in script]
        again = [shown(run(*words)) for words in (dropped, ledger, (*dropped, "--json"), (*ledger, "--json"))]
        run(*build, tmp_path / "there.json")
        locked = run("serve", "--home", home)

    assert here == there
    assert explained == again
    assert (tmp_path / "here.json").read_bytes() == (tmp_path / "there.json").read_bytes()
    assert (3, True) == (locked.exit_code, f"serves it at {said['url']}" in locked.stderr)


def test_a_signal_ends_it_gracefully(home):
    """It announces itself to its user alone, and leaves nothing behind but the store."""
    with serving(home) as (process, said):
        announced = json.loads((home / "serve.json").read_text())
        mode = stat.S_IMODE((home / "serve.json").stat().st_mode)
        health = httpx.get(f"{said['url']}/health", timeout=PATIENCE)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)

    assert (process.pid, said["url"], 0o600, 200) == (announced["pid"], announced["url"], mode, health.status_code)
    assert 0 == code
    assert not (home / "serve.json").exists()
    assert 0 == run("search", "pump", "--home", home, *ANNA).exit_code


def test_what_a_killed_service_left_behind_is_ignored(home):
    """A stale announcement neither misleads a command nor keeps a service from starting."""
    with serving(home) as (process, _):
        process.kill()
        process.wait(60)

    assert (home / "serve.json").exists()
    assert "pump" in run("search", "pump", "--home", home, *ANNA).stdout
    (home / "serve.json").write_text(json.dumps({"pid": os.getpid(), "url": "http://127.0.0.1:9", "token": "x"}))
    assert "pump" in run("search", "pump", "--home", home, *ANNA).stdout
    (home / "serve.json").write_text("{")
    assert "pump" in run("search", "pump", "--home", home, *ANNA).stdout


def test_keys_are_needed_and_can_be_revoked(tmp_path, home):
    """A running service sees keys come and go; the command line presents one by its environment."""
    own = tmp_path / "home"
    run("ingest", home.parent / "rows.jsonl", "--home", own, *ANNA)
    with serving(own) as (_, said):
        asked = {"json": {"query": "pump"}, "headers": {"X-Contexture-Tenant": "acme"}}
        before = httpx.post(f"{said['url']}/v1/search", **asked, timeout=PATIENCE).status_code
        made = json.loads(run("keys", "add", "laptop", "--expires", "30d", "--home", own, *ANNA, "--json").stdout)
        after = httpx.post(f"{said['url']}/v1/search", **asked, timeout=PATIENCE).status_code
        env = {"CONTEXTURE_URL": said["url"], "CONTEXTURE_API_KEY": made["key"]}
        mine = run("search", "pump", "--json", env=env)
        memories = run("ingest", home.parent / "rows.jsonl", "--as", "memories", env=env)
        other = run("search", "pump", "--tenant", "other", env=env)
        local = run("search", "pump", "--home", own, *ANNA, "--json")
        run("keys", "revoke", made["id"], "--home", own)
        revoked = run("search", "pump", env=env)
        gone = run("search", "pump", env={**env, "CONTEXTURE_URL": "http://127.0.0.1:9"})

    assert (401, 401) == (before, after)
    assert mine.stdout == local.stdout
    assert (0, True) == (memories.exit_code, "0 failed" in memories.stdout)
    assert (0, 2, 2, 3) == (mine.exit_code, other.exit_code, revoked.exit_code, gone.exit_code)
    assert "error: you may not act for tenant 'other'\n" == other.stderr
    assert revoked.stderr.startswith("error: a valid API key is required")


@pytest.fixture(scope="module")
def demonstration(demo_home):
    """Where the samples are; whoever comes second finds them loaded."""
    return demo_home()


def test_the_demonstration_is_served_without_keys(demonstration):
    """The samples are loaded first, and each of its users finds what they may read."""
    with serving(demonstration, "--demo") as (_, said):
        found = {}
        for user in ("demo", "anna", "boris"):
            answer = httpx.post(
                f"{said['url']}/v1/search",
                json={"query": "money card payment budget", "limit": 100},
                headers={"X-Contexture-User": user},
                timeout=PATIENCE,
            )
            found[user] = {row["citation"]["record_id"].split("-")[0] for row in answer.json()["results"]}

    assert ({"mail"}, {"budget", "zarplaty"}) == (found["anna"] - found["demo"], found["boris"] - found["demo"])


def test_the_demonstration_goes_on_to_serve(demonstration):
    """`contexture demo` shows its contexts and then listens, until it is interrupted, which is no error."""
    with subprocess.Popen(
        command("demo", "--home", demonstration),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CONTEXTURE_PORT": "0"},  # noqa: TID251 - the case
    ) as process:
        lines = []
        while not (lines and lines[-1].startswith("serving ")) and process.poll() is None:
            lines.append(process.stdout.readline())
        url = lines[-1].split()[-1]
        health = httpx.get(f"{url}/health", timeout=PATIENCE)
        process.send_signal(signal.SIGINT)
        code = process.wait(60)

    assert (200, 0) == (health.status_code, code)
    assert any("<CARD_1>" in line for line in lines)


def test_a_network_is_not_let_in_without_keys(tmp_path):
    """It refuses, and says what to do."""
    found = run("serve", "--host", "0.0.0.0", "--home", tmp_path)  # noqa: S104 - the case

    assert 2 == found.exit_code
    assert "listens only on this machine, not on '0.0.0.0'; create a key first: contexture keys add" in found.stderr


def test_a_port_that_is_taken_is_one_line(tmp_path):
    """The address is named, and no store is made for nothing."""
    from contexture.service.server import bind_socket

    with bind_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        found = run("serve", "--port", port, "--home", tmp_path)

    assert 3 == found.exit_code
    assert f"cannot listen on 127.0.0.1:{port}: " in found.stderr
    assert not (tmp_path / "truth.sqlite").exists()
