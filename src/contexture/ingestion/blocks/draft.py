"""What a reader yields from a source: block drafts without positions, in documents that may be nested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from contexture.ingestion.files import LoadProblem
from contexture.types import Json
from contexture.workspace import Activity, BlockType


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockDraft:
    """A block as read from its source, before it has an id and an order.

    `known` is the id given by the source, and `key` a name that is unique in the document; both are empty if there is
    none. `line` is the line where the block begins. Readers build the tree by appending to `children`, and do not
    change it once it has been yielded.
    """

    type: BlockType
    text: str
    properties: dict[str, Json] = field(default_factory=dict[str, Json])
    children: list[BlockDraft] = field(default_factory=list["BlockDraft"])
    known: str = ""
    key: str = ""
    readers: tuple[str, ...] | None = None
    author: str = ""
    created: datetime | None = None
    modified: datetime | None = None
    line: int = 0

    @property
    def digest(self) -> str:
        """A hash of the content, without position and modification time: equal for blocks with equal content."""
        said = (self.type, self.text, self.properties, self.readers, self.author, self.created)
        return blake2b(msgspec.json.encode(said, order="deterministic"), digest_size=9).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftDocument:
    """A tree of drafts that is imported as a unit, usually a file; `path` is unique within its source.

    `under` is the id of the parent block of its root, which belongs to another document. A `rank` is its position
    among the documents with the same parent, which stand behind the parent's own blocks; without one, `order` holds.
    """

    path: str
    root: BlockDraft
    under: str | None = None
    order: float = 0.0
    rank: int | None = None
    bullets: int = 0

    def problem(self, message: str, *, line: int = 0, warning: bool = False) -> LoadProblem:
        """Build a problem that refers to this document."""
        return LoadProblem(path=self.path, line=line, message=message, warning=warning)


ImportItem: TypeAlias = DraftDocument | Activity | LoadProblem
ImportItems: TypeAlias = Iterator[ImportItem]
"""Items of a reader, in order; activity refers to blocks whose ids come from the source itself."""


def make_block_id(*parts: str) -> str:
    """Return a stable id, the same for the same parts."""
    said = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"blk-{blake2b(said, digest_size=12).hexdigest()}"


def walk_drafts(root: BlockDraft) -> Iterator[tuple[BlockDraft, BlockDraft | None]]:
    """Every draft of a tree in document order, each with its parent; iterative, so any depth works."""
    waiting: list[tuple[BlockDraft, BlockDraft | None]] = [(root, None)]
    while waiting:
        draft, parent = waiting.pop()
        yield draft, parent
        waiting.extend((child, draft) for child in reversed(draft.children))
