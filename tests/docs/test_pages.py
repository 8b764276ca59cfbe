"""Pages that repeat the code say what the code says; run this file to write them again."""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
import tempfile
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from contexture import errors
from contexture.cli._output import exit_code
from contexture.cli.main import app
from contexture.config import Settings

ROOT = Path(__file__).parents[2]
CLI = ROOT / "docs" / "cli.md"
SETTINGS = ROOT / "docs" / "settings.md"
ERRORS = ROOT / "docs" / "errors.md"
FIDELITY = ROOT / "docs" / "fidelity.md"
README = ROOT / "README.md"
SAMPLE = re.compile(r"(<!-- demo: .*? -->\n```text\n)(.*?)(```\n<!-- /demo -->)", re.DOTALL)
ANSWER = re.compile(r"(<!-- answer: .*? -->\n```text\n)(.*?)(```\n<!-- /answer -->)", re.DOTALL)
NUMBER = re.compile(r"ctx-\w+| *\d[\d.]*")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")

CLI_HEAD = """# The command line

With `--json` every command prints one JSON document, also for errors.
Exit codes are listed with the [errors](errors.md).
`--home DIR`, before or after the command, is the folder of the store.
The default is `CONTEXTURE_HOME`, or else `.contexture` in the working folder.
`--tenant`, `--user` and `--group` set the identity that a command acts for.
"""
SETTINGS_HEAD = """# Settings

Each setting is read from its environment variable.
In Python, pass it to `contexture.Settings` by its name in lower case, without the prefix.
An argument overrides the environment, and the environment overrides the default.
Lists are written as JSON: `CONTEXTURE_GROUPS='["sales"]'`.
`contexture settings` prints the current values and their origins.
"""


def commands(command=None, path=()):
    """Every command by its words, groups before their members."""
    here = command or get_command(app)
    yield path
    for name, below in sorted(getattr(here, "commands", {}).items()):
        yield from commands(below, (*path, name))


def help_text(path):
    """What `--help` prints for a command, in a terminal of a hundred columns."""
    found = CliRunner().invoke(app, [*path, "--help"], prog_name="contexture", env={"COLUMNS": "100"}).stdout
    return "\n".join(line.rstrip() for line in found.strip().splitlines())


def cli_page():
    """The page of every command."""
    parts = [f"## contexture {' '.join(path)}".rstrip() + f"\n\n```text\n{help_text(path)}\n```" for path in commands()]
    return "\n\n".join([CLI_HEAD.strip(), *parts]) + "\n"


def settings_page():
    """The page of every setting."""
    rows = [
        f"| `{env}` | {_default(field.default)} | {field.description} |"
        for env, field in zip(Settings.env_names(), Settings.model_fields.values(), strict=True)
    ]
    return "\n".join([SETTINGS_HEAD, "| variable | default | meaning |", "|---|---|---|", *rows]) + "\n"


def sample(home):
    """The second context of the demonstration, as a terminal of 90 columns shows it."""
    shown = CliRunner().invoke(app, ["demo", "--no-serve", "--home", str(home)], env={"COLUMNS": "90"}).stdout
    second = shown.split("\n\n2. ")[1].split("\n\n3. ")[0]
    return "".join(f"{line.rstrip()}\n" for line in second.splitlines()[1:])


def _default(value):
    return "none" if value is None or value in ("", ()) else f"`{str(value).lower() if value is False else value}`"


def test_the_command_page_holds_every_help_text():
    """A command, an option or a sentence that changes is changed on the page too."""
    assert cli_page() == CLI.read_text()


def test_the_settings_page_holds_every_setting():
    """Names, defaults and meanings are those in force."""
    assert settings_page() == SETTINGS.read_text()


@pytest.mark.parametrize("name", Settings.env_names())
def test_every_setting_is_documented(name):
    """A setting that is not on the settings page does not exist."""
    assert f"| `{name}` |" in SETTINGS.read_text()


@pytest.mark.parametrize(
    "error",
    [found for _, found in inspect.getmembers(errors, inspect.isclass) if found is not errors.ContextError],
    ids=lambda error: error.__name__,
)
def test_every_error_is_documented_with_its_code_and_exit(error):
    """The row of an error says its wire code, its exit code and whether to retry."""
    raised = errors.BudgetTooSmall(2, 1) if error is errors.BudgetTooSmall else error("x")
    (row,) = [line for line in ERRORS.read_text().splitlines() if line.startswith(f"| `{error.__name__}` |")]

    assert [f"`{error.code}`", str(exit_code(raised)), "yes" if error.retryable else "no"] == [
        cell.strip() for cell in row.strip("|").split("|")[2:]
    ]


def test_the_sample_in_the_readme_is_what_the_demonstration_shows(tmp_path):
    """Readers see on the first page what they will see on their screen, but for scores and costs."""
    shown = SAMPLE.search(README.read_text())[2]

    assert NUMBER.sub("0", sample(tmp_path)) == NUMBER.sub("0", shown)


def first_answer(folder):
    """What the first commands of the README print, typed in a terminal of 90 columns in an empty folder."""
    commands = re.search(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)[1]
    (folder / "examples").symlink_to(ROOT / "examples")
    with contextlib.chdir(folder):
        shown = [
            CliRunner().invoke(app, shlex.split(line)[1:], env={"COLUMNS": "90"}).stdout
            for line in commands.splitlines()
        ]
    return "".join(f"{line.rstrip()}\n" for line in "".join(shown).splitlines())


def test_the_first_answer_in_the_readme_is_what_is_printed(tmp_path):
    """Readers who type the first commands see what the page shows."""
    shown = ANSWER.search(README.read_text())[2]

    assert "[1]" in shown
    assert NUMBER.sub("0", first_answer(tmp_path)) == NUMBER.sub("0", shown)


def test_every_test_that_pins_a_formula_exists():
    """The fidelity page names tests that are there."""
    path, missing = "", []
    named = re.findall(r"`(tests/[\w/]+\.py)?::(test_\w+)`", FIDELITY.read_text())
    for file, name in named:
        path = file or path
        if f"def {name}(" not in (ROOT / path).read_text():
            missing.append(f"{path}::{name}")

    assert named
    assert [] == missing


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_between_pages_lead_somewhere(page):
    """A relative link names a file that exists."""
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert [] == broken


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        README.write_text(SAMPLE.sub(lambda found: found[1] + sample(folder) + found[3], README.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        answer = first_answer(Path(folder))
        README.write_text(ANSWER.sub(lambda found: found[1] + answer + found[3], README.read_text()))
    CLI.write_text(cli_page())
    SETTINGS.write_text(settings_page())
