"""Files of every kind, and files that are not what they say: each is read, or refused with one clear sentence."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from fpdf import FPDF
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from contexture.adapters.documents import _worker
from contexture.adapters.documents._text import PAGE_CHARACTERS, split_pages
from contexture.adapters.documents.file_types import EXTENSIONS, TEXT_EXTENSIONS, read_document
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest, SourceUnavailable

SAMPLES = Path(__file__).parents[2] / "examples" / "documents"
PLAIN = ReadLimits(draw=False)


def quiet(done: int, total: int) -> None:
    """Nobody watches."""


def reading(folder: Path, name: str, data: bytes, limits: ReadLimits = PLAIN) -> ReadDocument:
    """Some bytes under a name, read."""
    (folder / name).write_bytes(data)
    return read_document(folder / name, name, limits, quiet)


def packed(files: dict[str, bytes]) -> bytes:
    """A ZIP archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def protected() -> bytes:
    """A PDF that asks for a password."""
    pdf = FPDF()
    pdf.set_encryption(owner_password="owner", user_password="user")  # noqa: S106 - the point of this file
    pdf.add_page()
    return bytes(pdf.output())


def pdf_bytes() -> bytes:
    """A whole PDF."""
    return (SAMPLES / "figures-2025.pdf").read_bytes()


NO_PAGES = b"""%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Kids [] /Count 0>> endobj
trailer <</Root 1 0 R /Size 3>>
%%EOF"""

LAUGHS = (
    '<?xml version="1.0"?> <!DOCTYPE x [<!ENTITY a "ha">'
    + "".join(f"<!ENTITY {chr(98 + n)} '{f'&{chr(97 + n)};' * 10}'>" for n in range(9))
    + "]><x>&j;</x>"
)
NOISE = "".join(f"<!-- {n} -->" for n in range(9_999))
PARAMETER = b'<!DOCTYPE x [<!ENTITY % p "x">]><x/>'
UTF7 = b'<?xml version="1.0" encoding="UTF-7"?>+ADwAIQ-DOCTYPE x [+ADwAIQ-ENTITY a "ha">]><x/>'


def with_part(name: str, data: bytes) -> bytes:
    """A sound Word file with one part replaced."""
    with zipfile.ZipFile(SAMPLES / "maintenance-plan.docx") as archive:
        return packed({each: archive.read(each) for each in archive.namelist()} | {name: data})


BAD = [
    ("empty.pdf", lambda: b"", "empty"),
    ("truncated.pdf", lambda: pdf_bytes()[:900], "damaged or truncated"),
    ("corrupt.pdf", lambda: b"%PDF-1.7\n" + bytes(range(256)) * 20, "damaged or truncated"),
    ("protected.pdf", protected, "password"),
    ("none.pdf", lambda: NO_PAGES, "no pages|damaged"),
    ("lying.pdf", lambda: b"Just some words, and no PDF.", "not what .pdf says"),
    ("lying.docx", pdf_bytes, "extension is .docx but it is a PDF"),
    ("lying.txt", pdf_bytes, "extension is .txt but it is a PDF"),
    ("lying.png", lambda: packed({"a.txt": b"x"}), "is a ZIP archive"),
    ("lying.pptx", (SAMPLES / "maintenance-plan.docx").read_bytes, "is a Word file"),
    ("old.docx", lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "old or protected office file"),
    ("half.docx", lambda: (SAMPLES / "maintenance-plan.docx").read_bytes()[:9_000], "damaged or truncated"),
    ("empty.docx", lambda: packed({"word/document.xml": b"<not-word/>"}), "damaged|no text"),
    ("bomb.docx", lambda: packed({"word/document.xml": b" " * 40_000_000}), "compression ratio"),
    ("bomb.pptx", lambda: packed({"ppt/presentation.xml": b" " * 40_000_000}), "compression ratio"),
    ("entities.docx", lambda: packed({"word/document.xml": LAUGHS.encode()}), "declares XML entities"),
    ("utf16.docx", lambda: packed({"word/document.xml": LAUGHS.encode("utf-16")}), "declares XML entities"),
    ("padded.docx", lambda: packed({"word/document.xml": LAUGHS.replace("?> <", f"?>{NOISE}<").encode()}), "entities"),
    ("parameter.docx", lambda: packed({"word/document.xml": PARAMETER}), "declares XML entities"),
    ("style.docx", lambda: with_part("word/styles.xml", LAUGHS.encode()), "'word/styles.xml' declares XML entities"),
    ("slides.pptx", lambda: packed({"ppt/presentation.xml": LAUGHS.encode()}), "declares XML entities"),
    ("utf7.docx", lambda: packed({"word/document.xml": UTF7}), "is damaged: multi-byte encodings"),
    ("broken.png", lambda: b"\x89PNG\r\n\x1a\n" + bytes(50), "picture cannot be read"),
    ("binary.txt", lambda: b"text\0with\0zeros" * 10, "binary"),
    ("blank.md", lambda: b" \n\n ", "no text"),
    ("strange.exe", lambda: b"MZ", "the extension .\\.exe. are not supported"),
    ("lying.md", lambda: b"BM" + bytes(60), "extension is .md but it is a picture"),
]


@pytest.mark.parametrize(("name", "made", "said"), BAD, ids=[name for name, *_ in BAD])
def test_a_bad_file_is_refused_with_a_sentence(tmp_path, name, made, said):
    """Whatever is wrong with a file, one error says what, and nothing else is raised."""
    with pytest.raises(InvalidRequest, match=said):
        reading(tmp_path, name, made())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cars.txt", "BMW builds engines in the north."),
        ("formats.md", "# Formats\n\nA file that begins with %PDF-1.7 is a PDF."),
        ("formats.html", "<p>It begins with %PDF-1.7.</p>"),
    ],
)
def test_a_text_may_look_like_another_kind(tmp_path, name, text):
    """The first letters of a bitmap and the mark of a PDF are words too."""
    assert text.removeprefix("<p>").removesuffix("</p>") == reading(tmp_path, name, text.encode()).pages[0].text


def test_limits_are_held_before_a_file_is_opened(tmp_path):
    """Too many bytes, too many pages and too much to unpack are refused by their numbers."""
    with pytest.raises(InvalidRequest, match="the limit is 10"):
        reading(tmp_path, "a.txt", b"x" * 11, ReadLimits(bytes=10))
    with pytest.raises(InvalidRequest, match="2 pages; the limit is 1"):
        reading(tmp_path, "a.pdf", pdf_bytes(), ReadLimits(pages=1, draw=False))
    whole = (SAMPLES / "maintenance-plan.docx").read_bytes()
    with pytest.raises(InvalidRequest, match="unpacks to"):
        reading(tmp_path, "a.docx", whole, ReadLimits(unpacked_bytes=100))


def test_word_files_keep_headings_tables_and_page_breaks():
    """Two pages as the author broke them, the table with its head, and each page's section."""
    first, second = read_document(SAMPLES / "maintenance-plan.docx", "maintenance-plan.docx", PLAIN, quiet).pages

    assert "| Part | How often | Who |\n| --- | --- | --- |\n| Pumps |" in first.text
    assert (1, 3) == (first.num_tables, first.num_headings)
    assert second.text.startswith("## Storm season")
    assert "Maintenance plan 2026 > Storm season" == second.section_path


def test_a_slide_is_a_page_with_its_notes_and_numbers():
    """Titles are headings, bullets a list, notes follow, and a chart is the table of its numbers."""
    found = read_document(SAMPLES / "board-briefing.pptx", "board-briefing.pptx", PLAIN, quiet)

    assert ("Briefing for the board", 4) == (found.title, len(found.pages))
    assert "- Four more tidal turbines in 2027: 3.9 million crowns" in found.pages[1].text
    assert "Notes: The technical director recommends" in found.pages[1].text
    assert "| 2025 | 2104 | 702 |" in found.pages[3].text


def test_html_loses_what_no_reader_sees(tmp_path):
    """Scripts, styles and navigation go; headings, lists, tables and the title stay."""
    html = """<html><head><title> The  gates </title><style>p {}</style><script>bad()</script></head><body>
    <nav>Home About</nav><h1>Gates</h1><p>They are <b>shut</b> at night.</p><ul><li>first</li><li>second</li></ul>
    <table><tr><td>Gate</td><td>Hour</td></tr><tr><td>North</td><td>22</td></tr></table></body></html>"""

    found = reading(tmp_path, "gates.html", html.encode())

    assert "The gates" == found.title
    assert (
        "# Gates\n\nThey are **shut** at night.\n\n- first\n- second\n\n"
        "| Gate | Hour |\n| --- | --- |\n| North | 22 |" == found.pages[0].text
    )


def test_html_in_another_encoding_is_read(tmp_path):
    """The encoding that a page names is the one it is read in."""
    html = '<meta charset="windows-1251"><p>Ворота закрыты.</p>'

    assert "Ворота закрыты." == reading(tmp_path, "g.html", html.encode("cp1251")).pages[0].text


def test_text_is_cut_at_form_feeds(tmp_path):
    """A form feed parts two pages; Markdown headings give the section."""
    found = reading(tmp_path, "a.md", b"# One\n\nFirst.\fSecond.\n\n## Two\n\nThird and last of all.")

    assert ["# One\n\nFirst.", "Second.\n\n## Two\n\nThird and last of all."] == [page.text for page in found.pages]
    assert ("One", "One > Two") == (found.pages[0].section_path, found.pages[1].section_path)


@given(st.lists(st.text("abc \n#|", max_size=200), max_size=60))
def test_no_word_is_lost_when_text_is_paged(parts):
    """Every word of a text is on a page, in order, and no page is much longer than a printed one."""
    text = "\n\n".join(parts)
    pages = split_pages(text, max_pages=10_000)

    assert text.split() == " ".join(page.text for page in pages).split()
    assert all(len(page.text) <= 2 * PAGE_CHARACTERS for page in pages)
    assert list(range(1, len(pages) + 1)) == [page.number for page in pages]


def test_a_picture_is_a_page(tmp_path):
    """An image becomes one page with its picture, whatever can be read in it."""
    out = io.BytesIO()
    Image.new("RGBA", (300, 200), (255, 255, 255, 0)).save(out, "PNG")

    [page] = reading(tmp_path, "blank.png", out.getvalue(), ReadLimits()).pages

    assert page.scanned
    assert 1 == page.num_pictures
    assert page.image.startswith(b"\xff\xd8\xff")


def test_a_scanned_page_without_ocr_says_so(monkeypatch):
    """Where nothing reads pictures, the page is kept, empty, with a note that says what to install."""

    def missing(*_: object) -> None:
        raise SourceUnavailable("reading pictures needs tesserocr: pip install 'contexture-ai[ocr]'")

    monkeypatch.setattr("contexture.adapters.documents.pdf.reader.read_words", missing)
    [page] = read_document(SAMPLES / "insurer-letter-scan.pdf", "scan.pdf", ReadLimits(), quiet).pages

    assert ("", True) == (page.text, page.scanned)
    assert ["contexture-ai[ocr]" in note for note in page.notes] == [True]
    assert page.image


@pytest.mark.needs("tesseract-ocr-eng")
def test_a_scanned_page_is_read_by_ocr():
    """The words of a picture come out as lines of text."""
    [page] = read_document(SAMPLES / "insurer-letter-scan.pdf", "scan.pdf", PLAIN, quiet).pages

    assert page.scanned
    assert "740,000 crowns within thirty days" in page.text
    assert "Clause 14 of the policy" in page.text


def test_the_label_of_a_picture_stays(tmp_path):
    """A page with a picture without words keeps the few letters that it has as text."""
    document = FPDF()
    document.add_page()
    document.image(Image.new("RGB", (400, 300), "navy"), 20, 40, 150)
    document.set_font("helvetica", size=12)
    document.text(20, 20, "843 ppi")
    document.output(str(tmp_path / "plate.pdf"))

    [page] = read_document(tmp_path / "plate.pdf", "plate.pdf", PLAIN, quiet).pages

    assert "843 ppi" == page.text


def test_every_ending_has_a_reader():
    """Text endings are among those that can be read, and every one is lower case without a dot."""
    assert TEXT_EXTENSIONS < EXTENSIONS
    assert all(name == name.lower() and "." not in name for name in EXTENSIONS)


def test_a_temporary_path_is_not_part_of_a_reason(tmp_path):
    """A parser that names the file it failed on is quoted with the file's own name."""
    path = tmp_path / "0" / "plan.txt"
    order = _worker.ReadRequest(str(path), "plan.txt", PLAIN)
    reason = f"no such file: {path}; {path.parent}/word/styles.xml is missing"

    assert "no such file: plan.txt; word/styles.xml is missing" == _worker._hide_path(reason, order)
    assert str(tmp_path) not in _worker._handle_request(order, io.BytesIO()).reason
