"""Importers: each recognizes the notes of one program, such as Logseq, Obsidian or Notion, and reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks._json_tree import read_json_tree
from contexture.ingestion.blocks.draft import ImportItems
from contexture.ingestion.blocks.logseq import is_logseq, read_logseq
from contexture.ingestion.blocks.notion import is_notion, read_notion
from contexture.ingestion.blocks.obsidian import SUFFIXES as NOTES
from contexture.ingestion.blocks.obsidian import is_obsidian, read_markdown_files
from contexture.ingestion.blocks.readers_map import ReadersMap
from contexture.ingestion.blocks.sources import SourceFile, check_archive, open_folder
from contexture.ingestion.blocks.tables import TableColumns, parse_rows, read_table
from contexture.ingestion.files import LoadProblem

_FILE_SUFFIXES = frozenset({*NOTES, ".json", ".csv"})


class Importer(Protocol):
    """Recognizes the notes of one program and reads them as drafts of blocks.

    Importers are asked one after another: those of Contexture for Logseq, Obsidian and Notion, those of other packages
    by name, and last the one for plain files.
    """

    def recognizes(self, path: Path, /) -> bool:
        """Whether a folder or file is of this program; only looks at names and a few bytes."""
        ...

    def read(self, source: ImportSource, /) -> ImportItems:
        """Yield the documents of a source, and what cannot be read as problems; raises `InvalidRequest`."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionImporter:
    """An importer made of two functions."""

    recognizes: Callable[[Path], bool]
    read: Callable[[ImportSource], ImportItems]


def _read_files(source: ImportSource) -> ImportItems:
    """Read Markdown files as pages, CSV files as databases, JSON files as block trees."""
    opened = open_folder(source.path, _FILE_SUFFIXES)
    yield from opened.problems
    yield from read_markdown_files([file for file in opened.files if file.suffix in NOTES], readers=source.readers)
    tables: list[SourceFile] = []
    for file in opened.files:
        if file.suffix == ".json":
            yield from read_json_tree(file, now=source.now, readers=source.readers)
        elif file.suffix == ".csv":
            tables.append(file)
    yield from _read_tables(source, tables)


def _read_tables(source: ImportSource, files: Sequence[SourceFile]) -> ImportItems:
    """Yield a database per file; raises `InvalidRequest` if the source names a column that no file has."""
    named = {column for column in (source.columns.list_roles() if source.columns else ()) if column}
    seen: set[str] = set()
    for file in files:
        try:
            rows = parse_rows(file.text)
        except InvalidRequest as failure:
            yield LoadProblem(path=file.path, message=str(failure))
            continue
        columns = (source.columns or TableColumns()).restrict_to(rows[0] if rows else ())
        seen.update(rows[0] if rows else ())
        yield read_table(file, rows=rows, columns=columns, readers=source.readers)
    if missing := sorted(named - seen):
        has = f"; the columns are {', '.join(sorted(seen))}" if seen else ""
        raise InvalidRequest(f"no table has a column {missing[0]!r}{has}")


def _is_readable(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() != ".zip"


LOGSEQ = FunctionImporter(
    lambda path: path.is_dir() and is_logseq(path), lambda source: read_logseq(source.path, readers=source.readers)
)
OBSIDIAN = FunctionImporter(lambda path: path.is_dir() and is_obsidian(path), _read_files)
NOTION = FunctionImporter(
    lambda path: (path.is_dir() or path.suffix.lower() == ".zip") and is_notion(path),
    lambda source: read_notion(source.path, readers=source.readers),
)
FILES = FunctionImporter(_is_readable, _read_files)
"""Reads any folder or file but archives, so it is asked last."""

BUILT_IN_IMPORTERS: tuple[Importer, ...] = (LOGSEQ, OBSIDIAN, NOTION, FILES)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSource:
    """A folder or file to import, the readers of its pages, and the time that relative dates are based on.

    `readers_map` has the readers of single folders and pages, before `readers`.
    """

    path: Path
    now: datetime
    readers: tuple[str, ...] | None = None
    readers_map: ReadersMap | None = None
    columns: TableColumns | None = None
    importers: Sequence[Importer] = BUILT_IN_IMPORTERS

    def read(self) -> ImportItems:
        """Yield everything in it, as the first importer reads it that recognizes it."""
        found = find_importer(self.path, self.importers).read(self)
        return found if self.readers_map is None else self.readers_map.apply(found)


def find_importer(path: Path, importers: Sequence[Importer] = BUILT_IN_IMPORTERS) -> Importer:
    """The first importer that recognizes a folder or file; raises `InvalidRequest` if none does."""
    found = next((each for each in importers if each.recognizes(path)), None)
    if found is None:
        check_archive(path)
        raise InvalidRequest(f"{str(path)!r} is not a Notion export; unpack it and import the folder")
    return found
