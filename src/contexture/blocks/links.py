"""Finds what a block names: pages by `[[name]]` or `#tag`, blocks by `((id))` or `[text](block:id)`, related rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from contexture.blocks.columns import SCHEMA, relations_of
from contexture.retrieval.prepare import valid
from contexture.types import Json
from contexture.workspace import Block, BlockType, LinkKind, Named

_VERBATIM = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`", re.DOTALL)
_MARK = re.compile(
    r"(?P<open>\[\[)|(?P<close>\]\])"
    r"|\(\((?P<reference>[^()\s]+)\)\)"
    r"|\]\(block:(?P<block>[^()\s]+)\)"
    r"|(?<![\w#&/\[])#(?P<tag>[^\W\d_][\w/-]*)"
)
_LONGEST = 512  # characters of a page's name
_MOST = 1_000  # one block that names more is a list nobody follows


def names_in(block: Block, schema: Mapping[str, Json]) -> Sequence[Named]:
    """What a block names: relations first, then as its text and its other properties have it, each once."""
    related = list(_relations(block, schema))
    texts = [] if block.type is BlockType.CODE else [block.text]
    texts += [value for name, value in block.properties.items() if name != SCHEMA and isinstance(value, str)]
    found = dict.fromkeys([*related, *(each for text in texts for each in _mentions(text))])
    return tuple(each for each in found if valid(each.id) and valid(each.page))[:_MOST]


def related(cell: Json) -> Iterator[str]:
    """The ids or titles that a cell of a relation holds."""
    for value in cell if isinstance(cell, list) else [cell]:
        if isinstance(value, str) and value.strip():
            yield value.strip().removeprefix("[[").removesuffix("]]")


def _relations(block: Block, schema: Mapping[str, Json]) -> Iterator[Named]:
    for column in sorted(relations_of(schema)):
        for name in related(block.properties.get(column)):
            yield Named(kind=LinkKind.RELATION, id=name, page=name, column=column)


def _mentions(text: str) -> Iterator[Named]:
    """Links in the order in which they begin; of nested ones each counts."""
    found: list[tuple[int, Named]] = []
    opened: list[int] = []
    for mark in _MARK.finditer(_VERBATIM.sub(_blank, text)):
        if mark["open"]:
            opened.append(mark.end())
        elif mark["close"]:
            start = opened.pop() if opened else mark.end()
            if 0 < mark.start() - start <= _LONGEST:
                found.append((start, _page(text[start : mark.start()])))
        elif mark["tag"]:
            found.append((mark.start(), _page(mark["tag"])))
        elif mark["reference"]:
            found.append((mark.start(), Named(kind=LinkKind.REFERENCE, id=mark["reference"])))
        else:
            found.append((mark.start(), Named(kind=LinkKind.LINK, id=unquote(mark["block"]))))
    yield from (named for _, named in sorted(found, key=lambda each: each[0]) if named.id or named.page)


def _page(inside: str) -> Named:
    """`name`, `name|as shown` or `name#heading`; a name may end in `#`, and a heading alone stands in the same page."""
    name = inside.split("|", 1)[0]
    before, _, heading = name.partition("#")
    return Named(kind=LinkKind.LINK, page=(before if heading else name).strip())


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])
