"""The comparison with other libraries: its harness runs end to end for ours, without any of the others."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("contestant", "entries", "material", "picture", "prepare", "score", "table")

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def peers() -> Generator[dict[str, ModuleType]]:
    """The modules of the harness, which is not an installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield {name: import_module(f"benchmarks.peers.{name}") for name in NAMES}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """One run of ours over 200 records, and of another library whose environment is not there."""
    folder = tmp_path_factory.mktemp("peers")
    (folder / "page.md").write_text(
        "# Before\n\n<!-- peers: written by `python -m benchmarks.peers --write-docs` -->\n"
        "stale\n<!-- end of peers -->\n\nafter\n",
        encoding="utf-8",
    )
    data = folder / "known"
    data.mkdir()
    records = [{"id": "pump", "text": "Viktor repairs the pump."}, {"id": "ship", "text": "Судно стоит в порту."}]
    questions = [{"id": "q", "text": "Who repairs the pump?", "gold": ["pump"]}]
    for name, rows in (("corpus", records), ("queries", questions)):
        (data / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    asked = ["--sizes", "200", "--questions", "6", "--only", "contexture,chroma", "--python", str(folder / "none")]
    asked += ["--data", str(data), "--vectors", str(folder / "vectors")]
    places = ["--json", "told.json", "--write-docs", "page.md", "--picture", "peers.svg"]
    placed = [str(folder / place) if "." in place else place for place in places]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", *asked, *placed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, json.loads((folder / "told.json").read_text(encoding="utf-8")), folder


def test_ours_is_measured_and_within_budget(quick):
    """Every figure of the row is there, and no prompt is larger than it may be."""
    row = quick[1]["parts"][0]["rows"]["contexture"]

    assert {"load_s", "rss_mb", "p50_ms", "p95_ms", "cpu_ms"} <= row.keys()
    assert 6 == row["questions"]
    assert 500 < row["tokens_mean"] <= row["tokens_max"] <= 2_000
    assert 0 == row["over_en_share"]


def test_quality_is_measured_where_answers_are_known(quick):
    """A folder of questions gives ranks and whether the answers are in the prompt."""
    part = quick[1]["parts"][1]
    row = part["rows"]["contexture"]

    assert ("known", 2, True) == (part["title"], part["documents"], part["gold"])
    assert 1 == row["ndcg@10"] == row["recall@5"] == row["gold_hit"]


def test_who_cannot_run_is_named(quick):
    """A library that is not installed is left out by name and with the reason."""
    assert ["chroma"] == list(quick[1]["parts"][0]["left_out"])
    assert "Chroma is left out: there is no" in quick[0]


def test_the_table_goes_between_the_markers(quick):
    """The page keeps what stands around the table, and the table is the printed one."""
    page = (quick[2] / "page.md").read_text(encoding="utf-8")

    assert page.startswith("# Before\n")
    assert page.endswith("<!-- end of peers -->\n\nafter\n")
    assert "stale" not in page
    assert quick[0].strip() in page


def test_the_picture_is_an_svg_with_a_bar_for_each(quick):
    """What is drawn can be read by a browser, and shows who was measured."""
    drawn = ET.fromstring((quick[2] / "peers.svg").read_text(encoding="utf-8"))  # noqa: S314 - we drew it ourselves
    bars = [each for each in drawn if each.tag.endswith("rect")]

    assert 1 == len(bars)
    assert "Contexture" in "".join(drawn.itertext())


def test_a_page_without_room_is_refused(quick, peers, tmp_path):
    """A page that lost its markers is an error, not a page without a table."""
    page = tmp_path / "page.md"
    page.write_text("# Nothing here\n", encoding="utf-8")

    with pytest.raises(ValueError, match="no place for peers"):
        peers["table"].write_docs(page, quick[1])


def test_material_is_read_back_as_it_was_written(peers, tmp_path):
    """What other environments read is what was prepared."""
    material = peers["material"]
    asked = [material.Asked("q1", "who?", "en", ("a",)), material.Asked("q2", "кто?", "ru")]
    given = material.Material(
        documents=[material.Document("a", "One\u2028line.", "en")],
        vectors=np.eye(1, 3, dtype=np.float32),
        questions=asked[:1],
        warm_up=asked[1:],
        asked=np.eye(2, 3, dtype=np.float32),
    )
    material.write(tmp_path, given)
    again = material.read(tmp_path)

    assert (given.documents, given.questions, given.warm_up) == (again.documents, again.questions, again.warm_up)
    assert np.array_equal(given.vectors, again.vectors)
    assert [1, 0, 0] == again.by_text["who?"].tolist()


def test_a_prompt_over_budget_is_counted_by_language(peers):
    """Shares are those of the questions in each language, and only the true count matters."""
    asked = [peers["material"].Asked(lang, "?", lang) for lang in ("en", "en", "ru")]
    answers = [{"prompt": "word " * count, "ranking": [], "shown": None} for count in (10, 3_000, 5_000)]
    numbers = peers["score"].budget({"answers": answers}, asked)

    assert (0.5, 1.0) == (numbers["over_en_share"], numbers["over_ru_share"])
    assert numbers["tokens_max"] > 4_900


def test_gold_counts_when_every_record_is_shown(peers):
    """A record is shown when the contestant says so, or else when its text begins in the prompt."""
    material, score = peers["material"], peers["score"]
    documents = [material.Document("a", "Alpha begins.", "en"), material.Document("b", "Beta begins.", "en")]
    asked = [material.Asked(f"q{at}", "?", "en", ("a", "b")) for at in range(4)]
    shown = [("Alpha begins. Beta begins.", None), ("Alpha begins.", None), ("", ["a", "b"]), ("Alpha begins.", ["a"])]
    answers = [{"prompt": prompt, "ranking": ["b", "a"], "shown": told} for prompt, told in shown]
    numbers = score.quality({"answers": answers}, asked, documents)

    assert 0.5 == numbers["gold_hit"]
    assert 1 == numbers["ndcg@10"] == numbers["recall@5"]


def test_the_plain_prompt_stops_at_the_first_text_that_does_not_fit(peers):
    """Libraries that pack nothing get whole texts, best first, within the budget."""
    texts = ["a" * 1_000, "b" * 950, "c" * 10]
    prompt = peers["contestant"].plain_prompt(texts, "question?", len)

    assert texts[0] in prompt
    assert texts[1] not in prompt
    assert texts[2] not in prompt
    assert len(prompt) <= 2_000


def test_questions_are_spread_over_the_whole_set(peers):
    """Fewer questions than there are come from everywhere, each once."""
    asked = [peers["material"].Asked(str(at), "?", "en") for at in range(100)]
    some = [int(each.id) for each in peers["prepare"].spread(asked, 7)]

    assert sorted(set(some)) == some
    assert (7, 0) == (len(some), some[0])
    assert some[-1] > 80
    assert asked[:3] == peers["prepare"].spread(asked[:3], 7)
