"""Which program a folder or a file comes from, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import Reading
from contexture.ingestion.blocks.logseq import is_logseq, read_logseq
from contexture.ingestion.blocks.notion import is_notion, read_notion
from contexture.ingestion.blocks.obsidian import SUFFIXES as NOTES
from contexture.ingestion.blocks.obsidian import is_obsidian, read_notes
from contexture.ingestion.blocks.sources import SourceFile, open_folder
from contexture.ingestion.blocks.tables import Columns, read_table
from contexture.ingestion.blocks.tree import read_tree
from contexture.ingestion.problems import Problem

_KNOWN = frozenset({*NOTES, ".json", ".csv"})


class Origin(StrEnum):
    """Where blocks come from."""

    LOGSEQ = "logseq"
    OBSIDIAN = "obsidian"
    NOTION = "notion"
    FILES = "files"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A folder or file to import: who may read its pages, and the moment that offsets count from."""

    path: Path
    now: datetime
    readers: tuple[str, ...] | None = None
    origin: Origin | None = None
    columns: Columns | None = None

    def read(self) -> Reading:
        """Everything in it; the origin is found out where it is not said."""
        match self.origin or origin_of(self.path):
            case Origin.LOGSEQ:
                return read_logseq(self.path, readers=self.readers)
            case Origin.NOTION:
                return read_notion(self.path, readers=self.readers)
            case Origin.OBSIDIAN | Origin.FILES:
                return self._files()

    def _files(self) -> Reading:
        """Markdown as pages, CSV as databases, JSON as trees of blocks."""
        opened = open_folder(self.path, _KNOWN)
        yield from opened.problems
        yield from read_notes([file for file in opened.files if file.suffix in NOTES], readers=self.readers)
        for file in opened.files:
            if file.suffix == ".json":
                yield from read_tree(file, now=self.now, readers=self.readers)
            elif file.suffix == ".csv":
                yield from self._table(file)

    def _table(self, file: SourceFile) -> Reading:
        try:
            yield read_table(file, columns=self.columns, readers=self.readers)
        except InvalidRequest as failure:
            yield Problem(path=file.path, message=str(failure))


def origin_of(path: Path) -> Origin:
    """Logseq by its `logseq` folder, Obsidian by `.obsidian`, Notion by the names of its pages, else plain files."""
    if path.is_dir():
        found = ((is_logseq, Origin.LOGSEQ), (is_obsidian, Origin.OBSIDIAN), (is_notion, Origin.NOTION))
        return next((origin for test, origin in found if test(path)), Origin.FILES)
    if path.suffix.lower() == ".zip":
        if is_notion(path):
            return Origin.NOTION
        raise InvalidRequest(f"{str(path)!r} is not a Notion export; unpack it and import the folder")
    return Origin.FILES
