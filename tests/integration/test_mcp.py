"""`contexture mcp` as a process of its own, spoken to by the official client."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner

from contexture.cli.main import app

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROWS = [
    {"id": "pump", "text": "The pump leaks. Mail anna@example.org about it."},
    {"id": "valve", "text": "The pump has a valve that anna mends.", "acl": ["user:anna"]},
]
ANNA, BORIS = ("--tenant", "acme", "--user", "anna"), ("--tenant", "acme", "--user", "boris")
START = "from contexture.cli.main import app; app()"


def run(*words):
    """What a command line printed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


@contextmanager
def started(*words):
    """A process that says as JSON where it listens."""
    words = [sys.executable, "-c", START, *map(str, words), "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield process, json.loads(line)["url"]
        finally:
            if process.poll() is None:
                process.kill()


def spawned(*words):
    """An MCP server that the client starts by itself."""
    return StdioServerParameters(command=sys.executable, args=["-c", START, "mcp", *map(str, words)])


async def found(client):
    """The ids of the passages about pumps."""
    result = await client.call_tool("search", {"query": "pump"})
    assert not result.is_error, result.content[0].text
    return {each["id"] for each in result.structured_content["results"]}


@pytest.fixture(scope="module")
def home(lasting_folder):
    """A store with two records."""
    folder = lasting_folder()
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    run("ingest", folder / "rows.jsonl", "--home", folder / "home", *ANNA)
    return folder / "home"


async def test_over_standard_input_the_settings_say_who_asks(home):
    """A client that starts the server acts as the user that its command line names, and sees no more."""
    async with Client(spawned("--home", home, *BORIS)) as client:
        assert await found(client) == {"pump#00000"}
        text = (await client.call_tool("build_query_context", {"query": "pump"})).content[0].text
        page = await client.read_resource("contexture://records/documents/pump")

    assert "Mail <EMAIL_1> about it." in text
    assert "Mail <EMAIL_1> about it." in page.contents[0].text


async def test_behind_a_running_service_both_doors_are_open(home):
    """A started server and one over HTTP ask the service that holds the store; over HTTP a key says who asks."""
    key = json.loads(run("keys", "add", "boris", "--home", home, *BORIS, "--json"))["key"]
    with started("serve", "--home", home), started("mcp", "--http", "--home", home, *ANNA) as (process, url):
        async with Client(spawned("--home", home, *ANNA)) as client:
            assert await found(client) == {"pump#00000", "valve#00000"}
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert await found(client) == {"pump#00000"}
        async with httpx2.AsyncClient(trust_env=False) as http:
            refused = await http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    assert refused.status_code == 401


def test_a_network_is_not_let_in_without_a_key(tmp_path):
    """Listening beyond this machine needs a key first."""
    result = CliRunner().invoke(app, ["mcp", "--http", "--host", "0.0.0.0", "--home", str(tmp_path)])  # noqa: S104 - refused

    assert result.exit_code == 2
    assert "create a key first" in result.output
