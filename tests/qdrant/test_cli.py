"""Commands over a store in Qdrant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from contexture.cli.demo import demo_settings
from contexture.cli.main import app
from contexture.config import IndexOptions, Settings
from contexture.types import Collection, Scope
from contexture.wiring._store import open_index

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

if TYPE_CHECKING:
    from support.qdrant import QdrantDouble


@pytest.fixture
def told(qdrant: QdrantDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the store, as commands are told it."""
    monkeypatch.setenv("CONTEXTURE_STORE", qdrant.place)
    monkeypatch.setenv("CONTEXTURE_HOME", str(tmp_path / "home"))
    return qdrant.place


def run(*words: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code of a command, and its answer."""
    answer = CliRunner().invoke(app, [*words, "--json"])
    return answer.exit_code, json.loads(answer.stdout or answer.stderr)


def check(name: str) -> dict[str, str]:
    """What the doctor says of one part."""
    return next(each for each in run("doctor")[1]["checks"] if each["name"] == name)


def test_the_doctor_asks_qdrant(told: str, qdrant: QdrantDouble) -> None:
    """It says where Qdrant is and which version answers, or that none does."""
    there = check("index")
    qdrant.stop()
    gone = check("index")

    assert {"name": "index", "status": "ok", "detail": f"Qdrant at {told!r} answers, version 1.20.0"} == there
    assert ("broken", True) == (gone["status"], f"Qdrant at {told!r} failed" in gone["detail"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QDRANT_API_KEY", "hunter2"),
        ("TRUTH", "postgres://anna:hunter2@db/app"),
        ("STORE", "qdrant://db?api_key=hunter2"),
    ],
)
def test_the_key_is_not_shown(told: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Settings hide it, also where it stands in an address."""
    monkeypatch.setenv(f"CONTEXTURE_{name}", value)
    _, answer = run("settings")

    assert "hunter2" not in json.dumps(answer)


def test_the_doctor_knows_which_versions_do(told: str, qdrant: QdrantDouble) -> None:
    """A Qdrant that is too old is told before a write to it fails."""
    qdrant.version = "1.9.7"
    old = check("index")

    assert ("broken", True) == (old["status"], "1.16 or newer" in old["detail"])


def test_an_old_qdrant_is_refused_when_records_are_loaded(told: str, qdrant: QdrantDouble, tmp_path: Path) -> None:
    """Before anything is written, with both versions and what to do."""
    qdrant.version = "1.15.4"
    (tmp_path / "notes.md").write_text("# Pump\n\nThe pump leaks oil.\n")
    code, answer = run("ingest", str(tmp_path / "notes.md"))

    assert code != 0
    assert "has version 1.15.4, but 1.16 or newer is needed: upgrade" in str(answer)
    assert [] == qdrant.bodies("PUT")


def test_the_demonstration_has_a_store_of_its_own(tmp_path: Path) -> None:
    """It shares the Qdrant, and neither the folder nor the schema."""
    chosen = Settings(home=tmp_path, store="qdrant://db", truth="postgres://db/app?schema=mine")
    demo = demo_settings(chosen)

    assert (tmp_path / "demo", "qdrant://db") == (demo.home, demo.store)
    assert demo.truth.endswith("schema=mine_demo")
    assert "" == demo_settings(chosen.model_copy(update={"truth": ""})).truth


def test_a_backup_is_that_of_the_truth(told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a folder is looked for there; one in a database is left to the database."""
    missing = str(run("backup", str(tmp_path / "store.tar"))[1])
    monkeypatch.setenv("CONTEXTURE_TRUTH", "postgres://127.0.0.1:1/app")
    code, answer = run("backup", str(tmp_path / "other.tar"))

    assert "there is no store" in missing
    assert (2, True) == (code, "pg_dump" in str(answer))


def test_the_truth_is_what_moves(told: str, tmp_path: Path) -> None:
    """A move from Qdrant is refused, and the error says what is moved instead."""
    code, answer = run("migrate", "--from", told, "--to", str(tmp_path / "new"))

    assert (2, True) == (code, "migrate its record store" in str(answer))


async def test_the_exact_limit_in_qdrant_is_its_own(told: str, tmp_path: Path) -> None:
    """A process compares a million vectors in the time in which Qdrant compares far fewer."""
    settings = Settings(store=told, home=tmp_path / "home", exact_limit=7, qdrant_exact_limit=3)
    index = await open_index(IndexOptions(vectors={"v": 4}, settings=settings))
    await index.create(Scope.local(), Collection(name="notes"))
    part, spaces = index._search_backend.collection_index("local", "notes"), await index.spaces(Scope.local(), "notes")
    await index.close()

    assert 3 == part.exact_limit
    assert spaces is None  # and which vectors there are is not asked
