"""The lock file suits the oldest Python it is meant for, whichever runs the tests."""

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

LOCK = Path(__file__).parents[2] / "requirements.lock"
DEBIAN_12 = "3.11.2"


def test_every_pinned_package_runs_on_debian_12() -> None:
    """Packages have asked for a later patch of 3.11 than Debian has."""
    pinned = [line for line in LOCK.read_text("utf-8").splitlines() if "==" in line and not line.startswith(" ")]
    assert len(pinned) > 100
    assert [line for line in pinned if not needed_python(line).contains(DEBIAN_12)] == []


def needed_python(pinned: str) -> SpecifierSet:
    """The Pythons that the installed package says it runs on."""
    return SpecifierSet(str(distribution(Requirement(pinned).name).metadata.json.get("requires_python", "")))
