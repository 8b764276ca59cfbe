"""Detects which program a folder or file comes from (Logseq, Obsidian, Notion or plain files) and reads it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import ImportItems
from contexture.ingestion.blocks.json_tree import read_json_tree
from contexture.ingestion.blocks.logseq import is_logseq, read_logseq
from contexture.ingestion.blocks.notion import is_notion, read_notion
from contexture.ingestion.blocks.obsidian import SUFFIXES as NOTES
from contexture.ingestion.blocks.obsidian import is_obsidian, read_markdown_files
from contexture.ingestion.blocks.sources import SourceFile, open_folder
from contexture.ingestion.blocks.tables import TableColumns, read_table
from contexture.ingestion.files import LoadProblem

_FILE_SUFFIXES = frozenset({*NOTES, ".json", ".csv"})


class Origin(StrEnum):
    """The program or format that blocks come from."""

    LOGSEQ = "logseq"
    OBSIDIAN = "obsidian"
    NOTION = "notion"
    FILES = "files"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSource:
    """A folder or file to import, the readers of its pages, and the time that relative dates are based on."""

    path: Path
    now: datetime
    readers: tuple[str, ...] | None = None
    origin: Origin | None = None
    columns: TableColumns | None = None

    def read(self) -> ImportItems:
        """Yield everything in it; the origin is detected if it is not given."""
        match self.origin or detect_origin(self.path):
            case Origin.LOGSEQ:
                return read_logseq(self.path, readers=self.readers)
            case Origin.NOTION:
                return read_notion(self.path, readers=self.readers)
            case Origin.OBSIDIAN | Origin.FILES:
                return self._read_files()

    def _read_files(self) -> ImportItems:
        """Read Markdown files as pages, CSV files as databases, JSON files as block trees."""
        opened = open_folder(self.path, _FILE_SUFFIXES)
        yield from opened.problems
        yield from read_markdown_files([file for file in opened.files if file.suffix in NOTES], readers=self.readers)
        for file in opened.files:
            if file.suffix == ".json":
                yield from read_json_tree(file, now=self.now, readers=self.readers)
            elif file.suffix == ".csv":
                yield from self._read_table(file)

    def _read_table(self, file: SourceFile) -> ImportItems:
        try:
            yield read_table(file, columns=self.columns, readers=self.readers)
        except InvalidRequest as failure:
            yield LoadProblem(path=file.path, message=str(failure))


def detect_origin(path: Path) -> Origin:
    """Detect Logseq by its `logseq` folder, Obsidian by `.obsidian`, Notion by page names; otherwise plain files."""
    if path.is_dir():
        found = ((is_logseq, Origin.LOGSEQ), (is_obsidian, Origin.OBSIDIAN), (is_notion, Origin.NOTION))
        return next((origin for test, origin in found if test(path)), Origin.FILES)
    if path.suffix.lower() == ".zip":
        if is_notion(path):
            return Origin.NOTION
        raise InvalidRequest(f"{str(path)!r} is not a Notion export; unpack it and import the folder")
    return Origin.FILES
