"""Maps documents and pages to index records and back, with the fields by which they are found.

The name of the company, the form, and the period are read from the file's name, its title and its first pages. Rows of
a table are searched together with the caption, the header and the units of the table.
"""

import base64
import gzip
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from contexture.documents import Page, Region, RegionKind
from contexture.pages._names import clean_company
from contexture.pages.images import image_name, thumb_name
from contexture.pages.values import Document, DocumentSummary, StoredPage, pack_regions, unpack_regions
from contexture.retrieval.prepare import PASSAGE_CHARS, PassageCut
from contexture.retrieval.text_facts import read_text_facts
from contexture.text.language import detect_language
from contexture.text.segmentation import split_passages
from contexture.text.unicode import repair_text
from contexture.types import Collection, FieldType, PreparedRecord, Record

_FIRST_PAGES_CHARACTERS = 4_000
_MAX_HEADINGS_CHARACTERS = 240
_MAX_CAPTION_CHARACTERS = 160
_MAX_HEADER_CHARACTERS = 240
_TITLE_ZONE_CHARACTERS = 300  # at the start of a page: a statement is named there
_MIN_STATEMENT_ROWS = 8
_MIN_CONTENTS_ITEMS = 6
_CONTENTS_ITEM = re.compile(r"[-*] .*[^\W\d_].* (?:\d{1,4}|[ivxlc]{1,6}|[A-Z]-\d{1,3})")
# Leaders or a comma before page numbers; cells of an index that was read as a table end them, too.
_INDEX_ENTRY = re.compile(
    r"(?:(?:[ .]\.){3,100}[ |]{0,8}|(?<=[^\W\d]), |(?<=[)*]), )\d{1,3}(?:(?:, |[-–])\d{1,3})*(?=\s|$)"
)
_INDEXED_WORD = re.compile(r"[^\W\d_]{2,}")
_MIN_INDEX_ENTRIES = 12
_MAX_ENTRY_WORDS = 5  # of an index, on average

_REGISTRANT = re.compile(r"\n\W*([^\n|]{2,80})\s*\n[^\n]{0,20}\(?\s*exact name of registrant", re.IGNORECASE)
_PERIOD_TOKEN = re.compile(r"(?:fy|q)?(?:19|20)?\d\d(?:q[1-4])?|(?:19|20)\d\dq[1-4]|q[1-4]|fy\d\d", re.IGNORECASE)
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_FISCAL_YEAR = re.compile(
    r"(?:fiscal\s+year\s+ended|year\s+ended|period\s+ended|for\s+the\s+year|annual\s+report)[^.\n]{0,40}?((?:19|20)\d\d)",
    re.IGNORECASE,
)
_QUARTER = re.compile(r"q([1-4])(?!\d)|\b(first|second|third|fourth)[\s-]+quarter", re.IGNORECASE)
_QUARTER_WORDS = {"first": 1, "second": 2, "third": 3, "fourth": 4}


class FilingType(StrEnum):
    """Kinds of reports that a question can name."""

    ANNUAL = "10-K"
    QUARTERLY = "10-Q"
    CURRENT = "8-K"
    EARNINGS = "earnings release"


_FORMS = {
    FilingType.ANNUAL: re.compile(r"\b(?:form\s+)?(?:10-?k|20-?f|annual[\s_-]+report)", re.IGNORECASE),
    FilingType.QUARTERLY: re.compile(r"\b(?:form\s+)?(?:10-?q|quarterly[\s_-]+report)", re.IGNORECASE),
    FilingType.CURRENT: re.compile(r"\b(?:form\s+)?(?:8-?k|current[\s_-]+report)", re.IGNORECASE),
    FilingType.EARNINGS: re.compile(r"\bearnings(?:[\s_-]+(?:release|report))?\b|\bpress[\s_-]+release", re.IGNORECASE),
}


class FinancialStatement(StrEnum):
    """Financial statements."""

    INCOME = "income"
    BALANCE = "balance"
    CASH_FLOW = "cash_flow"
    EQUITY = "equity"


_STATEMENTS = {
    FinancialStatement.INCOME: re.compile(
        r"statements? of (?:\w+ )?(?:income|operations|earnings|profit)|income statement|profit and loss account"
        r"|отч[её]т о (?:прибыл|финансовых результат)",
        re.IGNORECASE,
    ),
    FinancialStatement.BALANCE: re.compile(
        r"balance sheets?|statements? of (?:\w+ )?financial position"
        r"|бухгалтерский баланс|отч[её]т о финансовом положении",
        re.IGNORECASE,
    ),
    FinancialStatement.CASH_FLOW: re.compile(
        r"statements? of (?:\w+ )?cash flows?|cash flow statement|движени\w+ денежных средств", re.IGNORECASE
    ),
    FinancialStatement.EQUITY: re.compile(
        r"statements? of (?:\w+ ){0,3}(?:share|stock)?holders?.? equity|statements? of (?:changes in )?equity"
        r"|отч[её]т об изменениях капитала",
        re.IGNORECASE,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentFields:
    """Company, form, years and quarter of a document; empty where it does not say."""

    company: str = ""
    form: str = ""
    years: tuple[int, ...] = ()
    quarter: int = 0

    @property
    def words(self) -> str:
        """The fields as words, by which every passage of the document is found."""
        quarter = (f"Q{self.quarter}",) if self.quarter else ()
        return " ".join([*filter(None, (self.company, self.form)), *map(str, self.years), *quarter])


def read_document_fields(document: Document) -> DocumentFields:
    """The fields of a document: from its file's name, then from its title, then from its first pages."""
    stem = document.filename.rsplit(".", 1)[0]
    name = re.sub(r"[_\s]+", " ", stem)
    start = "\n".join(page.text for page in document.pages[:2])[:_FIRST_PAGES_CHARACTERS]
    texts = (name, document.title, start)
    return DocumentFields(
        company=repair_text(_find_company(stem, start)),
        form=next((form for text in texts if (form := find_form(text))), ""),
        years=tuple(sorted(_find_years(texts))),
        quarter=next((quarter for text in texts[:2] if (quarter := find_quarter(text))), 0),
    )


def _find_company(stem: str, start: str) -> str:
    """The registrant that the first page names, or the words of the file's name before a period or a form."""
    named = _REGISTRANT.search(start)
    if named:
        return clean_company(named[1])
    words: list[str] = []
    for word in re.split(r"[_\s-]+", stem):
        if _PERIOD_TOKEN.fullmatch(word) or find_form(word):
            return " ".join(words)
        words.append(word)
    return ""  # nothing but words: a title, not the name of a company


def find_form(text: str) -> str:
    """The kind of report that a text names first; empty for none."""
    found = [(match.start(), form.value) for form, pattern in _FORMS.items() if (match := pattern.search(text))]
    return min(found)[1] if found else ""


def find_quarter(text: str) -> int:
    """The quarter that a text names first; 0 for none."""
    found = _QUARTER.search(text)
    if found is None:
        return 0
    return int(found[1]) if found[1] else _QUARTER_WORDS[found[2].lower()]


def _find_years(texts: Sequence[str]) -> set[int]:
    name, title, start = texts
    named = {int(year) for year in _YEAR.findall(name)} or {int(year) for year in _YEAR.findall(title)}
    if named:
        return named
    ended = _FISCAL_YEAR.search(start)
    return {int(ended[1])} if ended else set()


def find_statements(page: Page) -> tuple[str, ...]:
    """Financial statements that a page shows: it is headed by their title and has a table."""
    rows = max((region.text.count("\n") for region in page.regions if region.kind is RegionKind.TABLE), default=0)
    if rows < _MIN_STATEMENT_ROWS:
        return ()
    spoken = "\n".join(region.text for region in page.regions if region.kind is not RegionKind.TABLE)
    return find_statement_names(spoken[:_TITLE_ZONE_CHARACTERS])


def lists_contents(page: Page) -> bool:
    """Whether a page is mostly a list of contents or an index: items that end in page numbers."""
    lines = [line for line in page.text.split("\n") if line.strip()]
    entries = sum(_CONTENTS_ITEM.fullmatch(line) is not None for line in lines)
    if entries >= _MIN_CONTENTS_ITEMS and 2 * entries > len(lines):
        return True
    indexed = len(_INDEX_ENTRY.findall(page.text))
    return indexed >= _MIN_INDEX_ENTRIES and _MAX_ENTRY_WORDS * indexed >= len(_INDEXED_WORD.findall(page.text))


def find_statement_names(text: str) -> tuple[str, ...]:
    """Financial statements that a text names."""
    return tuple(name.value for name, pattern in _STATEMENTS.items() if pattern.search(text))


def cut_stored_page(record: Record) -> list[PassageCut]:
    """The passages into which a stored page was cut, from its record; a document's own record has none."""
    payload = record.payload
    if "regions" not in payload:
        return []
    fields = DocumentFields(
        company=payload.get("company", ""), form=payload.get("form", ""), years=tuple(payload.get("years", ())),
        quarter=payload.get("quarter", 0),
    )  # fmt: skip
    regions = unpack_regions(payload["regions"], record.text)
    return _cut_named(payload["filename"], payload["title"], payload["section_path"], regions, fields)(record)


def cut_page(document: Document, page: Page, fields: DocumentFields) -> Callable[[Record], list[PassageCut]]:
    """A function that cuts the record of a page into passages of text and of table rows, each with its context."""
    return _cut_named(document.filename, document.title, page.section_path, page.regions, fields)


def _cut_named(
    filename: str, title: str, section: str | None, regions: Sequence[Region], fields: DocumentFields
) -> Callable[[Record], list[PassageCut]]:
    name = re.sub(r"[_\s]+", " ", filename.rsplit(".", 1)[0])
    headings = " ".join(region.text.lstrip("# ") for region in regions if region.kind is RegionKind.HEADING)
    parts = (title if title != filename else "", name, fields.words, section or "")
    context = ". ".join(filter(None, (*parts, headings[:_MAX_HEADINGS_CHARACTERS])))

    def cut(record: Record) -> list[PassageCut]:
        if not record.text.strip():
            return []
        return list(_cut_record(record.text, regions, repair_text(context)))

    return cut


def _cut_record(text: str, regions: Sequence[Region], context: str) -> Iterator[PassageCut]:
    """Passages of a page in order: runs of text between tables, and groups of rows of each table."""
    tables = [region for region in regions if region.kind is RegionKind.TABLE and region.end > region.start]
    tables = [region for region in tables if text[region.start : region.end] == region.text]
    at = 0
    for table in sorted(tables, key=lambda region: region.start):
        if table.start < at:
            continue
        yield from _cut_text(text, at, table.start, context)
        yield from _cut_table(
            text, table, text[max(at, table.start - 2 * _MAX_CAPTION_CHARACTERS) : table.start], context
        )
        at = table.end
    yield from _cut_text(text, at, len(text), context)


def _cut_text(text: str, start: int, end: int, context: str) -> Iterator[PassageCut]:
    for (first, last), sentences in split_passages(text[start:end], target=PASSAGE_CHARS):
        yield PassageCut(
            start=start + first,
            end=start + last,
            sentences=tuple((start + begin, start + stop) for begin, stop in sentences),
            search_text=f"{context}. {text[start + first : start + last]}",
        )


def _cut_table(text: str, table: Region, before: str, context: str) -> Iterator[PassageCut]:
    """Groups of rows; each is searched with the caption and the header of its table."""
    rows = _find_rows(text, table)
    caption = " ".join(before.split())[-_MAX_CAPTION_CHARACTERS:]
    header = _plain_row(text, rows[0])[:_MAX_HEADER_CHARACTERS]
    body = [row for row in rows[1:] if _plain_row(text, row)]
    groups: list[list[tuple[int, int]]] = [[rows[0]]]
    for row in body:
        if row[1] - groups[-1][0][0] > PASSAGE_CHARS and len(groups[-1]) > 1:
            groups.append([row])
        else:
            groups[-1].append(row)
    for group in groups:
        shown = "; ".join(_plain_row(text, row) for row in group if row != rows[0])
        yield PassageCut(
            start=group[0][0],
            end=group[-1][1],
            sentences=tuple(group),
            search_text=f"{context}. {caption} {header}. {shown}",
        )


def _find_rows(text: str, table: Region) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    start = table.start
    for line in text[table.start : table.end].split("\n"):
        if line.strip():
            rows.append((start, start + len(line.rstrip())))
        start += len(line) + 1
    return rows


def _plain_row(text: str, row: tuple[int, int]) -> str:
    """Cells of a Markdown row that hold something; empty for the rule below a header."""
    cells = (cell.strip() for cell in text[row[0] : row[1]].strip("|").split("|"))
    return " | ".join(cell for cell in cells if cell and not re.fullmatch(r":?-{3,}:?", cell))


PAGES = Collection(
    name="pages",
    fields={
        "doc_id": FieldType.KEYWORD,
        "filename": FieldType.KEYWORD,
        "extension": FieldType.KEYWORD,
        "page": FieldType.NUMBER,
        "company": FieldType.KEYWORD,
        "form": FieldType.KEYWORD,
    },
)
"""The collection of pages, with one record per document; filters may also use `time`, `lang`, `kind` and `source`."""

PAGE_KIND = "page"
DOCUMENT_KIND = "document"
PAGE_BREAK = "\n\n"


def page_record_id(doc_id: str, page: int) -> str:
    """The id of a page's record."""
    return f"{doc_id}:{page}"


def page_record(document: Document, page: Page, fields: DocumentFields | None = None) -> Record:
    """The record of one page; document title and section path are its title, so that a search finds it by them."""
    text = repair_text(page.text)
    place = [repair_text(each) for each in (document.title or document.filename, page.section_path) if each]
    return Record(
        id=page_record_id(document.doc_id, page.number),
        text=text,
        acl=tuple(sorted(set(document.readers))),
        title=" > ".join(place) if text.strip() else "",  # otherwise a blank page would be indexed by its title
        kind=PAGE_KIND,
        lang=detect_language(text),
        source=repair_text(document.filename),
        time=assume_utc(document.timestamp),
        payload=page_payload(document, page, fields or read_document_fields(document)),
    )


def page_payload(document: Document, page: Page, fields: DocumentFields) -> dict[str, Any]:
    """The metadata of a page, under the names used by filters and readers."""
    return {
        "doc_id": document.doc_id,
        "filename": repair_text(document.filename),
        "page": page.number,
        "extension": document.extension,
        "timestamp": assume_utc(document.timestamp).isoformat(),
        "source_path": repair_text(document.source_path),
        "image_path": image_name(document.doc_id, page.number) if page.image else None,
        "thumb_path": thumb_name(document.doc_id, page.number) if page.thumb else None,
        "section_path": _repair_or_none(page.section_path),
        "parent_heading": _repair_or_none(page.parent_heading),
        "num_headings": page.num_headings,
        "num_tables": page.num_tables,
        "num_pictures": page.num_pictures,
        "title": repair_text(document.title),
        "notes": [repair_text(note) for note in page.notes],
        "regions": pack_regions(page.regions),
        "company": fields.company,
        "form": fields.form,
        "years": list(fields.years),
        "quarter": fields.quarter,
        "statements": list(find_statements(page)),
        "contents": lists_contents(page),
    }


def document_record(document: Document) -> PreparedRecord:
    """The record of the document itself; it has no passages, so that no search finds it."""
    whole = PAGE_BREAK.join(repair_text(page.text) for page in document.pages)
    record = Record(
        id=document.doc_id,
        text="",
        acl=tuple(sorted(set(document.readers))),
        kind=DOCUMENT_KIND,
        source=repair_text(document.filename),
        time=assume_utc(document.timestamp),
        payload={
            "doc_id": document.doc_id,
            "filename": repair_text(document.filename),
            "extension": document.extension,
            "timestamp": assume_utc(document.timestamp).isoformat(),
            "source_path": repair_text(document.source_path),
            "title": repair_text(document.title),
            "pages": [page.number for page in document.pages],
            "full_markdown_compressed": compress_text(whole),
        },
    )
    return PreparedRecord(record=record, passages=(), redactions=(), title_redactions=(), rules="")


def compress_text(text: str) -> str:
    """A text as base64 of its gzip; equal texts give equal results."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def decompress_text(packed: str) -> str:
    """The inverse of `compress_text`."""
    return gzip.decompress(base64.b64decode(packed)).decode()


def record_to_summary(record: Record) -> DocumentSummary:
    """The summary of a document from its record."""
    payload = record.payload
    return DocumentSummary(
        doc_id=payload["doc_id"],
        filename=payload["filename"],
        extension=payload["extension"],
        source_path=payload["source_path"],
        timestamp=datetime.fromisoformat(payload["timestamp"]),
        pages=len(payload["pages"]),
        readers=record.acl,
        title=payload["title"],
    )


def record_to_page(record: Record) -> StoredPage:
    """The page stored in a record; the paths of its pictures are those of the service's routes."""
    payload, facts = record.payload, read_text_facts(record)
    return StoredPage(
        doc_id=payload["doc_id"],
        filename=payload["filename"],
        page=payload["page"],
        extension=payload["extension"],
        timestamp=datetime.fromisoformat(payload["timestamp"]),
        source_path=payload["source_path"],
        image_path=_picture_route(payload, "image") if payload["image_path"] else None,
        thumb_path=_picture_route(payload, "thumb") if payload["thumb_path"] else None,
        section_path=payload["section_path"],
        parent_heading=payload["parent_heading"],
        num_headings=payload["num_headings"],
        num_tables=payload["num_tables"],
        num_pictures=payload["num_pictures"],
        text=record.text,
        hash=record.hash,
        lang=record.lang,
        packed_regions=payload["regions"],
        readers=record.acl,
        title=payload["title"],
        notes=tuple(payload["notes"]),
        sentences=facts.sentences,
        redactions=facts.redactions,
        rules=facts.rules,
        tokens=facts.tokens,
        simhash=facts.simhash,
    )


def assume_utc(time: datetime) -> datetime:
    """The time, in UTC when it has no zone."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _repair_or_none(text: str | None) -> str | None:
    return repair_text(text) if text else None


def _picture_route(payload: Mapping[str, Any], kind: str) -> str:
    return f"/v1/pages/{quote(payload['doc_id'], safe='')}/{payload['page']}/{kind}"
