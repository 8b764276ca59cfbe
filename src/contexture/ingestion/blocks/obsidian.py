"""Reads an Obsidian vault, or any folder of Markdown files: a page per file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import Document, Draft, Reading, made_id
from contexture.ingestion.blocks.frontmatter import split_frontmatter
from contexture.ingestion.blocks.logseq import BULLETS
from contexture.ingestion.blocks.markdown import markdown_drafts
from contexture.ingestion.blocks.sources import SourceFile, open_folder
from contexture.ingestion.problems import Problem
from contexture.ingestion.rows import parse_time
from contexture.types import Json
from contexture.workspace import BlockType

SUFFIXES = frozenset({".md", ".markdown", ".txt"})
_FILE_LINK = re.compile(r"(!?)\[([^\[\]\n]*)\]\((<[^<>\n]+>|[^()\s]+)\)")
_CREATED = ("created", "date created", "date")
_MODIFIED = ("modified", "updated", "date modified")


def is_obsidian(root: Path) -> bool:
    """Whether a folder is an Obsidian vault."""
    return (root / ".obsidian").is_dir()


def read_obsidian(root: Path, *, readers: tuple[str, ...] | None = None) -> Reading:
    """A document per file; links between files become links between pages."""
    opened = open_folder(root, SUFFIXES)
    yield from opened.problems
    yield from read_notes(opened.files, readers=readers)


def read_notes(files: Sequence[SourceFile], *, readers: tuple[str, ...] | None = None) -> Reading:
    """The documents of files that are known already."""
    titles = {file.path: file.stem for file in files}
    for file in files:
        try:
            document, problem = _page(file, titles, readers)
        except RecursionError:
            yield Problem(path=file.path, message="nested too deep to be read")
            continue
        if problem:
            yield Problem(path=file.path, message=problem, warning=True)
        yield document


def _page(file: SourceFile, titles: Mapping[str, str], readers: tuple[str, ...] | None) -> tuple[Document, str]:
    fields, body, first, problem = split_frontmatter(file.text)
    created, modified = _taken_time(fields, _CREATED), _taken_time(fields, _MODIFIED)
    known = fields.pop("id", None)
    root = Draft(
        type=BlockType.PAGE,
        text=file.stem,
        properties=_properties(file, fields),
        known=made_id("obsidian", known) if isinstance(known, str) and known else "",
        readers=readers,
        created=created,
        modified=modified or file.modified,
    )
    linked = _FILE_LINK.sub(lambda found: _page_link(found, file, titles), body)
    below = markdown_drafts(linked, first_line=first)
    board = "kanban-plugin" in fields
    root.children.extend(_dated(draft, file, card_of="" if board else None) for draft in below)
    return Document(path=file.path, root=root, bullets=len(BULLETS.findall(file.text))), problem


def _dated(draft: Draft, file: SourceFile, *, card_of: str | None) -> Draft:
    """The block and all below it with the file's time; on a board, tasks are cards of the heading they stand below."""
    column = draft.text if card_of is not None and draft.type is BlockType.HEADING else card_of
    below = [_dated(child, file, card_of=column) for child in draft.children]
    found = replace(draft, modified=file.modified, children=below)
    if card_of is None or draft.type is not BlockType.TODO:
        return found
    return replace(found, type=BlockType.KANBAN_CARD, properties={**draft.properties, "status": card_of})


def _properties(file: SourceFile, fields: dict[str, Json]) -> dict[str, Json]:
    """The fields, with the page's other names, its folder and its tags as links have them."""
    found = {name: value for name, value in fields.items() if name.lower() not in {"alias", "aliases", "tags", "tag"}}
    aliases = _names(fields, "alias", "aliases")
    if file.folder:
        found["folder"] = file.folder
        aliases.append(file.path.rpartition(".")[0])
    if aliases:
        found["aliases"] = list[Json](aliases)
    if tags := _names(fields, "tag", "tags"):
        found["tags"] = ", ".join(f"#{tag.lstrip('#')}" for tag in tags)
    return found


def _names(fields: Mapping[str, Json], *names: str) -> list[str]:
    found: list[str] = []
    for name in names:
        given = fields.get(name)
        parts = given if isinstance(given, list) else re.split(r"[,\s]+" if "tag" in name else ",", str(given or ""))
        found.extend(text for part in parts if part is not None and (text := str(part).strip()))
    return found


def _taken_time(fields: dict[str, Json], names: Sequence[str]) -> datetime | None:
    for name in names:
        if name in fields:
            try:
                return parse_time(fields[name])
            except InvalidRequest:
                continue  # it stays among the properties as it was written
    return None


def _page_link(found: re.Match[str], file: SourceFile, titles: Mapping[str, str]) -> str:
    """A link to another file of the source as a link to its page; any other as it stands."""
    target, _, heading = unquote(found[3].strip("<>")).partition("#")
    path = posixpath.normpath(posixpath.join(file.folder, target)) if target else ""
    if path not in titles:
        return found[0]
    place = f"{titles[path]}#{heading}" if heading else titles[path]
    return f"{found[1]}[[{place}|{found[2]}]]" if found[2] else f"{found[1]}[[{place}]]"
