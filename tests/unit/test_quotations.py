"""Quotations, figures with their labels, and markers of other styles in answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contexture.adapters.documents.file_types import read_document
from contexture.answer.grounding import (
    CitationMarker,
    UnsupportedReason,
    find_markers,
    find_unsupported_sentences,
    normalize_markers,
    remove_unknown_markers,
)
from contexture.documents import ReadLimits
from contexture.text.segmentation import split_sentences

SAMPLES = Path(__file__).parents[2] / "examples" / "documents"


def sample_pages() -> dict[int, str]:
    """The pages of a sample as numbered sources."""
    path = next(SAMPLES.glob("*tidal*.pdf"))
    read = read_document(path, path.name, ReadLimits(draw=False), lambda _done, _total: None)
    return {page.number: page.text for page in read.pages}


def sample_sentences() -> list[tuple[int, str]]:
    """Thirty parts of sentences of the sample, with the number of their source."""
    found = [
        (number, " ".join(text[start:end].split()))
        for number, text in sample_pages().items()
        for start, end in split_sentences(text)
        if 6 <= len(text[start:end].split()) and not text[start:end].startswith(("#", "|"))
    ]
    return (found * 2)[:30] if len(found) < 30 else found[:30]


async def reasons(answer: str, sources: dict[int, str], question: str = "") -> list[UnsupportedReason]:
    """Why sentences of an answer are unsupported."""
    return [each.lack for each in await find_unsupported_sentences(answer, sources, question=question)]


@pytest.mark.parametrize("at", range(30))
async def test_true_quotations_pass(at):
    """Text that is in the cited source is not flagged, whatever the marks, the line ends and the hyphens."""
    number, sentence = sample_sentences()[at]
    words = sentence.rstrip(".").split()[at % 3 :]
    quote = " ".join(words)
    marks = ("“{}”", '"{}"', "«{}»")[at % 3]
    if at % 4 == 1:
        quote = f"{' '.join(words[:2])} … {' '.join(words[-3:])}"
    if at % 4 == 2:
        quote = quote.replace(" ", "\n", 1) if marks != '"{}"' else quote.replace(" ", "  ", 1)

    found = await reasons(f"The report says {marks.format(quote)} [{number}].", sample_pages())

    assert UnsupportedReason.QUOTE not in found


@pytest.mark.parametrize("at", range(30))
async def test_invented_quotations_do_not_pass(at):
    """One changed, added, left out or moved word makes a quotation unsupported."""
    number, sentence = sample_sentences()[at]
    words = sentence.rstrip(".").split()
    place = len(words) // 2
    changed = (
        [*words[:place], "not", *words[place:]],
        [*words[:place], "hardly", *words[place + 1 :]],
        [*words[:place], *words[place + 1 :]],
        [*words[:place], words[place][:-1] + "zed", *words[place + 1 :]],
        [words[-1], *words[1:-1], words[0]],
    )[at % 5]
    marks = ("“{}”", '"{}"', "«{}»")[at % 3]

    found = await reasons(f"The report says {marks.format(' '.join(changed))} [{number}].", sample_pages())

    assert UnsupportedReason.QUOTE in found


async def test_a_quotation_belongs_to_the_source_that_is_cited():
    """A quotation of another source than the cited one is flagged; without a citation any source will do."""
    sources = {1: "Solar power lowers bills.", 2: "Wind turbines are loud."}

    assert UnsupportedReason.QUOTE in await reasons('It says "turbines are loud" [1].', sources)
    assert UnsupportedReason.QUOTE not in await reasons('It says "turbines are loud" [2].', sources)
    assert UnsupportedReason.QUOTE not in await reasons('It says "turbines are loud".', sources)


async def test_an_omission_in_a_quotation_ends_no_sentence():
    """The marker at the end of the sentence belongs to the whole quotation."""
    sources = {1: "The board said that maintenance must not be postponed again."}

    assert [] == await reasons("The board said “maintenance must not be […] again” [1].", sources)
    assert [] == await reasons('The board said that "maintenance (...) again" must not be postponed [1].', sources)


async def test_words_of_the_question_may_be_quoted():
    """What the question says is not invented."""
    sources = {1: "Solar power lowers bills."}

    found = await reasons(
        '"Green energy" here is solar power, which lowers bills [1].', sources, "What is green energy?"
    )

    assert UnsupportedReason.QUOTE not in found


@pytest.mark.parametrize(
    ("answer", "lack"),
    [
        ("Sales grew by 6 % and costs by 14 % [1].", None),
        ("Sales grew by 14 % and costs by 6 % [1].", UnsupportedReason.LABEL),
        ("Costs grew by 6 % [1].", UnsupportedReason.LABEL),
        ("Net sales were 32,765 in 2018 [2].", None),
        ("Net sales were 31,657 in 2018 [2].", UnsupportedReason.LABEL),
        ("Cost of sales was 16,055 in 2017 [2].", None),
        ("Sales grew by 6 million [1].", UnsupportedReason.LABEL),
        ("The pilot cost 2.6 billion crowns [3].", UnsupportedReason.LABEL),
        ("The pilot cost 2.6 percent [3].", UnsupportedReason.LABEL),
        ("The pilot cost 2.6 million crowns [3].", None),
        ("The harbour cost 2.6 billion crowns [3].", None),
    ],
)
async def test_figures_stay_with_their_labels(answer, lack):
    """A figure that the source gives for another label, for another year or in another unit is flagged."""
    table = (
        "| (Millions) | 2018 | 2017 |\n| --- | --- | --- |\n| Net sales | $32,765 | $31,657 |\n"
        "| Cost of sales | 16,682 | 16,055 |"
    )

    costs = "The pilot cost 2.6 million crowns." if "pilot" in answer else "The harbour cost 2,600 million crowns."
    found = await reasons(answer, {1: "Sales grew by 6 %, while costs grew by 14 %.", 2: table, 3: costs})

    assert ([lack] if lack else []) == found


HALVES = """| ($ million) | Three months ended June 30, 2024 | Three months ended June 30, 2023 |
| --- | --- | --- |
| Net sales | 3,673 | 3,909 |
| Cost of sales | (2,951) | (3,115) |
| Trade receivables, net of allowances | 1,875 | 1,935 |
| Trade payables | 2,690 | 3,073 |
| Purchases of property, plant and equipment | (526) | (527) |

| ($ million) | Twelve months ended June 30, 2024 | Twelve months ended June 30, 2023 |
| --- | --- | --- |
| Net sales | 14,694 | 14,544 |
| Cost of sales | (11,969) | (11,724) |
| Gross margin | 18.5 | 19.4 |"""


@pytest.mark.parametrize(
    ("answer", "lack"),
    [
        ("Net sales were $14.7 billion in the twelve months ended June 30, 2024 [1].", None),
        ("Capital expenditure was $0.526 billion in 2024 [1].", None),
        ("Net sales rose from $14,544 million in 2023 to $14,694 million in 2024 [1].", None),
        ("Net sales for 2024 and 2023 were 14,694 and 14,544, respectively [1].", None),
        ("Net sales were 14,694 in 2024, and 14,544 a year earlier [1].", None),
        ("In fiscal 2023 net sales were 14,694 [1].", None),  # the year may end in 2024
        ("Gross margin fell to 18.5% in 2024 [1].", None),
        ("Net sales were $14.2 billion in 2024 [1].", UnsupportedReason.FIGURE),
        ("Net sales rose from $14,694 million in 2023 to $14,544 million in 2024 [1].", UnsupportedReason.LABEL),
        ("Cost of sales was $14,694 million in 2024 [1].", UnsupportedReason.LABEL),
        ("Trade payables were 1,875 in 2024 [1].", UnsupportedReason.LABEL),
        ("Net sales were 3,673 in the twelve months ended June 30, 2024 [1].", UnsupportedReason.LABEL),
        ("Net sales were $14.5 billion in 2024 [1].", UnsupportedReason.LABEL),
        ("Trade payables were 1,875 and trade receivables 2,690 in 2024 [1].", UnsupportedReason.LABEL),
    ],
)
async def test_figures_of_tables_stay_with_row_column_and_scale(answer, lack):
    """A rounded figure in a larger unit is the one of the table; one of another row, year or period is flagged."""
    assert ([lack] if lack else []) == [each for each in await reasons(answer, {1: HALVES}) if each != "not_in_source"]


@pytest.mark.parametrize(
    "answer",
    [
        "The documents do not contain the answer.",
        "The sources do not state the price of the crane.",
        "This is not mentioned in the documents.",
        "В документах нет ответа на этот вопрос.",
        "I could not find the answer.",
        "The documents do not state the price in 2019 or in Q3 of FY22.",
    ],
)
async def test_saying_that_there_is_no_answer_is_not_flagged(answer):
    """An honest answer needs no citation."""
    assert [] == await reasons(answer, {1: "Solar power lowers bills."})


async def test_a_claim_about_what_a_report_denies_needs_a_citation():
    """A denial that is not about the sources is a claim."""
    assert [UnsupportedReason.MARKER] == await reasons(
        "The board does not expect growth.", {1: "The board expects growth."}
    )


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("Bills fall [[1]](https://example.org/a).", "Bills fall [1]."),
        ("Bills fall 【1†source】.", "Bills fall [1]."),
        ("Bills fall 【2:0†report.pdf】.", "Bills fall [2]."),
        ("Bills fall[^1].", "Bills fall[1]."),
        ("Use `[^1]` and [[1]](a).", "Use `[^1]` and [1]."),
    ],
)
def test_markers_of_other_styles_are_understood(written, plain):
    """Linked, lenticular and footnote markers become plain ones; code stays as it is."""
    assert plain == normalize_markers(written)


@pytest.mark.parametrize(
    "text",
    [
        "The value arr[9] is read.",
        "It was built [2008].",
        "Call `items[9]` here.",
        "```\nx = [9]\n```",
        "See [9](https://a.b).",
        "The values lie in [0, 1].",
        "It matches [0-9]+ only.",
    ],
)
def test_brackets_that_cite_nothing_are_left_alone(text):
    """Indexes, years, code and links are no markers."""
    cleaned = remove_unknown_markers(text, {1, 2})

    assert (text, ()) == (cleaned.text, cleaned.removed)


def test_markers_have_offsets_and_sentences():
    """Each marker says where it is, and which sentence it supports, also behind a full stop."""
    answer = "Bills fall [1]. Wind is loud.[2] Both are clean [1, 2]."

    found = find_markers(answer)

    assert [(1,), (2,), (1, 2)] == [each.numbers for each in found]
    assert ["[1]", "[2]", "[1, 2]"] == [answer[each.start : each.end] for each in found]
    sentences = [re.sub(r"\s+", " ", answer[each.sentence_start : each.sentence_end]) for each in found]
    assert ["Bills fall [1].", "Wind is loud.[2]", "Both are clean [1, 2]."] == sentences
    assert CitationMarker(numbers=(1,), start=11, end=14, sentence_start=0, sentence_end=15) == found[0]


async def test_each_quoted_row_is_a_statement_of_its_own():
    """A marker at the end of a line ends a sentence, and the parts of a date are no figures of a row."""
    source = (
        "| name | plot | due |\n| --- | --- | --- |\n| Marta Ruiz | 1 | 2026-03-01 |\n| Jonas Beck | 2 | 2026-03-01 |\n"
        "| Ilse Kern | 3 | 2026-04-01 |"
    )
    right = ["Jonas Beck — plot: 2; due: 2026-03-01 [1]", "Ilse Kern — plot: 3; due: 2026-04-01 [1]"]

    assert [] == await reasons("\n".join(right), {1: source})
    assert [(0, 41), (42, 82)] == [(each.sentence_start, each.sentence_end) for each in find_markers("\n".join(right))]
    swapped = await find_unsupported_sentences(f"{right[0]}\nIlse Kern — plot: 2 [1]", {1: source})
    assert [("Ilse Kern — plot: 2 [1]", UnsupportedReason.LABEL)] == [(each.sentence, each.lack) for each in swapped]


async def test_a_marker_behind_a_closing_quotation_mark_belongs_to_the_sentence() -> None:
    """A full stop inside the quotation ends the sentence, and the marker after it would stand alone."""
    source = "The standard says: new applications should no longer use the valve."

    said = 'The standard says: "new applications should no longer use the valve." [1]\nThe standard is new. [1]'

    assert await find_unsupported_sentences(said, {1: source}) == ()
