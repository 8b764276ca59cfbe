"""Questions about companies and years that no stored report covers find nothing; others are not cut short."""

from __future__ import annotations

from dataclasses import replace

import pytest
import pytest_asyncio

from contexture.documents import Page
from contexture.ledger import Trace
from contexture.pages._names import clean_company, is_short_form, list_subjects
from contexture.pages._questions import read_question, weigh_page
from contexture.pages.store import PageStore
from contexture.pages.values import Document
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.page_conformance import pages_over
from support.workbench import workbench

ANNA = Scope(tenant="acme", user="anna")

REPORT = (
    """# FORM 10-K

Annual report for the fiscal year ended December 31, 2022

# Northquay Harbours, Inc.
(Exact name of registrant)

Trading symbol: NQH""",
    "# Results\n\nTotal revenue of the Cranes segment was 912 million in 2022.",
    "# Capital expenditure\n\nCapital expenditure was 77 million in 2022, after 64 million in 2021 and 59 in 2020.",
    "# Oldport\n\nNorthquay bought Oldport in 2014 for 300 million. Revenue of Oldport was 45 million in 2022.",
    "# Debt\n\nNotes of 400 million are due in 2044. The interest rate is 4 percent. One holder is Senn Marine.",
)


def make_document(doc_id: str, filename: str, *texts: str) -> Document:
    """A document with a page per text."""
    pages = tuple(Page(number=number, text=text) for number, text in enumerate(texts, start=1))
    return Document(
        doc_id=doc_id, filename=filename, extension="pdf", source_path=filename, timestamp=NOON, pages=pages
    )


@pytest_asyncio.fixture
async def store(new_folder, tmp_path):
    """A store with the annual report of one company."""
    async with workbench(new_folder()) as bench:
        opened = pages_over(bench, tmp_path)
        await opened.add(ANNA, make_document("r1", "Northquay_2022_10K.pdf", *REPORT), now=NOON)
        yield opened


async def find_pages(store: PageStore, question: str, *, visual: bool = True) -> list[tuple[str, int]]:
    """Document and number of the pages found."""
    found = await store.find(ANNA, question, k=5, visual=visual, trace=Trace())
    return [(each.doc_id, each.page) for each in found]


@pytest.mark.parametrize(
    "question",
    [
        "What was Boeing's total revenue in FY2022?",
        "what was boeing's total revenue in 2022?",
        "What was the total revenue of Lockheed Martin in 2022?",
        "Did Goldman Sachs raise its capital expenditure in 2022?",
        "What was Senn Marine's capital expenditure in 2022?",  # which the report only names as a holder of notes
        "What was Northquay's capital expenditure in FY2005?",
        "What was the capital expenditure in 1999?",
        "What will Northquay's total revenue be in 2035?",
    ],
)
async def test_reports_do_not_answer_for_other_companies_and_years(store, question):
    """Although the report has the words of the question."""
    assert [] == await find_pages(store, question)


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("What was Northquay's capital expenditure in 2022?", 3),
        ("What was the capital expenditure of Northquay Harbours, Inc. in FY2020?", 3),
        ("what was northquay's capital expenditure?", 3),
        ("What was NQH's capital expenditure in 2022?", 3),  # the first page has this symbol
        ("Capital expenditure in 2021", 3),
        ("What Was The Capital Expenditure In 2022", 3),
        ("What was the total revenue of the Cranes segment in 2022?", 2),
        ("What was Oldport's revenue in 2022?", 4),
        ("When did Northquay buy Oldport?", 4),
        ("Which notes are due in 2044?", 5),
        ("At Goldman Sachs: what was Northquay's capital expenditure in 2022?", 3),
        ("Compare the capital expenditure of Northquay and Boeing in 2022", 3),
        ("Какие были capital expenditure у Норткей в 2022 году?", 3),
    ],
)
async def test_short_forms_subsidiaries_and_years_in_the_text_are_found(store, question, page):
    """So are questions that name nobody."""
    assert ("r1", page) in await find_pages(store, question)


async def test_documents_that_are_no_reports_are_not_filtered(store):
    """A manual answers for whatever it speaks of, whoever is named."""
    manual = make_document("m1", "pumps.pdf", "Pumps are oiled twice a year, before the season.")
    await store.add(ANNA, manual, now=NOON)

    assert [("m1", 1)] == await find_pages(store, "Are Boeing's pumps oiled before the season of 1985?", visual=False)


async def test_a_year_is_looked_for_in_the_reports_of_the_named_company(store):
    """Those of others may cover it."""
    other = make_document("r2", "Seldon_2012_10K.pdf", REPORT[2].replace("2022", "2012").replace("2021", "2011"))
    await store.add(ANNA, other, now=NOON)

    assert ("r2", 1) in await find_pages(store, "What was Seldon's capital expenditure in 2012?")
    assert [] == await find_pages(store, "What was Northquay's capital expenditure in 2012?")


async def test_how_many_is_no_word_that_a_page_needs_to_have(store):
    """One word of the question is left, and the page has it."""
    table = "| customer | paid |\n| --- | --- |\n| Anna Berg | yes |\n| Boris Low | no |"
    await store.add(ANNA, make_document("c1", "invoices.csv", table), now=NOON)

    assert [("c1", 1)] == await find_pages(store, "How many have not paid?", visual=False)
    assert [] == await find_pages(store, "How many cows graze?", visual=False)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("What was Boeing's free cash flow in FY2022?", ["Boeing"]),
        ("Did Goldman Sachs pay it?", ["Goldman Sachs"]),
        ("How much did AT&T and Bank of Senn spend?", ["AT&T", "Bank of Senn"]),
        ("What is 3M's EBITDA?", ["3M"]),
        ("What was Amcor's Adjusted Non GAAP EBITDA for FY 2023 in the Cash Flow Statement?", ["Amcor"]),
        ("Based on the Income Statement, what is the Net Income for Q2 of FY2023?", []),
        ("Explain the outlook. Which risks are named in Item 1A of the 10-K?", []),
        ("What Were The Total Current Assets Of Cranes", []),
        ("what is the company's debt?", []),
    ],
)
def test_names_in_questions_are_told_from_terms_of_finance(question, names):
    """Words with a capital at the start, in a title and in terms of reports name nobody."""
    assert names == [each.name for each in list_subjects(question)]


@pytest.mark.parametrize(
    ("name", "company", "meant"),
    [
        ("Boeing", "THE BOEING COMPANY", True),
        ("Coca Cola", "The Coca-Cola Company", True),
        ("Verizon", "VERIZON COMMUNICATIONS INC.", True),
        ("Amazon", "AMAZON.COM, INC.", True),
        ("AMD", "Advanced Micro Devices, Inc.", True),
        ("JnJ", "JOHNSON & JOHNSON", True),
        ("AmEx", "American Express Company", True),
        ("Pepsi", "PEPSICO", True),
        ("General", "General Mills, Inc.", False),
        ("American", "AMERICAN WATER WORKS", False),
        ("Ball", "Ballard Power", True),
        ("UAL", "Ulta Beauty", False),
        ("EBITDA", "eBay Inc.", False),
        ("", "Ulta Beauty", False),
    ],
)
def test_short_forms_of_a_company(name, company, meant):
    """The beginning of its name, or the beginnings of its words."""
    assert meant == is_short_form(name, company)


def test_legal_forms_and_articles_are_no_part_of_a_name():
    """A name that is nothing else stays."""
    assert ["Boeing", "JPMORGAN CHASE", "Company"] == [
        clean_company(name) for name in ("The Boeing Company", "JPMORGAN CHASE & CO.", "Company")
    ]


def test_a_short_form_in_a_question_prefers_the_documents_of_the_company():
    """As its whole name does."""
    payload = {"company": "JOHNSON & JOHNSON"}

    assert weigh_page(read_question("What is JnJ's net income?"), payload) > 1
    assert weigh_page(read_question("What is Johnson & Johnson's net income?"), payload) > 1
    assert 1 == weigh_page(read_question("What is Pfizer's net income?"), payload)
    assert 1 == weigh_page(replace(read_question("What is JnJ's net income?"), subjects=()), payload)
