"""Replies, the outbox, names, builds and files in PostgreSQL do what they do in files; so does any text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture import Settings
from contexture.conversation import Memory, ReplyState, StoredReply
from contexture.errors import InvalidRequest, NotFound, SourceUnavailable
from contexture.testing.doubles import NOON, FixedClock
from contexture.types import ExtractedMentions, Mention, Scope
from contexture.workspace import Block, BlockType
from support.service import small_engine

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.conversation.outbox import Outbox, OutboxOptions
from contexture.adapters.conversation.postgres import PostgresReplies, outbox_tables
from contexture.adapters.conversation.sqlite import SqliteReplies
from contexture.adapters.graph.postgres import PostgresGraphCache
from contexture.adapters.graph.sqlite import SqliteGraphCache
from contexture.adapters.postgres.dialect import (
    escape_json_list,
    escape_nul,
    translate_statement,
    unescape_nul,
)
from contexture.adapters.postgres.files import PostgresBuilds, PostgresFiles
from contexture.adapters.postgres.pool import PostgresPool

ANNA = Scope(tenant="acme", user="anna", groups=("sales",))
BORIS = Scope(tenant="acme", user="boris")


@pytest.fixture
def pool(new_url: Callable[[], str]) -> Iterator[PostgresPool]:
    """Connections to an empty schema."""
    made = PostgresPool(new_url())
    yield made
    made.close()


class Service:
    """Keeps what it is given; refuses what is poison."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Scope, str]] = {}

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Keep all of them or none."""
        if any("poison" in memory.text for memory in memories):
            raise InvalidRequest("cannot be read")
        self.kept |= {memory.idempotency_key: (scope, memory.text) for memory in memories}
        return [memory.idempotency_key for memory in memories]


async def test_who_waits_does_so_for_what_another_process_was_told(pool: PostgresPool) -> None:
    """One that has not delivered it, or never will, is not waited for: it is delivered by whoever is asked."""
    service = Service()
    one, other = [Outbox(outbox_tables(pool), service, clock=FixedClock()) for _ in range(2)]
    other.start()
    assert await other.wait_delivered(ANNA, 60)
    await one.put(ANNA, Memory(text="tea", idempotency_key="a"))

    assert await other.wait_delivered(ANNA, 60)
    assert {"a": (ANNA, "tea")} == service.kept
    await asyncio.gather(one.stop(), other.stop())


@pytest.mark.parametrize("kind", ["file", "database"])
async def test_replies_stand_once_they_are_complete(kind: str, pool: PostgresPool, tmp_path: Path) -> None:
    """A complete one is not replaced, another user's is unknown, and old ones go."""
    in_file = kind == "file"
    store = SqliteReplies(tmp_path / "r.sqlite", days=1) if in_file else PostgresReplies(pool, days=1)
    old = StoredReply(message_id="old", session_id="s", state=ReplyState.COMPLETE, time=NOON - timedelta(days=3))
    first = StoredReply(message_id="m", session_id="s", state=ReplyState.COMPLETE, time=NOON, body=b"\x00\xff")
    second = StoredReply(message_id="m", session_id="s", state=ReplyState.FAILED, time=NOON, body=b"no")
    for reply in (old, first, second):
        stands = await store.put(ANNA, reply)
    found = [await store.get(who, name) for who, name in ((ANNA, "m"), (ANNA, "old"), (BORIS, "m"))]
    store.close()

    assert first == stands
    assert [first, None, None] == found


async def test_two_processes_share_an_outbox(pool: PostgresPool) -> None:
    """What one takes the other delivers; what is refused is parked, and can be tried again."""
    service, options = Service(), OutboxOptions(blames=1)
    one, other = [Outbox(outbox_tables(pool), service, clock=FixedClock(), options=options) for _ in range(2)]
    await one.put(ANNA, Memory(text="tea", idempotency_key="a"), Memory(text="poison", idempotency_key="b"))
    await one.put(BORIS, Memory(text="rum", idempotency_key="c"))
    await one.put(ANNA, Memory(text="again", idempotency_key="a"))
    status = await other.drain()
    parked = await one.list_parked()
    await asyncio.gather(one.stop(), other.stop())

    assert {"a": (ANNA, "tea"), "c": (BORIS, "rum")} == service.kept
    assert (0, 1, ["b"]) == (status.waiting, status.parked, [item.memory.idempotency_key for item in parked])


@pytest.mark.parametrize("kind", ["file", "database"])
async def test_names_are_kept_found_and_forgotten(kind: str, pool: PostgresPool, tmp_path: Path) -> None:
    """By tenant, version and name; a record that is put again has only its new names."""
    store = SqliteGraphCache(tmp_path / "g.sqlite") if kind == "file" else PostgresGraphCache(pool)
    anna = ExtractedMentions(
        record_id="a", hash="1", mentions=(Mention(0, 4, "person", "Anna"),), bonds=(), keys=("anna", "x" * 9_000)
    )
    other = ExtractedMentions(record_id="b", hash="2", mentions=(), bonds=(), keys=("anna",))
    await store.put("acme", "v1", [anna, other])
    found = (
        await store.mentioning("acme", "v1", ["anna", "nobody"]),
        await store.mentioning("acme", "v1", ["x" * 9_000]),
    )
    elsewhere = await store.mentioning("other", "v1", ["anna"]), await store.get("acme", "v2", ["a"])
    await store.put("acme", "v1", [ExtractedMentions(record_id="b", hash="3", mentions=(), bonds=(), keys=("boris",))])
    await store.forget("acme", ["a"])
    left = await store.get("acme", "v1", ["a", "b"]), await store.mentioning("acme", "v1", ["anna"])
    store.close()

    assert (["a", "b"], ["a"]) == tuple(map(list, found))
    assert ([], {}) == (list(elsewhere[0]), elsewhere[1])
    assert ({"b"}, []) == (set(left[0]), list(left[1]))


def test_the_last_builds_are_kept(pool: PostgresPool) -> None:
    """Older ones make room, whichever process made them; none is kept where none are wanted."""
    builds, none = PostgresBuilds(PostgresFiles(pool), 2), PostgresBuilds(PostgresFiles(pool), 0)
    names = [f"ctx-{number:012x}" for number in range(4)]
    for name in names:
        builds.save(name, name.encode())
    none.save("ctx-00000000000f", b"x")

    assert [names[2].encode(), names[3].encode()] == [builds.load(name) for name in names[2:]]
    for name in (names[0], "ctx-00000000000f", "another"):
        with pytest.raises(NotFound):
            builds.load(name)


def test_files_are_written_read_and_removed(pool: PostgresPool) -> None:
    """By place and name; the first to write a file that is made once decides what it holds."""
    files = PostgresFiles(pool)
    files.write("pages/a", "p.jpg", b"\x00one")
    files.write("pages/a", "p.jpg", b"\x00two")
    made = files.write_if_absent("salt", "s", b"mine"), files.write_if_absent("salt", "s", b"yours")
    before = files.read("pages/a", "p.jpg"), files.read("pages/b", "p.jpg")
    files.remove("pages/a", "p.jpg")

    assert (b"mine", b"mine") == made
    assert (b"\x00two", None, None) == (*before, files.read("pages/a", "p.jpg"))


async def test_a_store_that_is_closed_says_so(pool: PostgresPool) -> None:
    """Whoever comes afterwards is told."""
    store = PostgresReplies(pool, days=1)
    store.close()
    with pytest.raises(SourceUnavailable, match="closed"):
        await store.get(ANNA, "m")


@given(left=st.text("\x00\x01\x02ab"), right=st.text("\x00\x01\x02ab"))
def test_texts_with_nul_keep_their_order(left: str, right: str) -> None:
    """What PostgreSQL cannot hold is written otherwise, comes back as it was, and sorts as it did."""
    assert (left, right) == (unescape_nul(escape_nul(left)), unescape_nul(escape_nul(right)))
    assert "\x00" not in escape_nul(left)
    assert (left < right) == (escape_nul(left) < escape_nul(right))


@given(items=st.lists(st.text('\x00\x01\x02\\"u0a')))
def test_the_items_of_a_list_are_written_like_any_text(items: list[str]) -> None:
    """So that they equal what they are compared with, whatever the list is written in."""
    assert [escape_nul(item) for item in items] == json.loads(escape_json_list(json.dumps(items)))


@pytest.mark.parametrize(
    ("said", "lists"),
    [
        ("SELECT 1 FROM t WHERE a = ? AND b IN (SELECT value FROM json_each(?)) AND c = ?", {1}),
        ("SELECT 1 FROM json_each(:ids) i, json_each(:rows) WHERE a = :tenant", {"ids", "rows"}),
        ("SELECT ?, ?", set()),
    ],
)
def test_lists_are_told_from_texts(said: str, lists: set[str | int]) -> None:
    """By the statement that reads them, for a text may look like a list."""
    assert lists == translate_statement(said).lists


@pytest.mark.parametrize("odd", ["a\x01b", "a\x01\x02b", "\\u0000", "\\u0001"])
async def test_blocks_are_found_by_any_id_and_read_by_any_group(
    odd: str, new_url: Callable[[], str], new_folder: Callable[[], Path]
) -> None:
    """Ids and names that PostgreSQL cannot hold as they are find what they find in a folder."""
    scope = Scope(tenant="acme", user="anna", groups=(odd, "\x00"))
    page = Block(id=odd, type=BlockType.PAGE, text="Harbour", readers=(f"group:{odd}",))
    async with small_engine(Settings(home=new_folder(), store=new_url())) as engine:
        await engine.workspace.put(
            scope, [page, Block(id="b", type=BlockType.PARAGRAPH, text="Pump", parent=odd)], now=NOON
        )
        mine = await engine.blocks.get(scope, [odd, "b"])
        others = await engine.blocks.get(Scope(tenant="acme", user="boris"), [odd, "b"])

    assert ["Harbour", "Pump"] == [block.text for block in mine]
    assert [] == list(others)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("SELECT id FROM t WHERE user = ? AND b = ?", 'SELECT id FROM t WHERE "user" = %s AND b = %s'),
        ("DELETE FROM t WHERE t.user = :user", 'DELETE FROM t WHERE t."user" = %(user)s'),
        ("SELECT 1 FROM t WHERE a LIKE 'x%' AND b % 2 = 0", "SELECT 1 FROM t WHERE a LIKE 'x%%' AND MOD(b, 2) = 0"),
        (
            "SELECT 1 FROM json_each(:rows) i CROSS JOIN b ON 1 = 1",
            "SELECT 1 FROM NUMBERS_IN(%(rows)s) AS i JOIN b ON 1 = 1",
        ),
        ("SELECT a FROM b INDEXED BY b_order ORDER BY a", "SELECT a FROM b ORDER BY a"),
        (
            "INSERT INTO t (a) VALUES (?) ON CONFLICT (a) DO NOTHING",
            "INSERT INTO t (a) VALUES (%s) ON CONFLICT(a) DO NOTHING",
        ),
    ],
)
def test_statements_are_read_as_postgresql_reads_them(said: str, read: str) -> None:
    """What the two databases spell differently is spelt the other way."""
    assert read.encode() == translate_statement(said).text
