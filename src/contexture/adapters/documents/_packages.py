"""Reads XLSX, CSV, EPUB and ODT files as Markdown pages."""

import csv
import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from statistics import median
from typing import Any, cast
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import openpyxl  # pyright: ignore[reportMissingModuleSource] - its stubs are not installed

from contexture.adapters.documents._html import html_to_markdown
from contexture.adapters.documents._text import PAGE_BREAK, build_document, decode_text, find_title, pages_from_texts
from contexture.adapters.documents.office import check_archive
from contexture.documents import ReadDocument, ReadLimits
from contexture.errors import InvalidRequest

_ROWS_PER_PAGE = 40
_MAX_COLUMNS = 64
_SNIFFED_CHARS = 8_192
_PARSER_ERRORS = (zipfile.BadZipFile, KeyError, ValueError, AttributeError, TypeError, OSError, ET.ParseError)
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_UNCOMPUTED = re.compile(rb'<c(?![^>]*\bt="str")[^>]*><f[^<]*</f>\s*(?:<v\s*/>|<v></v>)?\s*</c>')
_MAX_REPEATED_CELLS = 64  # spreadsheets repeat empty cells to the edge of the sheet


class XlsxReader:
    """Implements `DocumentReader` for Excel workbooks; each sheet is a table, forty rows a page with its header."""

    extensions = ("xlsx",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the visible sheets in order; formulas are read as their stored values, and as written without one."""
        check_archive(path, limits, part="xl/workbook.xml")
        try:
            with path.open("rb") as file:
                book: Any = cast("Any", openpyxl).load_workbook(file, read_only=True, data_only=True)
                sheets = [
                    page
                    for sheet in book.worksheets
                    if sheet.sheet_state == "visible"
                    for page in _table_pages(_read_rows(path, sheet), f"# {sheet.title}")
                ]
        except _PARSER_ERRORS as failure:
            raise InvalidRequest(f"the workbook is damaged: {failure}") from failure
        if not sheets:
            raise InvalidRequest("the workbook contains no text")
        if len(sheets) > limits.pages:
            raise InvalidRequest(f"the workbook has {len(sheets)} pages; the limit is {limits.pages}")
        progress(len(sheets), len(sheets))
        return ReadDocument(pages=pages_from_texts(sheets), title=str(book.properties.title or ""))


def _read_rows(path: Path, sheet: Any) -> Iterator[Sequence[object]]:
    """Rows of a sheet; a workbook that no spreadsheet program has saved has formulas without values."""
    values = sheet.iter_rows(values_only=True)
    with zipfile.ZipFile(path) as package, package.open(sheet._worksheet_path) as part:  # noqa: SLF001 - not offered
        if not _UNCOMPUTED.search(part.read()):
            yield from values
            return
    formulas: Any = cast("Any", openpyxl).load_workbook(path, read_only=True)[sheet.title]
    for row, written in zip(values, formulas.iter_rows(values_only=True), strict=False):
        yield [source if value is None else value for value, source in zip(row, written, strict=True)]


class CsvReader:
    """Implements `DocumentReader` for tables of comma, semicolon or tab separated values, forty rows a page."""

    extensions = ("csv",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read all rows; the separator is the one that the first lines agree on, else a comma."""
        text = decode_text(path.read_bytes())
        try:
            dialect = csv.Sniffer().sniff(text[:_SNIFFED_CHARS], delimiters=",;\t|")
        except csv.Error:  # a single column, or lines that disagree
            dialect = csv.excel
        try:
            pages = list(_table_pages(csv.reader(io.StringIO(text, newline=""), dialect, strict=True)))
        except csv.Error as failure:
            raise InvalidRequest(f"the table is damaged: {failure}") from failure
        if not pages:
            raise InvalidRequest("the table contains no text")
        if len(pages) > limits.pages:
            raise InvalidRequest(f"the table has {len(pages)} pages; the limit is {limits.pages}")
        progress(len(pages), len(pages))
        return ReadDocument(pages=pages_from_texts(pages), title="")


def _table_pages(cells: Iterable[Sequence[object]], *notes_above: str) -> Iterator[str]:
    """Pages of a table below some lines of text; every page repeats them and the header."""
    rows = [row for each in cells if any(row := [_cell_text(cell) for cell in each[:_MAX_COLUMNS]])]
    if not rows:
        return
    used = [at for at in range(max(map(len, rows))) if any(at < len(row) and row[at] for row in rows)]
    table = [[row[at] if at < len(row) else "" for at in used] for row in rows]
    first = _find_header(table)
    notes = [" ".join(filter(None, row)) for row in table[:first]]
    head, body = table[first], table[first + 1 :] or [[]]
    for start in range(0, len(body), _ROWS_PER_PAGE):
        blocks = [
            *notes_above,
            *notes,
            format_table([head, *(row for row in body[start : start + _ROWS_PER_PAGE] if row)]),
        ]
        yield "\n\n".join(blocks)


def _find_header(table: Sequence[Sequence[str]]) -> int:
    """Index of the first row that has as many cells as most rows; notes above a table have fewer."""
    counts = [sum(map(bool, row)) for row in table]
    usual = median(count for count in counts if count > 1) if max(counts) > 1 else 1
    return next(at for at, count in enumerate(counts) if count >= usual)


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ")
    if isinstance(value, date | time):
        return value.isoformat()
    return " ".join(str(value).split()).replace("|", "\\|")


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown table of rows, the first as header."""
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *rest])


class EpubReader:
    """Implements `DocumentReader` for electronic books; chapters follow the order of the book."""

    extensions = ("epub",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the chapters; each begins on a new page."""
        check_archive(path, limits, part="META-INF/container.xml")
        try:
            with zipfile.ZipFile(path) as package:
                title, chapters = _read_book(package)
        except (*_PARSER_ERRORS, StopIteration) as failure:
            raise InvalidRequest(f"the book is damaged: {failure}") from failure
        return build_document(PAGE_BREAK.join(chapters), limits, progress, title)


def _read_book(package: zipfile.ZipFile) -> tuple[str, list[str]]:
    container = _parse_xml(package.read("META-INF/container.xml"))
    place = next(each.get("full-path", "") for each in container.iter() if each.tag.endswith("}rootfile"))
    book = _parse_xml(package.read(place))
    files = {each.get("id"): each.get("href", "") for each in book.iter() if each.tag.endswith("}item")}
    order = [each.get("idref") for each in book.iter() if each.tag.endswith("}itemref")]
    title = next((each.text or "" for each in book.iter() if each.tag.endswith("}title")), "")
    names = [
        posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(files[each])))
        for each in order
        if each in files
    ]
    chapters = [html_to_markdown(package.read(name).decode("utf-8", "replace")) for name in names]
    return " ".join(title.split()), [chapter for chapter in chapters if chapter.strip()]


class OdtReader:
    """Implements `DocumentReader` for OpenDocument texts: headings, paragraphs, lists and tables."""

    extensions = ("odt",)

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the text; pages are split at headings and by length."""
        check_archive(path, limits, part="content.xml")
        try:
            with zipfile.ZipFile(path) as package:
                body = next(iter(_parse_xml(package.read("content.xml")).iter(f"{_OFFICE}text")))
        except (*_PARSER_ERRORS, StopIteration) as failure:
            raise InvalidRequest(f"the OpenDocument text is damaged: {failure}") from failure
        text = "\n\n".join(_odt_blocks(body))
        return build_document(text, limits, progress, find_title(text))


def _odt_blocks(parent: ET.Element, depth: int = 0) -> Iterator[str]:
    for each in parent:
        if each.tag == f"{_TEXT}h":
            yield f"{'#' * min(int(each.get(f'{_TEXT}outline-level') or 1), 6)} {_odt_text(each)}"
        elif each.tag == f"{_TEXT}p" and _odt_text(each):
            yield _odt_text(each)
        elif each.tag == f"{_TEXT}list":
            items = (_odt_text(item) for item in each.iter(f"{_TEXT}p"))
            yield "\n".join(f"- {item}" for item in items if item)
        elif each.tag == f"{_TABLE}table":
            yield _odt_table(each)
        elif each.tag == f"{_TEXT}section" and depth < 32:  # noqa: PLR2004 - sections inside sections
            yield from _odt_blocks(each, depth + 1)


def _odt_table(table: ET.Element) -> str:
    rows: list[list[str]] = []
    for row in table.iter(f"{_TABLE}table-row"):
        cells: list[str] = []
        for cell in row.iter(f"{_TABLE}table-cell"):
            count = min(int(cell.get(f"{_TABLE}number-columns-repeated") or 1), _MAX_REPEATED_CELLS)
            cells += [" ".join(_odt_text(each) for each in cell.iter(f"{_TEXT}p")).replace("|", "\\|")] * count
        rows.append(cells)
    width = max((len(row) for row in rows), default=0)
    return format_table([[*row, *[""] * (width - len(row))] for row in rows]) if width else ""


def _odt_text(element: ET.Element) -> str:
    """Text of an element; spaces and tabs are elements of their own."""
    parts: list[str] = [element.text or ""]
    for each in element:
        parts += [
            " " if each.tag in {f"{_TEXT}s", f"{_TEXT}tab", f"{_TEXT}line-break"} else _odt_text(each),
            each.tail or "",
        ]
    return re.sub(r"\s+", " ", "".join(parts)).strip() if element.tag in {f"{_TEXT}p", f"{_TEXT}h"} else "".join(parts)


def _parse_xml(data: bytes) -> ET.Element:
    if b"<!ENTITY" in data:
        raise InvalidRequest("its XML declares entities, which is not supported")
    return ET.fromstring(data)  # noqa: S314 - entities were refused, and expat limits the rest
