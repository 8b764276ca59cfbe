"""Reads CSV tables as databases: a file is a database, a line a row, a column a property with an inferred type."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.records import parse_time
from contexture.types import Json
from contexture.workspace import BlockType, means_done

TableRow: TypeAlias = dict[str, str]

_TITLE_COLUMNS = ("name", "title", "subject", "task", "название", "имя", "тема")
_STATUS_COLUMNS = ("state", "stage", "list", "list name", "column", "стадия", "этап")
_ID_COLUMNS = ("id",)
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?")
_BOOLEANS = {"true": True, "yes": True, "да": True, "false": False, "no": False, "нет": False}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?")
_MAX_NUMBER = 10**15
_ODD_SHARE = 0.1  # share of the cells of a column that may be of another type, at least one
_MIN_CELLS = 3  # cells for each odd one


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumns:
    """Which columns of a table have a role; roles left empty are inferred from the column names.

    TableColumns(title="task_name", id="task_id", due="due_date", done=("list_name", ("Completed",)))

    The dates of `due` become a property of this name; the columns `status` and `assignee` are given these names.
    Without `done`, a column such as `list_name` says which rows are done if one of its values does, like `Completed`.
    """

    title: str = ""
    id: str = ""
    due: str = ""
    status: str = ""
    assignee: str = ""
    modified: str = ""
    author: str = ""
    done: tuple[str, tuple[str, ...]] | None = None
    relations: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict[str, str])

    def list_roles(self) -> tuple[str, ...]:
        """Return the columns that are named here, empty where none is."""
        return (self.title, self.id, self.due, self.status, self.assignee, self.modified, self.author)

    def restrict_to(self, names: Collection[str]) -> TableColumns:
        """Return the roles of those columns that a table has."""
        title, key, due, status, assignee, modified, author = (
            name if name in names else "" for name in self.list_roles()
        )
        return replace(
            self, title=title, id=key, due=due, status=status, assignee=assignee, modified=modified, author=author
        )


def read_table(
    file: SourceFile,
    *,
    rows: Sequence[TableRow] | None = None,
    columns: TableColumns | None = None,
    title: str = "",
    known: str = "",
    readers: tuple[str, ...] | None = None,
) -> DraftDocument:
    """Read a CSV file as a database; row ids are derived from the id column, so that they are stable.

    `rows` are those of the file, if they have been parsed already.
    """
    rows = parse_rows(file.text) if rows is None else rows
    inferred = infer_columns(rows, columns or TableColumns())
    schema = infer_schema(rows, inferred)
    root = BlockDraft(
        type=BlockType.DB,
        text=title or file.stem,
        properties={"schema": {inferred.names.get(name, name): kind for name, kind in schema.items()}},
        known=known,
        readers=readers,
        modified=file.modified,
    )
    root.children.extend(row_to_draft(row, inferred, schema, file, line) for line, row in enumerate(rows, start=2))
    return DraftDocument(path=file.path, root=root)


_DELIMITERS = ",;\t"  # the first of those that are equally frequent
_QUOTED_CELL = re.compile(r'"[^"]*"')


def parse_rows(text: str) -> list[TableRow]:
    """Return the rows by column name; raises `InvalidRequest` for text that is not CSV.

    Columns are separated by commas, or by semicolons or tabs where the first line has more of these.
    """
    try:
        lines = [line for line in csv.reader(io.StringIO(text), strict=True, delimiter=_find_delimiter(text)) if line]
    except csv.Error as failure:
        raise InvalidRequest(f"not a CSV table: {failure}") from failure
    names = _unique_names([name.strip() for name in lines[0]]) if lines else []
    return [dict(zip(names, [*line, *([""] * len(names))], strict=False)) for line in lines[1:]]


def _find_delimiter(text: str) -> str:
    first = _QUOTED_CELL.sub("", text.lstrip("\r\n").partition("\n")[0])
    return max(_DELIMITERS, key=first.count)


def infer_columns(rows: Sequence[TableRow], columns: TableColumns) -> TableColumns:
    """Return the columns, with empty roles filled in from the names and the values of the columns.

    The title is the column whose name says so; of several, such as `list_name` and `task_name`, the one whose values
    repeat least.
    """
    names = list(rows[0]) if rows else []
    title = columns.title or _find_title(rows, names) or next((name for name in names if not _is_id_column(name)), "")
    given = {columns.status: "status", columns.assignee: "assignee"}
    return replace(
        columns,
        title=title,
        id=columns.id or next((name for name in names if _is_id_column(name)), ""),
        done=columns.done or _infer_done(rows, columns.status or _find_status(names)),
        names={**{name: role for name, role in given.items() if name and name != title}, **columns.names},
    )


def infer_schema(rows: Sequence[TableRow], columns: TableColumns) -> dict[str, Json]:
    """Return the type of each column: relation if declared, otherwise the type that all its cells parse as."""
    names = list(rows[0]) if rows else []
    return {
        name: "title" if name == columns.title else "relation" if name in columns.relations else _infer_type(rows, name)
        for name in names
    }


def row_to_draft(
    row: TableRow, columns: TableColumns, schema: Mapping[str, Json], file: SourceFile, line: int
) -> BlockDraft:
    """Convert one row; cells become values of the column's type, and empty cells are left out."""
    cells = {
        columns.names.get(name, name): parse_cell(text, schema.get(name))
        for name, text in row.items()
        if text.strip() and name != columns.title
    }
    if columns.due and row.get(columns.due):
        cells["due"] = parse_cell(row[columns.due], "date")
    if columns.done is not None:
        cells["done"] = row.get(columns.done[0], "").strip() in columns.done[1]
    own = row.get(columns.id, "").strip() if columns.id else ""
    return BlockDraft(
        type=BlockType.DB_ROW,
        text=row.get(columns.title, "").strip() or own,
        properties=cells,
        key=own,
        author=row.get(columns.author, "") if columns.author else "",
        modified=_parse_time(row.get(columns.modified, "")) or file.modified,
        line=line,
    )


def parse_cell(text: str, kind: Json) -> Json:
    r"""Parse a cell of a column of this kind; a literal `\n` in the text is a line break."""
    said = text.strip()
    match kind:
        case "number" if _is_number(said):
            return float(said) if "." in said else int(said)
        case "checkbox" if said.casefold() in _BOOLEANS:
            return _BOOLEANS[said.casefold()]
        case "relation":
            return [part.strip() for part in said.split(",") if part.strip()]
        case "date":
            return to_iso_date(said) or said
        case _:
            return said.replace("\\n", "\n")


def _infer_type(rows: Sequence[TableRow], name: str) -> str:
    """Return the type of nearly all cells; single odd ones, such as `TBD` among dates, stay text."""
    cells = [text for row in rows if (text := row[name].strip())]
    kinds: Sequence[tuple[str, Callable[[str], bool]]] = (
        ("date", _is_date),
        ("number", _is_number),
        ("checkbox", lambda text: text.casefold() in _BOOLEANS),
    )
    for kind, accepts in kinds:
        odd = sum(not accepts(text) for text in cells)
        if cells and (odd == 0 or (odd <= max(1, len(cells) * _ODD_SHARE) and odd * _MIN_CELLS <= len(cells))):
            return kind
    return "text"


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and abs(float(text)) < _MAX_NUMBER


def _is_date(text: str) -> bool:
    return bool(_DATE.fullmatch(text) and _parse_time(text)) or to_iso_date(text) is not None


def _parse_time(text: str) -> datetime | None:
    try:
        return parse_time(text.strip()) if text.strip() else None
    except InvalidRequest:
        return None


def _find_title(rows: Sequence[TableRow], names: Sequence[str]) -> str:
    for wanted in _TITLE_COLUMNS:
        exact = next((name for name in names if _plain(name) == wanted), "")
        if exact:
            return exact
    for wanted in _TITLE_COLUMNS:
        ending = [name for name in names if _plain(name).endswith(f" {wanted}")]
        if ending:
            return max(ending, key=lambda name: len({row[name].strip() for row in rows} - {""}))
    return ""


def _infer_done(rows: Sequence[TableRow], status: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the column and its values that mean done; None when no row has such a value."""
    values = dict.fromkeys(row[status].strip() for row in rows) if status else {}
    done = tuple(value for value in values if means_done(value))
    return (status, done) if done else None


def _find_status(names: Sequence[str]) -> str:
    """Return the column that plays the part of a status; one of that name needs no role."""
    plain = {_plain(name): name for name in reversed(names)}
    return (
        ""
        if plain.keys() & {"status", "статус"}
        else next((plain[each] for each in _STATUS_COLUMNS if each in plain), "")
    )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).casefold().strip()


def _is_id_column(name: str) -> bool:
    return _plain(name).split()[-1:] == list(_ID_COLUMNS)


def _unique_names(names: Sequence[str]) -> list[str]:
    """Return unique column names; a column without a name is named by its position."""
    found: list[str] = []
    for at, name in enumerate(names, start=1):
        called = name or f"column {at}"
        found.append(f"{called} {at}" if called in found else called)
    return found


_RANGE_SEPARATOR = " → "
_ZONE = re.compile(r"\s*\([A-Z]{3,4}\)$")
_DATE_FORMATS = ("%B %d, %Y", "%B %d, %Y %I:%M %p", "%B %d, %Y %H:%M", "%Y/%m/%d", "%Y/%m/%d %H:%M")


def to_iso_date(text: str) -> str | None:
    """The ISO form of `November 3, 2026`, with a time or without; of a range both ends. None for anything else.

    to_iso_date("November 3, 2026 → November 5, 2026")   # "2026-11-03/2026-11-05"
    """
    ends = [_parse_moment(part) for part in text.strip().split(_RANGE_SEPARATOR)]
    found = [end for end in ends if end is not None]
    return "/".join(found) if len(found) == len(ends) <= 2 else None  # noqa: PLR2004 - a range has two ends


def _parse_moment(text: str) -> str | None:
    said = _ZONE.sub("", text.strip())
    for form in _DATE_FORMATS:
        try:
            found = datetime.strptime(said, form)  # noqa: DTZ007 - a table says no zone
        except ValueError:
            continue
        return found.isoformat(timespec="minutes") if ":" in said else found.date().isoformat()
    return None
