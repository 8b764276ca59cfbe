"""A service over small embedders with three records of tenant acme, asked without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from contexture import Contexture, Settings
from contexture.types import PUBLIC, Record
from support.service import service_client, small_engine

RECORDS = (
    Record(id="pump", title="Pump", text="The pump leaks. Mail anna@example.org about it.", acl=(PUBLIC,)),
    Record(id="valve", text="The pump has a valve that anna mends.", acl=("user:anna",)),
    Record(id="bill", text="The pump costs money, says finance.", acl=("group:finance",)),
)


@pytest.fixture
def settings(new_folder: Callable[[], Path]) -> Settings:
    """Settings of a tenant called acme."""
    return Settings(home=new_folder(), tenant="acme", user="anna")


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Contexture]:
    """An engine with three records."""
    async with small_engine(settings) as found:
        await found.add(RECORDS)
        yield found


@pytest.fixture
async def client(engine: Contexture) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service without keys."""
    async with service_client(engine) as found:
        yield found
