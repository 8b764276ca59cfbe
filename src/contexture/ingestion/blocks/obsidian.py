"""Reads an Obsidian vault, or any folder of Markdown files with YAML front matter: a page per file.

A canvas is a page too: groups are headings, cards text, arrows lines.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks._markdown import find_inline_fields, parse_markdown, split_frontmatter
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItems, make_block_id
from contexture.ingestion.blocks.logseq import LIST_ITEM
from contexture.ingestion.blocks.sources import SourceFile, open_folder
from contexture.ingestion.files import LoadProblem
from contexture.ingestion.records import parse_time
from contexture.types import Json
from contexture.workspace import BlockType

_NAME_CHARS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class _Card:
    """A node of a canvas: its id, kind, text, and place."""

    id: str
    kind: str
    text: str
    left: float
    top: float
    width: float
    height: float

    def contains(self, other: _Card) -> bool:
        """Whether the middle of another card is inside this one."""
        across, down = other.left + other.width / 2, other.top + other.height / 2
        return self.left <= across <= self.left + self.width and self.top <= down <= self.top + self.height

    @property
    def name(self) -> str:
        """The first line of its text, shortened."""
        line = self.text.strip().partition("\n")[0].lstrip("# ")
        return line if len(line) <= _NAME_CHARS else line[:_NAME_CHARS].rsplit(" ", 1)[0] + " …"


def read_canvas(
    file: SourceFile, titles: Mapping[str, str], *, readers: tuple[str, ...] | None = None
) -> DraftDocument:
    """Read a canvas; `titles` are those of the files of the vault by path. Raises `InvalidRequest`.

    Cards stand in reading order, from top to bottom and from left to right, below the smallest group around them.
    """
    nodes, edges = _parse(file.text)
    cards = sorted((_make_card(node, titles) for node in nodes), key=lambda card: (card.top, card.left, card.id))
    groups = sorted((card for card in cards if card.kind == "group"), key=lambda card: card.width * card.height)
    root = BlockDraft(
        type=BlockType.PAGE,
        text=file.stem,
        properties={"folder": file.folder} if file.folder else {},
        readers=readers,
        modified=file.modified,
    )
    drafts: dict[str, BlockDraft] = {}
    for card in cards:
        kind = BlockType.HEADING if card.kind == "group" else BlockType.PARAGRAPH
        drafts[card.id] = BlockDraft(type=kind, text=card.text, key=card.id, modified=file.modified)
    for card in cards:
        inside = [group for group in groups if group.id != card.id and group.contains(card)]
        if card.kind == "group":
            inside = [group for group in inside if group.width * group.height > card.width * card.height]
        if card.text:
            (drafts[inside[0].id] if inside else root).children.append(drafts[card.id])
    root.children.extend(_describe_edges(edges, {card.id: card for card in cards}))
    return DraftDocument(path=file.path, root=root)


def _parse(text: str) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    try:
        found: object = msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError) as failure:
        raise InvalidRequest(f"not a canvas: {failure}") from failure
    whole = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    parts: list[list[Mapping[str, Any]]] = []
    for name in ("nodes", "edges"):
        rows = whole.get(name, [])
        if not isinstance(found, dict) or not isinstance(rows, list):
            raise InvalidRequest("not a canvas: an object with lists of `nodes` and `edges` is expected")
        parts.append([row for row in cast("list[Mapping[str, Any]]", rows) if isinstance(row, dict)])
    nodes = {str(row.get("id", "")): row for row in parts[0] if row.get("id")}
    return list(nodes.values()), parts[1]


def _make_card(node: Mapping[str, Any], titles: Mapping[str, str]) -> _Card:
    kind = str(node.get("type", "text"))
    match kind:
        case "file":
            path = str(node.get("file", ""))
            text = f"[[{titles.get(path, path)}{node.get('subpath') or ''}]]" if path else ""
        case "link":
            text = str(node.get("url", ""))
        case "group":
            text = str(node.get("label") or "Group")
        case _:
            text = str(node.get("text", ""))
    left, top, width, height = (_number(node.get(name)) for name in ("x", "y", "width", "height"))
    return _Card(id=str(node["id"]), kind=kind, text=text.strip(), left=left, top=top, width=width, height=height)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _describe_edges(edges: Sequence[Mapping[str, Any]], cards: Mapping[str, _Card]) -> Sequence[BlockDraft]:
    found: list[BlockDraft] = []
    for edge in edges:
        start, end = (cards.get(str(edge.get(name))) for name in ("fromNode", "toNode"))
        if start is None or end is None or not (start.text and end.text):
            continue
        label = f" ({edge['label']})" if edge.get("label") else ""
        text = f"{start.name} → {end.name}{label}"
        found.append(BlockDraft(type=BlockType.BULLETED, text=text, key=f"edge {edge.get('id', text)}"))
    return found


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
