"""A workspace as the rest of the package knows it: blocks in a tree, links, activity, and the store's contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from contexture.types import Json, Scope, Span


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


class Block(Struct, frozen=True, kw_only=True, gc=False):
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


class Link(Struct, frozen=True, kw_only=True, gc=False):
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


class Touch(Struct, frozen=True, kw_only=True, gc=False):
    """What one user has had to do with a block up to some time."""

    edits: int = 0
    views: int = 0
    last: datetime | None = None
    author: bool = False


SUMMED, SUMMED_FURTHER, SUMMED_DEPTH = 8, 20, 3
"""How many blocks below a page its summary is made of, how many where it is in focus, and how many levels down."""


class PageSummary(Struct, frozen=True, kw_only=True):
    """What a page says in at most `limit` tokens of an encoding, the same for everyone who may read the page.

    `further` is what it says where it is in focus, and more of it is read.
    """

    text: str
    further: str
    encoding: str
    limit: int


class BlockFacts(Struct, frozen=True, kw_only=True, gc=False):
    """What was computed about a block as it is shown, when it was written, so that no build computes it again.

    It holds for the text that hashes to `hash`, and for no other. `redactions` are what `rules` found in that text;
    `tokens`, by encoding, is what it costs once it is fenced, `simhash` its similarity hash. A page is shown by its
    `summary`.
    """

    hash: str
    rules: str
    redactions: tuple[Span, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    simhash: int = 0
    summary: PageSummary | None = None


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
        """The nearest `before` and `after` siblings, in document order, without the block itself.

        A root has none, and neither has what stands below something hidden.
        """
        ...

    async def children(self, scope: Scope, block_id: str, *, limit: int, after: Block | None = None) -> Sequence[Block]:
        """The first children in order, behind `after`."""
        ...

    async def subtree(self, scope: Scope, block_id: str, *, depth: int, limit: int) -> Sequence[Block]:
        """Up to `limit` blocks below it in document order, at most `depth` levels down."""
        ...

    async def subtrees(self, scope: Scope, limits: Mapping[str, int], *, depth: int) -> Mapping[str, Sequence[Block]]:
        """By id, what `subtree` gives with its limit; all of them in one read."""
        ...

    async def links(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[Link]:
        """What these blocks name, where both ends may be read; relations first, then as `ids` and their texts go."""
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

    async def facts(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockFacts]:
        """What was computed about these blocks when they were last settled; those without facts are left out.

        A page has none from the moment that it, or what its summary may be made of, is altered until it is settled.
        """
        ...

    async def tasks(
        self, scope: Scope, *, due_before: datetime | None = None, open_only: bool = True, limit: int
    ) -> Sequence[Block]:
        """Todos, cards and rows that have a due date, the earliest due first, ties by id."""
        ...


class Put(Struct, frozen=True, kw_only=True):
    """How many blocks a write brought, altered, and found as they were."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0


class Named(Struct, frozen=True, kw_only=True):
    """What a block names, before anyone looks whether it is there: a block by its id, a page by its name, or either.

    Where both are given the id counts first. A relation's `column` says which cell holds it.
    """

    kind: LinkKind
    id: str = ""
    page: str = ""
    column: str = ""


NamesIn: TypeAlias = Callable[[Block, Mapping[str, Json]], Sequence[Named]]
"""Finds what a block names; the mapping is the schema of the database it is a row of, else empty."""


class Stale(Struct, frozen=True, kw_only=True):
    """A block whose search record may differ from the store.

    `block` is None when it is gone. `ancestors` are all its parents upwards, whoever may read them. `readers` are all
    who may read the block now or could read what was last written to the index. `number` grows with every write.
    `below` is what the summary of a page is made of; None for other blocks, and where not everyone who may read the
    page may read that. `facts` are those kept with the block, which may speak of an older text of it.
    """

    number: int
    tenant: str
    id: str
    readers: tuple[str, ...]
    block: Block | None = None
    ancestors: tuple[Block, ...] = ()
    below: tuple[Block, ...] | None = None
    facts: BlockFacts | None = None


class WritableBlocks(BlockStore, Protocol):
    """Writes a workspace, each call whole or not at all.

    Whoever may read a block may write it and below it; what the scope may not read is answered as unknown, with
    `NotFound`. Every block that a call alters is `stale` until it is settled, also across the end of the process; so
    is every page whose summary it may alter.
    """

    async def put(self, scope: Scope, blocks: Sequence[Block], *, now: datetime) -> Put:
        """Write these; parents may come behind their children. A cycle is an `InvalidRequest`.

        A block that says no author is its writer's; one that says no time was made, or changed, now. Each block that is
        new or altered counts as an edit of the writer's, at the time it says it was modified.
        """
        ...

    async def move(self, scope: Scope, block_id: str, *, parent: str | None, order: float) -> None:
        """Put a block and all below it under another parent, or make it a root; what is inherited follows."""
        ...

    async def delete(self, scope: Scope, ids: Sequence[str], *, now: datetime) -> int:
        """Hide these and all below them until they are restored; returns how many the scope could read."""
        ...

    async def restore(self, scope: Scope, ids: Sequence[str]) -> int:
        """Bring back all that went with each of these in one deletion; returns how many the scope may read."""
        ...

    async def view(self, scope: Scope, block_id: str, *, now: datetime) -> None:
        """Note that the scope's user looked at a block."""
        ...

    async def note(self, scope: Scope, deeds: Sequence[Activity]) -> None:
        """Note what users did with blocks that the scope may read, as a workspace that is imported says it."""
        ...

    async def purge(self, scope: Scope, *, before: datetime) -> int:
        """Forget for good what was deleted before then; returns how many blocks the scope could read."""
        ...

    async def find_pages(self, scope: Scope, names: Sequence[str]) -> Mapping[str, Block]:
        """By name, the page, else the database, else the row that has it as title or alias, ties by id."""
        ...

    async def stale(self, *, limit: int) -> Sequence[Stale]:
        """Up to `limit` blocks, of every tenant, whose search records are to be written, the longest waiting first."""
        ...

    async def settle(self, done: Sequence[Stale]) -> Sequence[Stale]:
        """Say that the search records of these are as they were when they were given out.

        The facts they bear are kept, except of those that were altered since. Returns those whose blocks, or parents
        upwards, are others by now, as they are now: all of them are `stale`, also where another process, which may have
        written before this one did, had settled them.
        """
        ...

    def close(self) -> None:
        """Release the store."""
        ...


_DUE = frozenset(("due", "duedate", "deadline", "срок"))
_DONE = frozenset(
    "done complete completed closed cancelled canceled готово сделано выполнено завершено закрыто отменено".split()
)
LINKABLE = (BlockType.PAGE, BlockType.DB, BlockType.DB_ROW)
"""What can be linked by its name; of two with one name the earlier kind counts."""

_TASKS = (BlockType.TODO, BlockType.KANBAN_CARD, BlockType.DB_ROW)


def due_of(block: Block) -> datetime | None:
    """When a task is due, in UTC; a date without a time lasts until its last microsecond.

    A row's column may also be called `Due date`, `Deadline` or `Срок`. Of `start/end` the end counts, and what is not
    a date counts as none.
    """
    if block.type not in _TASKS:
        return None
    given = block.properties.get("due")
    if given is None and block.type is BlockType.DB_ROW:
        given = next((value for name, value in block.properties.items() if _plain(name) in _DUE), None)
    return moment_of(given.rpartition("/")[2]) if isinstance(given, str) else None


def moment_of(text: str) -> datetime | None:
    """An ISO time in UTC; a date without a time is its last microsecond, and what is neither is None."""
    try:
        found = datetime.fromisoformat(text.strip())
        whole_day = len(text.strip()) <= len("2026-01-01")
        ends = datetime.combine(found.date(), time.max) if whole_day else found
        return ends.astimezone(UTC) if ends.tzinfo else ends.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def done_of(block: Block) -> bool:
    """Whether a task is done: it says so, a check box called `Done`, `Completed` or `Готово` does, or its status."""
    done = block.properties.get("done")
    if isinstance(done, bool):
        return done
    return any(
        _plain(name) in _DONE if value is True else isinstance(value, str) and _plain(value) in _DONE
        for name, value in block.properties.items()
        if value is True or name.casefold() in ("status", "done", "статус")
    )


def names_of(block: Block) -> Sequence[str]:
    """The names under which a page, a database or a row can be linked: its title and its aliases, as `plain_name`."""
    if block.type not in LINKABLE:
        return ()
    given = block.properties.get("alias", block.properties.get("aliases", ""))
    aliases = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else []
    told = (block.text, *(each.strip().strip("[]") for each in aliases if isinstance(each, str)))
    return tuple(dict.fromkeys(name for name in map(plain_name, told) if name))


def plain_name(name: str) -> str:
    """A page's name as links compare it: case and runs of white space do not matter."""
    return " ".join(name.casefold().split())


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
