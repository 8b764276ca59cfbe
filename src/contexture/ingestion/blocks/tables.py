"""Reads CSV tables as databases: a file is a database, a line a row, a column a property."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.days import iso_of
from contexture.ingestion.blocks.draft import Document, Draft
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.rows import parse_time
from contexture.types import Json
from contexture.workspace import BlockType

Row: TypeAlias = dict[str, str]

_TITLES = ("name", "title", "subject", "task", "название", "имя", "тема")
_IDS = ("id",)
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?")
_FLAGS = {"true": True, "yes": True, "да": True, "false": False, "no": False, "нет": False}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?")
_LARGEST = 10**15


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Which columns of a table say what; empty ones are found by their names.

    Columns(title="task_name", id="task_id", due="due_date", done=("list_name", ("Completed",)))
    """

    title: str = ""
    id: str = ""
    due: str = ""
    modified: str = ""
    author: str = ""
    done: tuple[str, tuple[str, ...]] | None = None
    relations: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict[str, str])


def read_table(
    file: SourceFile,
    *,
    columns: Columns | None = None,
    title: str = "",
    known: str = "",
    readers: tuple[str, ...] | None = None,
) -> Document:
    """The database that a CSV file holds; a row's id is made from its id column, so that it is known again."""
    rows = rows_of(file.text)
    told = chosen(list(rows[0]) if rows else [], columns or Columns())
    schema = schema_of(rows, told)
    root = Draft(
        type=BlockType.DB,
        text=title or file.stem,
        properties={"schema": {told.names.get(name, name): kind for name, kind in schema.items()}},
        known=known,
        readers=readers,
        modified=file.modified,
    )
    root.children.extend(row_draft(row, told, schema, file, line) for line, row in enumerate(rows, start=2))
    return Document(path=file.path, root=root)


def rows_of(text: str) -> list[Row]:
    """The lines by column; `InvalidRequest` for what is no table."""
    try:
        lines = [line for line in csv.reader(io.StringIO(text), strict=True) if line]
    except csv.Error as failure:
        raise InvalidRequest(f"not a CSV table: {failure}") from failure
    names = _distinct([name.strip() for name in lines[0]]) if lines else []
    return [dict(zip(names, [*line, *([""] * len(names))], strict=False)) for line in lines[1:]]


def chosen(names: Sequence[str], columns: Columns) -> Columns:
    """The columns with those filled in that their names give away."""
    title = columns.title or _named(names, _TITLES) or next((name for name in names if not _is_id(name)), "")
    return Columns(
        title=title,
        id=columns.id or next((name for name in names if _is_id(name)), ""),
        due=columns.due,
        modified=columns.modified,
        author=columns.author,
        done=columns.done,
        relations=columns.relations,
        names=columns.names,
    )


def schema_of(rows: Sequence[Row], columns: Columns) -> dict[str, Json]:
    """What each column holds: relations as said, else what all its cells can be read as."""
    names = list(rows[0]) if rows else []
    return {
        name: "title" if name == columns.title else "relation" if name in columns.relations else _kind(rows, name)
        for name in names
    }


def row_draft(row: Row, columns: Columns, schema: Mapping[str, Json], file: SourceFile, line: int) -> Draft:
    """One row; its cells are values of the column's type, and empty ones are left out."""
    cells = {
        columns.names.get(name, name): cell_value(text, schema.get(name))
        for name, text in row.items()
        if text.strip() and name != columns.title
    }
    if columns.due and row.get(columns.due):
        cells["due"] = cell_value(row[columns.due], "date")
    if columns.done is not None:
        cells["done"] = row.get(columns.done[0], "").strip() in columns.done[1]
    own = row.get(columns.id, "").strip() if columns.id else ""
    return Draft(
        type=BlockType.DB_ROW,
        text=row.get(columns.title, "").strip() or own,
        properties=cells,
        key=own,
        author=row.get(columns.author, "") if columns.author else "",
        modified=_time(row.get(columns.modified, "")) or file.modified,
        line=line,
    )


def cell_value(text: str, kind: Json) -> Json:
    r"""The value of a cell in a column of this kind; a `\n` that is spelled out is a line break."""
    said = text.strip()
    match kind:
        case "number":
            return float(said) if "." in said else int(said)
        case "checkbox":
            return _FLAGS[said.casefold()]
        case "relation":
            return [part.strip() for part in said.split(",") if part.strip()]
        case "date":
            return iso_of(said) or said
        case _:
            return said.replace("\\n", "\n")


def _kind(rows: Sequence[Row], name: str) -> str:
    cells = [text for row in rows if (text := row[name].strip())]
    if not cells:
        return "text"
    if all(_is_date(text) for text in cells):
        return "date"
    if all(_NUMBER.fullmatch(text) and abs(float(text)) < _LARGEST for text in cells):
        return "number"
    return "checkbox" if all(text.casefold() in _FLAGS for text in cells) else "text"


def _is_date(text: str) -> bool:
    return bool(_DATE.fullmatch(text) and _time(text)) or iso_of(text) is not None


def _time(text: str) -> datetime | None:
    try:
        return parse_time(text.strip()) if text.strip() else None
    except InvalidRequest:
        return None


def _named(names: Sequence[str], wanted: Sequence[str]) -> str:
    plain = {re.sub(r"[\W_]+", " ", name).casefold().strip(): name for name in reversed(names)}
    exact = next((plain[each] for each in wanted if each in plain), "")
    return exact or next((name for said, name in plain.items() for each in wanted if said.endswith(f" {each}")), "")


def _is_id(name: str) -> bool:
    return re.sub(r"[\W_]+", " ", name).casefold().split()[-1:] == list(_IDS)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of columns, each once; one without a name is called by its place."""
    found: list[str] = []
    for at, name in enumerate(names, start=1):
        called = name or f"column {at}"
        found.append(f"{called} {at}" if called in found else called)
    return found
