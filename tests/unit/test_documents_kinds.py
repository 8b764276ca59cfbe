"""Workbooks, e-mail messages, books and OpenDocument texts as pages."""

from __future__ import annotations

import base64
import gzip
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


def test_a_message_inside_a_message_is_read(tmp_path):
    """Forwarded messages, mail inside digests and nameless texts are pages, in sections with the attachment's name."""
    inner = EmailMessage()
    inner["Subject"], inner["From"] = "The quay", "ben@example.org"
    inner.set_content("The quay is closed in May.")
    inner.add_attachment("Lane 3 stays open.", filename="lanes.txt")
    message = EmailMessage()
    message["Subject"] = "Forwarded"
    message.set_content("See below.")
    message.add_attachment(inner, filename="quay.eml")
    message.add_attachment("A text without a name.")
    (tmp_path / "mail.eml").write_bytes(message.as_bytes())

    found = read(tmp_path / "mail.eml")

    assert ["quay.eml > The quay", "lanes.txt"] == [found.pages[1].section_path, found.pages[2].parent_heading]
    assert "From: ben@example.org\n\nThe quay is closed in May." in found.pages[1].text
    assert ["Lane 3 stays open.", "A text without a name."] == [page.text for page in found.pages[2:]]
    assert [1, 2, 3, 4] == [page.number for page in found.pages]


def test_messages_inside_messages_end(tmp_path):
    """A message that contains a message, and so on, is read to a fixed depth; the rest is named."""
    message = EmailMessage()
    message.set_content("The innermost text.")
    for level in range(9):
        outer = EmailMessage()
        outer.set_content(f"Level {level}.")
        outer.add_attachment(message)
        message = outer
    (tmp_path / "deep.eml").write_bytes(message.as_bytes())

    found = read(tmp_path / "deep.eml")

    assert ["Level 8.", "Level 7.", "Level 6.", "Level 5."] == [page.text for page in found.pages]
    assert "inside 4 other messages" in found.bad[0].reason


OUTLOOK_MESSAGE = """
H4sIAAAAAAACA+2ZW2/jRBTHj51LkybNpd2223RbZ1tYrYCunHuKBBTYVrASaMX2vQpptl20vagJSLwgkHjhQ/CA4IFXvgDiG8AXAMEbvCN42o
b/TOzEjhRyzjoBgXomx/YZe/zzzJw5Hk9++D778xff5H6hIXmZQnTZjVPUk2dATdfI9Gyll91u183uXsl/Sp5AVf+F0HdhaASq+nwGGoPGobNO
Hyexn4OmoGkn70r/XxoZ069zI84vIP8adBG6BF2GXoeuQHPQVegNT1lrxH2eRf6tK9/6x/QdOkPqUJ526RT7C/qQJLJEEcONJQazTAL6Xdx9pz
ygYyohdegeVUgq82Rqvum8e7jlws7+AOmUGnRCLXpEh7A+wNEFtWGd4UyB7pD9N/e5TYbmq5gZIrkofpvep3ex7dCRwzuAqlSEFvR+lDzn1D8s
rD+PX2LzI1Phl9l8V7j+x+EX6FVnvzeWPyOov9GbPo3ll6jG5scEfNOJseP5d9n8+BT6v+J4AYc/OwV+TcBPCPghVvu/juNttv8nBXwVKz5i8f
n+Pyfgq1j5Aou/y+anBHx3bjuev8fmpwX8GKv+u0785/EzE/f/XSf+8/jZqfDLbP68gK9i1R0GvyCIfwsC/ixr/O8hVdnj/5qAnxia/4zm77H5
iwK+ilVvjOEXnNjLbf+lCftfQXP5859lAV/FquwYfllT+eP/uoCfZsS/Hp8//lcE/Awj/pV19Kmz+TkBPzvEP8d8/wxbNe/vYN7fwrNwvwNsh7
8q4KtY9ak54F+A1ATnfAT1gDY9o6GXXHnR+f5QcmOi3x+y+LMmqP/aFOLPuoC/zog/rudz/c8S8POM90+p//3H4+cF/JuM8V/qf//x+DcF/A12
/V9j9/+GgL8JrU54/Eu+P5+Bfk2TEynfK7VitRiE/Sbdp7fQNm/rVaSWuPw+HaOF2xgTvW0Hdgv7nk+8pyNjZ4rllXzyvPXVt19mVj4/pR+N9D
4is/Gr8oaO9oBzaqD/d6Atxyce65xD1LqJWp/gDg/QBvtoCSJZOfn1wzIgP50E5Tf12FHnD9EDj1FOdoeg/Xf36LN7QfzXxtNVMdtoYPsQcWZL
z3oqSFvIbWLcH+JoG0c1PMuWvsbG1UVcX0dOCcfb/Wgil/3jR+08fo38SavdbhxJR9C/3f9By3vXxLz7/lqV0U1HPe9r0/hD2+H+WspcWU2l6v
qfK2WnfXaCTL3eZfS/fVZTUd9azE+vKPu3Jz0b7/FM1PM/p2ksaDvbL2/5yu+g9/33+z3t/n/Ws//UttG3L7UdIZdX0+Vv9+21lN9+ibzPY6Gd
ved3aMb2P0/M9j/PraHnWyb/88R0/eNh155JeXkh+ljXP2S4/M2dqOf9bVF9yN7Q9my//VaSUc96k0VW0n99bsheT3rLWxROmXqcunZI24P2MI
fs++S3c7q+84P6+vovqASNPy30f1OvdDRwbCPCVJEK8F8Vf+rILeCojuMKdAsx0Ya2dFx6iH0R2wru8bQSNH4HjT+T4ge9TwguFhXFncWkdxzB
D22/34a0bQ+N++iAt+3lWWT4rjeNhLarNF35CwwxJEwAIgAA
"""


def test_a_message_of_outlook_is_read_as_mail(tmp_path):
    """Its subject, sender, recipient and HTML text are read; a damaged one and a renamed Word file are refused."""
    pytest.importorskip("oxmsg")
    data = gzip.decompress(base64.b64decode(OUTLOOK_MESSAGE))
    (tmp_path / "note.msg").write_bytes(data)
    (tmp_path / "half.msg").write_bytes(data[:2_000])
    (tmp_path / "text.msg").write_bytes(b"Subject: not a message of Outlook")

    found = read(tmp_path / "note.msg")

    assert found.title == "This is the subject"
    assert 'From: "peterpan@neverland.com" <peterpan@neverland.com>' in found.pages[0].text
    assert "To: crocodile@neverland.com\n\nThis is a message" in found.pages[0].text
    with pytest.raises(InvalidRequest, match="the message is damaged"):
        read(tmp_path / "half.msg")
    with pytest.raises(InvalidRequest, match=r"not what \.msg says"):
        read(tmp_path / "text.msg")


def test_formulas_without_a_value_are_read_as_they_are_written(tmp_path):
    """A workbook that no spreadsheet program has saved has none; its totals do not vanish."""
    book = openpyxl.Workbook()
    for row in (("port", "ships"), ("Senn", 4), ("Brodick", 3), ("total", "=SUM(B2:B3)")):
        book.active.append(row)
    book.save(tmp_path / "ships.xlsx")

    assert "| total | =SUM(B2:B3) |" in read(tmp_path / "ships.xlsx").pages[0].text


def test_notes_above_a_sheets_table_are_not_its_header(tmp_path):
    """The header is the first row with as many cells as most rows."""
    book = openpyxl.Workbook()
    for row in (["Please", "read"], ["this", None, "first"], ["Name", "Role", "Hours"], ["Anna", "diver", 12]):
        book.active.append(row)
    for name in ("Ben", "Eva", "Tom"):
        book.active.append([name, "pilot", 7])
    book.save(tmp_path / "crew.xlsx")

    text = read(tmp_path / "crew.xlsx").pages[0].text

    assert "Please read\n\nthis first\n\n| Name | Role | Hours |\n| --- |" in text


def test_a_long_table_has_its_header_on_every_page(tmp_path):
    """A table of a book that is longer than a page is split between rows."""
    rows = "".join(f"<tr><td>Station {number}</td><td>{number} hours</td></tr>" for number in range(300))
    table = f"<table><tr><th>Station</th><th>Time</th></tr>{rows}</table>"
    (tmp_path / "stations.html").write_text(f"<html><body><h1>Times</h1>{table}</body></html>")

    pages = read(tmp_path / "stations.html").pages

    assert len(pages) > 2
    assert all("| Station | Time |\n| --- | --- |\n| Station " in page.text for page in pages)
    assert all(page.num_tables == 1 for page in pages)
    assert sum(page.text.count(" hours |") for page in pages) == 300


def test_a_csv_file_is_a_table_with_its_header_on_every_page(tmp_path):
    """Whatever separates its cells; a quoted cell keeps its separators and line breaks are spaces."""
    rows = "".join(f'pump {at};{at};"3,{at}\n0"\n' for at in range(41))
    (tmp_path / "stock.csv").write_text(f"part;stock;price\n{rows}")

    first, second = read(tmp_path / "stock.csv").pages

    assert "| part | stock | price |" in first.text
    assert "| pump 7 | 7 | 3,7 0 |" in first.text
    assert second.text.startswith("| part | stock | price |")
    assert "| pump 40 | 40 | 3,40 0 |" in second.text


@pytest.mark.parametrize(("text", "reason"), [("\n\n", "contains no text"), ('a,b\n"open', "damaged")])
def test_a_csv_file_without_a_table_is_refused(tmp_path, text, reason):
    """Nothing is made of it."""
    (tmp_path / "x.csv").write_text(text)

    with pytest.raises(InvalidRequest, match=reason):
        read(tmp_path / "x.csv")
