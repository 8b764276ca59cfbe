"""Reads a Logseq graph: pages and journals in Markdown or Org, an outline each."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from contexture.ingestion.blocks.draft import Document, Draft, Reading
from contexture.ingestion.blocks.logseq_block import drafted, head_drafts, split_list, split_properties
from contexture.ingestion.blocks.outline import Item, Outline, markdown_outline, org_outline
from contexture.ingestion.blocks.sources import SourceFile, open_folder
from contexture.types import Json
from contexture.workspace import BlockType

SUFFIXES = frozenset({".md", ".markdown", ".org"})
SKIPPED = frozenset({"logseq", "assets", "draws", "whiteboards"})
"""Folders of a graph that hold settings, backups and pictures, not pages."""

BULLETS = re.compile(r"^[ \t]*[-*] ", re.MULTILINE)
_JOURNAL = re.compile(r"(\d{4})[_-](\d{2})[_-](\d{2})$")
_ORG_TITLE = re.compile(r"#\+(\w+):[ \t]*(.*)$")
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)


def is_logseq(root: Path) -> bool:
    """Whether a folder is a Logseq graph."""
    return (root / "logseq").is_dir() and ((root / "pages").is_dir() or (root / "journals").is_dir())


def read_logseq(root: Path, *, readers: tuple[str, ...] | None = None) -> Reading:
    """A document per file; a page may be read by `readers`, or by everyone in the tenant."""
    opened = open_folder(root, SUFFIXES, skip=SKIPPED)
    yield from opened.problems
    for file in opened.files:
        yield page_of(file, readers=readers)


def page_of(file: SourceFile, *, readers: tuple[str, ...] | None = None) -> Document:
    """The page that a file holds."""
    outline = org_outline(file.text) if file.suffix == ".org" else markdown_outline(file.text)
    head, properties = _head(outline, org=file.suffix == ".org")
    title = _title(file, properties)
    known = properties.pop("id", "")
    root = Draft(
        type=BlockType.PAGE,
        text=title,
        properties=_page_properties(file, title, properties),
        known=known if isinstance(known, str) else "",
        readers=readers,
        created=_journal_day(file),
        modified=file.modified,
    )
    root.children.extend(head_drafts(head, file))
    _grow(root, outline.items, file)
    return Document(path=file.path, root=root, bullets=len(BULLETS.findall(file.text)))


def page_title(stem: str) -> str:
    """The name of a page from the name of its file: `a___b` and `a%2Fb` are `a/b`."""
    return unquote(stem.replace("___", "/"), errors="replace").strip("/ ") or stem


def journal_title(day: datetime) -> str:
    """The name of a journal page, such as `May 14th, 2020`."""
    ending = "th" if day.day in _TEENS else _ENDINGS.get(day.day % 10, "th")
    return f"{_MONTHS[day.month - 1]} {day.day}{ending}, {day.year}"


_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # names do not depend on the locale


def _grow(root: Draft, items: list[Item], file: SourceFile) -> None:
    """Add the drafts of items and of all below them; a bullet that says nothing and holds nothing is left out."""
    waiting = [(root, items)]
    while waiting:
        parent, below = waiting.pop()
        for item in below:
            draft = drafted(item, org=file.suffix == ".org", modified=file.modified)
            if draft.text or draft.properties or item.children:
                parent.children.append(draft)
                waiting.append((draft, item.children))


def _head(outline: Outline, *, org: bool) -> tuple[list[str], dict[str, Json]]:
    """What stands before the blocks, and the properties in it."""
    if not org:
        return outline.head, split_properties(outline.head)[1]
    lines: list[str] = []
    properties: dict[str, Json] = {}
    for line in outline.head:
        found = _ORG_TITLE.match(line)
        if found is not None:
            properties[found[1].lower()] = found[2].strip()
        else:
            lines.append(line)
    return lines, {**properties, **split_properties(lines)[1]}


def _title(file: SourceFile, properties: dict[str, Json]) -> str:
    given = properties.pop("title", None)
    if isinstance(given, str) and given:
        return given
    day = _journal_day(file)
    return journal_title(day) if day else page_title(file.stem)


def _page_properties(file: SourceFile, title: str, properties: dict[str, Json]) -> dict[str, Json]:
    given = properties.pop("alias", "")
    day = _journal_day(file)
    also = day.date().isoformat() if day else page_title(file.stem) if page_title(file.stem) != title else ""
    alias = ", ".join(name for name in (given, also) if isinstance(name, str) and name)
    namespace = title.rpartition("/")[0]
    tags = ", ".join(map(_tag, split_list(properties.pop("tags", None))))
    made: dict[str, Json] = {"alias": alias, "namespace": namespace, "tags": tags}
    return {**properties, **{name: value for name, value in made.items() if value}}


def _tag(name: str) -> str:
    """A tag as a link, as it stands where it is one."""
    if "[[" in name or name.startswith("#"):
        return name
    return f"#{name}" if re.fullmatch(r"[^\W\d_][\w/-]*", name) else f"[[{name}]]"


def _journal_day(file: SourceFile) -> datetime | None:
    found = _JOURNAL.match(file.stem) if file.folder.rpartition("/")[2] == "journals" else None
    try:
        return datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=UTC) if found else None
    except ValueError:
        return None
