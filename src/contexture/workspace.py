"""Workspace types and ports: blocks in a tree, links, activity, and the protocols of the block store."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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

    `text` is Markdown (the title of a page, a database or a row). `readers` lists the principals that may read it; None
    inherits from the parent, and a root with None is readable by everyone in the tenant. `order` places it among its
    siblings, ties by id. `properties` are a row's cells, a task's `due` (ISO date), `done`, `status`, `priority` and
    `assignee`, a heading's `level`, a code block's `language`; a database's `schema` maps its columns to their types.
    `editors` and `managers` list who may change it and who may change its readers, editors and managers and remove it
    for good; None inherits. Without any editors its readers may edit it, and its creator always manages it.
    `acl`, the access list after inheritance, and `creator` are filled in by the store. `version` counts its writes; a
    block that is written with a version is refused with `Conflict` if the stored one has another.
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
    creator: str = ""
    editors: tuple[str, ...] | None = None
    managers: tuple[str, ...] | None = None
    version: int = 0


class BlockRight(StrEnum):
    """What someone may do with a block; each right includes those before it."""

    READ = "read"
    EDIT = "edit"
    MANAGE = "manage"


class LinkKind(StrEnum):
    """How one block refers to another."""

    LINK = "link"
    REFERENCE = "reference"
    RELATION = "relation"


class BlockLink(Struct, frozen=True, kw_only=True, gc=False):
    """A link from one block to another: in its text, as a block reference, or as a relation `name` between rows."""

    source: str
    target: str
    kind: LinkKind
    name: str = ""


class ActivityKind(StrEnum):
    """What someone did with a block."""

    EDIT = "edit"
    VIEW = "view"


class Activity(Struct, frozen=True, kw_only=True):
    """One edit or view of a block by a user."""

    block_id: str
    user: str
    deed: ActivityKind
    time: datetime


class BlockUsage(Struct, frozen=True, kw_only=True, gc=False):
    """How often one user edited and viewed a block, when last, and whether they are its author."""

    edits: int = 0
    views: int = 0
    last: datetime | None = None
    author: bool = False


SUMMARY_BLOCKS, FOCUSED_SUMMARY_BLOCKS, SUMMARY_DEPTH = 8, 20, 3
"""Blocks below a page that its summary covers, the same for a page in focus, and the depth in levels."""

SUMMARY_LEAVES = (BlockType.PAGE, BlockType.DB)
"""Block types below which a summary reads nothing: a page is summarized from its own text."""


class PageSummary(Struct, frozen=True, kw_only=True):
    """A summary of a page in at most `limit` tokens of `encoding`, the same for everyone who may read the page.

    `further` is the summary used when the page is in focus; it covers more of the blocks below the page.
    """

    text: str
    further: str
    encoding: str
    limit: int


class BlockFacts(Struct, frozen=True, kw_only=True, gc=False):
    """Facts about a block's rendered text, computed when it is written so that builds need not compute them.

    They are valid only for the text whose hash is `hash`. `redactions` are the spans that the rule set `rules` found in
    it; `tokens`, by encoding, is the count of the fenced text; `simhash` is its similarity hash. A page is rendered as
    its `summary`.
    """

    hash: str
    rules: str
    redactions: tuple[Span, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    simhash: int = 0
    summary: PageSummary | None = None


class CellValue(Struct, frozen=True, kw_only=True, gc=False):
    """A value of a column, or a person in a column of people; `name` and `value` are normalised by `plain_name`."""

    name: str
    value: str
    is_person: bool = False


class CellFilter(Struct, frozen=True, kw_only=True):
    """Blocks that have one of these values, or one from `start` up to `end`, in one of these columns; any if empty."""

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    start: str = ""
    end: str = ""


class BlockQuery(Struct, frozen=True, kw_only=True):
    """Which blocks to select; all conditions hold.

    BlockQuery(types=(BlockType.TODO,), done=False, due_before=now)

    Without a type, databases or cells, tasks are selected: todos, cards, and rows that have a due date or are done or
    not. Ends of times are exclusive. `utc_offset` is how many seconds the zone of whole days is ahead of UTC.
    """

    types: tuple[BlockType, ...] = ()
    databases: tuple[str, ...] = ()
    done: bool | None = None
    due_from: datetime | None = None
    due_before: datetime | None = None
    modified_from: datetime | None = None
    modified_before: datetime | None = None
    cells: tuple[CellFilter, ...] = ()
    group_by: tuple[str, ...] = ()
    newest: bool = False
    utc_offset: int = 0


class BlockSelection(Struct, frozen=True, kw_only=True):
    """The first blocks that a query selects, how many there are, and how many by value of each grouping column."""

    blocks: tuple[Block, ...]
    total: int
    groups: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, dict[str, int]])


class ChangeFeed(Struct, frozen=True, kw_only=True):
    """The latest change of each block, newest first, and how many blocks changed; `user` is empty if not known."""

    changes: tuple[Activity, ...]
    total: int


class BlockRevision(Struct, frozen=True, kw_only=True):
    """What a block said in one version, and who wrote that version when."""

    version: int
    type: BlockType
    text: str
    properties: Mapping[str, Json]
    user: str
    time: datetime


class Deletion(Struct, frozen=True, kw_only=True):
    """One deletion in the trash: its block, who deleted it when, and how many of its blocks the scope may read."""

    block: Block
    user: str
    time: datetime
    count: int


class BlockStore(Protocol):
    """Port: reads a workspace for one scope at a time.

    Every call treats blocks the scope may not read as nonexistent: unknown and forbidden ids give the same result,
    limits count only readable blocks, and no order depends on hidden ones.
    """

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[Block]:
        """Those of `ids` that exist, in the order asked for."""
        ...

    async def ancestors(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Block]]:
        """By id, the ancestors, nearest first; the chain ends before the first hidden one."""
        ...

    async def siblings(self, scope: Scope, block_id: str, *, before: int, after: int) -> Sequence[Block]:
        """The nearest `before` and `after` siblings, in document order, without the block itself.

        A root has none, nor does a block below a hidden one.
        """
        ...

    async def children(self, scope: Scope, block_id: str, *, limit: int, after: Block | None = None) -> Sequence[Block]:
        """Up to `limit` children in order, starting after the child `after`."""
        ...

    async def subtree(
        self, scope: Scope, block_id: str, *, depth: int, limit: int, leaves: Sequence[BlockType] = ()
    ) -> Sequence[Block]:
        """Up to `limit` blocks below it in document order, at most `depth` levels down.

        Nothing is read below a block whose type is one of `leaves`.
        """
        ...

    async def subtrees(
        self, scope: Scope, limits: Mapping[str, int], *, depth: int, leaves: Sequence[BlockType] = ()
    ) -> Mapping[str, Sequence[Block]]:
        """By id, the result of `subtree` with the limit given for that id; all of them in one read."""
        ...

    async def links(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[BlockLink]:
        """Links from these blocks, both ends readable; relations first, then in the order of `ids` and their texts."""
        ...

    async def backlinks(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[BlockLink]:
        """Links to these blocks, both ends readable; the most recently modified source first, ties by id."""
        ...

    async def recent(self, scope: Scope, deed: ActivityKind, *, since: datetime, limit: int) -> Sequence[Activity]:
        """The latest activity of the scope's user, one per block, newest first."""
        ...

    async def touches(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockUsage]:
        """By id, how the scope's user has used these blocks; blocks without any activity are left out."""
        ...

    async def facts(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockFacts]:
        """By id, the facts computed when these blocks were last settled; blocks without facts are left out.

        A page has no facts from the moment that it, or a block its summary may cover, changes until it is settled.
        """
        ...

    async def tasks(
        self, scope: Scope, *, due_before: datetime | None = None, open_only: bool = True, limit: int
    ) -> Sequence[Block]:
        """Todos, cards and rows that have a due date, the earliest due first, ties by id."""
        ...

    async def select(self, scope: Scope, query: BlockQuery, *, limit: int) -> BlockSelection:
        """Up to `limit` blocks that a query selects, the earliest due first, then the last modified, ties by id."""
        ...

    async def find_values(self, scope: Scope, values: Sequence[str], *, limit: int) -> Sequence[CellValue]:
        """Up to `limit` columns that hold one of these values, and people whose name or address it is part of.

        In the order of `values`, then by column and value.
        """
        ...

    async def changes(
        self, scope: Scope, *, since: datetime, until: datetime, users: Sequence[str] = (), limit: int
    ) -> ChangeFeed:
        """Blocks that someone, or one of `users`, changed from `since` up to `until`; imports are nobody's changes."""
        ...

    async def find_named(self, scope: Scope, name: str, *, limit: int) -> Sequence[Block]:
        """Up to `limit` pages, then databases, then rows with this title or alias, ties by id."""
        ...

    async def roots(self, scope: Scope, *, limit: int, after: Block | None = None) -> Sequence[Block]:
        """Up to `limit` blocks that have no parent the scope may read, by order and id, starting after `after`."""
        ...

    async def history(self, scope: Scope, block_id: str, *, limit: int) -> Sequence[BlockRevision]:
        """Up to `limit` versions of a block, the current one first; empty for a block the scope may not read.

        A version from a time when the scope could not have read the block is left out.
        """
        ...

    async def deletions(self, scope: Scope, *, limit: int, offset: int = 0) -> Sequence[Deletion]:
        """The trash: deletions whose block the scope may read, the latest first."""
        ...


class PutResult(Struct, frozen=True, kw_only=True):
    """How many blocks a write added, changed and left unchanged.

    Of an import, also the blocks whose readers were kept because it would have let more people read them, and those
    that fewer people may read than before.
    """

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    kept_readers: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()


class ImportAccess(Struct, frozen=True, kw_only=True):
    """Marks a write as an import, which never lets anybody read a stored block who may not read it now.

    A stored block keeps its readers if the import names none, or if its id is in `unchanged`: the import names the
    readers that it named last time, and others were set by hand since. Narrower readers are applied.
    """

    unchanged: frozenset[str] = frozenset()


class LinkTarget(Struct, frozen=True, kw_only=True):
    """The target of a link before it is looked up: a block by its id, a page by its name, or either.

    When both are given the id is tried first. `column` is the column of a relation.
    """

    kind: LinkKind
    id: str = ""
    page: str = ""
    column: str = ""


FindLinks: TypeAlias = Callable[[Block, Mapping[str, Json]], Sequence[LinkTarget]]
"""Finds the link targets of a block; the mapping is the schema of the database it is a row of, else empty."""


class StaleBlock(Struct, frozen=True, kw_only=True):
    """A block whose search record may differ from the store.

    `block` is None when it is deleted. `ancestors` are all its ancestors, regardless of access. `readers` are all
    principals that may read the block now or could read the version last written to the index. `number` grows with
    every write. `below` holds the blocks that a page's summary covers; None for other blocks, and when some reader of
    the page may not read them. `facts` are the stored facts, which may belong to an older text of the block.
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
    """Port: writes a workspace; each call is one transaction.

    A principal that may read a block may write it and add blocks below it; a block the scope may not read raises
    `NotFound`, like an unknown one. Every block that a call changes is listed by `stale` until it is settled, also
    after a restart; so is every page whose summary may change.
    """

    async def put(
        self, scope: Scope, blocks: Sequence[Block], *, now: datetime, importing: ImportAccess | None = None
    ) -> PutResult:
        """Write these blocks; a parent may follow its children. Raises `InvalidRequest` for a cycle.

        Raises `NotPermitted` for a block or a new parent that the scope may read but not edit, and for a change of
        rights by someone who does not manage the block; then a missing list of readers, editors or managers keeps the
        stored one. Raises `Conflict` for a block whose `version` is not the stored one.

        The author of a new block is the writer; missing times default to `now`. Each block that is new or changed is an
        edit by the writer, at the block's `modified` time. With `importing`, a block keeps the author that it names,
        nobody has edited it, and access is never widened; see `ImportAccess`. A block whose parent the scope may not
        read stays below it when it is written without a parent, as the scope has read it.
        """
        ...

    async def move(
        self, scope: Scope, block_id: str, *, parent: str | None, order: float, now: datetime, version: int = 0
    ) -> None:
        """Move a block with its subtree under another parent, or make it a root; inherited readers are updated.

        Raises `NotPermitted` unless the scope may edit the block and both parents, and manages the block if that
        changes who may read it. Raises `Conflict` if `version` is given and is not the stored one.
        """
        ...

    async def delete(
        self, scope: Scope, ids: Sequence[str], *, now: datetime, versions: Mapping[str, int] | None = None
    ) -> Sequence[str]:
        """Soft-delete these blocks with all below them that the scope may edit; returns the ids of what was deleted.

        Other blocks below them keep their readers and move to the nearest ancestor that remains. Raises `NotPermitted`
        for a block that the scope may read but not edit, and `Conflict` for one whose version differs from `versions`.
        """
        ...

    async def restore(self, scope: Scope, ids: Sequence[str]) -> int:
        """Restore these blocks with everything deleted in the same call; returns how many the scope may read.

        Blocks that the deletion moved return to their places, unless they were moved again.
        """
        ...

    async def view(self, scope: Scope, block_id: str, *, now: datetime) -> None:
        """Record that the scope's user viewed a block."""
        ...

    async def note(self, scope: Scope, deeds: Sequence[Activity]) -> None:
        """Record activity of users on blocks that the scope may read, as an imported workspace reports it."""
        ...

    async def purge(self, scope: Scope, *, before: datetime) -> int:
        """Delete permanently what was soft-deleted before `before` and the scope manages; returns how many blocks."""
        ...

    async def trash(self, scope: Scope, *, before: datetime) -> Sequence[str]:
        """The ids of all blocks that `purge` would delete permanently."""
        ...

    async def private(self, scope: Scope) -> Sequence[str]:
        """The ids of all blocks, deleted or not, that only the scope's user may read."""
        ...

    async def relatives(self, scope: Scope, ids: Sequence[str]) -> Sequence[str]:
        """Ids of these blocks, of all above and below them, and of those that link to them: where their text may show.

        Includes deleted blocks and those that the scope may not read; empty for blocks that it may not read.
        """
        ...

    async def erase(self, scope: Scope, ids: Sequence[str]) -> Sequence[str]:
        """Delete these blocks permanently with all below them, deleted or not, where the scope may read them.

        Returns the ids of everything that was deleted. When it returns, the texts are in no file of the store.
        """
        ...

    async def rights(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockRight]:
        """By id, the highest right of the scope to those of these blocks, deleted or not, that it may read."""
        ...

    async def scrub(self) -> None:
        """Remove what deleted rows left in the files of the store, such as the ids of erased blocks."""
        ...

    async def find_pages(self, scope: Scope, names: Sequence[str]) -> Mapping[str, Block]:
        """By name, the page, else the database, else the row with that title or alias, ties by id."""
        ...

    async def stale(self, *, limit: int, tenant: str | None = None) -> Sequence[StaleBlock]:
        """Up to `limit` blocks of a tenant, or of all, whose search records must be written, longest waiting first."""
        ...

    async def settle(self, done: Sequence[StaleBlock]) -> Sequence[StaleBlock]:
        """Confirm that the search records of these blocks were written as `stale` returned them.

        Their facts are stored, except for blocks that changed since. Returns, in their current state, those whose block
        or ancestors have changed since: all of them are stale again, even if another process, which may have written
        before this one did, had settled them.
        """
        ...

    def close(self) -> None:
        """Close the store."""
        ...


_DUE_NAMES = frozenset(("due", "duedate", "deadline", "срок"))
_DONE_WORDS = frozenset(
    "done complete completed closed cancelled canceled готово сделано выполнено завершено закрыто отменено".split()
)
LINKABLE_TYPES = (BlockType.PAGE, BlockType.DB, BlockType.DB_ROW)
"""Block types that can be linked by name; when two blocks share a name, the earlier type wins."""

_TASK_TYPES = (BlockType.TODO, BlockType.KANBAN_CARD, BlockType.DB_ROW)


def task_due(block: Block) -> datetime | None:
    """When a task is due, in UTC; a date without a time means its last microsecond. None when there is no due date.

    A row's column may also be called `Due date`, `Deadline` or `Срок`. For `start/end` the end is used; a value that is
    not a date is ignored.
    """
    if block.type not in _TASK_TYPES:
        return None
    given = block.properties.get("due")
    if given is None and block.type is BlockType.DB_ROW:
        given = next((value for name, value in block.properties.items() if _letters_only(name) in _DUE_NAMES), None)
    return parse_moment(given.rpartition("/")[2]) if isinstance(given, str) else None


def is_due_date(due: Json) -> bool:
    """Whether a value is a date or time in ISO form, or two of them as `start/end`."""
    return isinstance(due, str) and all(parse_moment(end) is not None for end in due.split("/"))


def parse_moment(text: str) -> datetime | None:
    """An ISO time in UTC; a date without a time becomes its last microsecond. None for any other text."""
    try:
        found = datetime.fromisoformat(text.strip())
        whole_day = len(text.strip()) <= len("2026-01-01")
        ends = datetime.combine(found.date(), time.max) if whole_day else found
        return ends.astimezone(UTC) if ends.tzinfo else ends.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def is_done(block: Block) -> bool:
    """Whether a task is done: by its `done` property, a check box such as `Done` or `Готово`, or its status."""
    done = block.properties.get("done")
    if isinstance(done, bool):
        return done
    return any(
        _letters_only(name) in _DONE_WORDS if value is True else isinstance(value, str) and means_done(value)
        for name, value in block.properties.items()
        if value is True or name.casefold() in (*STATUS_NAMES, "done")
    )


STATUS_NAMES = ("status", "статус")
"""Names of the property that has the status of a task, in lower case."""


def means_done(status: str) -> bool:
    """Whether a status says that a task is done, such as `Completed` or `Готово`."""
    return _letters_only(status) in _DONE_WORDS


CELL_CHARS = 100
"""Longest value, and longest name of a column, that blocks can be selected by."""

TASK_CELL, TYPE_CELL, PERSON_MARK = "#task", "#type", "@"
"""Names of the computed cells: whether a task is open or done, a block's type, and names of the people in a column."""

_MAX_CELLS = 200
_TYPED_CELLS = frozenset((*_TASK_TYPES, BlockType.DB, BlockType.PAGE))
_PERSON_COLUMNS = re.compile(
    r"assign|owner|responsib|person|people|participant|attendee|sender|recipient|reviewer|reporter|member"
    r"|исполнител|ответствен|владел|участник|автор|назначен|zuständig|verantwort|bearbeit|inhaber|eigentüm"
)
_NOT_PEOPLE = re.compile(r"customer|client|клиент|kunde")
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")


def is_person_column(name: str) -> bool:
    """Whether a column holds members of the workspace, by its name."""
    plain = plain_name(name)
    return _PERSON_COLUMNS.search(plain) is not None and _NOT_PEOPLE.search(plain) is None


def person_name(value: str) -> str:
    """The name of a person: that of an address is made of its local part, as `Ada Byron` of `ada.byron@example.org`."""
    if not _ADDRESS.fullmatch(value.strip()):
        return value
    parts = re.split(r"[._+-]+", value.strip().partition("@")[0])
    return " ".join(part[:1].upper() + part[1:] for part in parts if part and not part.isdigit()) or value


def is_task(block: Block) -> bool:
    """Whether a block is a task: a todo, a card, or a row that has a due date or is done or not."""
    if block.type is not BlockType.DB_ROW:
        return block.type in _TASK_TYPES
    return task_due(block) is not None or isinstance(block.properties.get("done"), bool)


def block_cells(block: Block) -> Sequence[tuple[str, str, str]]:
    """What a block can be selected by: column, value and the value it stands for, the first two normalised.

    A person can also be selected by parts of the name.
    """
    if block.type not in _TYPED_CELLS:
        return ()
    cells = [(TYPE_CELL, str(block.type), str(block.type))]
    if is_task(block):
        state = "done" if is_done(block) else "open"
        cells.append((TASK_CELL, state, state))
    if block.type in _TASK_TYPES:
        for column, given in block.properties.items():
            name = plain_name(column)[:CELL_CHARS]
            for value in _cell_texts(given):
                cells.append((name, plain_name(value), value))
                if is_person_column(name):
                    cells += [(f"{PERSON_MARK}{name}", part, plain_name(value)) for part in name_parts(value)]
    storable = (cell for cell in cells if cell[1] and all("\0" not in part and is_encodable(part) for part in cell))
    return tuple(dict.fromkeys(storable))[:_MAX_CELLS]


def is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def name_parts(value: str) -> Sequence[str]:
    """The texts that name a person: the address, the whole name and each word of it, normalised."""
    name = plain_name(person_name(value))
    words = [word for word in name.split() if len(word) > 1]
    return tuple(dict.fromkeys((plain_name(value), name, *words)))


def _cell_texts(given: Json) -> Iterator[str]:
    for value in given if isinstance(given, list) else [given]:
        if isinstance(value, bool) or value is None or isinstance(value, dict | list):
            continue
        text = str(value).strip()
        if 0 < len(text) <= CELL_CHARS:
            yield text


def link_names(block: Block) -> Sequence[str]:
    """The names that link to a page, database or row: its title and aliases, normalised by `plain_name`."""
    if block.type not in LINKABLE_TYPES:
        return ()
    given = block.properties.get("alias", block.properties.get("aliases", ""))
    aliases = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else []
    spellings = (block.text, *(each.strip().strip("[]") for each in aliases if isinstance(each, str)))
    return tuple(dict.fromkeys(name for name in map(plain_name, spellings) if name))


def plain_name(name: str) -> str:
    """A page's name normalised for links: case-folded, with runs of white space collapsed."""
    return " ".join(name.casefold().split())


def _letters_only(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
