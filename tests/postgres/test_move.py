"""A store moves from a folder into PostgreSQL and back, whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from contexture import Contexture, Record, Scope, Settings, wiring
from contexture.cli._demo_samples import load_sample_memories, load_sample_workspace
from contexture.cli.demo import memories_folder, workspace_folder
from contexture.cli.main import app
from contexture.conversation import SessionEvent
from contexture.errors import BrokenPromise, InvalidRequest, NotFound
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC
from contexture.workspace import Block, BlockType
from support.service import small_engine

pytest.importorskip("psycopg", reason="psycopg is not installed")


from contexture.adapters.store_migration.migrate import (
    MigrationResult,
    compare_stores,
    migrate_store,
    open_migration_store,
)

DEMO = Scope(tenant="demo", user="demo", groups=("staff",))
OTHER = Scope(tenant="other", user="boris")
PUMPS = [
    Record(id=name, title="Pump", text=f"The {name} pump leaks oil.", acl=acl)
    for name, acl in (("first", (PUBLIC,)), ("second", ("user:demo",)), ("\x00odd", (PUBLIC,)), ("hidden", ()))
]


async def filled(settings: Settings) -> None:
    """Fill a store with something of everything."""
    async with small_engine(settings) as engine:
        await engine.add(PUMPS)
        await engine.add(PUMPS[:1], scope=OTHER, collection="more")
        await load_sample_memories(engine, memories_folder(), DEMO, lambda name: Scope(tenant="demo", user=name), NOON)
        await load_sample_workspace(
            engine, workspace_folder(), DEMO, lambda name: Scope(tenant="demo", user=name), NOON
        )
        await engine.sessions.append(
            DEMO, "s", [SessionEvent(id="a", message={"role": "user", "content": "hi"}, time=NOON)]
        )
        await engine.build("Which pump leaks?", now=NOON)
    with closing(wiring.api_keys(settings)) as keys:
        keys.add("laptop", DEMO, now=NOON)


async def seen(settings: Settings) -> list[Any]:
    """What a store answers."""
    async with small_engine(settings) as engine:
        found = await engine.search("pump oil")
        built = await engine.build_workspace({"query": "What tasks are overdue?", "type": "chat"}, scope=DEMO, now=NOON)
        sessions = await engine.sessions.list_events(DEMO, "s")
        return [[(each.id, each.score) for each in found.found], built.serialized, [each.id for each in sessions]]


async def grown(engine: Contexture) -> None:
    """Write a little more, as a store that is used does."""
    await engine.sessions.append(
        DEMO, "t", [SessionEvent(id="b", message={"role": "user", "content": "ho"}, time=NOON)]
    )
    await engine.workspace.put(DEMO, [Block(id="new", type=BlockType.PAGE, text="New")], now=NOON)


def moved(source: str, target: str) -> MigrationResult:
    """Move."""
    with (
        closing(open_migration_store(source, existing=True)) as first,
        closing(open_migration_store(target, existing=False)) as second,
    ):
        return migrate_store(first, second)


def settings_of(folder: Path, url: str = "") -> Settings:
    """Settings of a store."""
    return Settings(home=folder, store=url, tenant="demo", user="demo", groups=("staff",))


async def test_a_store_moves_there_and_back(new_url: Callable[[], str], new_folder: Callable[[], Path]) -> None:
    """From a folder to PostgreSQL and into another folder: all three give the same answers, and can be written to."""
    folder, url, third = new_folder(), new_url(), new_folder()
    await filled(settings_of(folder))
    there, back = moved(str(folder), url), moved(url, str(third))
    answers = [
        await seen(settings_of(folder)),
        await seen(settings_of(new_folder(), url)),
        await seen(settings_of(third)),
    ]
    for place in (settings_of(new_folder(), url), settings_of(third)):
        async with small_engine(place) as engine:
            await grown(engine)

    assert there == back
    assert (0, True, True) == (there.known_records, there.rows > 100, there.files > 0)
    assert answers[0] == answers[1] == answers[2]


async def test_a_move_that_was_cut_short_goes_on(new_url: Callable[[], str], new_folder: Callable[[], Path]) -> None:
    """What is there is left alone; the command says how much that was."""
    folder, url = new_folder(), new_url()
    async with small_engine(settings_of(folder)) as engine:
        await engine.add(PUMPS[:2])
    moved(str(folder), url)
    async with small_engine(settings_of(folder)) as engine:
        await engine.add([PUMPS[2], replace(PUMPS[0], text="The first pump is new.")])
    answer = CliRunner().invoke(app, ["migrate", "--from", str(folder), "--to", url, "--json"])

    assert 0 == answer.exit_code, answer.output
    assert {"records": 3, "known": 1} == {name: json.loads(answer.stdout)[name] for name in ("records", "known")}


async def test_a_difference_is_found(new_url: Callable[[], str], new_folder: Callable[[], Path]) -> None:
    """One record that is not the same, or one too many, is named."""
    folder, url = new_folder(), new_url()
    async with small_engine(settings_of(folder)) as engine:
        await engine.add(PUMPS[:2])
    moved(str(folder), url)
    for change, named in ((replace(PUMPS[0], title="Another"), "'first'"), (PUMPS[2], "2 records in .* and 3 in")):
        async with small_engine(settings_of(new_folder(), url)) as engine:
            await engine.add([change])
        with (
            closing(open_migration_store(str(folder), existing=True)) as first,
            closing(open_migration_store(url, existing=True)) as second,
            pytest.raises(BrokenPromise, match=named),
        ):
            compare_stores(first, second, 0, lambda *_: None)
        async with small_engine(settings_of(new_folder(), url)) as engine:
            await engine.add(PUMPS[:1])


async def test_a_file_that_differs_is_found(new_url: Callable[[], str], new_folder: Callable[[], Path]) -> None:
    """A build that was changed after the move is named."""
    folder, url = new_folder(), new_url()
    await filled(settings_of(folder))
    moved(str(folder), url)
    with (
        closing(open_migration_store(str(folder), existing=True)) as first,
        closing(open_migration_store(url, existing=True)) as second,
    ):
        place, name = first.files.names()[0]
        second.files.write(place, name, b"{}")
        with pytest.raises(BrokenPromise, match=name):
            compare_stores(first, second, 0, lambda *_: None)


async def test_other_sessions_are_not_mixed(new_url: Callable[[], str], new_folder: Callable[[], Path]) -> None:
    """A small store that holds something else is refused before anything of it is written."""
    folder, url = new_folder(), new_url()
    for place, name in ((settings_of(folder), "a"), (settings_of(new_folder(), url), "b")):
        async with small_engine(place) as engine:
            event = SessionEvent(id=name, message={"role": "user", "content": "hi"}, time=NOON)
            await engine.sessions.append(DEMO, "s", [event])

    with pytest.raises(InvalidRequest, match="other sessions"):
        moved(str(folder), url)


@pytest.mark.parametrize(("where", "error"), [("mysql://x/y", InvalidRequest), ("/nowhere/at/all", NotFound)])
def test_a_place_without_a_store_is_refused(where: str, error: type[Exception]) -> None:
    """The error says what is wrong with it."""
    with pytest.raises(error):
        open_migration_store(where, existing=True)


def test_a_schema_without_a_store_is_refused(new_url: Callable[[], str]) -> None:
    """A name that was mistyped is not moved as an empty store, and nothing is made under it."""
    url = new_url()
    for _ in range(2):
        with pytest.raises(NotFound, match="no store in schema"):
            open_migration_store(url, existing=True)
