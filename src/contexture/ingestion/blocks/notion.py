"""Reads a Notion export: Markdown pages and CSV databases, from a folder or a zip archive."""

import re
from collections.abc import Collection, Iterable, Sequence
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
from contexture.workspace import BlockType, is_person_column

SUFFIXES = frozenset({".md", ".csv"})
_NAME_WITH_ID = re.compile(r"(.*?)[ _-]?([0-9a-f]{32})(_all)?$")
_ID = r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}"
_TARGET_END = rf"{_ID}(?:_all)?(?:\.(?:md|csv))?(?:\?[^\s(),]*)?(?:#[^\s(),]*)?"
_PAGE_ID = re.compile(rf"{_ID}(?=(?:_all)?(?:\.(?:md|csv))?(?:[?#]|$))")
_LINK = re.compile(rf"\[([^\[\]\n]*)\]\(((?:[^()\s]|\([^()\s]*\))*{_TARGET_END})\)")
_RELATION = re.compile(
    rf"(?:^|,\s*)(?P<name>[^,()]*?)\s*\((?P<inside>(?:[^()]|\([^()]*\))*?{_TARGET_END})\)"
    rf"|(?:^|,\s*)(?P<bare>[^\s,()]*{_TARGET_END}|[^,()]*{_ID}\.(?:md|csv))(?=\s*(?:,|$))"
)
_RELATED_SHARE = 0.5  # share of the cells of a column that must name pages
_NAMED_SHARE = 0.9  # share of them if they name pages by title only
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
        self._known = frozenset(name for file in opened.files if (name := parse_page_id(file.stem)))
        self._pages = [_link_pages(file, self._known) for file in opened.files if file.suffix == ".md"]
        self._tables = _drop_partial_tables(file for file in opened.files if file.suffix == ".csv")
        self._homes = {_content_folder(file): file for file in (*self._pages, *self._tables)}
        self._ranks = self._rank_subpages()
        self._rows = {file.path: _try_parse(file) for file in self._tables}
        self._titles = frozenset(
            _title_key(next(iter(row.values())))
            for rows in self._rows.values()
            if not isinstance(rows, InvalidRequest)
            for row in rows
        ) - {""}

    def read(self) -> ImportItems:
        pages: dict[str, list[SourceFile]] = {}
        for page in self._pages:
            above = self._homes.get(page.folder)
            if above is not None and above.suffix == ".csv":
                pages.setdefault(above.path, []).append(page)
            else:
                yield self._read_page(page)
        for table in self._tables:
            yield from self._read_table(table, pages.get(table.path, []))

    def _rank_subpages(self) -> dict[str, int]:
        """Return by path the position among the pages and databases inside one page: the order of its links to them."""
        linked = {
            file.path: {name: at for at, name in reversed(list(enumerate(_linked_ids(file.text))))}
            for file in self._pages
        }
        ranks: dict[str, int] = {}
        inside: dict[str, list[SourceFile]] = {}
        for file in (*self._pages, *self._tables):
            above = self._homes.get(file.folder)
            if above is not None:
                inside.setdefault(above.path, []).append(file)
        for parent, files in inside.items():
            places = linked.get(parent, {})
            files.sort(key=lambda file: (places.get(parse_page_id(file.stem), len(places)), file.path))
            ranks |= {file.path: at for at, file in enumerate(files)}
        return ranks

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
        return self._make_document(file, root, _count_list_items(file))

    def _make_document(self, file: SourceFile, root: BlockDraft, bullets: int) -> DraftDocument:
        return DraftDocument(
            path=file.path,
            root=root,
            under=self._parent_id(file),
            rank=self._ranks.get(file.path),
            bullets=bullets,
        )

    def _parent_id(self, file: SourceFile) -> str | None:
        """Return the id of the page whose folder contains this file."""
        above = self._homes.get(file.folder)
        return parse_page_id(above.stem) or None if above is not None else None

    def _read_table(self, file: SourceFile, pages: Sequence[SourceFile]) -> Iterable[DraftDocument | LoadProblem]:
        rows = self._rows[file.path]
        if isinstance(rows, InvalidRequest):
            yield LoadProblem(path=file.path, message=str(rows))
            yield from (self._read_page(page) for page in pages)
            return
        columns = tables.infer_columns(rows, tables.TableColumns(title=next(iter(rows[0]), "") if rows else ""))
        columns = replace(columns, id="", relations=self._find_relations(rows, columns.title))
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
            root.children.append(self._join_row_page(draft, row, columns, waiting))
        root.children.extend(_page_to_row(page) for left in waiting.values() for page in left)
        yield self._make_document(file, root, sum(map(_count_list_items, pages)))

    def _find_relations(self, rows: Sequence[tables.TableRow], title: str) -> tuple[str, ...]:
        """Return the columns whose cells name pages of the export, single odd cells aside."""
        found: list[str] = []
        for name in list(rows[0]) if rows else []:
            cells = [row[name] for row in rows if row[name].strip()]
            linking = sum(_names_page(cell, self._known) for cell in cells)
            if name != title and cells and (linking > _RELATED_SHARE * len(cells) or self._names_rows(cells)):
                found.append(name)
        return tuple(found)

    def _names_rows(self, cells: Sequence[str]) -> bool:
        """Whether nearly all cells consist of titles of the rows of one table."""
        for rows in self._rows.values():
            if isinstance(rows, InvalidRequest) or not rows:
                continue
            titles = {_title_key(next(iter(row.values()))) for row in rows} - {""}
            named = sum(all(_title_key(part) in titles for part in split_titles(cell, titles)) for cell in cells)
            if len(titles) > 1 and named >= _NAMED_SHARE * len(cells):
                return True
        return False

    def _join_row_page(
        self,
        draft: BlockDraft,
        row: tables.TableRow,
        columns: tables.TableColumns,
        waiting: dict[str, list[SourceFile]],
    ) -> BlockDraft:
        """Return the row with its people and relations, and with the page of the same title, if there is one."""
        related = {
            name: list[Json](_related_pages(cell, self._known) or split_titles(cell, self._titles))
            for name in columns.relations
            if (cell := row.get(name, "")).strip()
        }
        draft = replace(draft, properties={**draft.properties, **_split_people(draft), **related})
        pages = waiting.get(_title_key(draft.text))
        if not pages:
            return draft
        page = pages.pop(0)
        _, body, first = _split_title(page)
        cells, rest, more = _split_cells(body)
        below = _parse_body(rest, page, first + more) if cells else _parse_body(body, page, first)
        return replace(draft, known=parse_page_id(page.stem), children=below)


def _try_parse(file: SourceFile) -> list[tables.TableRow] | InvalidRequest:
    try:
        return tables.parse_rows(file.text)
    except InvalidRequest as failure:
        return failure


def _link_pages(file: SourceFile, known: Collection[str]) -> SourceFile:
    """Return a page whose links to other pages of the export are links to blocks."""

    def link(found: re.Match[str]) -> str:
        name = _page_in(found[2], known)
        return f"[{found[1]}](block:{name})" if name else found[0]

    return replace(file, text=_LINK.sub(link, file.text))


def _linked_ids(text: str) -> list[str]:
    """Return the ids of the blocks that a page links to, in order."""
    return re.findall(rf"\]\(block:({_ID})\)", text)


def _page_in(target: str, known: Collection[str]) -> str:
    """Return the id of the page that a path or URL names; empty if it names none of an export."""
    name = _id_in(target)
    return name if name in known or re.search(r"\.(?:md|csv)$", target) else ""


def _id_in(target: str) -> str:
    """Return the id at the end of a path or URL; empty if there is none."""
    found = _PAGE_ID.search(unquote(target))
    return str(UUID(found[0])) if found else ""


def split_titles(cell: str, titles: Collection[str]) -> list[str]:
    """Split a cell at commas into titles; a title with a comma in it stays whole if it is among the known ones."""
    parts = [part.strip() for part in cell.split(",") if part.strip()]
    found: list[str] = []
    at = 0
    while at < len(parts):
        size = next(
            (n for n in range(len(parts) - at, 1, -1) if _title_key(", ".join(parts[at : at + n])) in titles), 1
        )
        found.append(", ".join(parts[at : at + size]))
        at += size
    return found


def parse_page_id(stem: str) -> str:
    """Return the Notion id in a file name; empty if there is none."""
    found = _NAME_WITH_ID.match(stem)
    return str(UUID(found[2])) if found else ""


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
    return [_set_modified(draft, file) for draft in _parse_blocks(text.split("\n"), first)]


_DETAILS, _SUMMARY = re.compile(r"\s*<details[^>]*>\s*"), re.compile(r"\s*<summary>(.*?)</summary>\s*")
_ASIDE, _END_ASIDE = re.compile(r"\s*<aside>\s*"), re.compile(r"\s*</aside>\s*")
_SYNCED = re.compile(r"\s*</?synced_block(?:_reference)?\b[^>]*>\s*")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_HEADING = re.compile(r"#{1,6}\s")
_INDENT = re.compile(r"^(?: {4}|\t)")
_MAX_DEPTH = 20


def _parse_blocks(lines: Sequence[str], first: int, depth: int = 0) -> list[BlockDraft]:
    """Parse lines as Markdown, with the blocks that an export writes as HTML: toggles, callouts, synced blocks."""
    found: list[BlockDraft] = []
    start = at = 0
    plain = _rewrite_lines(lines)
    while at < len(plain):
        end = _find_details_end(plain, at) if depth < _MAX_DEPTH and _DETAILS.match(plain[at]) else None
        if end is None:
            at += 1
            continue
        found += parse_markdown("\n".join(plain[start:at]), first_line=first + start)
        found.append(_parse_toggle(plain[at + 1 : end], first + at + 1, depth))
        start = at = end + 1
    return [*found, *parse_markdown("\n".join(plain[start:]), first_line=first + start)]


def _parse_toggle(lines: Sequence[str], first: int, depth: int) -> BlockDraft:
    at = next((at for at, line in enumerate(lines) if line.strip()), 0)
    summary = _SUMMARY.fullmatch(lines[at]) if lines else None
    body = lines[at + 1 :] if summary else lines
    children = _parse_blocks(body, first + (at + 1 if summary else 0), depth + 1)
    text = re.sub(r"<[^>]+>", "", summary[1]).strip() if summary else ""
    return BlockDraft(type=BlockType.TOGGLE, text=text, children=children, line=first - 1)


def _find_details_end(lines: Sequence[str], start: int) -> int | None:
    depth = 0
    for at in range(start, len(lines)):
        depth += bool(_DETAILS.match(lines[at])) - ("</details>" in lines[at])
        if depth <= 0:
            return at
    return None


def _rewrite_lines(lines: Sequence[str]) -> list[str]:
    """Return as many lines: callouts as quotes, no tags of synced blocks, toggle headings without indentation."""
    found: list[str] = []
    fence = ""
    in_aside = in_heading = False
    for line in lines:
        mark = _FENCE.match(line)
        if mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        if fence or mark:
            found.append(f"> {line}" if in_aside else line)
            continue
        is_heading = _HEADING.match(line) is not None
        in_heading = is_heading or (in_heading and (not line.strip() or line[:1] in " \t"))
        if _ASIDE.fullmatch(line):
            in_aside = True
            found.append("> [!callout]")
        elif in_aside and _END_ASIDE.fullmatch(line):
            in_aside = False
            found.append("")
        elif in_aside:
            found.append(f"> {line}".rstrip())
        elif _SYNCED.fullmatch(line):
            found.append("")
        else:
            found.append(_INDENT.sub("", line) if in_heading and not is_heading else line)
    return found


def _set_modified(draft: BlockDraft, file: SourceFile) -> BlockDraft:
    return replace(draft, modified=file.modified, children=[_set_modified(child, file) for child in draft.children])


def _names_page(cell: str, known: Collection[str]) -> bool:
    """Whether a cell names a page of the export by path or URL."""
    return any(_page_in(each["inside"] or each["bare"], known) for each in _RELATION.finditer(cell))


def _related_pages(cell: str, known: Collection[str]) -> list[str]:
    """Return the ids of the pages that a cell names by path or URL; of one that is not in the export, its title."""
    found = [_page_in(each["inside"] or each["bare"], known) or each["name"] for each in _RELATION.finditer(cell)]
    return [name for name in dict.fromkeys(found) if name]


def _split_people(draft: BlockDraft) -> dict[str, Json]:
    """Return the cells of a row that name several people, as lists."""
    return {
        name: list[Json](part.strip() for part in value.split(",") if part.strip())
        for name, value in draft.properties.items()
        if isinstance(value, str) and "," in value and is_person_column(name)
    }


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
