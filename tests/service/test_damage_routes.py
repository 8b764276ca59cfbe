"""A damaged database behind every route: 503 with the way back, never an unexpected error."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from contexture import Settings
from contexture.errors import StoreDamaged
from support.damage import PAGE, overwrite_bytes
from support.requests import GETS, READS, WRITES, number_body
from support.service import service_client, small_engine

pytestmark = pytest.mark.slow

LAZY = ("sessions.sqlite", "replies.sqlite", "blocks.db", "outbox.sqlite", "graph.sqlite")


async def ask_everything(client, number):
    """Status and message of every request, by name."""
    found = {}
    for name, (path, body) in {**WRITES, **READS}.items():
        found[name] = await client.post(path, json=number_body(body, number))
    for path in GETS:
        found[path] = await client.get(path)
    return {
        name: (each.status_code, each.json().get("error", {}).get("user_message", "")) for name, each in found.items()
    }


def damage(path: Path, keep: int) -> None:
    """Overwrite a file after its first bytes."""
    overwrite_bytes(path, keep, b"\xa5" * (path.stat().st_size - keep))


@pytest.mark.parametrize("name", LAZY)
async def test_a_database_that_is_none_fails_only_what_needs_it(tmp_path, name):
    """Those routes answer 503 and name it; the others work."""
    (tmp_path / name).write_bytes(b"nonsense" * 1_000)
    async with small_engine(Settings(home=tmp_path)) as engine, service_client(engine) as client:
        found = await ask_everything(client, 1)

    wrong = {name: said for name, (status, said) in found.items() if status >= 500}
    assert all("contexture rebuild" in said or "contexture salvage" in said for said in wrong.values()), wrong
    assert found["search"][0] == found["records"][0] == 200
    assert bool(wrong) == (name in ("sessions.sqlite", "replies.sqlite", "blocks.db")), wrong


@pytest.mark.parametrize("name", ["truth.sqlite", "sessions.sqlite", "blocks.db", "replies.sqlite"])
@pytest.mark.parametrize("keep", [PAGE, 0], ids=["all but the first page", "all"])
async def test_a_database_damaged_while_it_is_open_is_named(tmp_path, name, keep):
    """Whatever is read from it afterwards answers 503, with one sentence."""
    async with small_engine(Settings(home=tmp_path)) as engine, service_client(engine) as client:
        assert max(status for status, _ in (await ask_everything(client, 1)).values()) < 500
    with suppress(StoreDamaged):  # closing the engine may meet it too
        await _ask_damaged(tmp_path, name, keep)


async def _ask_damaged(tmp_path, name, keep):
    async with small_engine(Settings(home=tmp_path)) as engine, service_client(engine) as client:
        await asyncio.to_thread(damage, tmp_path / name, keep)
        found = await ask_everything(client, 2)

        wrong = {name: said for name, (status, said) in found.items() if status >= 500}
        assert wrong
        assert all("contexture salvage FOLDER" in said for said in wrong.values()), wrong
