"""Tables of figures in PDF files: rows keep their labels, cells their headers, and pages that fail keep their words."""

from __future__ import annotations

from pathlib import Path

import pytest
from fpdf import FPDF

from contexture.adapters.documents.file_types import read_document
from contexture.adapters.documents.pdf.layout import FontStyle, RawPage, Rectangle, Word, group_lines
from contexture.adapters.documents.pdf.pages import build_pages
from contexture.documents import Page, ReadLimits, RegionKind

PLAIN = ReadLimits(draw=False)
STATEMENT = (
    ("Net sales", "$", "32,765", "$", "31,657"),
    ("Cost of sales", "", "(16,682)", "", "(16,055)"),
    ("Gross profit", "", "16,083", "", "15,602"),
    ("Other, net", "", "-", "", "144"),
)


class Sheet(FPDF):
    """A page on which text is placed by its right or left edge, in points."""

    def __init__(self) -> None:
        super().__init__(unit="pt", format=(612, 792))
        self.set_auto_page_break(auto=False)
        self.set_font("Helvetica", size=9)
        self.add_page()

    def left(self, x: float, y: float, text: str) -> None:
        """Text that begins at `x`."""
        self.text(x, y, text)

    def right(self, x: float, y: float, text: str) -> None:
        """Text that ends at `x`."""
        self.text(x - self.get_string_width(text), y, text)

    def statement(self, top: float, rows=STATEMENT, *, years: tuple[str, ...] = ("2018", "2017")) -> None:
        """Rows of a label and two figures, the currency signs apart from their figures."""
        for x, year in zip((390, 520), years, strict=False):
            self.left(x, top, year)
        for at, (label, *cells) in enumerate(rows, start=1):
            self.left(60, top + 13 * at, label)
            for x, text in zip((360, 420, 490, 550), cells, strict=True):
                self.right(x, top + 13 * at, text)


def read(sheet: FPDF, folder: Path) -> tuple[Page, ...]:
    """The pages of a file that was drawn here."""
    sheet.output(str(folder / "made.pdf"))
    return read_document(folder / "made.pdf", "made.pdf", PLAIN, lambda _done, _total: None).pages


def lines_of(page: Page) -> list[str]:
    """The lines of a page's text."""
    return page.text.split("\n")


def test_a_row_keeps_its_label_and_each_figure_its_year(tmp_path):
    """Figures stand beside their label, below their year; currency signs belong to the figure after them."""
    sheet = Sheet()
    sheet.left(60, 87, "(Millions)")
    sheet.statement(87)

    lines = lines_of(read(sheet, tmp_path)[0])

    assert [
        "| (Millions) | 2018 | 2017 |",
        "| --- | --- | --- |",
        "| Net sales | $32,765 | $31,657 |",
        "| Cost of sales | (16,682) | (16,055) |",
        "| Gross profit | 16,083 | 15,602 |",
        "| Other, net | - | 144 |",
    ] == lines


def test_a_label_of_two_lines_is_one_label(tmp_path):
    """A label that goes on in the next line is joined, whichever line has the figures."""
    rows = (
        STATEMENT[0],
        ("Proceeds from maturities and", "", "", "", ""),
        ("sale of securities", "", "2,497", "", "1,354"),
        ("Net income attributable", "", "14", "", "11"),
        ("to noncontrolling interest", "", "", "", ""),
        STATEMENT[2],
    )
    sheet = Sheet()
    sheet.statement(87, rows)

    lines = lines_of(read(sheet, tmp_path)[0])

    assert "| Proceeds from maturities and sale of securities | 2,497 | 1,354 |" in lines
    assert "| Net income attributable to noncontrolling interest | 14 | 11 |" in lines


def test_a_header_over_two_columns_belongs_to_both(tmp_path):
    """A spanning header is part of the header of each column below it, and its year follows it."""
    sheet = Sheet()
    sheet.left(390, 74, "Three Months Ended June 30,")
    sheet.statement(87)

    head = lines_of(read(sheet, tmp_path)[0])[0]

    assert "|  | Three Months Ended June 30, 2018 | Three Months Ended June 30, 2017 |" == head


def test_a_header_of_two_lines_over_the_middle_column_is_its_own(tmp_path):
    """Its first line is centred on the figures like a spanning header, but goes on in the second line."""
    sheet = Sheet()
    middles = (330, 420, 510)
    sheet.left(420 - sheet.get_string_width("Europe, Middle East") / 2, 74, "Europe, Middle East")
    for middle, name in zip(middles, ("Americas", "& Africa", "Worldwide"), strict=True):
        sheet.left(middle - sheet.get_string_width(name) / 2, 87, name)
    for at, row in enumerate((("Sales", "18,400", "5,928", "34,229"), ("Costs", "9,100", "3,020", "17,005")), start=1):
        sheet.left(60, 87 + 13 * at, row[0])
        for middle, text in zip(middles, row[1:], strict=True):
            sheet.right(middle + 15, 87 + 13 * at, text)

    assert "|  | Americas | Europe, Middle East & Africa | Worldwide |" == lines_of(read(sheet, tmp_path)[0])[0]


def test_a_title_above_the_table_is_not_part_of_its_header(tmp_path):
    """A title that is centred on the page stays text before the table."""
    sheet = Sheet()
    title = "Consolidated Statements of Income"
    sheet.left(306 - sheet.get_string_width(title) / 2, 74, title)
    sheet.statement(87)

    page = read(sheet, tmp_path)[0]

    assert page.text.startswith("Consolidated Statements of Income\n\n|  | 2018 | 2017 |\n")


def test_a_table_on_the_next_page_keeps_its_header(tmp_path):
    """A table that goes on without a header has the header of the page before."""
    sheet = Sheet()
    sheet.statement(600)
    sheet.add_page()
    sheet.statement(87, years=())

    first, second = read(sheet, tmp_path)

    assert lines_of(first)[0] == lines_of(second)[0] == "|  | 2018 | 2017 |"


def test_ruling_lines_around_the_rows_do_not_part_them_from_their_header(tmp_path):
    """A grid without the header above it is read by its figures; signs of currency are no cells."""
    sheet = Sheet()
    sheet.statement(100)
    for at in range(5):
        sheet.line(58, 104 + 13 * at, 555, 104 + 13 * at)
    for x in (58, 340, 365, 425, 470, 495, 555):
        sheet.line(x, 104, x, 156)

    lines = lines_of(read(sheet, tmp_path)[0])

    assert "|  | 2018 | 2017 |" == lines[0]
    assert "| Net sales | $32,765 | $31,657 |" in lines


def test_a_title_between_the_header_and_the_first_figures_does_not_part_them(tmp_path):
    """The header is more than one line above the first row."""
    sheet = Sheet()
    sheet.set_font("Helvetica", size=6.5)
    for x, year in ((390, "2018"), (520, "2017")):
        sheet.left(x, 100, year)
    sheet.left(60, 117.5, "Major categories")
    sheet.set_font("Helvetica", size=8)
    for at, (label, *cells) in enumerate(STATEMENT, start=1):
        sheet.left(60, 117.5 + 10 * at, label)
        for x, text in zip((360, 420, 490, 550), cells, strict=True):
            sheet.right(x, 117.5 + 10 * at, text)

    assert "|  | 2018 | 2017 |" == lines_of(read(sheet, tmp_path)[0])[0]


def test_a_row_of_dashes_does_not_end_its_table(tmp_path):
    """It is a row like the others, and no header of those below it."""
    sheet = Sheet()
    dashed = ("Acquisitions", "", "-", "", "-")
    sheet.statement(100, (*STATEMENT[:2], dashed, *STATEMENT[2:]))

    page = read(sheet, tmp_path)[0]

    assert 1 == page.num_tables
    assert "| Acquisitions | - | - |" in lines_of(page)
    assert "|  | 2018 | 2017 |" == lines_of(page)[0]


def test_tables_beside_each_other_are_two_tables(tmp_path):
    """Figures of the right table do not follow the labels of the left one."""
    sheet = Sheet()
    for at, name in enumerate(("Assets", "Goodwill", "Inventories", "Prepaid costs")):
        for shift, kind in ((0, "left"), (290, "right")):
            sheet.left(40 + shift, 100 + 13 * at, f"{name} {kind}")
            sheet.right(200 + shift, 100 + 13 * at, f"{at + 1},10{at}")
            sheet.right(270 + shift, 100 + 13 * at, f"{at + 1},20{at}")

    page = read(sheet, tmp_path)[0]

    assert "| Goodwill left | 2,101 | 2,201 |" in lines_of(page)
    assert "| Goodwill right | 2,101 | 2,201 |" in lines_of(page)
    assert 2 == page.num_tables


def test_a_page_of_contents_is_a_list(tmp_path):
    """Titles with page numbers that grow are list items."""
    sheet = Sheet()
    for at, (title, number) in enumerate((("Business", 4), ("Risk factors", 9), ("Properties", 14), ("Notes", 52))):
        sheet.left(60, 100 + 13 * at, f"Item {at + 1}. {title}")
        sheet.right(550, 100 + 13 * at, str(number))

    page = read(sheet, tmp_path)[0]

    assert "- Item 1. Business 4\n- Item 2. Risk factors 9\n- Item 3. Properties 14\n- Item 4. Notes 52" == page.text
    assert 0 == page.num_tables


def test_contents_with_leaders_and_numbered_sections_are_one_list(tmp_path):
    """Leaders are left out, titles keep their numbers, and titles of parts and of two lines stay in the list."""
    sheet = Sheet()
    rows = (
        ("1", "Getting started", "3"),
        ("2", "Options", "5"),
        ("2.1", "Character protrusion " + ". " * 30, "6"),
        ("2.2", "Font expansion " + ". " * 33, "7"),
        ("", "PART II", ""),
        ("3", "Selecting fonts for", ""),
        ("", "micro-typography " + ". " * 32, "9"),
        ("4", "Micro fine tuning", "11"),
    )
    for at, (number, title, page) in enumerate(rows):
        sheet.left(60, 100 + 13 * at, number)
        sheet.left(90, 100 + 13 * at, title)
        sheet.right(550, 100 + 13 * at, page)

    page = read(sheet, tmp_path)[0]

    assert [
        "- 1 Getting started 3",
        "- 2 Options 5",
        "- 2.1 Character protrusion 6",
        "- 2.2 Font expansion 7",
        "- PART II",
        "- 3 Selecting fonts for micro-typography 9",
        "- 4 Micro fine tuning 11",
    ] == lines_of(page)
    assert 0 == page.num_tables


def test_an_index_in_two_columns_is_no_list_of_contents(tmp_path):
    """Entries beside each other are not joined to one."""
    sheet = Sheet()
    for at, (left, right) in enumerate((("array", "kerning"), ("babel", "ligature"), ("caption", "margin")) * 2):
        sheet.left(60, 100 + 13 * at, f"{left} {'. ' * 12} {at + 3}")
        sheet.left(320, 100 + 13 * at, f"{right} {'. ' * 12} {at + 9}")

    assert not any("array" in line and "kerning" in line for line in lines_of(read(sheet, tmp_path)[0]))


def test_prose_in_two_columns_is_no_table(tmp_path):
    """Years and amounts inside lines of text do not make a table of it."""
    sheet = Sheet()
    for at in range(12):
        sheet.left(40, 100 + 12 * at, f"In 2018 the harbour earned {at} million crowns in storage")
        sheet.left(320, 100 + 12 * at, f"The fleet of 2017 had {at} ships and carried {at * 7} loads")

    page = read(sheet, tmp_path)[0]

    assert 0 == page.num_tables
    assert page.text.index("earned 11 million") < page.text.index("had 0 ships")


def test_page_numbers_far_above_the_edge_leave_the_text(tmp_path):
    """The last line of each page goes if it is a number that grows with the pages."""
    sheet = Sheet()
    for number in range(50, 54):
        sheet.left(60, 100, f"The notes of page {number} follow here.")
        sheet.left(300, 400, str(number))
        sheet.add_page()

    pages = read(sheet, tmp_path)[:4]

    assert [f"The notes of page {number} follow here." for number in range(50, 54)] == [page.text for page in pages]


def test_a_page_of_slanting_words_has_text(tmp_path):
    """Words at an angle are read when a page has no others."""
    sheet = Sheet()
    with sheet.rotation(30, 300, 400):
        sheet.left(250, 400, "Confidential draft")

    assert {"Confidential", "draft"} == set(read(sheet, tmp_path)[0].text.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            (("Consolidated", 0, 44), ("Balance", 46, 72), ("Shee", 74, 90), ("t", 91.6, 94)),
            "Consolidated Balance Sheet",
        ),
        ((("Vitamin", 0, 30), ("C", 32, 37), ("is", 39, 45)), "Vitamin C is"),
        (tuple((letter, 6 * at, 6 * at + 4.5) for at, letter in enumerate("REACT")), "REACT"),
        ((("1", 0, 5), ("st", 5, 11), ("Quarter", 13, 40)), "1st Quarter"),
    ],
)
def test_letters_set_apart_are_one_word(words, text):
    """A stray letter joins its word if it is nearer than other words are; a word of one letter stays."""
    style = FontStyle(8.0)

    lines = group_lines([Word(word, left, 10, right, 18, style) for word, left, right in words])

    assert [text] == [line.text for line in lines]


def test_hyphens_at_line_ends_follow_the_rest_of_the_document(tmp_path):
    """A hyphen stays in a word that has one elsewhere and before a capital, and goes otherwise."""
    sheet = Sheet()
    lines = (
        "Our long-term debt grew. The long-",
        "term plan and the non-",
        "GAAP results are inter-",
        "national matters.",
    )
    for at, line in enumerate(lines):
        sheet.left(60, 100 + 11 * at, line)

    text = read(sheet, tmp_path)[0].text

    assert "Our long-term debt grew. The long-term plan and the non-GAAP results are international matters." == text


def test_russian_words_cut_at_a_line_end_are_whole():
    """A hyphen inside a Russian word at a line end goes."""
    style = FontStyle(10.0)
    words = [
        Word("насос-", 10, 100, 50, 110, style),
        Word("ные", 10, 112, 30, 122, style),
        Word("станции", 33, 112, 80, 122, style),
    ]

    page = build_pages([RawPage(1, 600, 800, words, [], [])])[0]

    assert "насосные станции" == page.text


def test_framed_tables_beside_each_other_are_both_read():
    """Two ruled tables in one row are both in the text."""
    style = FontStyle(8.0)
    rules = [
        Rectangle(x, y, x + 0.5, y + 40) if upright else Rectangle(x, y, x + 100, y + 0.5)
        for shift in (0, 200)
        for upright, places in ((True, ((50, 100), (100, 100), (150, 100))), (False, ((50, 100), (50, 120), (50, 140))))
        for x, y in ((left + shift, top) for left, top in places)
    ]
    words = [
        Word(text, x, y, x + 20, y + 8, style)
        for text, x, y in (
            ("Part", 60, 106), ("Who", 110, 106), ("Pumps", 60, 126), ("crew", 110, 126),
            ("Gate", 260, 106), ("When", 310, 106), ("North", 260, 126), ("noon", 310, 126),
        )
    ]  # fmt: skip

    page = build_pages([RawPage(1, 600, 800, words, rules, [])])[0]

    assert 2 == page.num_tables
    assert {"Part", "Who", "Pumps", "crew", "Gate", "When", "North", "noon"} <= set(page.text.split())


def test_a_page_whose_layout_fails_keeps_its_words():
    """Words come in the order of the file, the page says that it is degraded, and the other pages are unharmed."""
    style = FontStyle(8.0)
    words = [Word("sales", 50, 10, 70, 18, style), Word("Net", 10, 10, 40, 18, style)]

    first, second = build_pages([RawPage(1, 0, 800, words, [], []), RawPage(2, 600, 800, words[:1], [], [])])

    assert "sales Net" == first.text
    assert ["its layout could not be analysed"] == [note[:32] for note in first.notes]
    assert ("sales", ()) == (second.text, second.notes)
    assert [RegionKind.TEXT] == [region.kind for region in first.regions]
