"""The parts of the benchmark harness: its corpus, its vectors, its targets, its report."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from contexture.testing.doubles import HashEmbedder
from contexture.text.language import detect_language
from contexture.text.terms import extract_terms

ROOT = Path(__file__).parents[2]
NAMES = ("corpus", "caching", "options", "report", "steps", "targets", "timing", "vectors")


@pytest.fixture(scope="module")
def bench() -> Generator[dict[str, ModuleType]]:
    """The modules of the harness, which is not an installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield {name: importlib.import_module(f"benchmarks.{name}") for name in NAMES}


def results(bench, **sized):
    """Results with one figure a store."""
    machine = {"processor": "abacus", "cores": 1, "memory_gb": 1.0, "system": "none", "python": "3.11", "packages": {}}
    loads = {"load_at_start": [1.0], "load_at_end": [2.0], "questions": 12}
    stores = {int(size.removeprefix("n")): {"build_p95_ms": value} for size, value in sized.items()}
    return bench["report"].Results(
        sized=stores, general={"pack_200_worst_gap": 0.5}, detail={"x": 1.0}, machine={**machine, **loads}
    )


def test_the_corpus_is_the_same_for_the_same_seed(bench):
    """Two runs write the same records; another seed writes others."""
    first, again, other = (list(bench["corpus"].records(50, seed=seed)) for seed in (3, 3, 4))

    assert first == again
    assert first != other


def test_a_smaller_corpus_is_the_beginning_of_a_larger_one(bench):
    """Sizes differ in how far the corpus goes and in nothing else, across blocks too."""
    small, large = ([owned for block in bench["corpus"].records(n) for owned in block] for n in (1_200, 2_100))

    assert large[:1_200] == small
    assert len(large) == 2_100
    assert len({owned.record.id for owned in large}) == 2_100


def test_about_a_tenth_of_the_corpus_is_hidden(bench):
    """The benchmark's reader may not see one record in ten, for want of tenant or of rights."""
    scope = bench["corpus"].SCOPE
    everything = [owned for block in bench["corpus"].records(2_000) for owned in block]
    hidden = [o for o in everything if o.scope != scope or set(o.record.acl).isdisjoint(scope.principals)]

    assert 0.08 < len(hidden) / 2_000 < 0.12
    assert any(owned.scope == scope for owned in hidden)
    assert any(owned.scope != scope for owned in hidden)


def test_records_read_like_their_language(bench):
    """Language detection agrees with what a record says of itself."""
    block = next(bench["corpus"].records(300))

    assert {"en", "ru"} == {owned.record.lang for owned in block}
    assert all(detect_language(owned.record.text) == owned.record.lang for owned in block)


def test_questions_of_another_seed_are_other_questions(bench):
    """No measured question was asked while warming up."""
    asked = bench["corpus"].questions(300, seed=12)

    assert set(asked).isdisjoint(bench["corpus"].warm_up(300))
    assert len(set(asked)) == 300


async def test_a_question_lies_near_the_records_of_its_topic(bench):
    """The nearest record by synthetic vector shares the topic's name with the question."""
    records = [owned.record for block in bench["corpus"].records(3_000) for owned in block]
    embedder = bench["vectors"].Synthetic(HashEmbedder(384))
    rows = await embedder.embed([f"{record.title}. {record.text}" for record in records if record.lang == "en"])
    english = [record for record in records if record.lang == "en"]
    name = english[7].title.split()[0]
    asked = (await embedder.embed([f"how does the {name} do?"]))[0]
    nearest = english[int(np.argmax(rows @ asked))]

    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert set(extract_terms(name)) <= set(extract_terms(nearest.title))


async def test_paying_for_a_model_changes_no_vector(bench):
    """A run with the real embedder searches the same places as a run without."""
    asked = bench["corpus"].questions(3, seed=1)
    free, paid = (bench["vectors"].Synthetic(HashEmbedder(64), pay=pay) for pay in (False, True))

    assert np.array_equal(await free.embed(asked), await paid.embed(asked))


def test_a_trace_writes_twice_in_a_hundred(bench):
    """The fixed trace has its share of writes, and its questions come again."""
    trace = bench["caching"].trace(5_000)
    asked = [text for text in trace if text is not None]

    assert trace == bench["caching"].trace(5_000)
    assert 0.015 < 1 - len(asked) / 5_000 < 0.025
    assert len(set(asked)) < len(asked) / 4


@pytest.mark.parametrize(
    ("share", "expected"), [(0.95, 95), (0.5, 50), (0.951, 96), (1.0, 100), (0.0, 1)], ids=lambda value: f"{value:g}"
)
def test_a_percentile_is_a_measured_value(bench, share, expected):
    """The share of values asked for does not exceed it, and no smaller value does that."""
    assert expected == bench["timing"].percentile(range(100, 0, -1), share)


def test_a_row_knows_its_unit_and_its_verdict(bench):
    """The unit stands in the name; the target depends on the size of the store."""
    row = bench["targets"].Row
    slow = row(size=100_000, name="build_p95_ms", value=15.1)
    large = row(size=1_000_000, name="build_p95_ms", value=15.1)
    steady = row(size=0, name="growth_search_p95_ratio", value=3.0)

    assert ("ms", "no", "≤ 15") == (slow.unit, slow.verdict, str(slow.target))
    assert "" == large.verdict
    assert ("x", "yes") == (steady.unit, steady.verdict)
    assert ["/s", "MB", "s", ""] == [
        row(size=0, name=name, value=0.0).unit for name in ("ingest_per_s", "disk_mb", "open_s", "count")
    ]


def test_growth_compares_the_largest_store_with_the_smallest(bench):
    """One store, or one without searches, does not grow."""
    sized = {10: {"search_exact_p95_ms": 2.0}, 1_000: {"search_exact_p95_ms": 90.0}, 5: {"build_p95_ms": 1.0}}

    assert {"growth_search_p95_ratio": 45.0, "growth_records_ratio": 100.0} == bench["targets"].growth(sized)
    assert {} == bench["targets"].growth({10: sized[10]})


def test_the_headline_is_the_worst_figure(bench):
    """A step shows the greatest of the figures it stands for."""
    step = bench["steps"].Step(dict, {"worst_ms": r"a_.*_ms"})

    assert {"worst_ms": 3.0} == step.headline({"a_x_ms": 1.0, "a_y_ms": 3.0, "b_ms": 9.0})


def test_results_survive_json(bench):
    """What one run wrote, `--reuse` reads back whole."""
    before = results(bench, n100=3.0, n2000=4.0)

    assert before == bench["report"].from_json(bench["report"].to_json(before))


def test_docs_are_rewritten_between_their_markers(bench, tmp_path):
    """Writing twice leaves one table, and everything around it as it was."""
    report, page = bench["report"], tmp_path / "page.md"
    page.write_text(f"# Speed\n\n{report.BEGIN}\nold\n{report.END}\n\nThe end.\n", encoding="utf-8")
    for value in (3.0, 99.0):
        report.write_docs(page, results(bench, n100=value))
    text = page.read_text(encoding="utf-8")

    assert text.startswith("# Speed\n\n")
    assert text.endswith(f"{report.END}\n\nThe end.\n")
    assert "| 100 | `build_p95_ms` | 99 | ms | ≤ 15 | no |" in text
    assert 1 == text.count("`build_p95_ms`")
    assert "old" not in text


def test_a_page_without_markers_is_left_alone(bench, tmp_path):
    """A page that has no place for results is named, not overwritten."""
    page = tmp_path / "page.md"
    page.write_text("# Speed\n", encoding="utf-8")

    with pytest.raises(ValueError, match="no place for results"):
        bench["report"].write_docs(page, results(bench))
    assert "# Speed\n" == page.read_text(encoding="utf-8")


def test_the_documentation_has_a_place_for_results(bench):
    """The page that `--write-docs` writes by default carries both markers, in order."""
    text = bench["options"].DOCS.read_text(encoding="utf-8")

    assert 0 < text.index(bench["report"].BEGIN) < text.index(bench["report"].END)


def test_options_name_what_they_cannot_do(bench, capsys):
    """A name that no measurement has ends the run with the names there are."""
    with pytest.raises(SystemExit):
        bench["options"].options(["--only", "index,typo"])
    assert "nothing is called 'typo'" in capsys.readouterr().err


def test_a_million_is_one_more_size(bench):
    """`--million` adds the large store to the sizes asked for."""
    assert (50, 1_000_000) == bench["options"].options(["--sizes", "50", "--million"]).sizes
