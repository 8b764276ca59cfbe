"""A service over a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from contexture import Scope, Settings, wiring
from contexture.testing.doubles import NOON
from support.service import service_client, small_engine

pytest.importorskip("psycopg", reason="psycopg is not installed")

ANNA = Scope(tenant="acme", user="anna")


async def test_one_service_is_told_and_another_answers(
    new_url: Callable[[], str], new_folder: Callable[[], Path]
) -> None:
    """A key made for the store opens every service over it, and what one of them loads the other finds."""
    url = new_url()
    places = [Settings(home=new_folder(), store=url) for _ in range(2)]
    async with small_engine(places[0]) as one, small_engine(places[1]) as other:
        with closing(wiring.api_keys(places[0])) as keys, closing(wiring.api_keys(places[1])) as same:
            _, token = keys.add("laptop", ANNA, now=NOON)
            told = {"Authorization": f"Bearer {token}"}
            async with service_client(one, keys=keys) as first, service_client(other, keys=same) as second:
                loaded = await first.post(
                    "/v1/ingest/memories", headers=told, json={"memories": [{"text": "The pump leaks."}]}
                )
                found = await second.post("/v1/context/turn", headers=told, json=_turn())
                refused = await second.post("/v1/context/turn", json=_turn())

    assert (200, 200, 401) == (loaded.status_code, found.status_code, refused.status_code)
    assert "The pump leaks." in found.text


def _turn() -> dict[str, object]:
    return {"session_id": "s", "system_prompt": "You help.", "user_message": "Does the pump leak?", "history": []}
