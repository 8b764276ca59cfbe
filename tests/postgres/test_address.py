"""Addresses of databases: what is read in them, and what is never shown."""

from __future__ import annotations

from typing import Any

import pytest

from contexture.errors import InvalidRequest, SourceUnavailable

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.postgres.address import parse_address, split_schema
from contexture.adapters.postgres.pool import PostgresPool


@pytest.mark.parametrize(
    ("url", "told", "schema"),
    [
        ("postgres:///app", {"dbname": "app"}, "contexture"),
        ("postgres:///app?host=/run/pg&schema=mine", {"dbname": "app", "host": "/run/pg"}, "mine"),
        ("postgres://a:p%40ss@h:5/app", {"user": "a", "password": "p@ss", "host": "h", "port": "5"}, "contexture"),
        ("postgres://h/app?schema=x&application_name=a%20b", {"application_name": "a b"}, "x"),
        ("postgres://one,two/app?target_session_attrs=read-write", {"host": "one,two"}, "contexture"),
    ],
)
def test_an_address_is_read_as_psql_reads_it(url: str, told: dict[str, str], schema: str) -> None:
    """Nothing of it is changed or lost but the name of the schema, which is ours."""
    address = parse_address(url)

    assert told.items() <= address.options.items()
    assert schema == address.schema


@pytest.mark.parametrize(
    "url",
    [
        "postgres://anna:hunter2/secret@db/app",
        "postgres://anna:hunter2@secret@db/app",
        "postgres://anna:hunter2?secret@db/app",
        "postgres://anna:hunter2%zzsecret@db/app",
        "postgres://db/app?secret=hunter2",
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """A password with letters that must be escaped would else stand in the error, in part or as a whole."""
    with pytest.raises(InvalidRequest, match="%40") as caught:
        PostgresPool(url)

    assert not any(word in str(caught.value) for word in ("hunter2", "secret", "anna"))
    assert None is caught.value.__cause__


def test_a_server_that_refuses_is_named_without_the_password() -> None:
    """Whether it stands before the host or among the options."""
    for url in ("postgres://anna:hunter2@127.0.0.1:1/app", "postgres://127.0.0.1:1/app?user=anna&password=hunter2"):
        with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1/app") as caught, PostgresPool(url).connection():
            pass

        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in repr(parse_address(url))


def test_what_the_address_says_of_a_session_holds(postgres: Any) -> None:
    """Options in it reach the server, beside ours."""
    url = f"{postgres.get_uri()}&options=-c%20statement_timeout%3D7s&application_name=mine&schema=s"
    pool = PostgresPool(url)
    names = ("statement_timeout", "application_name", "search_path", "jit", "client_encoding")
    with pool.connection() as db:
        found = [db.execute(f"SHOW {name}".encode()).fetchone() for name in names]
    pool.close()

    assert [("7s",), ("mine",), ("s, public",), ("off",), ("UTF8",)] == found


def test_a_schema_can_be_put_into_any_address() -> None:
    """What is put in is found again, and the rest is as it was."""
    assert ("postgres:///app?host=/run/pg", "mine_demo") == split_schema(
        "postgres:///app?host=/run/pg&schema=mine_demo"
    )
