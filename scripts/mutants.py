"""Mutation testing: changes one number or operator at a time in a copy of the source, and runs the nearest tests.

A mutant is killed when a test fails that passes without it, or when its tests do not end. One that survives is
untested, or equivalent to the original. The tests are those that import the mutated module, or else the nearest modules
that import it, so the score is a lower bound of what the whole suite finds.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import cache_from_source
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from changed_tests import ROOT, SOURCE, imported_names, module_name

FOLDERS = ("pipeline", "retrieval", "memory", "adapters/redaction", "adapters/index")
READ = (SOURCE, *(ROOT / "tests" / name for name in ("unit", "property", "conformance")))
IMPORTS = {path: frozenset(imported_names(path)) for folder in READ for path in sorted(folder.rglob("*.py"))}
NEED_SERVERS = {"postgres", "qdrant"}  # folders whose tests start one, and are not run here
MAX_FILES = 8  # test files that run for one mutant: those with the fewest imports, which are the most specific
SWAPS = {"<": "<=", ">": ">=", "==": "!=", "and": "or", "in": "not in", "is": "is not", "+=": "-="}
SWAPS |= {new: old for old, new in SWAPS.items()}
OPERATOR = re.compile(rb"[<>=!+]=|[<>]|\b(?:not\s+in|is\s+not|in|is|and|or)\b")


class Mutant(NamedTuple):
    """A replacement of the bytes from `start` to `end` of a source file."""

    path: Path
    start: int
    end: int
    new: str

    def __str__(self) -> str:
        """Where it is, what stood there and what does now."""
        text = self.path.read_bytes()
        line = text.count(b"\n", 0, self.start) + 1
        return f"{self.path.relative_to(ROOT)}:{line}: {text[self.start : self.end].decode()} -> {self.new}"


def find_mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file: numbers, comparisons, `and`, `or` and `+=`."""
    text = path.read_bytes()
    lines = [0, 0, *(found.end() for found in re.finditer(rb"\n", text))]

    def span(node: ast.expr) -> tuple[int, int]:
        return lines[node.lineno] + node.col_offset, lines[node.end_lineno or 0] + (node.end_col_offset or 0)

    for node in _walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and type(value := node.value) in {int, float}:
            for other in [value + 1] if isinstance(value, int) else [value / 2 or 1.0, value * 1.1 or -1.0]:
                yield Mutant(path, *span(node), repr(other))
        for left, right in pairwise(_operands(node)):
            if found := OPERATOR.search(text, span(left)[1], span(right)[0]):
                yield Mutant(path, *found.span(), SWAPS[" ".join(found.group().decode().split())])


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those inside f-strings, whose positions Python 3.11 does not know."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield child
            yield from _walk(child)


def _operands(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    return node.values if isinstance(node, ast.BoolOp) else []


@cache
def nearest_tests(module: str) -> tuple[str, ...]:
    """Tests that import a module; where there are none, those that import its importers, and so on."""
    seen, reached = {module}, {module}
    while reached:
        found = [path for path, names in IMPORTS.items() if names & reached]
        if tests := [path for path in found if not path.is_relative_to(SOURCE)]:
            best = sorted(tests, key=lambda path: len(IMPORTS[path]))[:MAX_FILES]
            return tuple(str(path.relative_to(ROOT)) for path in best)
        seen |= (reached := {module_name(path) for path in found} - seen)
    return ()


def find_killer(mutant: Mutant, copy: Path, broken: set[str]) -> str | None:
    """The test that fails with a mutant in a copy of the repository; `broken` collects those that fail without it."""
    tests, target = nearest_tests(module_name(mutant.path)), copy / mutant.path.relative_to(ROOT)
    text = mutant.path.read_bytes()
    _write(target, text[: mutant.start] + mutant.new.encode() + text[mutant.end :])
    failed = _find_failures(tests, copy, broken, "-x")
    _write(target, text)
    if failed and failed != ["timeout"] and _find_failures(failed, copy, ()):
        broken.update(failed, _find_failures(tests, copy, broken))
        return find_killer(mutant, copy, broken)
    return failed[0] if failed else None


def _write(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)  # a cached file is told by size and second alone


def _find_failures(tests: Sequence[str], copy: Path, without: Iterable[str], *options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", "-mnot slow and not needs", *options, *tests]
    command += [f"--deselect={test}" for test in without]
    settings = {"cwd": copy, "env": os.environ | {"PYTHONPATH": f"{copy}/src"}, "timeout": 600}  # noqa: TID251
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)  # noqa: S603
    except subprocess.TimeoutExpired:
        return ["timeout"]
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return (found or [tests[0]]) if done.returncode not in {0, 5} else []  # 5: no test is left


def main(sample: int, seed: int) -> None:
    """Test a sample of all mutants, and print which survive and how many do not."""
    files = {path for folder in FOLDERS for path in (SOURCE / "contexture" / folder).rglob("*.py")}
    mutants = sorted({each for path in files if NEED_SERVERS.isdisjoint(path.parts) for each in find_mutants(path)})
    chosen = random.Random(seed).sample(mutants, min(sample, len(mutants)))  # noqa: S311
    killed, broken = 0, set[str]()
    with tempfile.TemporaryDirectory(prefix="contexture-mutants-") as folder:
        copy = shutil.copytree(ROOT, Path(folder, "copy"), ignore=shutil.ignore_patterns(".venv*", ".git", ".*cache"))
        for mutant in chosen:
            killer = find_killer(mutant, copy, broken)
            killed += killer is not None
            print(f"killed    {mutant}  by {killer}" if killer else f"survived  {mutant}", flush=True)
    print("left out, because they fail without any mutant:", *sorted(broken or {"none"}), sep="\n  ")
    print(f"{killed} of {len(chosen)} mutants killed, chosen from {len(mutants)} with seed {seed}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Mutation testing of the core packages.")
    parser.add_argument("--sample", type=int, default=20, help="how many mutants to test")
    parser.add_argument("--seed", type=int, default=0, help="the seed that chooses them")
    main(**vars(parser.parse_args()))
