"""Reads an Obsidian vault, or any folder of Markdown files with YAML front matter: a page per file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks._markdown import find_inline_fields, parse_markdown, split_frontmatter
from contexture.ingestion.blocks.canvas import read_canvas
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItems, make_block_id
from contexture.ingestion.blocks.logseq import LIST_ITEM
from contexture.ingestion.blocks.sources import SourceFile, open_folder
from contexture.ingestion.files import LoadProblem
from contexture.ingestion.records import parse_time
from contexture.types import Json
from contexture.workspace import BlockType

SUFFIXES = frozenset({".md", ".markdown", ".txt", ".canvas"})
_FILE_LINK = re.compile(r"(!?)\[([^\[\]\n]*)\]\((<[^<>\n]+>|[^()\s]+)\)")
_CREATED_FIELDS = ("created", "date created", "date")
_MODIFIED_FIELDS = ("modified", "updated", "date modified")


def is_obsidian(root: Path) -> bool:
    """Whether a folder is an Obsidian vault."""
    return (root / ".obsidian").is_dir()


def read_obsidian(root: Path, *, readers: tuple[str, ...] | None = None) -> ImportItems:
    """Yield a document per file; links between files become links between pages."""
    opened = open_folder(root, SUFFIXES)
    yield from opened.problems
    yield from read_markdown_files(opened.files, readers=readers)


def read_markdown_files(files: Sequence[SourceFile], *, readers: tuple[str, ...] | None = None) -> ImportItems:
    """Yield the documents of Markdown files; links between files become links between pages."""
    titles = {file.path: file.stem for file in files}
    for file in files:
        problem = ""
        try:
            if file.suffix == ".canvas":
                document = read_canvas(file, titles, readers=readers)
            else:
                document, problem = _parse_page(file, titles, readers)
        except RecursionError:
            yield LoadProblem(path=file.path, message="nested too deeply to be read")
            continue
        except InvalidRequest as failure:
            yield LoadProblem(path=file.path, message=str(failure))
            continue
        if problem:
            yield LoadProblem(path=file.path, message=problem, warning=True)
        yield document


def _parse_page(
    file: SourceFile, titles: Mapping[str, str], readers: tuple[str, ...] | None
) -> tuple[DraftDocument, str]:
    fields, body, first, problem = split_frontmatter(file.text)
    created, modified = _find_time(fields, _CREATED_FIELDS), _find_time(fields, _MODIFIED_FIELDS)
    known = fields.pop("id", None)
    root = BlockDraft(
        type=BlockType.PAGE,
        text=file.stem,
        properties=_page_properties(file, fields),
        known=make_block_id("obsidian", known) if isinstance(known, str) and known else "",
        readers=readers,
        created=created,
        modified=modified or file.modified,
    )
    shown = strip_comments(body)
    linked = _FILE_LINK.sub(lambda found: _to_page_link(found, file, titles), shown)
    below = parse_markdown(linked, first_line=first)
    for name, value in find_page_fields(shown).items():
        root.properties.setdefault(name, value)
    board = "kanban-plugin" in fields
    root.children.extend(_finish_draft(draft, file, card_of="" if board else None) for draft in below)
    return DraftDocument(path=file.path, root=root, bullets=len(LIST_ITEM.findall(file.text))), problem


def _finish_draft(draft: BlockDraft, file: SourceFile, *, card_of: str | None) -> BlockDraft:
    """Return the block and its descendants with the file's time; tasks on a board become cards of their heading."""
    column = draft.text if card_of is not None and draft.type is BlockType.HEADING else card_of
    below = [_finish_draft(child, file, card_of=column) for child in draft.children]
    found = replace(draft, modified=file.modified, children=below)
    if card_of is None or draft.type is not BlockType.TODO:
        return found
    return replace(found, type=BlockType.KANBAN_CARD, properties={**draft.properties, "status": card_of})


def _page_properties(file: SourceFile, fields: dict[str, Json]) -> dict[str, Json]:
    """Return the fields, with the page's aliases and folder, and its tags as links."""
    found = {name: value for name, value in fields.items() if name.lower() not in {"alias", "aliases", "tags", "tag"}}
    aliases = _list_names(fields, "alias", "aliases")
    if file.folder:
        found["folder"] = file.folder
        aliases.append(file.path.rpartition(".")[0])
    if aliases:
        found["aliases"] = list[Json](aliases)
    if tags := _list_names(fields, "tag", "tags"):
        found["tags"] = ", ".join(f"#{tag.lstrip('#')}" for tag in tags)
    return found


def _list_names(fields: Mapping[str, Json], *names: str) -> list[str]:
    found: list[str] = []
    for name in names:
        given = fields.get(name)
        parts = given if isinstance(given, list) else re.split(r"[,\s]+" if "tag" in name else ",", str(given or ""))
        found.extend(text for part in parts if part is not None and (text := str(part).strip()))
    return found


def _find_time(fields: dict[str, Json], names: Sequence[str]) -> datetime | None:
    for name in names:
        if name in fields:
            try:
                return parse_time(fields[name])
            except InvalidRequest:
                continue  # it stays in the properties as written
    return None


def _to_page_link(found: re.Match[str], file: SourceFile, titles: Mapping[str, str]) -> str:
    """Convert a link to another file of the source to a page link; other links are unchanged."""
    target, _, heading = unquote(found[3].strip("<>")).partition("#")
    path = posixpath.normpath(posixpath.join(file.folder, target)) if target else ""
    if path not in titles:
        return found[0]
    place = f"{titles[path]}#{heading}" if heading else titles[path]
    return f"{found[1]}[[{place}|{found[2]}]]" if found[2] else f"{found[1]}[[{place}]]"


_COMMENT = re.compile(r"(?P<code>```.*?```|~~~.*?~~~|`[^`\n]*`)|(?m:^)[ \t]*%%(?P<block>.*?)%%|%%[^\n]*?%%", re.DOTALL)
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`", re.DOTALL)
_FIELD_LINE = re.compile(
    r"^[ \t]*(?:[-*+][ \t]+)?(?:\*\*|__)?([^\W\d_][\w /-]{0,40}?)(?:\*\*|__)?::[ \t]+(\S[^\n]*)$", re.MULTILINE
)
_TASK_LINE = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+\[.\][^\n]*$", re.MULTILINE)


def strip_comments(text: str) -> str:
    """Return a text without Obsidian's `%%comments%%`, with as many lines; code keeps them."""
    return _COMMENT.sub(lambda found: found["code"] or "\n" * (found["block"] or "").count("\n"), text)


def find_page_fields(text: str) -> dict[str, Json]:
    """Return Dataview's fields of a page: `Key:: value` lines and `[key:: value]`, not those of tasks or in code."""
    plain = _TASK_LINE.sub("", _CODE.sub("", text))
    lines = {found[1].strip(): found[2].strip() for found in _FIELD_LINE.finditer(plain)}
    return {**dict(find_inline_fields(plain)), **lines}
