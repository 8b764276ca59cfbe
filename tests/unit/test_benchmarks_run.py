"""`python -m benchmarks` as people run it, on a store small enough for a test."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def run(*arguments: str) -> str:
    """What the harness prints."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """One quick run: its table, its JSON, and where that stands."""
    path = tmp_path_factory.mktemp("bench") / "results.json"
    printed = run("--quick", "--only", "index,build,cache,dedupe", "--json", str(path))
    return printed, json.loads(path.read_text(encoding="utf-8")), path


def test_every_figure_is_printed_and_written(quick):
    """The table and the JSON hold the same figures, for both stores and for none."""
    printed, data, _ = quick
    figures = {(row["records"], row["name"]) for row in data["rows"]}

    assert {0, 100, 200} == {size for size, _ in figures}
    assert all(name in printed for _, name in figures)
    assert {(200, "search_exact_p95_ms"), (200, "build_p95_ms"), (0, "growth_search_p95_ratio")} <= figures
    assert {(100, "ingest_per_s"), (100, "reader_rss_mb"), (0, "cache_hits_writes_to_same_tenant_share")} <= figures


def test_what_must_hold_on_any_machine_holds(quick):
    """New records are found, budgets are kept, and a store that is gone is a degradation."""
    values = {(row["records"], row["name"]): row["value"] for row in quick[1]["rows"]}

    for size in (100, 200):
        assert 1 == values[size, "added_found_share"]
        assert 1 == values[size, "build_within_budget_share"]
        assert 1 == values[size, "build_store_down_degraded_share"]
        assert 100 < values[size, "build_tokens_mean"] <= 2_000


def test_the_parts_of_a_search_add_up(quick):
    """Every part takes some of the time, and together they take all of it."""
    names = {f"search_{part}_share" for part in ("dense", "lexical", "sqlite", "python")}
    shares = [row["value"] for row in quick[1]["rows"] if row["records"] == 200 and row["name"] in names]

    assert 4 == len(shares)
    assert all(0 < share < 1 for share in shares)
    assert pytest.approx(1.0) == sum(shares)


def test_the_machine_is_described(quick):
    """Results say what they were measured on, and how busy it was before and after."""
    machine = quick[1]["machine"]

    assert machine["cores"] >= 1
    assert {"contexture-ai", "numpy", "simsimd"} <= machine["packages"].keys()
    assert 3 == len(machine["load_at_start"]) == len(machine["load_at_end"])


def test_docs_can_be_written_from_earlier_results(quick, tmp_path):
    """`--reuse --write-docs` measures nothing and fills the page."""
    page = tmp_path / "benchmarks.md"
    shutil.copy(ROOT / "docs" / "benchmarks.md", page)
    printed = run("--reuse", "--json", str(quick[2]), "--write-docs", str(page))

    assert quick[0] == printed
    assert "`search_exact_p95_ms`" in page.read_text(encoding="utf-8").partition("## Results")[2]
