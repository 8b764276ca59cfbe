"""Keys, announcements and the door to a service, without a service."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from contexture import Settings
from contexture.adapters.index.lock import StoreLock
from contexture.announcement import ServiceAnnouncement, announce_service, read_announcement
from contexture.cli._client import RemoteService, find_service, parse_error, request_service
from contexture.cli.keys import parse_span
from contexture.cli.main import app
from contexture.errors import (
    BrokenPromise,
    ContractError,
    InvalidRequest,
    NotFound,
    SourceUnavailable,
    StoreLocked,
    StoreUnwritable,
    TooManyRequests,
    Unauthorized,
)


def run(*words, env=None):
    """The result of a command line; an exception that is not an exit is a test failure."""
    result = CliRunner().invoke(app, [str(word) for word in words], env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def service(url):
    """The announcement of a service in this process."""
    return ServiceAnnouncement(pid=os.getpid(), url=url, token=f"token of {url}")


def refused_elsewhere(home):
    """The error of another process that opens a store which this one holds."""
    opening = "import sys, pathlib, contexture.adapters.index.lock as lock; lock.StoreLock(pathlib.Path(sys.argv[1]))"
    return subprocess.run([sys.executable, "-c", opening, home], capture_output=True, text=True, check=False).stderr


@pytest.fixture
def impostor():
    """A server on loopback that answers what it is told to; gives its address and the list to fill."""
    answers = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            """Answer the next of them."""
            status, body = answers.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name is the server's

        def log_message(self, *_):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_key_is_shown_once(tmp_path):
    """`add` prints it alone on standard output; `list` shows everything else."""
    added = run("keys", "add", "laptop", "--home", tmp_path, "--tenant", "acme", "--user", "anna", "--group", "sales")
    token = added.stdout.strip()
    listed = run("keys", "list", "--home", tmp_path).stdout
    rows = json.loads(run("keys", "list", "--home", tmp_path, "--json").stdout)["keys"]

    assert token.startswith("ctx_")
    assert "user 'anna' of tenant 'acme'" in added.stderr
    assert all(word in listed for word in ("laptop", "acme", "anna", "sales", "works", "never"))
    assert token.rpartition("_")[2] not in listed + json.dumps(rows)
    assert [("laptop", "acme", "anna", ["sales"])] == [
        (row["name"], row["tenant"], row["user"], row["groups"]) for row in rows
    ]


def test_a_key_is_revoked_by_its_id_or_by_itself(tmp_path):
    """Both spellings lead to the same key; an unknown one is an error."""
    tokens = [run("keys", "add", name, "--home", tmp_path).stdout.strip() for name in "ab"]
    done = [run("keys", "revoke", each, "--home", tmp_path) for each in (tokens[0], tokens[1].split("_")[1], "none")]
    states = [row["state"] for row in json.loads(run("keys", "list", "--home", tmp_path, "--json").stdout)["keys"]]

    assert [0, 0, 2] == [each.exit_code for each in done]
    assert ["revoked", "revoked"] == states


def test_an_expiry_is_a_span(tmp_path):
    """A key made for thirty days says when it ends."""
    made = json.loads(run("keys", "add", "a", "--expires", "30d", "--home", tmp_path, "--json").stdout)

    assert made["expires"] > made["created"]
    assert "there are no keys\n" == run("keys", "list", "--home", tmp_path / "none").stdout


def test_a_key_is_made_with_the_scopes_that_are_named(tmp_path):
    """Alone or with commas; a name that is none is refused with those that are."""
    made = json.loads(
        run("keys", "add", "a", "--scope", "read,ask", "--scope", "admin", "--home", tmp_path, "--json").stdout
    )
    usual = json.loads(run("keys", "add", "b", "--home", tmp_path, "--json").stdout)
    wrong = run("keys", "add", "c", "--scope", "fly", "--home", tmp_path)

    assert (["admin", "ask", "read"], ["ask", "read", "write"]) == (made["scopes"], usual["scopes"])
    assert 2 == wrong.exit_code
    assert "--scope is one of read, ask, write, act_for, admin, not 'fly'" in wrong.stderr


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("8w", timedelta(weeks=8)),
        ("1y", timedelta(days=365)),
    ],
)
def test_spans_are_read(text, length):
    """A number and a unit."""
    assert length == parse_span(text)


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1.5d", "30 d", "30m", "9999999d", "٣d"])
def test_other_spans_are_refused(text):
    """The message shows what to write."""
    with pytest.raises(InvalidRequest, match="such as 12h, 30d, 8w or 1y"):
        parse_span(text)


def test_a_span_of_any_length_fits_a_calendar():
    """A very long one is a hundred years."""
    assert timedelta(days=36_500) == parse_span("999999y")


def test_a_service_is_announced_while_it_runs(tmp_path):
    """The file is there inside and gone afterwards, and only our own is removed."""
    mine = service("http://127.0.0.1:1")
    other = service("http://127.0.0.1:2")
    with announce_service(tmp_path, mine):
        inside = read_announcement(tmp_path)
    after = read_announcement(tmp_path)
    with announce_service(tmp_path, other), announce_service(tmp_path, mine):
        (tmp_path / "serve.json").write_text(json.dumps({"pid": other.pid, "url": other.url, "token": other.token}))

    assert (mine, None) == (inside, after)
    assert not (tmp_path / "serve.json").exists()


@pytest.mark.parametrize("pid", [2**22 + 1, 0, -1, 2**80])
def test_the_dead_are_not_found(tmp_path, pid):
    """A process that is not there announces nothing."""
    (tmp_path / "serve.json").write_text(json.dumps({"pid": pid, "url": "http://127.0.0.1:1", "token": "t"}))

    assert read_announcement(tmp_path) is None


def test_an_announcement_that_cannot_be_written_is_an_error(tmp_path):
    """The path is named."""
    with (
        pytest.raises(StoreUnwritable, match=r"serve\.json"),
        announce_service(tmp_path / "none", ServiceAnnouncement(pid=1, url="", token="")),
    ):
        pass


def test_a_locked_store_names_the_service_that_holds_it(tmp_path):
    """Only the holder's own announcement is believed, and the doctor is not alarmed by it."""
    held = StoreLock(tmp_path)
    try:
        with announce_service(tmp_path, service("http://127.0.0.1:8420")):
            announced = refused_elsewhere(tmp_path)
            checks = json.loads(run("doctor", "--home", tmp_path, "--json").stdout)["checks"]
        unannounced = refused_elsewhere(tmp_path)
    finally:
        held.release()

    assert ["ok"] == [each["status"] for each in checks if each["name"] == "lock"]
    assert f"(pid {os.getpid()}, which serves it at http://127.0.0.1:8420)" in announced
    assert f"(pid {os.getpid()});" in unannounced


def test_without_a_service_there_is_no_door(tmp_path):
    """Commands then open the store themselves; those that cannot say so."""
    settings = Settings(home=tmp_path)

    assert find_service(settings) is None
    with pytest.raises(SourceUnavailable, match="start one: contexture serve"):
        request_service(settings, "GET", "/health")


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("query", {"query": "x", "max_tokens": 0, "colour": "red"}),
        ("turn", {"user_message": "x", "history": [{"role": "pirate"}]}),
        ("research", {"query": 5, "search_mode": "deep"}),
        ("workspace", {"query": "x", "focus": {"block": "b"}}),
    ],
)
def test_a_wrong_request_is_refused_alike_with_and_without_a_service(tmp_path, monkeypatch, kind, asked):
    """The command line reads a request before it asks anyone: nobody answers at this address."""
    words = ["build", kind, "--json", "--home", str(tmp_path)]
    alone = CliRunner().invoke(app, words, input=json.dumps(asked))
    monkeypatch.setenv("CONTEXTURE_URL", "http://127.0.0.1:9")
    served = CliRunner().invoke(app, words, input=json.dumps(asked))

    assert 2 == alone.exit_code == served.exit_code
    assert "VALIDATION_FAILED" == json.loads(alone.stdout)["error"]["code"]
    assert json.loads(alone.stdout)["error"] == json.loads(served.stdout)["error"]


def test_half_a_character_goes_through_the_door(impostor):
    """A word of the command line need not be UTF-8; the service mends it, as it is mended here."""
    url, answers = impostor
    answers.append((200, b'{"ok": true}'))

    assert {"ok": True} == RemoteService(url=url, headers={}).request(
        "POST", "/", {"query": "st\udcfform", "at": timedelta(days=1)}
    )


@pytest.mark.parametrize("key", ["ключ", "a\nb", "a\x7f"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(tmp_path, key):
    """Headers are ASCII; what was given by mistake may still be somebody's secret."""
    settings = Settings(home=tmp_path, url="http://127.0.0.1:9", api_key=key)
    with pytest.raises(InvalidRequest, match="CONTEXTURE_API_KEY") as refused:
        find_service(settings)

    assert key not in str(refused.value)


def test_names_that_are_no_unicode_are_refused(tmp_path):
    """They could not be written into a header."""
    with pytest.raises(InvalidRequest, match="not valid Unicode"):
        find_service(Settings(home=tmp_path, url="http://127.0.0.1:9", tenant="\udcff"))


@pytest.mark.parametrize("url", ["notaurl", "ftp://x", "http://[::1"])
def test_what_is_no_address_is_the_callers_mistake(url):
    """Trying again would not help."""
    with pytest.raises(InvalidRequest, match="not the address of a service"):
        RemoteService(url=url, headers={}).request("GET", "/health")


def test_an_announcement_nobody_listens_behind_is_ignored(tmp_path):
    """Another process may have got the number of a dead one."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with announce_service(tmp_path, service(url)):
        assert find_service(Settings(home=tmp_path)) is None


def test_a_door_presents_what_it_must_and_no_more(tmp_path):
    """With a key only what was said on purpose is claimed; without one everything is."""
    url = {"home": tmp_path, "url": "http://127.0.0.1:1/"}
    bare = find_service(Settings(**url))
    keyed = find_service(Settings(**url, api_key="k", user="Аня"))

    assert "http://127.0.0.1:1" == bare.url
    assert {"X-Contexture-Tenant": "local", "X-Contexture-User": "local", "X-Contexture-Groups": ""} == bare.headers
    assert {"Authorization": "Bearer k", "X-Contexture-User": "%D0%90%D0%BD%D1%8F"} == keyed.headers


@pytest.mark.parametrize(
    ("code", "tech", "kind"),
    [
        ("NO_DATA", "NotFound: x", NotFound),
        ("INTERNAL", "BrokenPromise: x", BrokenPromise),
        ("UNAVAILABLE", "StoreLocked: x", StoreLocked),
        ("LIMITED", "TooManyRequests: x", TooManyRequests),
        ("VALIDATION_FAILED", "BudgetTooSmall: x", InvalidRequest),
        ("UNAUTHORIZED", "of a later version: x", Unauthorized),
        ("OF A LATER VERSION", "annotations: x", ContractError),
    ],
)
def test_an_error_is_the_same_on_both_sides(code, tech, kind):
    """Its class, and with it the exit code, comes through; one we do not know becomes the closest we do."""
    body = {"error": {"code": code, "user_message": "x", "tech_message": tech, "retryable": False}}
    found = parse_error(json.dumps(body).encode())

    assert (kind, "x") == (type(found), str(found))


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"error": 1}', b"\xff", b"[]", b'{"error": {"code": 1}}'])
def test_an_answer_of_something_else_is_told_apart(body):
    """A proxy or another program at the address is named as such."""
    assert "not from a Contexture service" in str(parse_error(body))


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b"[1]"), (502, b"<html>"), (200, b"\xff")])
def test_a_stranger_behind_the_door_is_a_source_that_failed(impostor, answer):
    """The exit code is that of a service that cannot be reached."""
    url, answers = impostor
    answers.append(answer)
    found = run("search", "pump", env={"CONTEXTURE_URL": url})

    assert 3 == found.exit_code
    assert "CONTEXTURE_URL" in found.stderr


def test_events_come_through_the_door(impostor):
    """Names and data are told apart, comments passed over, separators inside a text kept, errors raised."""
    url, answers = impostor
    error = {
        "code": "UNAVAILABLE",
        "user_message": "gone",
        "tech_message": "SourceUnavailable: gone",
        "retryable": True,
    }
    stream = ': keep-alive\n\nevent: token\ndata: "a\u2028b\x85"\r\n\r\ndata: {"c": 1}\n\n'
    answers.append((200, f"{stream}event: error\ndata: {json.dumps({'error': error})}\n\n".encode()))
    with RemoteService(url=url, headers={}).stream_events("/x", {}) as events:
        found = [next(events), next(events)]
        with pytest.raises(SourceUnavailable, match="gone"):
            next(events)

    assert [("token", "a\u2028b\x85"), ("", {"c": 1})] == found
    answers.append((200, stream.encode()))
    with RemoteService(url=url, headers={}).stream_events("/x", {}) as events:
        assert [("token", "a\u2028b\x85"), ("", {"c": 1})] == list(events)


def test_a_batch_that_cannot_be_sent_is_reported(impostor, tmp_path):
    """The file and the line of each record are named, and the exit code says that nothing was loaded."""
    url, answers = impostor
    (tmp_path / "a.jsonl").write_text('{"id": "1", "text": "x"}\n{"id": "2", "text": "y"}\n')
    report = {"read": 0, "added": 0, "unchanged": 0, "duplicates": 0, "failed": [], "warnings": []}
    answers += [(200, json.dumps(report).encode()), (500, b"<html>")]
    found = run("ingest", tmp_path / "a.jsonl", "--json", env={"CONTEXTURE_URL": url})

    assert 2 == found.exit_code
    assert [("a.jsonl", 1), ("a.jsonl", 2)] == [
        (each["path"], each["line"]) for each in json.loads(found.stdout)["failed"]
    ]


def test_what_is_hidden_stays_hidden():
    """Keys are not printed by `settings`."""
    found = run("settings", "--json", env={"CONTEXTURE_API_KEY": "ctx_secret", "CONTEXTURE_MEMORY_API_KEY": "other"})

    assert "ctx_secret" not in found.stdout
    assert "other" not in {row["value"] for row in json.loads(found.stdout)["settings"] if row["name"].endswith("key")}
