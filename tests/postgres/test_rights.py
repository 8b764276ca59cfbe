"""Databases that let a process do less than everything, and those that cannot hold a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contexture import Record, Scope, Settings
from contexture.errors import SourceUnavailable, StoreUnwritable
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC
from support.service import small_engine

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

PUMP = Record(id="pump", text="The pump leaks.", acl=(PUBLIC,))
PARTS = ("", "_blocks", "_files", "_graph", "_keys", "_outbox", "_replies", "_sessions")
"""What the names of a store's schemas end with; the documentation has them too."""


@pytest.fixture
def told(postgres: Any) -> Iterator[Callable[[str], None]]:
    """Tells the server something as its owner."""
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        yield connection.execute


@pytest.fixture
def plain(postgres: Any, told: Callable[[str], None]) -> Iterator[str]:
    """The address of a user who may not create schemas."""
    told("CREATE ROLE plain LOGIN")
    yield postgres.get_uri().replace("postgres:@", "plain:@")
    told("DROP OWNED BY plain CASCADE")
    told("DROP ROLE plain")


async def test_schemas_that_are_there_need_no_right_to_make_them(
    plain: str, told: Callable[[str], None], new_folder: Callable[[], Path]
) -> None:
    """Who owns all of them can do everything."""
    for part in PARTS:
        told(f"CREATE SCHEMA given{part} AUTHORIZATION plain")
    async with small_engine(Settings(home=new_folder(), store=f"{plain}&schema=given")) as engine:
        await engine.add([PUMP])
        built = await engine.build("Where does the pump leak?", now=NOON)
        events = await engine.sessions.list_events(Scope.local(), "s")
        blocks = await engine.blocks.get(Scope.local(), ["b"])

    assert () == built.ledger.degradations
    assert ([], []) == (list(events), list(blocks))


async def test_a_user_without_rights_is_told(plain: str, new_folder: Callable[[], Path]) -> None:
    """The error says what the server said."""
    with pytest.raises(StoreUnwritable, match="permission denied"):
        async with small_engine(Settings(home=new_folder(), store=f"{plain}&schema=denied")):
            pass


async def test_a_database_that_only_reads_answers(new_url: Callable[[], str], new_folder: Callable[[], Path]) -> None:
    """Contexts are built, though none is kept; a write is refused; and the engine closes as always."""
    url = new_url()
    async with small_engine(Settings(home=new_folder(), store=url)) as engine:
        await engine.add([PUMP])
    reading = f"{url}&options=-c%20default_transaction_read_only%3Don"
    async with small_engine(Settings(home=new_folder(), store=reading)) as engine:
        built = await engine.build("Where does the pump leak?", now=NOON)
        pages = await engine.pages.documents(engine.scope)  # of a tenant that has never had any
        with pytest.raises(StoreUnwritable, match="read-only"):
            await engine.add([PUMP])

    assert () == pages
    assert ["builds"] == [each.source for each in built.ledger.degradations]
    assert "The pump leaks." in built.context.text


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_letter_is_refused(
    encoding: str, postgres: Any, told: Callable[[str], None], new_folder: Callable[[], Path]
) -> None:
    """Before anything is made in it; the error says what to do."""
    told(f"CREATE DATABASE narrow ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    url = postgres.get_uri().replace("/postgres?", "/narrow?")
    with pytest.raises(SourceUnavailable, match="ENCODING 'UTF8'"):
        async with small_engine(Settings(home=new_folder(), store=url)):
            pass
    told("DROP DATABASE narrow")
