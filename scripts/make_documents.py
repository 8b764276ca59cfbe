"""Make the sample documents: `python scripts/make_documents.py [FOLDER]`, with the DejaVu fonts of Debian.

Everything in them is invented.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from document_texts import (
    FINANCE,
    HARBOURS,
    LETTER,
    PLAN,
    PUMPS,
    QUARTERS,
    RUSSIAN,
    SLIDES,
    TIDAL,
)
from docx import Document as Word
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

FONTS = Path("/usr/share/fonts/truetype/dejavu")
MADE = datetime(2026, 3, 2, 9, tzinfo=UTC)


class Paper(FPDF):
    """A4 with a running head and page numbers."""

    def __init__(self, head: str) -> None:
        super().__init__(format="A4")
        self.head = head
        self.set_margin(20)
        self.set_creation_date(MADE)
        for style, name in (("", "DejaVuSans.ttf"), ("B", "DejaVuSans-Bold.ttf")):
            self.add_font("Sans", style, FONTS / name)
        self.set_title(head)
        self.set_auto_page_break(auto=True, margin=22)
        self.add_page()

    def header(self) -> None:
        """The running head."""
        self.set_font("Sans", size=8)
        self.cell(0, 6, self.head, align="L", new_x="LMARGIN", new_y="NEXT")
        self.ln(4)

    def footer(self) -> None:
        """The page number."""
        self.set_y(-15)
        self.set_font("Sans", size=8)
        self.cell(0, 6, f"{self.page_no()}", align="C")

    def heading(self, text: str, size: int = 14) -> None:
        """A heading."""
        self.ln(2)
        self.set_font("Sans", "B", size)
        self.multi_cell(0, size * 0.5, text, align="L", new_x="LMARGIN", new_y="NEXT")
        self.ln(1)

    def paragraph(self, text: str) -> None:
        """A paragraph."""
        self.set_font("Sans", size=9)
        self.multi_cell(0, 4.6, text, align="J", new_x="LMARGIN", new_y="NEXT")
        self.ln(2)


def paragraphs(paper: Paper, parts: Sequence[tuple[str, str]]) -> None:
    """Write headings (`h1`, `h2`) and paragraphs (`p`)."""
    for kind, text in parts:
        if kind == "p":
            paper.paragraph(text)
        else:
            paper.heading(text, 14 if kind == "h1" else 11)


def tidal(folder: Path) -> None:
    """Two columns below a title that spans them."""
    paper = Paper("Northquay tidal power: results of the pilot")
    paper.heading(TIDAL[0][1], 18)
    columns = paper.text_columns(ncols=2, gutter=8, text_align="J", line_height=1.3)
    for kind, text in TIDAL[1:]:
        size = {"h1": 14, "h2": 11}.get(kind, 9)
        paper.set_font("Sans", "" if kind == "p" else "B", size)
        with columns.paragraph(text_align="J" if kind == "p" else "L", bottom_margin=3) as paragraph:
            paragraph.write(text)
    columns.render()
    paper.output(str(folder / "tidal-pilot.pdf"))


def finance(folder: Path) -> None:
    """Tables and a chart."""
    paper = Paper("Northquay Harbours: figures of 2025")
    paragraphs(paper, FINANCE[:3])
    table(paper, HARBOURS)
    paragraphs(paper, FINANCE[3:5])
    table(paper, QUARTERS)
    paper.add_page()
    paragraphs(paper, FINANCE[5:])
    bars(paper, [(row[0], float(row[1])) for row in QUARTERS[1:]])
    paper.output(str(folder / "figures-2025.pdf"))


def table(paper: Paper, rows: Sequence[Sequence[str]]) -> None:
    """A framed table."""
    paper.set_font("Sans", size=9)
    with paper.table(text_align=("LEFT", *["RIGHT"] * (len(rows[0]) - 1)), line_height=6) as made:
        for row in rows:
            made.row(list(row))
    paper.ln(5)


def bars(paper: Paper, values: Sequence[tuple[str, float]]) -> None:
    """A bar chart."""
    top, most = paper.get_y() + 4, max(value for _, value in values)
    for at, (name, value) in enumerate(values):
        height = 55 * value / most
        left = 30 + at * 35
        paper.set_fill_color(60, 110, 160)
        paper.rect(left, top + 60 - height, 22, height, style="F")
        paper.set_xy(left - 4, top + 61)
        paper.set_font("Sans", size=8)
        paper.cell(30, 5, name, align="C")
    paper.set_xy(20, top + 70)
    paper.paragraph("Figure 1: Revenue of the four quarters of 2025 in million crowns.")


def russian(folder: Path) -> None:
    """Russian text with a table."""
    paper = Paper("Нордкей: отчёт о насосах")
    paragraphs(paper, RUSSIAN[:4])
    table(paper, PUMPS)
    paragraphs(paper, RUSSIAN[4:])
    paper.output(str(folder / "otchet-nasosy.pdf"))


def scanned(folder: Path) -> None:
    """A letter that is a picture: a little crooked and a little dirty."""
    sheet = Image.new("L", (1240, 1754), 250)
    draw = ImageDraw.Draw(sheet)
    y = 150
    for size, line in LETTER:
        draw.text((140, y), line, font=ImageFont.truetype(str(FONTS / "DejaVuSans.ttf"), size), fill=25)
        y += round(size * 1.75)
    dirt = random.Random(7)  # noqa: S311 - dirt
    for _ in range(1_500):
        draw.point((dirt.randrange(1240), dirt.randrange(1754)), fill=dirt.randrange(120, 230))
    sheet = sheet.rotate(0.35, fillcolor=250).filter(ImageFilter.GaussianBlur(0.6))
    out = io.BytesIO()
    sheet.save(out, "JPEG", quality=45)
    paper = FPDF(format="A4")
    paper.set_creation_date(MADE)
    paper.add_page()
    paper.image(out, x=0, y=0, w=210)
    paper.output(str(folder / "insurer-letter-scan.pdf"))


def plan(folder: Path) -> None:
    """A Word file with a page break."""
    word = Word()
    for kind, text in PLAN:
        if kind == "table":
            rows = [line.split(" | ") for line in text.split("\n")]
            made = word.add_table(rows=0, cols=len(rows[0]))
            for row in rows:
                for cell, value in zip(made.add_row().cells, row, strict=True):
                    cell.text = value
        elif kind == "break":
            word.add_page_break()
        elif kind == "p":
            word.add_paragraph(text)
        else:
            word.add_heading(text, int(kind[1]))
    word.core_properties.created = word.core_properties.modified = MADE.replace(tzinfo=None)
    word.save(str(folder / "maintenance-plan.docx"))


def slides(folder: Path) -> None:
    """A presentation with a chart."""
    show = Presentation()
    for title, lines, notes in SLIDES:
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text_frame.text = "\n".join(lines)
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    slide = show.slides.add_slide(show.slide_layouts[5])
    slide.shapes.title.text = "Visits of ships"
    data = CategoryChartData()
    data.categories = ["2023", "2024", "2025"]
    data.add_series("Northquay", (1810, 1922, 2104))
    data.add_series("Drossel", (640, 655, 702))
    where = (Inches(1), Inches(2), Inches(7), Inches(4))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *where, data)
    show.core_properties.created = show.core_properties.modified = MADE.replace(tzinfo=None)
    show.save(str(folder / "board-briefing.pptx"))


def main() -> None:
    """Make every document."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples/documents")
    folder.mkdir(parents=True, exist_ok=True)
    for make in (tidal, finance, russian, scanned, plan, slides):
        make(folder)


if __name__ == "__main__":
    main()
