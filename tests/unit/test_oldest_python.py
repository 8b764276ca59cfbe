"""What is meant for the oldest Python suits it, whichever Python runs the tests: Debian 12 has 3.11.2."""

import re
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
DEBIAN_12 = "3.11.2"
CHARACTERS = re.compile(r"\[ \^? \]? (?:\\.|[^\]\\])* \]", re.VERBOSE)
POSSESSIVE_GROUP = re.compile(r"\) (?:[*+?] | \{+\d*,?\d*\}+) \+", re.VERBOSE)


def test_every_pinned_package_runs_on_debian_12() -> None:
    """Packages have asked for a later patch of 3.11 than Debian has."""
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    pinned = [line for line in lines if "==" in line and not line.startswith(" ")]
    assert len(pinned) > 100
    assert [line for line in pinned if not needed_python(line).contains(DEBIAN_12)] == []


def test_no_pattern_has_a_possessive_group() -> None:
    """Before Python 3.11.5 such a group keeps what a round took that then failed; an atomic one does not."""
    lines = [line for path in (ROOT / "src").rglob("*.py") for line in path.read_text("utf-8").splitlines()]
    assert [line for line in lines if POSSESSIVE_GROUP.search(CHARACTERS.sub("c", line))] == []
    assert POSSESSIVE_GROUP.search(CHARACTERS.sub("c", r"\d(?:[)*+ -]?\d){{11,18}}+"))


def needed_python(pinned: str) -> SpecifierSet:
    """The Pythons that the installed package says it runs on."""
    return SpecifierSet(str(distribution(Requirement(pinned).name).metadata.json.get("requires_python", "")))
