"""What documents and questions say about companies, periods, forms and statements, and how tables are cut."""

from __future__ import annotations

import pytest

from contexture.builders.research.build import page_to_candidate
from contexture.documents import Page, Region, RegionKind
from contexture.pages._questions import match_label, match_rows, read_question, weigh_page
from contexture.pages.records import (
    DocumentFields,
    cut_page,
    cut_stored_page,
    find_statements,
    lists_contents,
    page_record,
    read_document_fields,
)
from contexture.pages.values import Document, FoundPage
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Record
from support.research import stored

TABLE = "| (Millions) | 2018 | 2017 |\n| --- | --- | --- |\n" + "\n".join(
    f"| Row {number} of the statement with a long label | {number},100 | {number},200 |" for number in range(20)
)


def paged(text: str, *tables: str) -> Page:
    """A page whose text has these tables."""
    regions = [
        Region(
            kind=RegionKind.TABLE,
            box=(0, 0, 1, 1),
            text=table,
            start=text.index(table),
            end=text.index(table) + len(table),
        )
        for table in tables
    ]
    first = text.split("\n\n", maxsplit=1)[0]
    heading = Region(kind=RegionKind.HEADING, box=(0, 0, 1, 1), text=first, start=0, end=len(first))
    return Page(number=1, text=text, regions=(heading, *regions))


def document(filename: str, text: str = "", title: str = "") -> Document:
    """A document of one page."""
    return Document(
        doc_id="d1", filename=filename, extension="pdf", source_path=filename, timestamp=NOON,
        pages=(Page(number=1, text=text),), title=title,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (document("Northquay_2018_10K.pdf"), DocumentFields(company="Northquay", form="10-K", years=(2018,))),
        (
            document("Northquay_2023Q2_10Q.pdf"),
            DocumentFields(company="Northquay", form="10-Q", years=(2023,), quarter=2),
        ),
        (
            document(
                "scan0001.pdf",
                "# FORM 10-K\n\nFor the fiscal year ended June 30, 2021\n\n# Senn Harbours, Inc.\n"
                "(Exact name of registrant)",
            ),
            DocumentFields(company="Senn Harbours", form="10-K", years=(2021,)),
        ),
        (document("notes about pumps.pdf", "Pumps leak."), DocumentFields()),
    ],
)
def test_fields_are_read_from_the_name_the_title_and_the_first_page(made, fields):
    """Company, form, year and quarter; none are made up for other documents."""
    assert fields == read_document_fields(made)


def test_a_question_prefers_the_document_and_the_statement_that_it_names():
    """Each field that the question names makes a page weigh more."""
    asked = read_question("What was Senn Harbours' FY2018 capital expenditure in the cash flow statement of the 10-K?")
    named = {"company": "Senn Harbours", "form": "10-K", "years": [2018], "quarter": 0, "statements": ["cash_flow"]}

    weights = [weigh_page(asked, {**named, name: None}) for name in ("company", "form", "years", "statements")]

    assert all(weight < weigh_page(asked, named) for weight in weights)
    assert 1.0 == weigh_page(asked, {})
    assert "property" in asked.related


@pytest.mark.parametrize(
    ("question", "label", "matches"),
    [
        ("What were the total assets in 2018?", "Total assets", True),
        ("What were the assets in 2018?", "Total assets", True),
        ("How much did they spend on research and development?", "Research, development and related expenses", True),
        ("What were the accounts receivable?", "Accounts receivable — net of allowances of $103 and $95", True),
        ("FY2018 capital expenditure", "Purchases of property, plant and equipment (PP&E)", True),
        ("What were the total assets in 2018?", "Total other intangible assets", False),
        ("What were the total assets in 2018?", "Total", False),
        ("What were the sales in 2018?", "2018", False),
        ("What drove the increase in inventories?", "Inventories", False),
        ("Why did accounts receivable grow?", "Accounts receivable", False),
        ("What are wages as a percent of net sales?", "Net sales", False),
    ],
)
def test_a_question_asks_for_the_row_whose_label_it_has(question, label, matches):
    """In its own words or in those of a report; a label with other words, a reason and the base of a share are none."""
    table = f"| (Millions) | 2018 | 2017 |\n| --- | --- | --- |\n| Other | 9 | 9 |\n| {label} | 1,577 | 1,373 |"

    assert matches == (match_rows(read_question(question), table) > 0)
    assert 0 == match_rows(read_question(question), f"The report speaks of {label}.")


def test_a_label_with_one_word_of_a_question_answers_it_less_than_one_with_several():
    """The name of a company is not what a question asks for."""
    question = "What were Northquay's total assets in 2018?"

    assert match_label(question, "Total Northquay") < match_label(question, "Total assets")
    assert 0 == match_label(question, "Total other intangible assets")


def test_a_row_counts_more_on_the_page_of_a_statement():
    """And raises the weight of any page."""
    asked = read_question("What were the total assets?")

    assert 1 < weigh_page(asked, {}, row=1) < weigh_page(asked, {"statements": ["balance"]}, row=1)


def test_a_list_of_contents_ranks_below_the_pages_that_it_names():
    """Unless the question asks for it; a page with a short list is no list of contents."""
    items = "\n".join(f"- {number} Chapter of pumps {number + 3}" for number in range(1, 9))
    payload = page_record(document("manual.pdf"), Page(number=2, text=f"# Contents\n\n{items}")).payload
    short = page_record(document("manual.pdf"), Page(number=3, text=f"{items[:40]}\n\nPumps are oiled.")).payload

    assert weigh_page(read_question("How are pumps oiled?"), payload) < 1
    assert 1 == weigh_page(read_question("Which chapters does the manual have?"), payload)
    assert 1 == weigh_page(read_question("How are pumps oiled?"), short)


@pytest.mark.parametrize(
    ("text", "is_index"),
    [
        (
            " ".join(
                rf"\\pump{letter} . . . . . . . . {at}, {at + 4}" for at, letter in enumerate("abcdefghijklmn", 1)
            ),
            True,
        ),
        ("\n".join(f"| crane-{letter} . . . . . . | {at} |" for at, letter in enumerate("abcdefghijklmn", 1)), True),
        ("\n".join(f"pump {letter}, {at}, {at + 3}" for at, letter in enumerate("abcdefghijklmn", 1)), True),
        (
            "\n".join(f"| Sales of cranes, pumps and other harbour goods {at} | 1,{at}00 |" for at in range(10, 40)),
            False,
        ),
        (
            "As tables 4, 5 and 6 show, pumps of types 2, 3 and 5 are oiled in 12 harbours, 9 of them in May. " * 9,
            False,
        ),
    ],
)
def test_an_index_is_a_list_of_contents(text, is_index):
    """Terms with page numbers, behind leaders or commas; tables and sentences with numbers are none."""
    assert is_index == lists_contents(Page(number=1, text=text))


def test_a_year_inside_a_number_is_not_named():
    """Amounts and longer numbers name no year."""
    assert frozenset() == read_question("Who paid 120180 crowns for 3m of rope?").years


def test_rows_of_a_table_are_searched_with_its_caption_and_header():
    """Every group of rows carries the caption, the header and the fields of the document."""
    text = f"# Cash flows\n\nConsolidated Statement of Cash Flows\n\n{TABLE}\n\nSee the notes."
    page = paged(text, TABLE)
    made = document("Senn_2018_10K.pdf")

    cuts = cut_page(made, page, read_document_fields(made))(Record(id="d1:1", text=text, acl=(PUBLIC,)))
    rows = [cut for cut in cuts if text.startswith("|", cut.start)]

    assert len(rows) > 2
    assert all("Consolidated Statement of Cash Flows (Millions) | 2018 | 2017" in cut.search_text for cut in rows)
    assert all("Senn 10-K 2018" in cut.search_text for cut in cuts)
    assert "".join(text.split()) == "".join("".join(text[cut.start : cut.end].split()) for cut in cuts)


def test_a_page_headed_by_a_statement_shows_it():
    """The title and a table make a statement; the title in running text does not."""
    assert ("cash_flow",) == find_statements(paged(f"# Statement of Cash Flows\n\n{TABLE}", TABLE))
    assert () == find_statements(paged("# Notes\n\nThe statement of cash flows is on page 60."))


def test_the_header_of_a_table_weighs_as_much_as_its_best_row():
    """A page that is shortened to some rows shows the header with them."""
    text = f"Some words.\n\n{TABLE}"
    place = text.index("| Row 7")
    passage = page_to_candidate(stored("d1", 1, text))
    assert passage.citation is not None
    hit = type(passage)(
        id="p", key="p", text="", section="pages", score=0.8,
        citation=type(passage.citation)(
            collection="pages", record_id="d1:1", title="", start=place, end=place + 10, hash="", page=1
        ),
    )  # fmt: skip

    found = page_to_candidate(
        stored("d1", 1, text), FoundPage(doc_id="d1", page=1, filename="d1.pdf", score=0.8, candidates=(hit,))
    )
    heavy = [
        text[start:end].split("\n", maxsplit=1)[0]
        for (start, end), weight in zip(found.sentences, found.weights, strict=True)
        if weight
    ]

    assert "| (Millions) | 2018 | 2017 |" == heavy[0]
    assert heavy[-1].startswith("| Row 7")


def test_a_stored_page_is_cut_as_it_was_when_it_was_written():
    """The record of a page is enough to know what its vectors were computed from."""
    text = f"# Cash flows\n\nStatement\n\n{TABLE}"
    page, made = paged(text, TABLE), document("Senn_2018_10K.pdf", title="Annual report")
    record = page_record(made, page)

    assert cut_page(made, page, read_document_fields(made))(record) == cut_stored_page(record)
