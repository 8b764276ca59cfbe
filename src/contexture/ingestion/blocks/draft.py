"""What a reader finds in a source: blocks without places, in documents that may stand in each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from contexture.ingestion.problems import Problem
from contexture.types import Json
from contexture.workspace import Activity, BlockType


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A block as its source has it.

    `known` is the id that the source itself gives, and `key` a name that no other block of the document has; both are
    empty where there is none. `line` is where it begins. Readers build the tree by adding to `children`, and leave it
    alone once they have handed it on.
    """

    type: BlockType
    text: str
    properties: dict[str, Json] = field(default_factory=dict[str, Json])
    children: list[Draft] = field(default_factory=list["Draft"])
    known: str = ""
    key: str = ""
    readers: tuple[str, ...] | None = None
    author: str = ""
    created: datetime | None = None
    modified: datetime | None = None
    line: int = 0

    @property
    def digest(self) -> str:
        """What it says, without where it stands and when it was written: equal for blocks that say the same."""
        said = (self.type, self.text, self.properties, self.readers, self.author, self.created)
        return blake2b(msgspec.json.encode(said, order="deterministic"), digest_size=9).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A tree that comes and goes as one, usually a file; `path` tells it from the others of its source.

    `under` is the id of the block that its root stands below, which another document holds.
    """

    path: str
    root: Draft
    under: str | None = None
    order: float = 0.0
    bullets: int = 0

    def problem(self, message: str, *, line: int = 0, warning: bool = False) -> Problem:
        """Something that is wrong with it."""
        return Problem(path=self.path, line=line, message=message, warning=warning)


Found: TypeAlias = Document | Activity | Problem
Reading: TypeAlias = Iterator[Found]
"""What a reader gives, in order; activity is for blocks whose ids the source itself gives."""


def made_id(*parts: str) -> str:
    """The same id for the same parts."""
    said = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"blk-{blake2b(said, digest_size=12).hexdigest()}"


def drafts(root: Draft) -> Iterator[tuple[Draft, Draft | None]]:
    """A tree in document order, each block with its parent; however deep it is."""
    waiting: list[tuple[Draft, Draft | None]] = [(root, None)]
    while waiting:
        draft, parent = waiting.pop()
        yield draft, parent
        waiting.extend((child, draft) for child in reversed(draft.children))
