"""The real libraries over a small engine; none of them may report to its maker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

# Read when the libraries are imported, which is before any fixture runs.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # noqa: TID251 - a setting of theirs
os.environ["LANGSMITH_TRACING"] = "false"  # noqa: TID251 - a setting of theirs

from contexture import Contexture, Settings
from contexture.types import PUBLIC, Record
from support.service import small_engine

RECORDS = (
    Record(id="pump", title="Pump", text="The pump leaks. Mail anna@example.org about it.", acl=(PUBLIC,)),
    Record(id="valve", text="The pump has a valve that anna mends.", acl=("user:anna",)),
    Record(id="bill", text="The pump costs money, says finance.", acl=("group:finance",)),
)


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine with three records of tenant acme, opened by anna."""
    async with small_engine(Settings(home=new_folder(), tenant="acme", user="anna")) as found:
        await found.add(RECORDS)
        yield found
