"""Reads a Notion export: Markdown pages and CSV databases, from a folder or a zip archive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks import tables
from contexture.ingestion.blocks._markdown import parse_markdown
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItems
from contexture.ingestion.blocks.logseq import LIST_ITEM
from contexture.ingestion.blocks.sources import SourceFile, SourceListing, list_archive_names, open_archive, open_folder
from contexture.ingestion.files import LoadProblem
from contexture.types import Json
from contexture.workspace import BlockType

SUFFIXES = frozenset({".md", ".csv"})
_NAME_WITH_ID = re.compile(r"(.*?)[ _-]?([0-9a-f]{32})(_all)?$")
_PAGE_ID = re.compile(r"[0-9a-f]{32}(?=(?:_all)?\.(?:md|csv)\b|$)")
_LINK = re.compile(r"\[([^\[\]\n]*)\]\(((?:[^()\s]|\([^()\s]*\))*[0-9a-f]{32}(?:_all)?\.(?:md|csv))\)")
_RELATION = re.compile(r"(?:^|, )([^,()]*?) \(((?:[^()]|\([^()]*\))*?[0-9a-f]{32}\.md)\)")
_CELL = re.compile(r"([^\s:][^:\n]{0,60}): (.+)")


def is_notion(path: Path) -> bool:
    """Whether a zip archive, or a folder, is a Notion export: pages with 32 hexadecimal digits in their names."""
    if path.is_file():
        return any(_is_page(name) or name.endswith(".zip") for name in list_archive_names(path))
    try:
        return any(_is_page(found.name) for found in path.iterdir())
    except OSError:
        return False


def read_notion(path: Path, *, readers: tuple[str, ...] | None = None) -> ImportItems:
    """Yield a document per page and per database; the pages of database rows are inside the database."""
    opened = open_archive(path, SUFFIXES) if path.is_file() else open_folder(path, SUFFIXES)
    yield from opened.problems
    yield from _Export(opened, readers).read()


class _Export:
    """The files of an export, by the folder that holds their content."""

    def __init__(self, opened: SourceListing, readers: tuple[str, ...] | None) -> None:
        self._readers = readers
        self._pages = [file for file in opened.files if file.suffix == ".md"]
        self._tables = _drop_partial_tables(file for file in opened.files if file.suffix == ".csv")
        self._homes = {_content_folder(file): file for file in (*self._pages, *self._tables)}

    def read(self) -> ImportItems:
        rows: dict[str, list[SourceFile]] = {}
        for page in self._pages:
            above = self._homes.get(page.folder)
            if above is not None and above.suffix == ".csv":
                rows.setdefault(above.path, []).append(page)
            else:
                yield self._read_page(page)
        for table in self._tables:
            yield from self._read_table(table, rows.get(table.path, []))

    def _read_page(self, file: SourceFile) -> DraftDocument:
        title, body, first = _split_title(file)
        root = BlockDraft(
            type=BlockType.PAGE,
            text=title,
            known=parse_page_id(file.stem),
            readers=self._readers if self._parent_id(file) is None else None,
            modified=file.modified,
        )
        root.children.extend(_parse_body(body, file, first))
        return DraftDocument(path=file.path, root=root, under=self._parent_id(file), bullets=_count_list_items(file))

    def _parent_id(self, file: SourceFile) -> str | None:
        """Return the id of the page whose folder contains this file."""
        above = self._homes.get(file.folder)
        return parse_page_id(above.stem) or None if above is not None else None

    def _read_table(self, file: SourceFile, pages: Sequence[SourceFile]) -> Iterable[DraftDocument | LoadProblem]:
        try:
            rows = tables.parse_rows(file.text)
        except InvalidRequest as failure:
            yield LoadProblem(path=file.path, message=str(failure))
            yield from (self._read_page(page) for page in pages)
            return
        columns = tables.infer_columns(
            list(rows[0]) if rows else [], tables.TableColumns(title=next(iter(rows[0]), "") if rows else "")
        )
        columns = replace(columns, id="", relations=_find_relations(rows))
        schema = tables.infer_schema(rows, columns)
        root = BlockDraft(
            type=BlockType.DB,
            text=_title_from_name(file.stem),
            properties={"schema": schema},
            known=parse_page_id(file.stem),
            readers=self._readers if self._parent_id(file) is None else None,
            modified=file.modified,
        )
        waiting = _group_by_title(pages)
        for line, row in enumerate(rows, start=2):
            draft = tables.row_to_draft(_clear_cells(row, columns.relations), columns, schema, file, line)
            root.children.append(_join_row_page(draft, row, columns, waiting))
        root.children.extend(_page_to_row(page) for left in waiting.values() for page in left)
        bullets = sum(map(_count_list_items, pages))
        yield DraftDocument(path=file.path, root=root, under=self._parent_id(file), bullets=bullets)


def parse_page_id(stem: str) -> str:
    """Return the Notion id in a file name; empty if there is none."""
    found = _NAME_WITH_ID.match(stem)
    return str(UUID(found[2])) if found else ""


def _join_row_page(
    draft: BlockDraft, row: tables.TableRow, columns: tables.TableColumns, waiting: dict[str, list[SourceFile]]
) -> BlockDraft:
    """Return the row with its relations, and with the page of the same title, if there is one."""
    related = {name: list[Json](_related_ids(row[name])) for name in columns.relations if row.get(name)}
    draft = replace(draft, properties={**draft.properties, **related})
    pages = waiting.get(_title_key(draft.text))
    if not pages:
        return draft
    page = pages.pop(0)
    _, body, first = _split_title(page)
    cells, rest, more = _split_cells(body)
    below = _parse_body(rest, page, first + more) if cells else _parse_body(body, page, first)
    return replace(draft, known=parse_page_id(page.stem), children=below)


def _page_to_row(page: SourceFile) -> BlockDraft:
    """Convert the page of a row that is not in the table; its cells are at the top of the page."""
    title, body, first = _split_title(page)
    cells, rest, more = _split_cells(body)
    return BlockDraft(
        type=BlockType.DB_ROW,
        text=title,
        properties=dict[str, Json](cells),
        known=parse_page_id(page.stem),
        children=_parse_body(rest, page, first + more),
        modified=page.modified,
    )


def _split_cells(body: str) -> tuple[dict[str, str], str, int]:
    """Return the `Column: value` lines at the top of a row's page, the text after them, and the number of lines."""
    lines = body.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    found: dict[str, str] = {}
    at = start
    while at < len(lines) and (cell := _CELL.fullmatch(lines[at])):
        found[cell[1]] = cell[2].strip()
        at += 1
    if at < len(lines) and lines[at].strip():
        return {}, body, 0  # a paragraph that only looks like a cell
    return found, "\n".join(lines[at:]), at


def _split_title(file: SourceFile) -> tuple[str, str, int]:
    """Return the title from the first heading, the text after it, and the line number where that text begins."""
    lines = file.text.split("\n")
    if lines[0].startswith("# "):
        return lines[0][2:].strip() or _title_from_name(file.stem), "\n".join(lines[1:]), 2
    return _title_from_name(file.stem), file.text, 1


def _parse_body(text: str, file: SourceFile, first: int) -> list[BlockDraft]:
    linked = _LINK.sub(_to_block_link, text)
    return [_set_modified(draft, file) for draft in parse_markdown(linked, first_line=first)]


def _set_modified(draft: BlockDraft, file: SourceFile) -> BlockDraft:
    return replace(draft, modified=file.modified, children=[_set_modified(child, file) for child in draft.children])


def _to_block_link(found: re.Match[str]) -> str:
    name = _PAGE_ID.search(unquote(found[2]))
    return f"[{found[1]}](block:{UUID(name[0])})" if name else found[0]


def _find_relations(rows: Sequence[tables.TableRow]) -> tuple[str, ...]:
    """Return the columns in which every cell names pages of the export."""
    names = list(rows[0]) if rows else []
    cells = {name: [row[name] for row in rows if row[name].strip()] for name in names}
    return tuple(name for name, said in cells.items() if said and all(_RELATION.search(each) for each in said))


def _related_ids(cell: str) -> list[str]:
    return [str(UUID(name[0])) for each in _RELATION.finditer(cell) if (name := _PAGE_ID.search(unquote(each[2])))]


def _clear_cells(row: tables.TableRow, relations: Sequence[str]) -> tables.TableRow:
    return {name: "" if name in relations else text for name, text in row.items()}


def _group_by_title(pages: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
    found: dict[str, list[SourceFile]] = {}
    for page in pages:
        found.setdefault(_title_key(_split_title(page)[0]), []).append(page)
    return found


def _drop_partial_tables(files: Iterable[SourceFile]) -> list[SourceFile]:
    """Keep one table per database: an export may also contain filtered views of it, with fewer rows."""
    found: dict[str, SourceFile] = {}
    for file in files:
        name = _content_folder(file)
        if name not in found or file.stem.endswith("_all"):
            found[name] = file
    return list(found.values())


def _content_folder(file: SourceFile) -> str:
    """Return the folder with the content of a page or database."""
    return file.path.rpartition(".")[0].removesuffix("_all")


def _title_from_name(stem: str) -> str:
    found = _NAME_WITH_ID.match(stem)
    return (found[1] if found else stem).strip() or stem


def _title_key(title: str) -> str:
    return " ".join(title.casefold().split())


def _is_page(name: str) -> bool:
    return Path(name).suffix in SUFFIXES and parse_page_id(Path(name).stem) != ""


def _count_list_items(file: SourceFile) -> int:
    return len(LIST_ITEM.findall(file.text))
