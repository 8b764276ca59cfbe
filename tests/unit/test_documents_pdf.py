"""PDF pages: reading order, headings, tables, furniture and regions, on files drawn here and on the samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fpdf import FPDF

from contexture.adapters.documents._text import HeadingOutline
from contexture.adapters.documents.file_types import read_document
from contexture.adapters.documents.pdf.layout import FontStyle, Word, group_lines, reading_order
from contexture.documents import ReadDocument, ReadLimits, RegionKind

SAMPLES = Path(__file__).parents[2] / "examples" / "documents"
PLAIN = ReadLimits(draw=False)
WORDS = "The keeper of the gate writes down every ship that passes and the hour at which it came to the quay."


def quiet(done: int, total: int) -> None:
    """Nobody watches."""


def pages_of(path: Path, draw: Callable[[FPDF], None], limits: ReadLimits = PLAIN) -> ReadDocument:
    """A PDF that `draw` makes, read back."""
    pdf = FPDF(format="A4")
    pdf.set_auto_page_break(auto=False)
    pdf.set_font("Helvetica", size=10)
    draw(pdf)
    pdf.output(str(path / "made.pdf"))
    return read_document(path / "made.pdf", "made.pdf", limits, quiet)


def sample(name: str) -> ReadDocument:
    """A sample document, read without drawing its pages."""
    return read_document(SAMPLES / name, name, PLAIN, quiet)


def in_order(text: str, *pieces: str) -> bool:
    """Whether pieces follow each other in a text."""
    places = [text.find(piece) for piece in pieces]
    return -1 not in places and places == sorted(places)


@pytest.mark.parametrize("columns", [2, 3])
def test_columns_are_read_one_after_the_other(tmp_path, columns):
    """Lines of two and three columns do not mix, below a title that spans them."""

    def draw(pdf: FPDF) -> None:
        pdf.add_page()
        pdf.set_font("Helvetica", "B", 20)
        pdf.text(20, 20, "A title that goes over all of the columns of the page")
        pdf.set_font("Helvetica", size=9)
        for column in range(columns):
            for line in range(20):
                pdf.text(15 + column * 185 / columns, 35 + 5 * line, f"column {column} line {line} of plain words")

    text = pages_of(tmp_path, draw).pages[0].text

    starts = [f"column {column} line {line} " for column in range(columns) for line in range(20)]
    assert in_order(text, "# A title", *starts)


def test_a_word_cut_at_a_lines_end_is_whole(tmp_path):
    """Hyphens at line ends go, others stay."""

    def draw(pdf: FPDF) -> None:
        pdf.add_page()
        for at, line in enumerate(["The inter-", "national ship-owner met the har-", "bour master at noon."]):
            pdf.text(20, 60 + 5 * at, line)

    text = pages_of(tmp_path, draw).pages[0].text

    assert "The international ship-owner met the harbour master at noon." == text


def test_running_heads_and_numbers_are_furniture(tmp_path):
    """What repeats at the edges is in `furniture` and not in `text`; a line that repeats in the body stays."""

    def draw(pdf: FPDF) -> None:
        for number in range(1, 6):
            pdf.add_page()
            pdf.text(20, 12, "Harbour handbook")
            pdf.text(20, 60, f"Chapter words of page {'abcde'[number - 1]}.")
            pdf.text(20, 150, "Ask the keeper.")
            pdf.text(100, 285, f"- {number} -")

    for page in pages_of(tmp_path, draw).pages:
        assert f"Harbour handbook\n- {page.number} -" == page.furniture
        assert "handbook" not in page.text
        assert "Ask the keeper." in page.text


def test_a_title_that_runs_above_itself_is_shown_once(tmp_path):
    """On a single page, the small line at the edge that says what the title says is a running head."""

    def draw(pdf: FPDF) -> None:
        pdf.add_page()
        pdf.set_font(size=8)
        pdf.text(20, 12, "Tidal power: results")
        pdf.set_font(size=20)
        pdf.text(20, 40, "Tidal power: results")
        pdf.set_font(size=11)
        pdf.text(20, 60, "The pilot cost 2.6 million crowns.")

    (page,) = pages_of(tmp_path, draw).pages

    assert ("Tidal power: results", 1) == (page.furniture, page.text.count("Tidal power"))


def test_pages_of_one_line_keep_it(tmp_path):
    """Cards that say nearly the same at the same place are not emptied; only their numbers go."""

    def draw(pdf: FPDF) -> None:
        for number in range(1, 6):
            pdf.add_page()
            pdf.text(20, 12, f"Gauge {number} reads {number * 7} millimetres.")
            pdf.text(100, 285, f"Page {number} of 5")

    pages = pages_of(tmp_path, draw).pages

    assert [f"Gauge {n} reads {n * 7} millimetres." for n in range(1, 6)] == [page.text for page in pages]
    assert "Page 3 of 5" == pages[2].furniture


def test_an_empty_page_among_others_has_no_text(tmp_path):
    """Its running head stays furniture."""

    def draw(pdf: FPDF) -> None:
        for number in range(1, 6):
            pdf.add_page()
            pdf.text(20, 12, "Harbour handbook")
            if number != 3:
                pdf.text(20, 60, f"Chapter words of page {'abcde'[number - 1]}.")

    assert "" == pages_of(tmp_path, draw).pages[2].text


def test_larger_lines_are_headings_and_give_the_section(tmp_path):
    """Levels follow size; a page belongs to the headings that are open for most of it."""

    def draw(pdf: FPDF) -> None:
        pdf.add_page()
        for y, size, text in ((30, 20, "Harbours"), (45, 14, "Gates"), (60, 14, "Pumps")):
            pdf.set_font("Helvetica", "B", size)
            pdf.text(20, y, text)
            pdf.set_font("Helvetica", size=10)
            pdf.text(20, y + 7, WORDS if text == "Pumps" else "Few words.")
        pdf.add_page()
        for line in range(4):
            pdf.text(20, 40 + 5 * line, WORDS)

    first, second = pages_of(tmp_path, draw).pages

    assert in_order(first.text, "# Harbours", "## Gates", "## Pumps")
    assert ("Harbours > Pumps", "Pumps", 3) == (first.section_path, first.parent_heading, first.num_headings)
    assert "Harbours > Pumps" == second.section_path


def test_aligned_rows_are_a_table(tmp_path):
    """Rows that align without rules become Markdown rows, and the text around stays text."""
    rows = [("Station", "Hours", "Repairs"), ("First", "2310", "1"), ("Second", "2875", "3"), ("Third", "4120", "2")]

    def draw(pdf: FPDF) -> None:
        pdf.add_page()
        pdf.text(20, 40, WORDS)
        for at, row in enumerate(rows):
            for column, cell in enumerate(row):
                pdf.text(20 + 50 * column, 55 + 6 * at, cell)
        pdf.text(20, 90, WORDS)

    page = pages_of(tmp_path, draw).pages[0]

    assert "| Station | Hours | Repairs |\n| --- | --- | --- |\n| First | 2310 | 1 |" in page.text
    assert 1 == page.num_tables
    assert [RegionKind.TEXT, RegionKind.TABLE, RegionKind.TEXT] == [region.kind for region in page.regions]


def word(text: str, left: float, right: float, row: int = 0) -> Word:
    """A word in ten points, in a row of its page."""
    return Word(text, left, 100 + 20 * row, right, 110 + 20 * row, FontStyle(10))


@pytest.mark.parametrize(("gap", "lines"), [(8.5, ["left right"]), (9.5, ["left", "right"])])
def test_a_gap_of_nearly_a_letter_size_parts_two_lines(gap, lines):
    """Words of one row are two lines when the gap between them is wider than .9 of their size."""
    row = [word("left", 50, 70), word("right", 70 + gap, 90 + gap)]

    assert lines == [line.text for line in group_lines(row)]


@pytest.mark.parametrize(("empty", "columns"), [(0, 1), (1, 1), (2, 1), (3, 2)])
def test_rows_with_two_short_cells_are_a_table_and_not_columns(empty, columns):
    """Of twenty rows with few letters behind a gap, two may lack the second cell; with more they are two columns."""
    left = [word(f"station-{row}-of-the-harbour", 50, 250, row) for row in range(20)]
    right = [word(f"{row}-hours", 330, 480, row) for row in range(empty, 20)]

    assert columns == len(reading_order(group_lines([*left, *right]), 595))


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_turned_page_reads_like_any_other(tmp_path, turn):
    """Words that are drawn sideways or upside down are read line by line, with and without the page turned too."""
    import pypdfium2

    def draw(pdf: FPDF) -> None:
        pdf.add_page()
        with pdf.rotation(turn, x=105, y=148):
            for at, word in enumerate(["alpha", "beta", "gamma"]):
                pdf.text(40, 120 + 20 * at, f"{word} words of a line")

    straight = pages_of(tmp_path, draw).pages[0].text
    document = pypdfium2.PdfDocument(tmp_path / "made.pdf")
    document[0].set_rotation(turn)
    document.save(tmp_path / "turned.pdf")
    turned = read_document(tmp_path / "turned.pdf", "turned.pdf", PLAIN, quiet).pages[0].text

    assert in_order(straight, "alpha words of a line", "beta words of a line", "gamma words of a line")
    assert straight == turned


def test_regions_say_which_characters_they_hold():
    """On every sample each region's text is what stands at its offsets, and boxes lie on the page."""
    for name in ("tidal-pilot.pdf", "figures-2025.pdf", "otchet-nasosy.pdf", "maintenance-plan.docx"):
        for page in sample(name).pages:
            for region in page.regions:
                assert page.text[region.start : region.end] == region.text
                assert 0 <= region.box[0] <= region.box[2] <= 1
                assert 0 <= region.box[1] <= region.box[3] <= 1


def test_the_two_column_sample_is_in_reading_order():
    """The second column follows the first, sections in order."""
    text = sample("tidal-pilot.pdf").pages[0].text

    headings = "Summary,1 Why tides,2 The turbines,2.1 Maintenance,3 What was measured,4 Costs,5 Recommendation"
    assert in_order(text, *(f"# {name}" for name in headings.split(",")))
    assert in_order(text, "counted from the pier by", "volunteers. In the first month", "## 4 Costs")


def test_the_framed_tables_of_the_sample_are_tables():
    """Both tables are there, cell by cell, and so is the running head, outside the text."""
    first, second = sample("figures-2025.pdf").pages

    assert "| Northquay | 29.1 | 31.6 | +8.6 % |" in first.text
    assert "| Third | 14.1 | 10.4 | 3.7 |" in first.text
    assert 2 == first.num_tables
    assert "Figures of 2025 > Results and outlook" == second.section_path
    assert "Northquay Harbours: figures of 2025\n2" == second.furniture


def test_the_russian_sample_is_read():
    """Cyrillic text, headings and the table come through."""
    page = sample("otchet-nasosy.pdf").pages[0]

    assert "| Третья | 4120 | 2 |" in page.text
    assert in_order(page.text, "# Отчёт о состоянии насосов", "## Наработка и ремонт", "## Расход электроэнергии")


def test_pictures_of_pages_are_jpeg():
    """A page is drawn large and small."""
    page = read_document(SAMPLES / "tidal-pilot.pdf", "tidal-pilot.pdf", ReadLimits(), quiet).pages[0]

    assert page.image.startswith(b"\xff\xd8\xff")
    assert page.thumb.startswith(b"\xff\xd8\xff")
    assert len(page.thumb) < len(page.image)


def test_progress_is_told_page_by_page():
    """Whoever watches hears of each page and of how many there are."""
    heard: list[tuple[int, int]] = []
    read_document(
        SAMPLES / "figures-2025.pdf", "figures-2025.pdf", PLAIN, lambda done, total: heard.append((done, total))
    )

    assert [(1, 2), (2, 2)] == heard


def test_an_outline_follows_headings():
    """A deeper heading adds to the path, one of the same level replaces it, and most letters decide."""
    outline = HeadingOutline()

    assert (None, None) == (outline.add_page([(0, "words")]).path, outline.add_page([]).heading)
    assert "A > B" == outline.add_page([(1, "A"), (2, "B"), (0, "many words"), (2, "C"), (0, "few")]).path
    assert "A > C" == outline.add_page([(0, "more words")]).path
    assert "D" == outline.add_page([(1, "D"), (0, "words")]).path
