"""An MCP server over small embedders, asked by the official client without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from contexture import Contexture, Settings
from contexture.mcp.server import create_server
from contexture.mcp.service_client import connect_in_process
from contexture.service.app import create_app
from contexture.testing.doubles import FixedClock
from contexture.types import PUBLIC, Record
from support.service import small_engine

RECORDS = (
    Record(id="pump", title="Pump", text="The pump leaks. Mail anna@example.org about it.", acl=(PUBLIC,)),
    Record(id="a/valve?", text="The pump has a valve that anna mends.", acl=("user:anna",)),
    Record(id="bill", text="The pump costs money, says finance.", acl=("group:finance",)),
)
ANNA = {"X-Contexture-Tenant": "acme", "X-Contexture-User": "anna"}


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine with three records of tenant acme."""
    async with small_engine(Settings(home=new_folder(), tenant="acme", user="anna")) as found:
        await found.add(RECORDS)
        yield found


class Calls:
    """The methods of an MCP client, each over a connection of its own: a connection may not outlive its task."""

    def __init__(self, server):
        self._server = server

    def __getattr__(self, name):
        """A method of the client."""

        async def call(*given, **named):
            refused = None
            async with Client(self._server) as client:
                try:
                    return await getattr(client, name)(*given, **named)
                except MCPError as failure:
                    refused = failure  # raised in here it would come out as a group
            raise refused

        return call


@pytest.fixture
async def client(engine: Contexture) -> AsyncIterator[Calls]:
    """An MCP client that acts as anna."""
    app = create_app(engine, keys=None, settings=engine.settings, clock=FixedClock())
    async with connect_in_process(app, ANNA) as link:
        yield Calls(create_server(link, keyless={}))
