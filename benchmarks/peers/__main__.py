"""Contexture and its peers in one run: `python -m benchmarks.peers` prints a table and writes peers-results.json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.entries import ENTRIES
from benchmarks.peers.picture import drawn
from benchmarks.peers.prepare import Folder
from benchmarks.peers.run import ROOT, Plan, known, measured
from benchmarks.peers.table import markdown, write_docs


def main(arguments: Sequence[str]) -> None:
    """Measure what the options ask for, or read it again, and report it."""
    given = _options(arguments)
    if given.reuse:
        results = json.loads(given.json.read_text(encoding="utf-8"))
    else:
        results = measured(_plan(given), lambda line: print(line, file=sys.stderr, flush=True))
        given.json.write_text(json.dumps(results, indent=2, ensure_ascii=False), encoding="utf-8")
    print(markdown(results))
    if given.write_docs is not None:
        write_docs(given.write_docs, results)
    if given.picture is not None:
        given.picture.write_text(drawn(results), encoding="utf-8")


def _plan(given: argparse.Namespace) -> Plan:
    return Plan(
        sizes=given.sizes,
        folders=[Folder(path, given.asked, given.vectors, given.records) for path in given.data],
        names=given.only,
        questions=given.questions,
        python=given.python,
    )


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--sizes", type=_numbers, default=(5_000, 50_000), help="records in each made-up corpus")
    parser.add_argument("--questions", type=int, default=200, help="questions over each made-up corpus")
    parser.add_argument("--data", type=Path, action="append", default=[], help="a folder with corpus and queries.jsonl")
    parser.add_argument("--asked", type=int, default=300, help="questions of each folder, evenly spaced")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of each folder, the answers first")
    parser.add_argument("--vectors", type=Path, default=ROOT / ".contexture" / "peers", help="where vectors are kept")
    parser.add_argument("--only", type=_names, default=tuple(ENTRIES), help=f"of {', '.join(ENTRIES)}")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-peers" / "bin" / "python", help="for the others")
    parser.add_argument("--json", type=Path, default=ROOT / "peers-results.json", help="where the results are written")
    parser.add_argument("--reuse", action="store_true", help="measure nothing; read the results of an earlier run")
    parser.add_argument("--write-docs", type=Path, nargs="?", const=ROOT / "docs" / "benchmarks.md", metavar="PAGE")
    parser.add_argument("--picture", type=Path, nargs="?", const=ROOT / "docs" / "images" / "peers.svg", metavar="SVG")
    return parser.parse_args(arguments)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _names(text: str) -> tuple[str, ...]:
    try:
        return tuple(known(name) for name in text.split(","))
    except ValueError as unknown:
        raise argparse.ArgumentTypeError(str(unknown)) from unknown


if __name__ == "__main__":
    main(sys.argv[1:])
