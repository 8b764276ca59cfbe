"""Reads a Notion export: Markdown pages and CSV databases, from a folder or a zip archive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.archive import names_of, open_archive
from contexture.ingestion.blocks.draft import Document, Draft, Reading
from contexture.ingestion.blocks.logseq import BULLETS
from contexture.ingestion.blocks.markdown import markdown_drafts
from contexture.ingestion.blocks.sources import Opened, SourceFile, open_folder
from contexture.ingestion.blocks.tables import Columns, Row, chosen, row_draft, rows_of, schema_of
from contexture.ingestion.problems import Problem
from contexture.types import Json
from contexture.workspace import BlockType

SUFFIXES = frozenset({".md", ".csv"})
_NAMED = re.compile(r"(.*?)[ _-]?([0-9a-f]{32})(_all)?$")
_HEX = re.compile(r"[0-9a-f]{32}(?=(?:_all)?\.(?:md|csv)\b|$)")
_LINK = re.compile(r"\[([^\[\]\n]*)\]\(((?:[^()\s]|\([^()\s]*\))*[0-9a-f]{32}(?:_all)?\.(?:md|csv))\)")
_RELATED = re.compile(r"(?:^|, )([^,()]*?) \(((?:[^()]|\([^()]*\))*?[0-9a-f]{32}\.md)\)")
_CELL = re.compile(r"([^\s:][^:\n]{0,60}): (.+)")


def is_notion(path: Path) -> bool:
    """Whether a zip archive, or a folder, is a Notion export: pages with 32 hexadecimal digits in their names."""
    if path.is_file():
        return any(_is_page(name) or name.endswith(".zip") for name in names_of(path))
    try:
        return any(_is_page(found.name) for found in path.iterdir())
    except OSError:
        return False


def read_notion(path: Path, *, readers: tuple[str, ...] | None = None) -> Reading:
    """A document per page and per database; the pages of a database's rows are inside it."""
    opened = open_archive(path, SUFFIXES) if path.is_file() else open_folder(path, SUFFIXES)
    yield from opened.problems
    yield from _Export(opened, readers).read()


class _Export:
    """The files of an export by the folder that stands for what they hold."""

    def __init__(self, opened: Opened, readers: tuple[str, ...] | None) -> None:
        self._readers = readers
        self._pages = [file for file in opened.files if file.suffix == ".md"]
        self._tables = _whole_tables(file for file in opened.files if file.suffix == ".csv")
        self._homes = {_home(file): file for file in (*self._pages, *self._tables)}

    def read(self) -> Reading:
        rows: dict[str, list[SourceFile]] = {}
        for page in self._pages:
            above = self._homes.get(page.folder)
            if above is not None and above.suffix == ".csv":
                rows.setdefault(above.path, []).append(page)
            else:
                yield self._page(page)
        for table in self._tables:
            yield from self._table(table, rows.get(table.path, []))

    def _page(self, file: SourceFile) -> Document:
        title, body, first = _title(file)
        root = Draft(
            type=BlockType.PAGE,
            text=title,
            known=page_id(file.stem),
            readers=self._readers if self._under(file) is None else None,
            modified=file.modified,
        )
        root.children.extend(_body(body, file, first))
        return Document(path=file.path, root=root, under=self._under(file), bullets=_bullets(file))

    def _under(self, file: SourceFile) -> str | None:
        """The page that it stands in: the one whose folder holds it."""
        above = self._homes.get(file.folder)
        return page_id(above.stem) or None if above is not None else None

    def _table(self, file: SourceFile, pages: Sequence[SourceFile]) -> Iterable[Document | Problem]:
        try:
            rows = rows_of(file.text)
        except InvalidRequest as failure:
            yield Problem(path=file.path, message=str(failure))
            yield from (self._page(page) for page in pages)
            return
        columns = chosen(list(rows[0]) if rows else [], Columns(title=next(iter(rows[0]), "") if rows else ""))
        columns = replace(columns, id="", relations=_relations(rows))
        schema = schema_of(rows, columns)
        root = Draft(
            type=BlockType.DB,
            text=_plain_title(file.stem),
            properties={"schema": schema},
            known=page_id(file.stem),
            readers=self._readers if self._under(file) is None else None,
            modified=file.modified,
        )
        waiting = _by_title(pages)
        for line, row in enumerate(rows, start=2):
            draft = row_draft(_cleared(row, columns.relations), columns, schema, file, line)
            root.children.append(_joined(draft, row, columns, waiting))
        root.children.extend(_row_alone(page) for left in waiting.values() for page in left)
        bullets = sum(map(_bullets, pages))
        yield Document(path=file.path, root=root, under=self._under(file), bullets=bullets)


def page_id(stem: str) -> str:
    """The id that Notion gives, from the name of a file; empty where it has none."""
    found = _NAMED.match(stem)
    return str(UUID(found[2])) if found else ""


def _joined(draft: Draft, row: Row, columns: Columns, waiting: dict[str, list[SourceFile]]) -> Draft:
    """The row with its relations, and with the page that has its title, if there is one."""
    related = {name: list[Json](_related(row[name])) for name in columns.relations if row.get(name)}
    draft = replace(draft, properties={**draft.properties, **related})
    pages = waiting.get(_key(draft.text))
    if not pages:
        return draft
    page = pages.pop(0)
    _, body, first = _title(page)
    cells, rest, more = _cells(body)
    below = _body(rest, page, first + more) if cells else _body(body, page, first)
    return replace(draft, known=page_id(page.stem), children=below)


def _row_alone(page: SourceFile) -> Draft:
    """A row that only has a page, its cells written at the top of it."""
    title, body, first = _title(page)
    cells, rest, more = _cells(body)
    return Draft(
        type=BlockType.DB_ROW,
        text=title,
        properties=dict[str, Json](cells),
        known=page_id(page.stem),
        children=_body(rest, page, first + more),
        modified=page.modified,
    )


def _cells(body: str) -> tuple[dict[str, str], str, int]:
    """The `Column: value` lines at the top of a row's page, the text behind them, and how many lines that are."""
    lines = body.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    found: dict[str, str] = {}
    at = start
    while at < len(lines) and (cell := _CELL.fullmatch(lines[at])):
        found[cell[1]] = cell[2].strip()
        at += 1
    if at < len(lines) and lines[at].strip():
        return {}, body, 0  # a paragraph that only begins like a cell
    return found, "\n".join(lines[at:]), at


def _title(file: SourceFile) -> tuple[str, str, int]:
    """The title that the first heading says, the text behind it, and the number of that text's first line."""
    lines = file.text.split("\n")
    if lines[0].startswith("# "):
        return lines[0][2:].strip() or _plain_title(file.stem), "\n".join(lines[1:]), 2
    return _plain_title(file.stem), file.text, 1


def _body(text: str, file: SourceFile, first: int) -> list[Draft]:
    linked = _LINK.sub(_block_link, text)
    return [_dated(draft, file) for draft in markdown_drafts(linked, first_line=first)]


def _dated(draft: Draft, file: SourceFile) -> Draft:
    return replace(draft, modified=file.modified, children=[_dated(child, file) for child in draft.children])


def _block_link(found: re.Match[str]) -> str:
    name = _HEX.search(unquote(found[2]))
    return f"[{found[1]}](block:{UUID(name[0])})" if name else found[0]


def _relations(rows: Sequence[Row]) -> tuple[str, ...]:
    """The columns whose cells all name pages of the export."""
    names = list(rows[0]) if rows else []
    cells = {name: [row[name] for row in rows if row[name].strip()] for name in names}
    return tuple(name for name, said in cells.items() if said and all(_RELATED.search(each) for each in said))


def _related(cell: str) -> list[str]:
    return [str(UUID(name[0])) for each in _RELATED.finditer(cell) if (name := _HEX.search(unquote(each[2])))]


def _cleared(row: Row, relations: Sequence[str]) -> Row:
    return {name: "" if name in relations else text for name, text in row.items()}


def _by_title(pages: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
    found: dict[str, list[SourceFile]] = {}
    for page in pages:
        found.setdefault(_key(_title(page)[0]), []).append(page)
    return found


def _whole_tables(files: Iterable[SourceFile]) -> list[SourceFile]:
    """One table per database: an export also has each as its view shows it, which may leave rows out."""
    found: dict[str, SourceFile] = {}
    for file in files:
        name = _home(file)
        if name not in found or file.stem.endswith("_all"):
            found[name] = file
    return list(found.values())


def _home(file: SourceFile) -> str:
    """The folder that holds what a page or database has inside."""
    return file.path.rpartition(".")[0].removesuffix("_all")


def _plain_title(stem: str) -> str:
    found = _NAMED.match(stem)
    return (found[1] if found else stem).strip() or stem


def _key(title: str) -> str:
    return " ".join(title.casefold().split())


def _is_page(name: str) -> bool:
    return Path(name).suffix in SUFFIXES and page_id(Path(name).stem) != ""


def _bullets(file: SourceFile) -> int:
    return len(BULLETS.findall(file.text))
