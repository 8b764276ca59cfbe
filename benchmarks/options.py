"""What a run measures, from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.steps import STEPS

STORES = ("index", "build", "turn", "command", "workspace", "cache")
PAGED = ("research", "visual")
NAMES = (*STORES, *PAGED, *STEPS)
DOCS = Path(__file__).parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Sizes of the stores, what to measure over them, how many questions, and where results go."""

    sizes: tuple[int, ...]
    only: tuple[str, ...]
    questions: int
    operations: int
    json: Path
    docs: Path | None
    reuse: bool
    profile: bool


def options(arguments: Sequence[str]) -> Options:
    """The options of a command line; one that cannot be meant ends the program with a sentence."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--sizes", type=_sizes, default=(10_000, 100_000), help="records in each store: 10000,100000")
    parser.add_argument("--million", action="store_true", help="measure a store of 1,000,000 records too")
    parser.add_argument("--only", type=_names, default=NAMES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="100 and 200 records and 12 questions: does it run?")
    parser.add_argument("--json", type=Path, default=Path("bench-results.json"), help="where the results are written")
    parser.add_argument("--reuse", action="store_true", help="measure nothing; read the results of an earlier run")
    parser.add_argument(
        "--write-docs", type=Path, nargs="?", const=DOCS, metavar="PAGE", help="write the results into the docs"
    )
    parser.add_argument("--profile", action="store_true", help="show the dearest functions of builds on each store")
    given = parser.parse_args(arguments)
    sizes: tuple[int, ...] = (100, 200) if given.quick else given.sizes
    return Options(
        sizes=tuple(sorted({*sizes, 1_000_000} if given.million else set(sizes))),
        only=given.only,
        questions=12 if given.quick else 300,
        operations=60 if given.quick else 5_000,
        json=given.json,
        docs=given.write_docs,
        reuse=given.reuse,
        profile=given.profile,
    )


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(","))
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a store holds at least 1 record")
    return sizes


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := sorted(set(names) - set(NAMES)):
        raise argparse.ArgumentTypeError(f"nothing is called {unknown[0]!r}; there are {', '.join(NAMES)}")
    return names
