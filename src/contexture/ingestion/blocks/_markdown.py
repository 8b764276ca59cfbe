"""Parses Markdown into block drafts, nested under headings; task states and due dates become properties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from typing import Any, cast

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from contexture.ingestion.blocks.draft import BlockDraft
from contexture.types import Json
from contexture.workspace import BlockType

_CALLOUT = re.compile(r"\[!([\w-]+)\][+-]?[ \t]*(.*)")
_ANCHOR = re.compile(r"(?:^|[ \t]+)\^([A-Za-z0-9-]+)[ \t]*$")
_IMAGE = re.compile(
    r"!\[[^\]]*\]\([^)]*\)|!\[\[[^\[\]]+\.(?:png|jpe?g|gif|svg|webp|bmp)(?:\|[^\[\]]*)?\]\]", re.IGNORECASE
)
_EMBED = re.compile(r"!\[\[[^\[\]]+\]\]")


@cache
def _parser() -> MarkdownIt:
    """Return a CommonMark parser with tables; it keeps no state between texts."""
    return MarkdownIt("commonmark", {"maxNesting": 200}).enable("table")


def parse_markdown(text: str, *, first_line: int = 1) -> list[BlockDraft]:
    """Parse a text into blocks, nested under headings; the `anchor` property holds the name of `^name`."""
    lines = text.split("\n")
    found = list(_DraftBuilder(lines, first_line).build(_build_tree(_parser().parse(text))))
    return _nest_under_headings(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class _SyntaxNode:
    """A Markdown token with the nodes up to its closing token."""

    token: Token
    inside: list[_SyntaxNode]


def _build_tree(tokens: Sequence[Token]) -> list[_SyntaxNode]:
    roots: list[_SyntaxNode] = []
    above: list[_SyntaxNode] = []
    for token in tokens:
        if token.nesting < 0:
            above.pop()
            continue
        node = _SyntaxNode(token=token, inside=[])
        (above[-1].inside if above else roots).append(node)
        if token.nesting > 0:
            above.append(node)
    return roots


class _DraftBuilder:
    """Converts nodes to drafts; `first` is the number of the first line."""

    def __init__(self, lines: Sequence[str], first: int) -> None:
        self._lines = lines
        self._first = first

    def build(self, nodes: Sequence[_SyntaxNode]) -> Iterator[BlockDraft]:
        for node in nodes:
            yield from self._build_node(node)

    def _build_node(self, node: _SyntaxNode) -> Iterator[BlockDraft]:
        match node.token.type:
            case "heading_open":
                yield self._draft(node, BlockType.HEADING, _inline_text(node), {"level": int(node.token.tag[1:])})
            case "paragraph_open":
                yield self._paragraph(node)
            case "bullet_list_open" | "ordered_list_open":
                for item in node.inside:
                    yield self._item(item, numbered=node.token.type.startswith("ordered"))
            case "fence" | "code_block":
                yield self._code(node)
            case "blockquote_open":
                yield self._quote(node)
            case "hr":
                yield self._draft(node, BlockType.DIVIDER, "")
            case "table_open":
                yield self._draft(node, BlockType.TABLE, self._source_text(node))
            case _:
                yield self._draft(node, BlockType.PARAGRAPH, node.token.content.strip() or self._source_text(node))

    def _paragraph(self, node: _SyntaxNode) -> BlockDraft:
        text = _inline_text(node)
        if _IMAGE.fullmatch(text):
            return self._draft(node, BlockType.IMAGE, text)
        return self._draft(node, BlockType.EMBED if _EMBED.fullmatch(text) else BlockType.PARAGRAPH, text)

    def _code(self, node: _SyntaxNode) -> BlockDraft:
        language = node.token.info.strip().split(" ")[0]
        return self._draft(
            node, BlockType.CODE, node.token.content.rstrip("\n"), {"language": language} if language else {}
        )

    def _item(self, node: _SyntaxNode, *, numbered: bool) -> BlockDraft:
        """Convert a list item: its first paragraph becomes the text, the rest its children."""
        inside = list(node.inside)
        text = _inline_text(inside.pop(0)) if inside and inside[0].token.type == "paragraph_open" else ""
        task = parse_checkbox(text)
        if task is not None:
            text, fields = extract_task_fields(task[0])
            draft = self._draft(node, BlockType.TODO, text, {**task[1], **fields})
        else:
            draft = self._draft(node, BlockType.NUMBERED if numbered else BlockType.BULLETED, text)
        draft.children.extend(self.build(inside))
        return draft

    def _quote(self, node: _SyntaxNode) -> BlockDraft:
        """Convert a quote to one block; one that begins with `[!note]` is a callout."""
        lines = [re.sub(r"^[ \t]*>[ ]?", "", line) for line in self._source_text(node).split("\n")]
        found = _CALLOUT.match(lines[0])
        if found is None:
            return self._draft(node, BlockType.QUOTE, "\n".join(lines).strip())
        text = "\n".join([found[2], *lines[1:]]).strip()
        return self._draft(node, BlockType.CALLOUT, text, {"kind": found[1].lower()})

    def _draft(
        self, node: _SyntaxNode, kind: BlockType, text: str, properties: dict[str, Json] | None = None
    ) -> BlockDraft:
        merged = dict(properties or {})
        anchor = None if kind is BlockType.CODE else _ANCHOR.search(text)
        if anchor is not None:
            text, merged["anchor"] = text[: anchor.start()], anchor[1]
        line = (node.token.map or [0])[0]
        key = anchor[1] if anchor else ""
        return BlockDraft(type=kind, text=text, properties=merged, key=key, line=self._first + line)

    def _source_text(self, node: _SyntaxNode) -> str:
        start, end = node.token.map or (0, 0)
        return "\n".join(self._lines[start:end]).strip("\n")


def _inline_text(node: _SyntaxNode) -> str:
    return "\n".join(each.token.content for each in node.inside if each.token.type == "inline")


def _nest_under_headings(flat: Sequence[BlockDraft]) -> list[BlockDraft]:
    """Return the blocks nested under the headings they follow."""
    roots: list[BlockDraft] = []
    above: list[tuple[int, BlockDraft]] = []
    for draft in flat:
        level = draft.properties.get("level") if draft.type is BlockType.HEADING else None
        if isinstance(level, int):
            while above and above[-1][0] >= level:
                above.pop()
        _append_or_anchor(draft, above[-1][1].children if above else roots)
        if isinstance(level, int):
            above.append((level, draft))
    return roots


def _append_or_anchor(draft: BlockDraft, among: list[BlockDraft]) -> None:
    """Append a block; a line that contains only `^name` names the block before it."""
    alone = draft.type is BlockType.PARAGRAPH and not draft.text and set(draft.properties) == {"anchor"}
    if alone and among:
        among[-1] = replace(among[-1], key=draft.key, properties={**among[-1].properties, **draft.properties})
    else:
        among.append(draft)


DONE_MARKERS = frozenset({"DONE", "CANCELED", "CANCELLED"})
TASK_MARKERS = frozenset({"TODO", "DOING", "NOW", "LATER", "WAITING", "WAIT", "IN-PROGRESS", *DONE_MARKERS})

_MARKER = re.compile(rf"({'|'.join(sorted(TASK_MARKERS, key=len, reverse=True))})(?:[ \t]+|$)")
_PRIORITY = re.compile(r"\[#([A-Za-z])\][ \t]*")
_CHECKBOX = re.compile(r"\[([ xX/\-])\](?:[ \t]+|$)")
_STAMP = re.compile(r"(SCHEDULED|DEADLINE):[ \t]*<(\d{4}-\d{2}-\d{2})([^<>]*)>")
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})\b")
_EMOJI_DATE = re.compile(r"(?P<sign>📅|📆|🗓️?|⏳|⌛|🛫|✅|➕|❌)[ \t]*(?P<day>\d{4}-\d{2}-\d{2})")
_EMOJI_FIELDS = {
    "⏳": "scheduled",
    "⌛": "scheduled",
    "🛫": "start",
    "✅": "completed",
    "➕": "created",
    "❌": "cancelled",
}
_PRIORITY_SIGNS = {"🔺": "highest", "⏫": "high", "🔼": "medium", "🔽": "low", "⏬": "lowest"}
_PRIORITY_SIGN = re.compile(r"[🔺⏫🔼🔽⏬]\ufe0f?")
_EMOJI_TEXT = re.compile(r"(?P<sign>🔁|🆔|⛔|🏁)\ufe0f?[ \t]*(?P<text>[^📅📆🗓⏳⌛🛫✅➕❌🔺⏫🔼🔽⏬🔁🆔⛔🏁\[\n]+)")
_EMOJI_TEXTS = {"🔁": "repeat", "🆔": "id", "⛔": "dependsOn", "🏁": "onCompletion"}
_INLINE_FIELD = re.compile(
    r"\[(?P<name>[^\W\d_][\w /-]{0,40}?)::[ \t]*(?P<value>(?:[^\[\]\n]|\[\[[^\[\]\n]*\]\])*)\]"
    r"|\((?P<hidden>[^\W\d_][\w /-]{0,40}?)::[ \t]*(?P<text>[^()\n]*)\)"
    r"|(?<![\w\[(])(?P<bare>due|scheduled)::[ \t]*(?P<day>(?:\[\[)?\d{4}-\d{2}-\d{2}(?:\]\])?)"
)
_FIELD_NAMES = {"completion": "completed"}


def parse_task_marker(text: str) -> tuple[str, dict[str, Json]] | None:
    """Parse a task that starts with `TODO`, `DONE` or the like into text and state; None otherwise."""
    found = _MARKER.match(text)
    if found is None:
        return None
    rest, state = text[found.end() :], _task_state(found[1])
    if priority := _PRIORITY.match(rest):
        state["priority"] = priority[1].upper()
        rest = rest[priority.end() :]
    return rest, state


def parse_checkbox(text: str) -> tuple[str, dict[str, Json]] | None:
    """Parse a task that starts with `[ ]` or `[x]` into text and state; None otherwise."""
    found = _CHECKBOX.match(text)
    if found is None:
        return None
    sign = found[1].lower()
    state = {" ": "TODO", "/": "DOING", "-": "CANCELED", "x": "DONE"}[sign]
    return text[found.end() :], _task_state(state)


def extract_org_dates(text: str) -> tuple[str, dict[str, Json]]:
    """Return the text without `SCHEDULED` and `DEADLINE`, and their dates; a deadline becomes `due`."""
    if "SCHEDULED" not in text and "DEADLINE" not in text:
        return text, {}
    found: dict[str, Json] = {}
    for name, day, rest in _STAMP.findall(text):
        moment = _parse_stamp(day, rest)
        if moment:
            found["due" if name == "DEADLINE" else "scheduled"] = moment
    if not found:
        return text, {}
    left = _STAMP.sub("", text)
    return "\n".join(line.rstrip() for line in left.split("\n") if line.strip()), _default_due(found)


def extract_task_fields(text: str) -> tuple[str, dict[str, Json]]:
    """Return the text without the fields of Obsidian's Tasks and Dataview, and these fields.

    Such as `📅 2026-01-31`, `⏫`, `🔁 every week`, `[due:: 2026-01-31]` and `(owner:: Anna)`.
    """
    found: dict[str, Json] = {}
    for each in _EMOJI_DATE.finditer(text):
        _add_date(found, _EMOJI_FIELDS.get(each["sign"], "due"), each["day"])
    left = _EMOJI_DATE.sub("", text)
    for name, value in find_inline_fields(left):
        found[_FIELD_NAMES.get(name, name)] = value
    left = _INLINE_FIELD.sub("", left)
    for each in _EMOJI_TEXT.finditer(left):
        found[_EMOJI_TEXTS[each["sign"]]] = each["text"].strip()
    left = _EMOJI_TEXT.sub("", left)
    if sign := _PRIORITY_SIGN.search(left):
        found["priority"] = _PRIORITY_SIGNS[sign[0][0]]
        left = _PRIORITY_SIGN.sub("", left)
    if not found:
        return text, {}
    return re.sub(r"[ \t]{2,}", " ", left).strip(), _default_due(found)


def find_inline_fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield Dataview's `[name:: value]` and `(name:: value)`; a value that is only a link to a day is the day."""
    for each in _INLINE_FIELD.finditer(text):
        name = (each["name"] or each["hidden"] or each["bare"]).strip()
        value = (each["value"] or each["text"] or each["day"] or "").strip()
        day = value.removeprefix("[[").removesuffix("]]")
        if value:
            yield name, day if iso_date_or_none(day) else value


def iso_date_or_none(text: str) -> str | None:
    """Return the text if it is an ISO date or time, otherwise None."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return None
    return text


def _task_state(marker: str) -> dict[str, Json]:
    return {"status": marker, "done": marker in DONE_MARKERS}


def _add_date(found: dict[str, Json], name: str, day: str) -> None:
    if iso_date_or_none(day):
        found[name] = day


def _parse_stamp(day: str, rest: str) -> str | None:
    clock = _CLOCK.search(rest)
    try:
        return f"{day}T{int(clock[1]):02}:{clock[2]}" if clock else date.fromisoformat(day).isoformat()
    except ValueError:
        return None


def _default_due(found: dict[str, Json]) -> dict[str, Json]:
    """Set `due` of a task that is only scheduled to the scheduled date."""
    return found if "due" in found or "scheduled" not in found else {**found, "due": found["scheduled"]}


_DELIMITER = "---"
_MAX_DEPTH = 20


def split_frontmatter(text: str) -> tuple[dict[str, Json], str, int, str]:
    """Split a text into the fields of its front matter, the body, the body's first line number, and an error message.

    A text without front matter, or with one that is not YAML, is returned whole.
    """
    lines = text.split("\n")
    end = next((at for at, line in enumerate(lines[1:], start=1) if line.strip() in {_DELIMITER, "..."}), None)
    if lines[0].strip() != _DELIMITER or end is None:
        return {}, text, 1, ""
    try:
        found: object = yaml.safe_load("\n".join(lines[1:end]))
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        return {}, text, 1, f"the front matter is not valid YAML: {str(failure).split(chr(10), 1)[0]}"
    if found is not None and not isinstance(found, dict):
        return {}, text, 1, ""
    fields = {str(name): to_json_value(value) for name, value in cast("dict[object, object]", found or {}).items()}
    return fields, "\n".join(lines[end + 1 :]), end + 2, ""


def to_json_value(value: object, depth: int = 0) -> Json:
    """Convert a value to JSON: dates as ISO strings, other types as their text."""
    if depth > _MAX_DEPTH:
        return None
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date():
            return value.isoformat()
        case list():
            return [to_json_value(each, depth + 1) for each in cast("list[object]", value)]
        case dict():
            inside = cast("dict[Any, object]", value)
            return {str(name): to_json_value(each, depth + 1) for name, each in inside.items()}
        case _:
            return str(value)
