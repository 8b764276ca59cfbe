"""What an engine and a service say when their Qdrant is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from contexture import Contexture, Record, Settings
from contexture.errors import SourceUnavailable
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC
from support.service import service_client, small_engine

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

if TYPE_CHECKING:
    from support.qdrant import QdrantDouble

PUMP = Record(id="pump", title="Pump", text="The pump leaks oil into the basin.", acl=(PUBLIC,))


async def test_a_build_degrades_and_names_qdrant(qdrant: QdrantDouble, new_folder: Callable[[], Path]) -> None:
    """Without Qdrant a context is built without what it would have found; with it again nothing has to be started."""

    async def asked(engine: Contexture) -> tuple[list[str], list[str]]:
        built = await engine.build("Where does the pump leak?", now=NOON)
        cited = [citation.record_id for citation in built.context.citations]
        return cited, [each.reason for each in built.ledger.degradations]

    async with small_engine(Settings(home=new_folder(), store=qdrant.place, cache_size=0)) as engine:
        await engine.add([PUMP])
        before = await asked(engine)
        qdrant.stop()
        without = await asked(engine)
        qdrant.start()
        after = await asked(engine)

    assert (["pump"], []) == before == after
    assert [] == without[0]
    assert any("Qdrant at" in reason for reason in without[1])


async def test_the_health_of_a_service_names_qdrant(qdrant: QdrantDouble, new_folder: Callable[[], Path]) -> None:
    """A store whose Qdrant failed when it was last needed is degraded, and normal again with the next search."""

    async def state(client: httpx.AsyncClient) -> tuple[str, bool]:
        store = (await client.get("/health")).json()["components"]["store"]
        return store["state"], "Qdrant at" in store.get("reason", "")

    async with (
        small_engine(Settings(home=new_folder(), store=qdrant.place, cache_size=0)) as engine,
        service_client(engine) as client,
    ):
        await engine.add([PUMP])
        seen = [await state(client)]
        qdrant.stop()
        with pytest.raises(SourceUnavailable):
            await engine.search("pump")
        seen.append(await state(client))
        qdrant.start()
        await engine.search("pump")
        seen.append(await state(client))

    assert [("normal", False), ("degraded", True), ("normal", False)] == seen
