"""What blocks name in their text, and whether it is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from contexture.ingestion.blocks.draft import Draft
from contexture.workspace import LINKABLE, Block, BlockType, names_of, plain_name

PAGE_LINK = re.compile(r"\[\[([^\[\]]+)\]\]")
REFERENCE = re.compile(r"\(\(([0-9A-Za-z][\w-]{7,})\)\)")
BLOCK_LINK = re.compile(r"\]\(block:([^()\s]+)\)")
_VERBATIM = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unresolved:
    """A link whose target is nowhere: where it stands, and what it names."""

    path: str
    name: str
    line: int = 0

    def __str__(self) -> str:
        """`path:line: name`."""
        return f"{self.path}:{self.line}: {self.name}" if self.line else f"{self.path}: {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A link as it is written: to a page by `name`, or to a block by its id.

    A `quoted` one stands in code or names nothing, so that it is none.
    """

    name: str
    to_block: bool = False
    quoted: bool = False


def links_of(draft: Draft) -> Iterator[Written]:
    """What a block names, as often as it does; the properties of pages and rows count as text."""
    yield from _links_in(draft.text, code=draft.type is BlockType.CODE)
    if draft.type in LINKABLE:
        for value in draft.properties.values():
            if isinstance(value, str):
                yield from _links_in(value)


def page_name(inside: str) -> str:
    """The page that `[[Page#Heading|shown]]` names; empty for a heading of the same page."""
    name = inside.split("|", 1)[0]
    before, _, heading = name.partition("#")
    return (before if heading else name).strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """Every page by its names, and every block by its id."""

    pages: set[str] = field(default_factory=set[str])
    ids: set[str] = field(default_factory=set[str])

    def add(self, blocks: Iterable[Block]) -> None:
        """Learn the names of blocks."""
        for block in blocks:
            self.ids.add(block.id)
            self.pages.update(names_of(block))

    def has(self, link: Written) -> bool:
        """Whether what is named is there."""
        return link.name in self.ids if link.to_block else plain_name(link.name) in self.pages


def _links_in(text: str, *, code: bool = False) -> Iterator[Written]:
    if not ("[[" in text or "((" in text or "](block:" in text):
        return
    inside = [] if code else [found.span() for found in _VERBATIM.finditer(text)]
    for pattern in (PAGE_LINK, REFERENCE, BLOCK_LINK):
        for found in pattern.finditer(text):
            name = page_name(found[1]) if pattern is PAGE_LINK else found[1]
            quoted = not name or code or any(start <= found.start() < end for start, end in inside)
            yield Written(name=name, to_block=pattern is not PAGE_LINK, quoted=quoted)
