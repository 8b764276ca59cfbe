"""Whatever a reader can paste is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples
from typer.testing import CliRunner

from contexture.cli.main import app
from contexture.errors import MissingLibrary

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
PYTHON = [example for example in find_examples(*map(str, PAGES)) if example.prefix.startswith("py")]
BASH = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty folder with the sample corpus beside it, as in a clone."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("example", PYTHON, ids=str)
def test_python_examples_run(example: CodeExample, eval_example: EvalExample, workplace):
    """Every Python snippet runs, and prints what it says it prints."""
    raised = None
    try:
        eval_example.run_print_check(example)
    except Exception as failure:  # noqa: BLE001 - an example may raise anything
        raised = failure
    # Said here, without the failure as its context: frames of examples have no positions, and Python 3.11.2 cannot
    # format them, which would end pytest itself.
    if isinstance(raised, MissingLibrary):
        pytest.skip(str(raised))
    if raised is not None:
        pytest.fail(f"{example}: {type(raised).__name__}: {raised}", pytrace=False)


def scripts():
    """Every page with the commands it tells people to type."""
    for page in PAGES:
        lines = [line for block in BASH.findall(page.read_text()) for line in block.splitlines() if line.strip()]
        if lines:
            yield pytest.param(lines, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("lines", list(scripts()))
def test_commands_run(lines, workplace):
    """The commands of a page, typed in order in an empty folder, all succeed."""
    for line in lines:
        program, *words = shlex.split(line.removeprefix("$ "), comments=True)
        assert program == "contexture", f"only contexture commands can be checked: {line!r}"
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{line!r}: {result.output}"
