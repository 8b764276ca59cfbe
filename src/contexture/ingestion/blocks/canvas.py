"""Reads an Obsidian canvas as a page: groups as headings, cards as text, arrows as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument
from contexture.ingestion.blocks.sources import SourceFile
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
