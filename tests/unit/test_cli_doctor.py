"""The doctor: what is fit, what is missing, what is broken, and what to do about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from contexture import wiring
from contexture.adapters.bus import nats
from contexture.adapters.index.lock import StoreLock
from contexture.cli.main import app
from contexture.errors import SourceUnavailable, explain_missing_module
from contexture.testing.doubles import ScriptedChatModel
from contexture.wiring import checks


def examined(home, *, env=None):
    """The exit code, and every check by name."""
    result = CliRunner().invoke(app, ["doctor", "--home", str(home), "--json"], env=env)
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)["checks"]}


@pytest.fixture(autouse=True)
def only_settings(monkeypatch):
    """Where the evaluation sets are is told to tests alone."""
    monkeypatch.delenv("CONTEXTURE_EVAL_DATA", raising=False)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CONTEXTURE_EMBEDDERS", "did you mean CONTEXTURE_EMBEDDER?"),
        ("CONTEXTURE_ZZZ", "`contexture settings` lists them"),
    ],
)
def test_a_misspelt_setting_is_named(tmp_path, name, hint):
    """It would have no effect, and nobody would notice."""
    code, found = examined(tmp_path / "none", env={name: "x"})

    assert (1, "broken") == (code, found["settings"]["status"])
    assert f"{name} is set, but there is no such setting: {hint}" == found["settings"]["detail"]


def test_secrets_are_no_misspelt_settings(tmp_path):
    """Their names are told by a prefix."""
    env = {"CONTEXTURE_SECRETS_PREFIX": "CONTEXTURE_MINE_", "CONTEXTURE_MINE_KEY": "x"}

    assert "ok" == examined(tmp_path / "none", env=env)[1]["settings"]["status"]


def test_a_part_that_fails_in_any_way_is_broken_and_the_others_are_checked(tmp_path, monkeypatch):
    """A redactor of another package may return what is no span."""
    monkeypatch.setattr(checks.wiring, "redactor", lambda settings: SimpleNamespace(scan=lambda text, lang: "x"))
    code, found = examined(tmp_path / "none")

    assert (1, "broken", "ok") == (code, found["redactor"]["status"], found["embedders"]["status"])
    assert "AttributeError: 'str' object has no attribute 'label'" == found["redactor"]["detail"]


def test_this_machine_is_fit(tmp_path):
    """Every needed part is in order here, and nothing was made by looking."""
    code, found = examined(tmp_path / "none")

    assert code == 0
    assert {"python", "sqlite", "store", "lock", "index", "tokenizers", "redactor", "embedders"} <= set(found)
    assert {"ok"} == {found[name]["status"] for name in found.keys() - set(checks.EXTRA_PACKAGES)}
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "status", "said"),
    [
        ("", "ok", "in the store, encoded by granite"),
        ("chroma:pages", "ok", "in chroma:pages"),
        ("chroma+http://127.0.0.1:9", "broken", "Chroma at"),
        ("nowhere", "broken", "write `chroma:FOLDER`"),
    ],
)
def test_pages_are_looked_for_where_they_live(tmp_path, place, status, said):
    """A server that is not there and a place that is none are broken; a folder is not made by looking."""
    _, found = examined(tmp_path / "none", env={"CONTEXTURE_PAGES_INDEX": place})

    assert status == found["pages"]["status"]
    assert said in found["pages"]["detail"]
    assert [] == list(tmp_path.iterdir())


def test_a_bus_that_is_not_there_is_broken(tmp_path, monkeypatch):
    """Where none is named there is nothing to reach."""
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 0.2)
    _, without = examined(tmp_path / "none")
    code, found = examined(tmp_path / "none", env={"CONTEXTURE_BUS": "nats://127.0.0.1:1"})

    assert ("ok", "broken", 1) == (without["bus"]["status"], found["bus"]["status"], code)
    assert "127.0.0.1:1" in found["bus"]["detail"]


def test_without_a_chat_model_the_doctor_says_how_to_connect_one(tmp_path):
    """For each kind of vendor by name, with the settings to make."""
    _, found = examined(tmp_path / "none")

    assert "ok" == found["chat model"]["status"]
    for name in ("OPENAI_API_BASE", "litellm:ollama_chat/", "ANTHROPIC_API_KEY"):
        assert name in found["chat model"]["detail"]


@pytest.mark.parametrize(("said", "status", "code"), [("OK", "ok", 0), (SourceUnavailable("wrong key"), "broken", 1)])
def test_a_chat_model_is_asked_for_a_word(tmp_path, monkeypatch, said, status, code):
    """A key or an address that is wrong shows before the first question."""
    model = ScriptedChatModel(answers=[said])
    monkeypatch.setattr(wiring, "chat_model", lambda name: model)
    ended, found = examined(tmp_path / "none", env={"CONTEXTURE_CHAT_MODEL": "litellm:openai/m"})

    assert (status, code) == (found["chat model litellm:openai/m"]["status"], ended)
    assert 1 == len(model.asked)
    assert ("wrong key" in found["chat model litellm:openai/m"]["detail"]) == (code == 1)


def test_output_for_a_pipe_is_plain_and_not_wrapped(tmp_path):
    """One line a row, without rules; a width in COLUMNS asks for the table of a terminal."""
    plain = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)]).stdout
    wide = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)], env={"COLUMNS": "60"}).stdout

    assert not set(plain) & set("│┃━╇─")
    assert next(line for line in plain.splitlines() if line.startswith("store ")).rstrip().endswith("can be written")
    assert "│" in wide
    assert max(map(len, wide.splitlines())) <= 60


def test_people_get_a_table(tmp_path):
    """Without `--json` the same is a table."""
    shown = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)]).stdout

    assert "USE weights" in shown
    assert "can be written" in " ".join(shown.replace("│", " ").split())


def test_a_store_in_use_names_its_holder(tmp_path):
    """A store held by another process, or by this one, is broken for us."""
    held = StoreLock(tmp_path)
    try:
        code, here = examined(tmp_path)
        command = [Path(sys.executable).with_name("contexture"), "doctor", "--home", tmp_path, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        held.release()
    [elsewhere] = [check["detail"] for check in json.loads(done.stdout)["checks"] if check["name"] == "lock"]

    assert (1, 1) == (code, done.returncode)
    assert "open in this process already" in here["lock"]["detail"]
    assert f"open in another process (pid {os.getpid()})" in elsewhere
    assert (0, "free") == (examined(tmp_path)[0], examined(tmp_path)[1]["lock"]["detail"])


def test_a_folder_that_cannot_be_written_is_broken(tmp_path):
    """A home below a file cannot be made, and the doctor says what to do."""
    (tmp_path / "file").write_text("")
    code, found = examined(tmp_path / "file" / "home")

    assert code == 1
    assert "choose another folder with --home" in found["store"]["detail"]


@pytest.mark.parametrize("name", checks.EXTRA_PACKAGES)
def test_a_missing_extra_says_what_to_type(tmp_path, monkeypatch, name):
    """An optional part that is not there breaks nothing."""
    monkeypatch.setitem(checks.EXTRA_PACKAGES, name, ("no_such_package",))
    code, found = examined(tmp_path)

    assert code == 0
    assert ("not installed", f'optional: pip install "contexture-ai[{name}]"') == (
        found[name]["status"],
        found[name]["detail"],
    )


def test_changed_weights_are_broken(tmp_path, monkeypatch):
    """A model file with another SHA-256 is named with both sums."""
    package, parts, _ = checks.WEIGHT_FILES["USE vocabulary"]
    monkeypatch.setitem(checks.WEIGHT_FILES, "USE vocabulary", (package, parts, "0" * 64))
    code, found = examined(tmp_path)

    assert code == 1
    assert f"but {'0' * 64} is pinned" in found["USE vocabulary"]["detail"]


def test_a_tokenizer_that_counts_otherwise_is_broken(tmp_path, monkeypatch):
    """Known sentences must count what they always did."""
    monkeypatch.setitem(checks.EXPECTED_COUNTS, "o200k_base", 99)

    assert "instead of 99" in examined(tmp_path)[1]["tokenizers"]["detail"]


def test_settings_are_examined_too(tmp_path):
    """An embedder nobody knows is broken, and redaction that is off is said to be off."""
    _, off = examined(tmp_path, env={"CONTEXTURE_REDACTION": "none"})
    code, unknown = examined(tmp_path, env={"CONTEXTURE_EMBEDDER": "word2vec"})

    assert "switched off" in off["redactor"]["detail"]
    assert code == 1
    assert "no embedder is called 'word2vec'" in unknown["embedders"]["detail"]


@pytest.mark.parametrize(
    ("module", "extra"), [("fastapi", "service"), ("PIL.Image", "documents"), ("tokenizers", "minilm")]
)
def test_a_missing_module_names_its_extra(module: str, extra: str) -> None:
    """Whoever lacks a package is told what to type."""
    missing = ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert f'pip install "contexture-ai[{extra}]"' in explain_missing_module(missing)
