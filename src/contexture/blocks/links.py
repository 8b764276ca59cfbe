"""Finds what a block links to.

Pages by `[[name]]` or `#tag`, blocks by `((id))` or `[text](block:id)`, rows by relation columns.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from contexture.text.unicode import is_valid_unicode
from contexture.types import Json
from contexture.workspace import Block, BlockType, LinkKind, LinkTarget

_CODE_SPAN = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`", re.DOTALL)
_LINK_MARK = re.compile(
    r"(?P<open>\[\[)|(?P<close>\]\])"
    r"|\(\((?P<reference>[^()\s]+)\)\)"
    r"|\]\(block:(?P<block>[^()\s]+)\)"
    r"|(?<![\w#&/\[])#(?P<tag>[^\W\d_][\w/-]*)"
)
_MAX_NAME_LENGTH = 512  # characters of a page's name
_MAX_LINKS = 1_000  # per block; more links are ignored


def extract_links(block: Block, schema: Mapping[str, Json]) -> Sequence[LinkTarget]:
    """The link targets of a block: relations first, then in order of its text and other properties, each once."""
    related = list(_extract_relations(block, schema))
    texts = [] if block.type is BlockType.CODE else [block.text]
    texts += [value for name, value in block.properties.items() if name != SCHEMA and isinstance(value, str)]
    found = dict.fromkeys([*related, *(each for text in texts for each in _extract_mentions(text))])
    return tuple(each for each in found if is_valid_unicode(each.id) and is_valid_unicode(each.page))[:_MAX_LINKS]


def relation_targets(cell: Json) -> Iterator[str]:
    """The ids or titles in a cell of a relation column."""
    for value in cell if isinstance(cell, list) else [cell]:
        if isinstance(value, str) and value.strip():
            yield value.strip().removeprefix("[[").removesuffix("]]")


def _extract_relations(block: Block, schema: Mapping[str, Json]) -> Iterator[LinkTarget]:
    for column in sorted(relation_columns(schema)):
        for name in relation_targets(block.properties.get(column)):
            yield LinkTarget(kind=LinkKind.RELATION, id=name, page=name, column=column)


def _extract_mentions(text: str) -> Iterator[LinkTarget]:
    """Links in the order of their start; nested links are included."""
    found: list[tuple[int, LinkTarget]] = []
    opened: list[int] = []
    for mark in _LINK_MARK.finditer(_CODE_SPAN.sub(_blank_out, text)):
        if mark["open"]:
            opened.append(mark.end())
        elif mark["close"]:
            start = opened.pop() if opened else mark.end()
            if 0 < mark.start() - start <= _MAX_NAME_LENGTH:
                found.append((start, _parse_page_link(text[start : mark.start()])))
        elif mark["tag"]:
            found.append((mark.start(), _parse_page_link(mark["tag"])))
        elif mark["reference"]:
            found.append((mark.start(), LinkTarget(kind=LinkKind.REFERENCE, id=mark["reference"])))
        else:
            found.append((mark.start(), LinkTarget(kind=LinkKind.LINK, id=unquote(mark["block"]))))
    yield from (named for _, named in sorted(found, key=lambda each: each[0]) if named.id or named.page)


def _parse_page_link(inside: str) -> LinkTarget:
    """Parse `name`, `name|as shown` or `name#heading`; a name may end in `#`, and a heading alone has no page."""
    name = inside.split("|", 1)[0]
    before, _, heading = name.partition("#")
    return LinkTarget(kind=LinkKind.LINK, page=(before if heading else name).strip())


def _blank_out(found: re.Match[str]) -> str:
    return " " * len(found[0])


SCHEMA = "schema"
_RELATION_TYPE = "relation"


def database_schema(parent: Block | None) -> Mapping[str, Json]:
    """The columns of a database with their types; empty for anything else."""
    schema = parent.properties.get(SCHEMA) if parent is not None and parent.type is BlockType.DB else None
    return schema if isinstance(schema, dict) else {}


def relation_columns(schema: Mapping[str, Json]) -> frozenset[str]:
    """The columns of type relation; a type is a string, or an object with a `type`."""
    return frozenset(
        column
        for column, kind in schema.items()
        if (kind.get("type") if isinstance(kind, dict) else kind) == _RELATION_TYPE
    )
