"""A workspace as the rest of the package knows it: blocks in a tree, links, activity, and the store's contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from contexture.types import Json, Scope


class BlockType(StrEnum):
    """What a block is."""

    PAGE = "page"
    HEADING = "heading"
    PARAGRAPH = "paragraph"
    TODO = "todo"
    KANBAN_CARD = "kanban_card"
    BULLETED = "bulleted"
    NUMBERED = "numbered"
    TOGGLE = "toggle"
    QUOTE = "quote"
    CODE = "code"
    CALLOUT = "callout"
    TABLE = "table"
    DB = "db"
    DB_ROW = "db_row"
    IMAGE = "image"
    FILE = "file"
    EMBED = "embed"
    DIVIDER = "divider"


class Block(Struct, frozen=True, kw_only=True):
    """A block of a workspace.

    `text` is Markdown (the title of a page, a database or a row). `readers` lists who may read it; None inherits
    from the parent, and a root that says nothing is read by everyone in the tenant. `order` places it among its
    siblings, ties by id. `properties` are a row's cells, a task's `due` (ISO date), `done`, `status`, `priority` and
    `assignee`, a heading's `level`, a code block's `language`; a database's `schema` maps its columns to their types.
    `acl` is who may read it once inheritance is worked out, filled in by the store.
    """

    id: str
    type: BlockType
    text: str
    parent: str | None = None
    order: float = 0.0
    properties: Mapping[str, Json] = field(default_factory=dict[str, Json])
    readers: tuple[str, ...] | None = None
    author: str = ""
    created: datetime | None = None
    modified: datetime | None = None
    acl: tuple[str, ...] = ()


class LinkKind(StrEnum):
    """How one block names another."""

    LINK = "link"
    REFERENCE = "reference"
    RELATION = "relation"


class Link(Struct, frozen=True, kw_only=True):
    """One block names another: by a link in its text, a block reference, or a relation `name` between rows."""

    source: str
    target: str
    kind: LinkKind
    name: str = ""


class Deed(StrEnum):
    """What someone did with a block."""

    EDIT = "edit"
    VIEW = "view"


class Activity(Struct, frozen=True, kw_only=True):
    """Someone edited or viewed a block at a time."""

    block_id: str
    user: str
    deed: Deed
    time: datetime


class Touch(Struct, frozen=True, kw_only=True):
    """What one user has had to do with a block up to some time."""

    edits: int = 0
    views: int = 0
    last: datetime | None = None
    author: bool = False


class BlockStore(Protocol):
    """Reads a workspace for one scope at a time.

    Every call leaves out what the scope may not read, as if it did not exist: an unknown id and a forbidden one are
    answered alike, limits count only what may be read, and no order depends on what is hidden.
    """

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[Block]:
        """Those of `ids` that exist, in the order asked for."""
        ...

    async def ancestors(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Block]]:
        """By id, the parents upwards, nearest first; the chain ends where the first hidden one stands."""
        ...

    async def siblings(self, scope: Scope, block_id: str, *, before: int, after: int) -> Sequence[Block]:
        """The nearest `before` and `after` siblings, in document order, without the block itself."""
        ...

    async def children(self, scope: Scope, block_id: str, *, limit: int, after: Block | None = None) -> Sequence[Block]:
        """The first children in order, behind `after`."""
        ...

    async def subtree(self, scope: Scope, block_id: str, *, depth: int, limit: int) -> Sequence[Block]:
        """Up to `limit` blocks below it in document order, at most `depth` levels down."""
        ...

    async def links(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Link]:
        """What these blocks name, where both ends may be read; relations first, then in document order."""
        ...

    async def backlinks(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Link]:
        """What names these blocks, where both ends may be read; the last modified source first, ties by id."""
        ...

    async def recent(self, scope: Scope, deed: Deed, *, since: datetime, limit: int) -> Sequence[Activity]:
        """The scope's own user's newest deeds, one per block, newest first."""
        ...

    async def touches(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Touch]:
        """What the scope's own user has had to do with these blocks; blocks never touched are left out."""
        ...

    async def tasks(
        self, scope: Scope, *, due_before: datetime | None = None, open_only: bool = True, limit: int
    ) -> Sequence[Block]:
        """Todos, cards and rows that have a due date, the earliest due first, ties by id."""
        ...
