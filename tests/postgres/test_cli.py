"""Commands over a store in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contexture.cli.main import app

pytest.importorskip("psycopg", reason="psycopg is not installed")


@pytest.fixture
def said(new_url: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the store, as commands are told it."""
    url = new_url()
    monkeypatch.setenv("CONTEXTURE_STORE", url)
    monkeypatch.setenv("CONTEXTURE_HOME", str(tmp_path / "home"))
    return url


def run(*words: str) -> tuple[int, dict[str, object]]:
    """The exit code of a command, and its answer."""
    answer = CliRunner().invoke(app, [*words, "--json"])
    return answer.exit_code, json.loads(answer.stdout or answer.stderr)


def test_keys_are_made_and_listed(said: str) -> None:
    """They are in the database, not in the folder."""
    made, listed = run("keys", "add", "laptop"), run("keys", "list")

    assert (0, 0) == (made[0], listed[0])
    assert [made[1]["id"]] == [row["id"] for row in listed[1]["keys"]]


def test_a_backup_is_left_to_the_database(said: str, tmp_path: Path) -> None:
    """A file that would hold nothing of the store is not written."""
    code, answer = run("backup", str(tmp_path / "store.tar"))

    assert code == 2
    assert "pg_dump" in answer["error"]["user_message"]
    assert not (tmp_path / "store.tar").exists()


def test_the_doctor_asks_the_database(said: str) -> None:
    """It says where the store is and which version answers; a password is not shown among the settings."""
    _, answer = run("doctor")
    (found,) = [check for check in answer["checks"] if check["name"] == "database"]

    assert "PostgreSQL at" in found["detail"]


@pytest.mark.parametrize("url", ["postgres://anna:hunter2@db/app", "postgres://db/app?user=anna&password=hunter2"])
def test_a_password_is_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings hide an address that holds one."""
    monkeypatch.setenv("CONTEXTURE_STORE", url)
    _, answer = run("settings")

    assert "hunter2" not in json.dumps(answer)
