"""Blocks of a Markdown text: headings that hold what follows them, lists, tasks, code, quotes, callouts and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from contexture.ingestion.blocks.draft import Draft
from contexture.ingestion.blocks.tasks import boxed, signs
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
    """CommonMark with tables; it keeps no state between texts."""
    return MarkdownIt("commonmark", {"maxNesting": 200}).enable("table")


def markdown_drafts(text: str, *, first_line: int = 1) -> list[Draft]:
    """The blocks of a text; what stands below a heading is inside it. `anchor` keeps the name of `^name`."""
    lines = text.split("\n")
    found = list(_Blocks(lines, first_line).of(_tree(_parser().parse(text))))
    return _under_headings(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Node:
    """A token with what stands between it and its closing one."""

    token: Token
    inside: list[_Node]


def _tree(tokens: Sequence[Token]) -> list[_Node]:
    roots: list[_Node] = []
    above: list[_Node] = []
    for token in tokens:
        if token.nesting < 0:
            above.pop()
            continue
        node = _Node(token=token, inside=[])
        (above[-1].inside if above else roots).append(node)
        if token.nesting > 0:
            above.append(node)
    return roots


class _Blocks:
    """Turns nodes into drafts; `first` is the number of the first line."""

    def __init__(self, lines: Sequence[str], first: int) -> None:
        self._lines = lines
        self._first = first

    def of(self, nodes: Sequence[_Node]) -> Iterator[Draft]:
        for node in nodes:
            yield from self._one(node)

    def _one(self, node: _Node) -> Iterator[Draft]:
        match node.token.type:
            case "heading_open":
                yield self._draft(node, BlockType.HEADING, _inline(node), {"level": int(node.token.tag[1:])})
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
                yield self._draft(node, BlockType.TABLE, self._source(node))
            case _:
                yield self._draft(node, BlockType.PARAGRAPH, node.token.content.strip() or self._source(node))

    def _paragraph(self, node: _Node) -> Draft:
        text = _inline(node)
        if _IMAGE.fullmatch(text):
            return self._draft(node, BlockType.IMAGE, text)
        return self._draft(node, BlockType.EMBED if _EMBED.fullmatch(text) else BlockType.PARAGRAPH, text)

    def _code(self, node: _Node) -> Draft:
        language = node.token.info.strip().split(" ")[0]
        return self._draft(
            node, BlockType.CODE, node.token.content.rstrip("\n"), {"language": language} if language else {}
        )

    def _item(self, node: _Node, *, numbered: bool) -> Draft:
        """A list item: its first paragraph is its text, and the rest stands below it."""
        inside = list(node.inside)
        text = _inline(inside.pop(0)) if inside and inside[0].token.type == "paragraph_open" else ""
        task = boxed(text)
        if task is not None:
            text, dates = signs(task[0])
            draft = self._draft(node, BlockType.TODO, text, {**task[1], **dates})
        else:
            draft = self._draft(node, BlockType.NUMBERED if numbered else BlockType.BULLETED, text)
        draft.children.extend(self.of(inside))
        return draft

    def _quote(self, node: _Node) -> Draft:
        """A quote as one block; one that `[!note]` begins is a callout."""
        lines = [re.sub(r"^[ \t]*>[ ]?", "", line) for line in self._source(node).split("\n")]
        found = _CALLOUT.match(lines[0])
        if found is None:
            return self._draft(node, BlockType.QUOTE, "\n".join(lines).strip())
        text = "\n".join([found[2], *lines[1:]]).strip()
        return self._draft(node, BlockType.CALLOUT, text, {"kind": found[1].lower()})

    def _draft(self, node: _Node, kind: BlockType, text: str, properties: dict[str, Json] | None = None) -> Draft:
        told = dict(properties or {})
        anchor = None if kind is BlockType.CODE else _ANCHOR.search(text)
        if anchor is not None:
            text, told["anchor"] = text[: anchor.start()], anchor[1]
        line = (node.token.map or [0])[0]
        key = anchor[1] if anchor else ""
        return Draft(type=kind, text=text, properties=told, key=key, line=self._first + line)

    def _source(self, node: _Node) -> str:
        start, end = node.token.map or (0, 0)
        return "\n".join(self._lines[start:end]).strip("\n")


def _inline(node: _Node) -> str:
    return "\n".join(each.token.content for each in node.inside if each.token.type == "inline")


def _under_headings(flat: Sequence[Draft]) -> list[Draft]:
    """The same blocks, each below the heading it follows."""
    roots: list[Draft] = []
    above: list[tuple[int, Draft]] = []
    for draft in flat:
        level = draft.properties.get("level") if draft.type is BlockType.HEADING else None
        if isinstance(level, int):
            while above and above[-1][0] >= level:
                above.pop()
        _anchored(draft, above[-1][1].children if above else roots)
        if isinstance(level, int):
            above.append((level, draft))
    return roots


def _anchored(draft: Draft, among: list[Draft]) -> None:
    """Add a block; a line with nothing but `^name` names the block before it."""
    alone = draft.type is BlockType.PARAGRAPH and not draft.text and set(draft.properties) == {"anchor"}
    if alone and among:
        among[-1] = replace(among[-1], key=draft.key, properties={**among[-1].properties, **draft.properties})
    else:
        among.append(draft)
