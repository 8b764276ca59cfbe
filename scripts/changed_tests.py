"""Prints the unit tests of what changed: changed test files, and those that import a changed module.

What changed is what differs from HEAD, or what the last commit changed when nothing does. `make check` runs them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TESTS = ROOT / "tests"
UNIT = TESTS / "unit"
MOST = 24
"""Test files that `make check` runs at most."""


def changed_files() -> set[Path]:
    """Files that differ from HEAD, untracked ones included; those of the last commit when there are none."""
    found = _git("diff", "--name-only", "HEAD") | _git("ls-files", "--others", "--exclude-standard")
    return found or _git("show", "--name-only", "--format=", "HEAD")


def unit_tests(changed: set[Path]) -> list[Path]:
    """Unit tests that changed, then those that import a changed module, directly or through others; nearest first."""
    files = [*SOURCE.rglob("*.py"), *(TESTS / "support").rglob("*.py")]
    imports = {module_name(path): set(imported_names(path)) for path in files}
    tests = {path: set(imported_names(path)) for path in sorted(UNIT.glob("test_*.py"))}
    found = [path for path in tests if path in changed]
    reached = {name for path in changed if path.suffix == ".py" and (name := module_name(path))}
    seen = set(reached)
    while reached and len(found) <= MOST:
        found += [path for path in tests if path not in found and tests[path] & reached]
        reached = {name for name, names in imports.items() if names & reached} - seen
        seen |= reached
    return found


def _git(*words: str) -> set[Path]:
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return {ROOT / line for line in found.stdout.splitlines()}


def module_name(path: Path) -> str:
    """The name under which tests import a file; empty for files that they do not import."""
    if path.is_relative_to(SOURCE):
        root = SOURCE
    elif path.is_relative_to(TESTS / "support"):
        root = TESTS
    else:
        return ""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported_names(path: Path) -> Iterator[str]:
    """Every dotted name a file imports, and the modules those names may be in."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


if __name__ == "__main__":
    tests = unit_tests(changed_files())
    for test in tests[:MOST]:
        print(test.relative_to(ROOT))
    if len(tests) > MOST:
        print("more unit tests import what changed: make test", file=sys.stderr)
    if not tests:
        print("no unit test imports what changed: make test", file=sys.stderr)
