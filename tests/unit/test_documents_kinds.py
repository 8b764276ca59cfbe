"""Workbooks, e-mail messages, books and OpenDocument texts as pages."""

from __future__ import annotations

import zipfile
from datetime import date
from email.message import EmailMessage
from pathlib import Path

import openpyxl
import pytest

from contexture.adapters.documents.file_types import read_document
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

CONTAINER = '<container xmlns="c"><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
BOOK = """<package xmlns="o"><metadata><title xmlns="d">The quay</title></metadata><manifest>
<item id="two" href="two.xhtml"/><item id="one" href="one%20.xhtml"/></manifest>
<spine><itemref idref="one"/><itemref idref="two"/></spine></package>"""
ODT = """<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"
xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"><office:body><office:text>
<text:h text:outline-level="1">Pumps</text:h><text:p>Two<text:s/>pumps <text:span>leak</text:span>.</text:p>
<text:list><text:list-item><text:p>North</text:p></text:list-item></text:list>
<table:table><table:table-row><table:table-cell><text:p>Pump</text:p></table:table-cell>
<table:table-cell><text:p>Hours</text:p></table:table-cell></table:table-row>
<table:table-row><table:table-cell><text:p>One</text:p></table:table-cell>
<table:table-cell><text:p>2310</text:p></table:table-cell></table:table-row></table:table>
</office:text></office:body></office:document-content>"""


def read(path: Path) -> ReadDocument:
    """A file, read under its own name."""
    return read_document(path, path.name, ReadLimits(draw=False), lambda _done, _total: None)


def package(path: Path, parts: dict[str, str]) -> Path:
    """A ZIP archive of texts."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


def test_a_sheet_is_a_table_with_its_header_on_every_page(tmp_path):
    """Forty rows are a page, which repeats the sheet's name, the note above the table and the header."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Pumps"
    sheet.append(["Hours in 2025"])
    sheet.append(["Station", "Hours", "Read on"])
    for number in range(45):
        sheet.append([f"Station {number}", 100.5 + number, date(2026, 1, 15)])
    book.create_sheet("Empty")
    book.save(tmp_path / "pumps.xlsx")

    first, second = read(tmp_path / "pumps.xlsx").pages

    assert first.text.startswith("# Pumps\n\nHours in 2025\n\n| Station | Hours | Read on |\n| --- |")
    assert "| Station 0 | 100.5 | 2026-01-15 |" in first.text
    assert "| Station | Hours | Read on |" in second.text
    assert "| Station 44 | 144.5 | 2026-01-15 |" in second.text


def test_a_message_has_its_headers_its_text_and_its_attachments(tmp_path):
    """A quoted reply is apart, a readable attachment is a page, and another one is named."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "The crane", "anna@example.org", "ben@example.org"
    message.set_content("It arrives in May.\n\nOn Monday, Ben wrote:\n> When does it arrive?\n")
    message.add_attachment("The crane weighs 40 tons.", filename="crane.txt")
    message.add_attachment(b"\0\1", maintype="application", subtype="x-cad", filename="crane.cad")
    (tmp_path / "crane.eml").write_bytes(message.as_bytes())

    found = read(tmp_path / "crane.eml")

    assert "# The crane\n\nFrom: anna@example.org\nTo: ben@example.org\n\nIt arrives in May." in found.pages[0].text
    assert found.pages[0].text.index("## Quoted reply") < found.pages[0].text.index("When does it arrive?")
    assert "The crane weighs 40 tons." == found.pages[1].text
    assert ["crane.cad" in bad.reason for bad in found.bad] == [True]


def test_chapters_of_a_book_follow_its_spine(tmp_path):
    """Chapters are in reading order, each on a new page."""
    parts = {
        "META-INF/container.xml": CONTAINER, "OPS/book.opf": BOOK,
        "OPS/one .xhtml": "<html><body><h1>One</h1><p>First.</p></body></html>",
        "OPS/two.xhtml": "<html><body><h1>Two</h1><p>Second.</p></body></html>",
    }  # fmt: skip

    found = read(package(tmp_path / "quay.epub", parts))

    assert "The quay" == found.title
    assert ["# One\n\nFirst.", "# Two\n\nSecond."] == [page.text for page in found.pages]


def test_an_opendocument_text_keeps_headings_lists_and_tables(tmp_path):
    """Paragraphs keep their spaces, and tables their rows."""
    found = read(package(tmp_path / "pumps.odt", {"content.xml": ODT}))

    table = "| Pump | Hours |\n| --- | --- |\n| One | 2310 |"
    assert f"# Pumps\n\nTwo pumps leak.\n\n- North\n\n{table}" == found.pages[0].text


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a.xlsx", {"xl/workbook.xml": "<nothing"}),
        ("a.epub", {"META-INF/container.xml": "<c/>"}),
        ("a.odt", {"content.xml": "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"}),
        ("a.odt", {"word/document.xml": "<a/>"}),
    ],
)
def test_broken_packages_are_refused_with_a_reason(tmp_path, name, parts):
    """Damaged, hostile and mislabelled packages raise `InvalidRequest`."""
    with pytest.raises(InvalidRequest):
        read(package(tmp_path / name, parts))
