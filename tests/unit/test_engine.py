"""The engine in one object, over small embedders; its wiring and its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

import contexture
from contexture import Contexture, QueryRequest, Settings, wiring
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.redaction.default import NoopRedactor
from contexture.builders.replay import Explanation
from contexture.capsule import pack_capsule
from contexture.errors import InvalidRequest, NotFound, StoreLocked, UnknownAdapter, UnknownCollection
from contexture.ledger import State
from contexture.pipeline.redaction import Hashed, Masked, Placeholders
from contexture.testing.doubles import NOON, FixedClock
from contexture.types import PUBLIC, AnyOf, Collection, Equals, FieldType, Record, Scope
from support.workbench import Parts

RECORDS = (
    Record(id="pump", title="Pump", text="The pump leaks. Mail anna@example.org about it.", acl=(PUBLIC,)),
    Record(id="valve", text="The pump has a valve.", acl=("user:local",)),
)


def settings(folder: Path, **changes: Any) -> Settings:
    """Settings for a store in a folder."""
    return Settings(home=folder, **changes)


@asynccontextmanager
async def engine(folder: Path, **changes: Any) -> AsyncIterator[Contexture]:
    """An engine over doubles."""
    speakers = Parts().encoders
    store = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=speakers.vectors, threads=1))
    opened = Contexture(settings(folder, **changes), store, speakers, FixedClock())
    try:
        yield opened
    finally:
        await opened.close()


async def test_records_become_a_context(new_folder: Callable[[], Path]) -> None:
    """Add, search, build, explain, replay and delete, with redaction on and a collection made by itself."""
    async with engine(new_folder()) as ctx:
        await ctx.add(RECORDS)
        found = await ctx.search("pump")
        built = await ctx.build("Who knows the pump?")
        explained = await ctx.explain(built.context.build_id, "pump#00000")
        capsule = await ctx.capsule(built.context.build_id)

        assert {"pump", "valve"} == {each.record_id for each in found.found}
        assert () == found.degradations
        assert "<EMAIL_1>" in built.context.text
        assert "anna@example.org" not in built.context.text
        assert (Explanation, State.KEPT) == (type(explained), explained.entry.state)
        assert built.context.messages == contexture.replay(pack_capsule(capsule))[0].messages
        assert NOON == capsule.now
        assert ("pump",) == (await ctx.delete(["pump", "missing"])).removed["documents"]


async def test_a_build_belongs_to_its_user(new_folder: Callable[[], Path]) -> None:
    """Another user's build, and another tenant's, are answered like unknown ones."""
    async with engine(new_folder()) as ctx:
        await ctx.add(RECORDS)
        built = await ctx.build("pump")
        for other in (replace(ctx.scope, user="boris"), replace(ctx.scope, tenant="globex")):
            with pytest.raises(NotFound):
                await ctx.capsule(built.context.build_id, scope=other)
            with pytest.raises(NotFound):
                await ctx.explain(built.context.build_id, "pump#00000", scope=other)


async def test_a_build_that_cannot_be_kept_is_still_given(new_folder: Callable[[], Path]) -> None:
    """A full disk costs the replay, not the answer, and the ledger says so."""
    folder = new_folder()
    (folder / "builds").write_text("a file in the way")
    async with engine(folder) as ctx:
        await ctx.add(RECORDS)
        built = await ctx.build("pump")

    assert ["builds"] == [each.source for each in built.ledger.degradations]
    assert 2 == built.ledger.count(State.KEPT)


async def test_collections_scopes_and_filters_are_passed_on(new_folder: Callable[[], Path]) -> None:
    """Each call acts in the collection and for the scope it is given."""
    boris = Scope(tenant="local", user="boris")
    async with engine(new_folder()) as ctx:
        await ctx.create(Collection(name="news", fields={"colour": FieldType.KEYWORD}))
        await ctx.add([Record(id="a", text="pump", acl=(PUBLIC,), payload={"colour": "red"})], collection="news")
        red, blue = [
            await ctx.search("pump", collection="news", scope=boris, where=Equals("colour", colour), pool=3)
            for colour in ("red", "blue")
        ]
        built = await ctx.build(QueryRequest(query="pump", collection="news"), scope=boris, now=NOON)

        assert (1, 0) == (len(red.found), len(blue.found))
        assert "boris" == built.capsule.user
        assert 1 == (await ctx.delete(["a"], collection="news", scope=boris)).count_of("news")
        with pytest.raises(UnknownCollection):
            await ctx.search("pump", collection="nowhere")


@pytest.mark.parametrize(
    "where",
    ["lang", {"like": ["lang", "en"]}, AnyOf("lang", cast("tuple[str]", ["en"]))],
    ids=["text", "json", "list"],
)
async def test_what_is_no_filter_is_refused_by_searches_and_builds(new_folder: Callable[[], Path], where: Any) -> None:
    """Neither is the filter passed over, nor does a build come back empty because of it."""
    async with engine(new_folder()) as ctx:
        await ctx.add(RECORDS)
        with pytest.raises(InvalidRequest):
            await ctx.search("pump", where=where)
        with pytest.raises(InvalidRequest):
            await ctx.build(QueryRequest(query="pump", where=where))
        with pytest.raises(InvalidRequest):
            await ctx.build_research("pump", where=where)


def test_the_choice_of_redaction() -> None:
    """Redaction is on unless someone switches it off, and its operator can be chosen."""
    assert isinstance(wiring.redactor(Settings(redaction="none")), NoopRedactor)
    assert not isinstance(wiring.redactor(Settings()), NoopRedactor)
    assert (Placeholders, Masked) == (
        wiring.operator(Settings()),
        wiring.operator(Settings(redaction_operator="mask")),
    )


def truth_modes(folder: Path) -> dict[str, int]:
    """Who may read the truth of a store."""
    return {path.name: path.stat().st_mode & 0o777 for path in folder.glob("truth.sqlite*")}


async def test_a_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    """The truth holds every text in clear, and so do the files that SQLite keeps beside it."""
    async with engine(tmp_path):
        modes = truth_modes(tmp_path)

    assert {"truth.sqlite": 0o600, "truth.sqlite-shm": 0o600, "truth.sqlite-wal": 0o600} == modes


def test_the_salt_of_a_store_is_made_once(tmp_path: Path) -> None:
    """Hashes agree between builds of one store, differ between stores, and an empty salt is made anew."""
    first, again = (hidden(settings(tmp_path, redaction_operator="hash")) for _ in range(2))
    (tmp_path / "redaction.salt").write_bytes(b"")
    another = hidden(settings(tmp_path, redaction_operator="hash"))

    assert first == again != another
    assert 0o600 == (tmp_path / "redaction.salt").stat().st_mode & 0o777
    assert 16 == (tmp_path / "redaction.salt").stat().st_size


def hidden(chosen: Settings) -> str:
    """What stands for one address."""
    made = wiring.operator(chosen)()
    assert isinstance(made, Hashed)
    return made.hide("EMAIL", "anna@example.org")


def test_the_clock_knows_its_zone() -> None:
    """The time of the machine is in UTC."""
    assert UTC == wiring.SystemClock().now().tzinfo
    assert wiring.SystemClock().now() > datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"packer": "random"},
        {"search_floor": 2},
        {"timeout_seconds": 0},
        {"keep_builds": -1},
        {"colour": "red"},
    ],
)
def test_a_setting_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    """Values that make no sense, and settings that do not exist, fail at the start."""
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_an_unknown_redactor_is_refused() -> None:
    """When it is asked for: another package may have it."""
    with pytest.raises(UnknownAdapter, match="no redactor is called 'off'; the known ones are default, none"):
        wiring.redactor(Settings(redaction="off"))


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting has a variable, and an argument wins over it."""
    monkeypatch.setenv("CONTEXTURE_MAX_TOKENS", "123")
    monkeypatch.setenv("CONTEXTURE_GROUPS", '["sales"]')

    assert (123, ("sales",)) == (Settings().max_tokens, Settings().groups)
    assert 5 == Settings(max_tokens=5).max_tokens
    assert {"CONTEXTURE_HOME", "CONTEXTURE_MAX_TOKENS"} <= set(Settings.env_names())


async def test_an_engine_that_cannot_be_wired_lets_go_of_its_store(new_folder: Callable[[], Path]) -> None:
    """After a wrong setting the store can be opened again by the same process."""
    folder = new_folder()
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            async with contexture.open(settings(folder, redaction_entities=("NO_SUCH",))):
                pass
    with pytest.raises(UnknownAdapter):
        async with contexture.open(settings(folder, embedder="no-such-embedder")):
            pass


@pytest.mark.integration
def test_the_default_engine_answers(new_folder: Callable[[], Path]) -> None:
    """With the models that ship, from code without an event loop: English and Russian find each other."""
    folder = new_folder()
    with contexture.open_sync(folder) as ctx:
        ctx.add([*RECORDS, Record(id="насос", text="Насос течёт возле клапана.", acl=(PUBLIC,))])
        with pytest.raises(StoreLocked), contexture.open_sync(folder):
            pass
        found = ctx.search("Где течёт насос?")
        built = ctx.build(QueryRequest(query="Where does the pump leak?", max_tokens=150))
        kept = ctx.explain(built.context.build_id, built.ledger.entries[0].id)

        assert "насос" == found.found[0].record_id
        assert {"pump", "valve", "насос"} == {each.record_id for each in found.found}
        assert built.context.tokens <= 150
        assert kept.entry == built.ledger.entries[0]
        assert 1 == ctx.delete(["насос"]).count_of("documents")
