"""A database that was restored to an earlier state: no process answers from what it saw of a later one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contexture import Contexture, Record, Settings
from contexture.testing.index_records import (
    COLLECTION,
    EAST,
    NAME,
    NORTH,
    VECTORS,
    make_query,
    make_record,
    prepare_record,
)
from contexture.types import PUBLIC, Collection, Scope
from support.service import small_engine

pytest.importorskip("psycopg", reason="psycopg is not installed")

import psycopg

from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions
from contexture.adapters.postgres.address import split_schema

OPTIONS = PostgresOptions(vectors=VECTORS)
ANNA = Scope(tenant="local", user="anna")


class Backup:
    """What `pg_dump` wrote of a store, to be put back with `psql`."""

    def __init__(self, postgres: Any, url: str) -> None:
        self._bin = Path(postgres.bin_path)
        self._place, self._schema = split_schema(url)
        self._kept = self._run("pg_dump", f"--schema={self._schema}", f"--schema={self._schema}_*")

    def put_back(self) -> None:
        """Let the store be what it was."""
        with psycopg.connect(self._place) as db:
            query = "SELECT nspname FROM pg_namespace WHERE nspname = %s OR starts_with(nspname, %s)"
            names = [name for (name,) in db.execute(query, (self._schema, f"{self._schema}_"))]
        drops = "".join(f"DROP SCHEMA {name} CASCADE;\n" for name in names).encode()
        self._run("psql", "--quiet", "--set=ON_ERROR_STOP=1", "--single-transaction", given=drops + self._kept)

    def _run(self, program: str, *words: str, given: bytes = b"") -> bytes:
        command = [str(self._bin / program), *words, f"--dbname={self._place}"]
        return subprocess.run(command, input=given, capture_output=True, check=True).stdout


async def leaking(engine: Contexture) -> set[str]:
    """What a process finds of the pumps."""
    answer = await engine.search("Which pump leaks?")
    return {each.record_id for each in answer.found}


@pytest.mark.parametrize("since", [[], ["third"], ["third", "fourth"]])
async def test_a_process_that_runs_through_a_restore_answers_from_what_there_is(
    since: list[str], url: str, postgres: Any, new_folder: Callable[[], Path]
) -> None:
    """It remembers no answer from before, and collections that are gone are gone."""

    def pump(name: str) -> Record:
        return Record(id=name, text=f"The {name} pump leaks.", acl=(PUBLIC,))

    async with (
        small_engine(Settings(home=new_folder(), store=url)) as one,
        small_engine(Settings(home=new_folder(), store=url)) as other,
    ):
        await one.add([pump("first")])
        backup = Backup(postgres, url)
        await one.add([pump("second")])
        before = await leaking(one)
        await one.create(Collection(name="later"))
        backup.put_back()
        for name in since:
            await other.add([pump(name)])
        after = [await leaking(one), await leaking(one)]
        await one.add([pump("last")])
        again = [await leaking(one), await leaking(other)]
        known = [each.name for each in await one.index.collections(ANNA)]

    assert {"first", "second"} == before
    assert [{"first", *since}] * 2 == after
    assert [{"first", "last", *since}] * 2 == again
    assert "later" not in known


async def test_a_collection_from_before_a_restore_leaves_nothing_to_one_of_its_name(url: str, postgres: Any) -> None:
    """Made again, it is searched by meaning just as by a process that never saw the first one."""
    one = await PostgresIndex.open(url, OPTIONS)
    backup = Backup(postgres, url)
    await one.create(ANNA, COLLECTION)
    await one.upsert(ANNA, NAME, [prepare_record(make_record(f"old{at}"), vector=NORTH) for at in range(3)])
    backup.put_back()
    gone = [each.name for each in await one.collections(ANNA)]
    await one.create(ANNA, COLLECTION)
    await one.upsert(ANNA, NAME, [prepare_record(make_record(f"new{at}"), vector=EAST) for at in range(4)])
    other = await PostgresIndex.open(url, OPTIONS)
    found = [[(hit.record.id, hit.scores) for hit in await each.search(ANNA, make_query(vector=EAST, k=2))]
             for each in (one, other)]  # fmt: skip
    await one.close()
    await other.close()

    assert [] == gone
    assert found[0] == found[1]
    assert ["new0", "new1"] == [name for name, _ in found[0]]
