"""A service over doubles, asked without a socket: the application, the engine and the index are the real ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from contexture.adapters.keys import ApiKeys
from contexture.config import IndexOptions, Settings
from contexture.engine import Contexture
from contexture.ports import Bus
from contexture.service.app import create_app
from contexture.testing.doubles import FixedClock
from contexture.wiring._store import open_index
from support.workbench import Parts


@asynccontextmanager
async def small_engine(settings: Settings) -> AsyncGenerator[Contexture]:
    """An engine over small embedders and a clock that stands still, in the place that the settings name."""
    speakers = Parts().encoders
    alone = settings.model_copy(update={"search_threads": 1})
    store = await open_index(IndexOptions(vectors=speakers.vectors, settings=alone))
    engine = Contexture(settings, store, speakers, FixedClock())
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def service_client(
    engine: Contexture,
    *,
    keys: ApiKeys | None = None,
    token: str = "",
    members: Mapping[str, tuple[str, ...]] | None = None,
    url: str = "http://127.0.0.1",
    bus: Bus | None = None,
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a service over the engine; an error that nobody foresaw is answered, as a server would answer it.

    async with service_client(engine) as client:
        answer = await client.post("/v1/search", json={"query": "pump"})
    """
    app = create_app(
        engine, keys=keys, settings=engine.settings, token=token, members=members, clock=FixedClock(), bus=bus
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        yield client


def use_in_chat(engine: Contexture, **parts: Any) -> None:
    """Let the engine's chat work with other parts, such as `route` or `secrets`."""
    engine.__dict__["chat"] = replace(engine.chat, **parts)
