"""Pages of Debian's manuals and reference cards, checked by eye and pinned: order, sections, tables, furniture.

They need the packages debian-reference-en, gnuplot-doc and octave-doc in the versions that were looked at.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import pypdfium2
import pytest

from contexture.adapters.documents.file_types import read_document
from contexture.documents import Page, ReadDocument, ReadLimits

REFERENCE = "/usr/share/debian-reference/debian-reference.en.pdf"
GNUPLOT = "/usr/share/doc/gnuplot/gnuplot.pdf"
LIBOCTAVE = "/usr/share/doc/octave/liboctave.pdf"
CARD_A4 = "/usr/share/doc/octave/refcard-a4.pdf"
CARD_LETTER = "/usr/share/doc/octave/refcard-letter.pdf"
LOOKED_AT = {
    REFERENCE: "32775deeca0770ac25282b0c894cbaae83f4dd4ab00e891b94e8f009c0366728",
    GNUPLOT: "df68dd0613f043141512fc4436d17aaf96727d5a758d85233915ac5056a97206",
    LIBOCTAVE: "af9cc69f2056163420e94f6569eb79c8f6849c1dfc054b632675c78116b49c81",
    CARD_A4: "7de62b24c8aa8b82d37e91948cd411c0dae8678233603419de976f0bf9538706",
    CARD_LETTER: "abf9a9cfbe087feec6c5e4494e9597adf880d9f5422d7662971000be9c7c844b",
}
pytestmark = pytest.mark.needs("debian-reference-en", "gnuplot-doc", "octave-doc")

CARD_SECTIONS = {
    (CARD_A4, 1): """Starting Octave|Stopping Octave|Getting Help|Motion in Info|Node Selection in Info|
        Searching in Info|Command-Line Cursor Motion|Inserting or Changing Text|Killing and Yanking|
        Command Completion and History|Shell Commands|Matrices|Multi-dimensional Arrays|Sparse Matrices|Ranges|
        Strings and Common Escape Sequences|Index Expressions|Global and Persistent Variables|
        Selected Built-in Functions""",
    (CARD_LETTER, 2): """Assignment Expressions|Arithmetic and Increment Operators|Comparison and Boolean Operators|
        Short-circuit Boolean Operators|Operator Precedence|Paths and Packages|Cells and Structures|Statements|
        Strings|Defining Functions|Function Handles|Miscellaneous Functions|Basic Matrix Manipulations|
        Linear Algebra""",
}
SECTIONS = [
    (REFERENCE, 30, "GNU/Linux tutorials > 1.1 Console basics > 1.1.3 The root account"),
    (REFERENCE, 76, "Debian package management > 2.2 Basic package management operations > 2.2.2 Basic package"),
    (REFERENCE, 130, "Network setup > 5.5 Network optimization > 5.5.1 Finding optimal MTU"),
    (GNUPLOT, 60, "Gnuplot > Syntax"),
    (GNUPLOT, 100, "Commands > Import"),
    (LIBOCTAVE, 30, "4 Matrix and Vector Operations"),
    (LIBOCTAVE, 45, "9 Optimization > 9.3 Linear Constraints"),
]
FURNITURE = [
    (REFERENCE, 130, "Debian Reference\n102 / 233"),
    (GNUPLOT, 60, "60\ngnuplot 5.4"),
    (GNUPLOT, 100, "100\ngnuplot 5.4"),
    (LIBOCTAVE, 30, "Chapter 4: Matrix and Vector Operations\n26"),
]
ORDER = [
    (REFERENCE, 30, "Now you are in the shell.|The shell prompt under GUI|The root account|##### Warning|##### Note"),
    (
        REFERENCE,
        130,
        "5.5 Network optimization|beyond the scope|iftop|ipfm|Table 5.5|5.5.1 Finding|$ ping -4|tunneling",
    ),
    (GNUPLOT, 100, "will display:|will not display anything.|## For|Nested iteration|## Import|DYLD"),
    (
        LIBOCTAVE,
        45,
        "9.3 Linear Constraints|LinConst& resize|9.4 Nonlinear|9.5 Quadratic|virtual ColumnVector minimize",
    ),
]


@cache
def document(path: str) -> ReadDocument:
    """A manual, read once, where it is installed as it was looked at."""
    place = Path(path)
    if sha256(place.read_bytes()).hexdigest() != LOOKED_AT[path]:
        pytest.skip(f"{path} is another version than the one that was looked at")
    return read_document(place, place.name, ReadLimits(draw=False), lambda *_: None)


def page(path: str, number: int) -> Page:
    """One of its pages."""
    return document(path).pages[number - 1]


def places(text: str, pieces: list[str]) -> list[int]:
    """Where each piece stands, looked for behind the one before; -1 for one that does not."""
    found, start = [], 0
    for piece in pieces:
        found.append(text.find(piece, start))
        start = max(found[-1], start)
    return found


@pytest.mark.parametrize(("path", "number", "order"), ORDER)
def test_manuals_are_in_reading_order(path, number, order):
    """What stands lower on the page comes later in its text."""
    found = places(page(path, number).text, order.split("|"))

    assert -1 not in found
    assert sorted(found) == found


@pytest.mark.parametrize(("path", "number"), CARD_SECTIONS)
def test_three_columns_of_a_reference_card_are_read_one_after_the_other(path, number):
    """The sections follow each other down the first column, then the second, then the third."""
    names = [name.strip() for name in CARD_SECTIONS[path, number].split("|")]
    found = places(page(path, number).text, [f"## {name}\n" for name in names])

    assert -1 not in found
    assert sorted(found) == found


@pytest.mark.parametrize(("path", "number", "section"), SECTIONS)
def test_pages_know_their_section(path, number, section):
    """The path of headings that are open for most of the page."""
    assert (page(path, number).section_path or "").startswith(section)


@pytest.mark.parametrize(("path", "number", "furniture"), FURNITURE)
def test_heads_and_feet_do_not_enter_search(path, number, furniture):
    """Running heads and page numbers are beside the text, not in it."""
    found = page(path, number)

    assert furniture == found.furniture
    assert not any(line in found.text.split("\n") for line in furniture.split("\n"))


def test_tables_keep_their_cells():
    """A framed table of the manual and an aligned one of a card are Markdown tables."""
    assert "| iftop | V:6, I:113 | 93 | display bandwidth usage information" in page(REFERENCE, 130).text
    assert "| C-a | move to the start of the line |" in page(CARD_A4, 1).text


@pytest.mark.parametrize("path", [REFERENCE, GNUPLOT])
def test_headings_agree_with_the_bookmarks(path):
    """On 97 of 100 pages the heading is one that the document's own bookmarks have open there."""
    pages = document(path).pages
    bookmarks = pypdfium2.PdfDocument(path).get_toc()
    marks = [(mark.get_dest().get_index(), mark.level, mark.get_title()) for mark in bookmarks if mark.get_dest()]
    agree = [same for page in pages if (same := _agrees(page, marks)) is not None]

    assert sum(agree) >= 0.97 * len(agree)


def _agrees(page: Page, marks: list[tuple[int, int, str]]) -> bool | None:
    """Whether a page's heading is among those open on it; None where there are none."""
    before: list[tuple[int, str]] = []
    for at, level, title in marks:
        if at < page.number - 1:
            before = [*(mark for mark in before if mark[0] < level), (level, title)]
    names = [_letters(title) for _, title in before]
    names += [_letters(title) for at, _, title in marks if at == page.number - 1]
    if not names or not page.text.strip():
        return None
    mine = _letters(page.parent_heading or "")
    return bool(mine) and any(mine in name or name in mine for name in names if name)


def _letters(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalpha())
