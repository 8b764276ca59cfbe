"""Streamable HTTP: who is let in, and as whom each caller acts."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from starlette.testclient import TestClient

from contexture.adapters.keys import ApiKeys
from contexture.errors import SourceTimeout, SourceUnavailable
from contexture.mcp.server import create_http_app, create_server
from contexture.mcp.service_client import ServiceAddress, ServiceClient, connect_in_process, connect_over_http
from contexture.service.app import create_app
from contexture.service.auth import Authenticator
from contexture.testing.doubles import FixedClock
from contexture.types import Scope

URL = "http://127.0.0.1:8421/mcp"
OWN = "what-the-server-itself-presents"
BORIS = Scope(tenant="acme", user="boris")
ANNA = {"X-Contexture-Tenant": "acme", "X-Contexture-User": "anna"}


@pytest.fixture
def keys(engine):
    """The keys of the store, none yet."""
    found = ApiKeys(engine.settings.home / "keys.sqlite")
    yield found
    found.close()


@asynccontextmanager
async def speaking(engine, keys, *, gated=True, mode="auto", **headers):
    """A client of the server over HTTP, and the application it speaks to."""
    service = create_app(engine, keys=keys, settings=engine.settings, clock=FixedClock(), token=OWN)
    callers = Authenticator(keys=keys, settings=engine.settings, clock=FixedClock()) if gated else None
    async with connect_in_process(service, {"Authorization": f"Bearer {OWN}"}) as link:
        server = create_server(link, keyless=ANNA)
        app = create_http_app(server, settings=engine.settings, callers=callers)
        transport = httpx2.ASGITransport(app)
        async with (
            server.session_manager.run(),
            httpx2.AsyncClient(transport=transport, headers=headers) as http,
            Client(streamable_http_client(URL, http_client=http), mode=mode) as client,
        ):
            yield client


async def found(client):
    """The ids of the passages about pumps, or what went wrong."""
    result = await client.call_tool("search", {"query": "pump"})
    if result.is_error:
        return result.content[0].text
    return {each["id"] for each in result.structured_content["results"]}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_key_decides_who_asks(engine, keys, mode):
    """Each caller sees what the owner of the key may see, in the protocol's newer and older versions."""
    _, token = keys.add("boris", BORIS, now=FixedClock().now())
    async with speaking(engine, keys, mode=mode, Authorization=f"Bearer {token}") as client:
        assert await found(client) == {"pump#00000"}


async def test_behind_no_gate_a_demonstration_is_asked_as_the_settings_say(engine):
    """A service that answers without keys is told whom the server acts for."""
    async with speaking(engine, None, gated=False) as client:
        assert await found(client) == {"pump#00000", "a/valve?#00000"}


async def test_behind_no_gate_a_caller_may_say_who_asks(engine):
    """The headers of the service work here too, whatever their case."""
    async with speaking(engine, None, gated=False, **{"x-contexture-user": "boris"}) as client:
        assert await found(client) == {"pump#00000"}


async def test_behind_no_gate_the_service_decides(engine, keys):
    """The server's own token is lent to nobody: a caller without a key is told so by the service."""
    keys.add("boris", BORIS, now=FixedClock().now())
    async with speaking(engine, keys, gated=False) as client:
        assert "UNAUTHORIZED: a valid API key is required" in await found(client)


async def test_a_caller_without_a_key_gets_no_answer_at_all(engine, keys):
    """Once there are keys, not even the list of tools is given away."""
    keys.add("boris", BORIS, now=FixedClock().now())
    callers = Authenticator(keys=keys, settings=engine.settings, clock=FixedClock())
    async with connect_over_http(lambda: None) as link:
        app = create_http_app(create_server(link, keyless={}), settings=engine.settings, callers=callers)
        answer = TestClient(app).post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHORIZED")


async def test_pages_under_other_names_are_refused(engine):
    """A web page cannot reach a server on this machine through a name of its own, nor from its own origin."""
    async with connect_over_http(lambda: None) as link:
        app = create_http_app(create_server(link, keyless={}), settings=engine.settings, callers=None)
        with TestClient(app, base_url="http://127.0.0.1:8421") as http:
            asked = {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}
            named = http.post("/mcp", headers={"Host": "evil.example"}, **asked)
            foreign = http.post("/mcp", headers={"Origin": "https://evil.example"}, **asked)

    assert [named.status_code, foreign.status_code] == [421, 403]


async def test_a_service_that_is_gone_is_the_result_of_the_tool():
    """A model is told that the service cannot be reached, and the server goes on."""

    def gone():
        raise SourceUnavailable("the service is gone; start it: contexture serve")

    async with connect_over_http(gone) as link, Client(create_server(link, keyless={})) as client:
        assert await found(client) == "UNAVAILABLE: the service is gone; start it: contexture serve"
        assert len((await client.list_tools()).tools) == 16


async def test_a_resource_of_a_service_that_is_gone_cannot_be_read():
    """Resources fail with an error of the protocol, which says why."""

    def gone():
        raise SourceUnavailable("the service is gone")

    async with connect_over_http(gone) as link, Client(create_server(link, keyless={})) as client:
        with pytest.raises(MCPError, match="the service is gone") as refused:
            await client.read_resource("contexture://records/documents/pump")

    assert refused.value.code == INTERNAL_ERROR


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (httpx.ConnectError("refused"), (SourceUnavailable, "cannot be reached: refused")),
        (httpx.ReadTimeout("late"), (SourceTimeout, "did not answer in time")),
        (httpx.Response(200, text="<html>"), (SourceUnavailable, "not from a Contexture service")),
        (httpx.Response(200, json=[1]), (SourceUnavailable, "not from a Contexture service")),
    ],
    ids=["refused", "late", "html", "list"],
)
async def test_other_services_and_dead_ones_are_told_apart(answer, told):
    """A link says whether nobody answers, or somebody else."""

    def answered(_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with httpx.AsyncClient(transport=httpx.MockTransport(answered)) as client:
        link = ServiceClient(client, lambda: ServiceAddress(url="http://127.0.0.1:1", headers={}))
        with pytest.raises(told[0], match=told[1]):
            await link.request("GET", "/health")


async def test_older_clients_are_answered_over_streams(engine):
    """A client that shakes hands first gets tools and resources alike."""
    service = create_app(engine, keys=None, settings=engine.settings, clock=FixedClock())
    async with (
        connect_in_process(service, ANNA) as link,
        Client(create_server(link, keyless={}), mode="legacy") as client,
    ):
        record = await client.read_resource("contexture://records/documents/pump")

        assert await found(client) == {"pump#00000", "a/valve?#00000"}
        assert "The pump leaks." in record.contents[0].text
        assert client.server_info.name == "contexture"
