"""The guards of the test suite itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"pytest\.mark\.needs\((.+?)\)")
CI = (ROOT / ".ci" / "run").read_text("utf-8")


def test_every_package_that_a_test_needs_is_installed_by_ci():
    """A test that CI can never run would be skipped for ever."""
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    wanted = {word for words in MARK.findall(tests) for word in re.findall(r'"(.+?)"', words)}

    assert "chromium" in wanted
    assert set() == {package for package in wanted if not re.search(rf"\b{re.escape(package)}\b", CI)}


@pytest.mark.parametrize("place", ["/usr/share/doc/none.pdf", "/opt/none", str(Path.home() / "none")])
def test_files_of_the_machine_are_noticed(file_guard, place):
    """Opening one is recorded, whether or not it is there; a file of the repository is not."""
    own, file_guard.opened = file_guard.opened, []
    for path in (place, str(ROOT / "README.md")):
        file_guard._audit("open", (path, "r", 0))
    found, file_guard.opened = file_guard.opened, own

    assert [place] == found


def test_a_link_to_a_file_of_the_machine_is_noticed(file_guard, tmp_path):
    """What is opened is the file behind the link."""
    (tmp_path / "link").symlink_to("/usr/share/doc/none.pdf")
    own, file_guard.opened = file_guard.opened, []
    file_guard._audit("open", (tmp_path / "link", "r", 0))
    file_guard._audit("sqlite3.connect", ("file:/usr/share/none.sqlite?mode=ro",))
    found, file_guard.opened = file_guard.opened, own

    assert ["/usr/share/doc/none.pdf", "/usr/share/none.sqlite"] == found


def test_a_process_ends_with_the_test_that_started_it():
    """What raises while a process runs does not wait for it."""
    with pytest.raises(ZeroDivisionError), subprocess.Popen(["sleep", "600"]) as process:
        raise ZeroDivisionError

    assert process.returncode is not None


@pytest.mark.parametrize("script", [".ci/run", "scripts/bare-debian"])
def test_shell_scripts_are_valid(script):
    """Bash reads them without complaint."""
    assert 0 == subprocess.run(["bash", "-n", ROOT / script], check=False).returncode
