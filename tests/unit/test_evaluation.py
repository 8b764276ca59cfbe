"""Measures and folders of the evaluation."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fpdf import FPDF

from contexture.config import Settings
from contexture.errors import InvalidRequest
from contexture.evaluation import _harness as harness
from contexture.evaluation import corpus
from contexture.evaluation.commands import evaluate_commands
from contexture.evaluation.corpus import evaluate_pages


def test_ndcg_is_one_for_a_perfect_ranking() -> None:
    """All gold first, in any order among themselves, is as good as it gets."""
    assert 1.0 == harness.ndcg(["b", "a", "x"], {"a", "b"}, 10)


def test_ndcg_discounts_by_rank() -> None:
    """One gold record at rank two is worth 1/log2(3)."""
    assert pytest.approx(0.6309, abs=1e-4) == harness.ndcg(["x", "a"], {"a"}, 10)


def test_ndcg_ignores_what_comes_after_k() -> None:
    """Gold beyond the first `k` does not count."""
    assert 0.0 == harness.ndcg(["x", "y", "a"], {"a"}, 2)


def test_recall_is_the_share_of_gold_found() -> None:
    """Two of four gold records among the first three are a half."""
    assert 0.5 == harness.recall(["a", "x", "b", "c"], {"a", "b", "c", "d"}, 3)


def test_reciprocal_rank_looks_at_the_first_gold() -> None:
    """The second place is worth a half."""
    assert 0.5 == harness.reciprocal_rank(["x", "a", "b"], {"a", "b"}, 10)


@pytest.mark.parametrize("measure", [harness.ndcg, harness.recall, harness.reciprocal_rank])
def test_nothing_to_find_counts_as_nothing(measure) -> None:
    """A question without gold measures 0, not an error."""
    assert 0.0 == measure(["a"], set(), 10)


def test_percentile_and_mean_of_nothing_are_zero() -> None:
    """Empty lists have no percentile and no mean; both are 0."""
    assert (0.0, 0.0) == (harness.percentile([], 0.5), harness.mean([]))


def test_percentile_takes_the_value_at_the_share() -> None:
    """The 95th percentile of 1 to 100 is 96, the first value above 95 % of them."""
    assert 96 == harness.percentile(list(range(1, 101)), 0.95)


def test_merged_spans_hold_each_character_once() -> None:
    """Overlapping, touching and empty spans become the fewest spans that hold the same characters."""
    assert [(0, 7), (9, 10)] == harness.merge_spans([(5, 7), (0, 5), (3, 6), (9, 10), (8, 8)])


def test_overlap_counts_common_characters() -> None:
    """Only characters in both sides count."""
    assert (3, 10) == (harness.count_overlap([(0, 5), (8, 10)], [(3, 9)]), harness.count_characters([(0, 5), (5, 10)]))


def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    """What is not JSON, and what lacks a field, is refused with its place."""
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": 3}\n')
    (tmp_path / "queries.jsonl").write_text("\nnot json\n")

    with pytest.raises(InvalidRequest, match=r"corpus\.jsonl:2: a row needs id, text"):
        harness.load_corpus(tmp_path)
    with pytest.raises(InvalidRequest, match=r"queries\.jsonl:2: not JSON"):
        harness.load_questions(tmp_path)


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    """A folder without the files says which one it wants."""
    with pytest.raises(InvalidRequest, match=r"corpus\.jsonl"):
        harness.load_corpus(tmp_path / "none")
    with pytest.raises(InvalidRequest, match=r"corpora/\*\.md"):
        harness.load_texts(tmp_path)


def test_a_malformed_clock_time_keeps_the_day(tmp_path: Path) -> None:
    """Rows are dated in UTC; one whose day is malformed too has no date."""
    dates = ["2026-04-08T::00Z", "2026-04-08", "2026/04/08", "2026-04-08T02:00:00+02:00", "spring", None]
    rows = [{"id": at, "text": "x", "date": date} for at, date in enumerate(dates)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    day = datetime(2026, 4, 8, tzinfo=UTC)

    assert [day] * 4 + [None] * 2 == [record.time for record in harness.load_corpus(tmp_path)]


def test_questions_know_when_they_are_asked(tmp_path: Path) -> None:
    """The day in `asked` is what relative times in the question are relative to."""
    row = {"id": 1, "text": "What happened this week?", "gold": [], "asked": "2022/06/16"}
    (tmp_path / "queries.jsonl").write_text(json.dumps(row))

    assert [datetime(2022, 6, 16, tzinfo=UTC)] == [question.asked for question in harness.load_questions(tmp_path)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of three records with a question for each of two groups."""
    rows = [
        {"id": "tea", "title": "Tea", "text": "Green tea is brewed at eighty degrees.", "group": "kitchen"},
        {"id": "bread", "title": "Bread", "text": "Bread rises for an hour in the bakery.", "group": "kitchen"},
        {"id": "pump", "title": "Pump", "text": "The pump is repaired by the night shift.", "group": "plant"},
    ]
    asked = [
        {"id": "1", "text": "How hot should green tea be brewed?", "gold": ["tea"], "group": "kitchen"},
        {"id": "2", "text": "Who repairs the pump?", "gold": ["pump"], "group": "plant"},
        {"id": "3", "text": "What colour is the sky?", "gold": []},
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    return tmp_path


async def test_retrieval_finds_every_gold_record_of_a_small_corpus(folder: Path, tmp_path: Path) -> None:
    """Each answerable question ranks its record first, within its group."""
    seen: list[str] = []
    settings = Settings(home=tmp_path / "home")
    scores = await corpus.evaluate_retrieval(folder, settings=settings, progress=lambda task, *_: seen.append(task))

    assert (1.0, 1.0, 2) == (scores["ndcg@10"], scores["recall@5"], scores["queries"])
    assert {"load", "search"} == set(seen)


async def test_a_budget_shows_the_gold_text(folder: Path, tmp_path: Path) -> None:
    """With room for everything the gold record is shown whole, within the tokens given."""
    found = await corpus.evaluate_budget(folder, tokens=[300], settings=Settings(home=tmp_path / "home"))

    assert (1.0, 1.0) == (found["300"]["gold_hit"], found["300"]["gold_text"])
    assert 0 < found["300"]["tokens"] <= 300


async def test_spans_are_found_in_a_long_text(tmp_path: Path) -> None:
    """The sentence that answers is inside the context, and precision says how much else is."""
    text = "\n\n".join(f"Paragraph {n} speaks of nothing in particular, at some length." * 5 for n in range(20))
    text += "\n\nThe lighthouse keeper feeds forty gulls each morning."
    start = text.index("The lighthouse")
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "book.md").write_text(text)
    row = {"id": "1", "text": "How many gulls are fed?", "corpus": "book", "spans": [[start, len(text)]]}
    (tmp_path / "queries.jsonl").write_text(json.dumps(row))

    found = await corpus.evaluate_spans(tmp_path, tokens=200, settings=Settings(home=tmp_path / "home"))

    assert [tuple(row["spans"][0])] == list(harness.load_span_questions(tmp_path)[0].spans)
    assert 1.0 == found["recall"]
    assert 0 < found["iou"] <= found["precision"] <= 1


async def test_pages_are_ranked_over_all_files(tmp_path: Path) -> None:
    """Recall counts gold pages among the first, and a miss has its rank, or none if the page was not found."""
    (tmp_path / "pdfs").mkdir()
    for name, texts in (
        ("pumps", ("The pump of station two leaks.", "Bearings are greased.")),
        ("cranes", ("Cranes.",)),
    ):
        pdf = FPDF()
        pdf.set_font("Helvetica", size=10)
        for text in texts:
            pdf.add_page()
            pdf.text(20, 60, text)
        pdf.output(str(tmp_path / "pdfs" / f"{name}.pdf"))
    questions = [
        {"id": "q1", "text": "Which pump leaks?", "gold": ["pumps.pdf#1"]},
        {"id": "q2", "text": "Which pump leaks?", "gold": ["pumps.pdf#9"]},
    ]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, questions)))

    found = await evaluate_pages(tmp_path, settings=Settings(home=tmp_path / "home"))

    assert (0.5, 0.5, 2) == (found["recall@1"], found["recall@10"], found["queries"])
    assert {"q2": {"pumps.pdf#9": None}} == found["misses"]


async def test_commands_are_measured_on_dated_articles(tmp_path: Path) -> None:
    """The article that answers is retrieved, quoted first, and in the prompt; the clock is the question's date."""
    rows = [
        {"id": "a", "title": "Ferry crews strike", "date": "2026-03-10", "source": "a.example",
         "text": "CNN —\n\nFerry crews in Nortka went on strike over the new night timetable on Monday."},
        {"id": "b", "title": "Bakery opens", "date": "2026-03-09", "source": "b.example",
         "text": "A bakery opened beside the old lighthouse and sells rye bread from six in the morning."},
        {"id": "c", "title": "Ferry crews strike again", "date": "2026-06-10", "source": "a.example",
         "text": "Ferry crews in Nortka went on strike a second time, three months after the first dispute."},
    ]  # fmt: skip
    asked = [{"id": "q", "text": "Why did ferry crews in Nortka strike?", "asked": "2026/03/12", "gold": ["a"]}]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)), "utf-8")

    found = await evaluate_commands(tmp_path, window="1m", settings=Settings(home=tmp_path / "home"))

    names = ("gold_retrieved", "gold_quoted", "gold_first", "gold_in_prompt")
    assert dict.fromkeys(names, 1.0) == {name: found[name] for name in names}


async def test_an_unknown_window_is_refused(tmp_path: Path) -> None:
    """The error names the windows that exist."""
    with pytest.raises(InvalidRequest, match="6h, 12h"):
        await evaluate_commands(tmp_path, window="5m", settings=Settings(home=tmp_path))
