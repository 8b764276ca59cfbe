"""A block store in memory: every read of the port, computed the slow and obvious way."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta

from msgspec.structs import replace

from contexture.types import PUBLIC, Scope
from contexture.workspace import (
    FOCUSED_SUMMARY_BLOCKS,
    LINKABLE_TYPES,
    PERSON_MARK,
    SUMMARY_DEPTH,
    SUMMARY_LEAVES,
    TASK_CELL,
    Activity,
    ActivityKind,
    Block,
    BlockFacts,
    BlockLink,
    BlockQuery,
    BlockRevision,
    BlockSelection,
    BlockType,
    BlockUsage,
    CellFilter,
    CellValue,
    ChangeFeed,
    Deletion,
    LinkKind,
    StaleBlock,
    block_cells,
    is_done,
    is_task,
    link_names,
    plain_name,
    task_due,
)

_MAX_DEPTH = 1_000


class InMemoryBlockStore:
    """Implements `BlockStore` for one tenant over fixed blocks; effective readers are computed from `readers`.

    InMemoryBlockStore([Block(id="p", type=BlockType.PAGE, text="Plans")], tenant="acme")
    """

    def __init__(
        self,
        blocks: Iterable[Block] = (),
        links: Iterable[BlockLink] = (),
        activity: Iterable[Activity] = (),
        *,
        tenant: str = "local",
        facts: Mapping[str, BlockFacts] | None = None,
    ) -> None:
        given = {block.id: block for block in blocks}
        self._tenant = tenant
        self._blocks = {id_: replace(block, acl=_effective_readers(block, given)) for id_, block in given.items()}
        self._links = tuple(links)
        self._activity = tuple(activity)
        self._facts = dict(facts or {})

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[Block]:
        """Those that exist, in the order asked for."""
        return [block for id_ in ids if (block := self._find(scope, id_)) is not None]

    async def ancestors(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, Sequence[Block]]:
        """By id, the parents upwards, up to the first hidden one."""
        return {
            id_: list(self._readable_ancestors(scope, block))
            for id_ in ids
            if (block := self._find(scope, id_)) is not None
        }

    async def siblings(self, scope: Scope, block_id: str, *, before: int, after: int) -> Sequence[Block]:
        """The nearest siblings, without the block itself."""
        block = self._find(scope, block_id)
        if block is None or block.parent is None:  # a hidden parent is none
            return []
        family = self._children(scope, block.parent)
        at = next((number for number, each in enumerate(family) if each.id == block_id), 0)
        return [*family[max(0, at - before) : at], *family[at + 1 : at + 1 + after]]

    async def children(self, scope: Scope, block_id: str, *, limit: int, after: Block | None = None) -> Sequence[Block]:
        """The first children in order, behind `after`."""
        if self._find(scope, block_id) is None:
            return []
        family = self._children(scope, block_id)
        return [each for each in family if after is None or _sort_key(each) > _sort_key(after)][:limit]

    async def subtree(
        self, scope: Scope, block_id: str, *, depth: int, limit: int, leaves: Sequence[BlockType] = ()
    ) -> Sequence[Block]:
        """Blocks below it in document order."""
        if self._find(scope, block_id) is None:
            return []
        return list(self._descendants(scope, block_id, depth, leaves))[:limit]

    async def subtrees(
        self, scope: Scope, limits: Mapping[str, int], *, depth: int, leaves: Sequence[BlockType] = ()
    ) -> Mapping[str, Sequence[Block]]:
        """By id, what `subtree` gives with its limit."""
        return {
            id_: await self.subtree(scope, id_, depth=depth, limit=most, leaves=leaves) for id_, most in limits.items()
        }

    async def links(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[BlockLink]:
        """Links from these blocks: relations first, then in the given order."""
        found = [link for id_ in dict.fromkeys(ids) for link in self._links if link.source == id_]
        mine = [link for link in found if self._may_follow(scope, link)]
        return sorted(mine, key=lambda link: link.kind is not LinkKind.RELATION)[:limit]

    async def backlinks(self, scope: Scope, ids: Sequence[str], *, limit: int) -> Sequence[BlockLink]:
        """Links to these blocks, the last modified source first."""
        wanted = set(ids)
        mine = [link for link in self._links if link.target in wanted and self._may_follow(scope, link)]
        return sorted(mine, key=lambda link: (-_timestamp(self._blocks[link.source].modified), link.source))[:limit]

    async def recent(self, scope: Scope, deed: ActivityKind, *, since: datetime, limit: int) -> Sequence[Activity]:
        """The user's latest activity of this kind, one per block."""
        newest: dict[str, Activity] = {}
        for each in self._own_activity(scope):
            known = newest.get(each.block_id)
            if each.deed is deed and each.time >= since and (known is None or known.time < each.time):
                newest[each.block_id] = each
        return sorted(newest.values(), key=lambda each: (-_timestamp(each.time), each.block_id))[:limit]

    async def touches(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockUsage]:
        """The user's edits, views and authorship of these blocks."""
        found = {block.id: self._usage(scope, block) for block in await self.get(scope, ids)}
        return {id_: touch for id_, touch in found.items() if touch != BlockUsage()}

    async def facts(self, scope: Scope, ids: Sequence[str]) -> Mapping[str, BlockFacts]:
        """The given facts of these blocks."""
        found = [block.id for block in await self.get(scope, ids)]
        return {id_: self._facts[id_] for id_ in found if id_ in self._facts}

    async def tasks(
        self, scope: Scope, *, due_before: datetime | None = None, open_only: bool = True, limit: int
    ) -> Sequence[Block]:
        """Tasks that have a due date, the earliest due first."""
        dated = [
            (due, block.id, block)
            for block in self._blocks.values()
            if self._may_read(scope, block)
            and (due := task_due(block)) is not None
            and (due_before is None or due < due_before)
            and not (open_only and is_done(block))
        ]
        return [self._hide_parent(scope, block) for *_, block in sorted(dated, key=lambda each: each[:2])][:limit]

    async def select(self, scope: Scope, query: BlockQuery, *, limit: int) -> BlockSelection:
        """Blocks that a query selects, with counts."""
        found = [block for block in self._blocks.values() if self._may_read(scope, block) and _matches(block, query)]
        found.sort(key=lambda block: _selection_key(block, newest=query.newest))
        groups = {name: _count_values(found, name) for name in query.group_by} if found else {}
        blocks = tuple(self._hide_parent(scope, block) for block in found[: max(0, limit)])
        return BlockSelection(blocks=blocks, total=len(found), groups=groups)

    async def find_values(self, scope: Scope, values: Sequence[str], *, limit: int) -> Sequence[CellValue]:
        """Columns that hold one of these values, and people it names."""
        cells = [cell for block in self._blocks.values() if self._may_read(scope, block) for cell in block_cells(block)]
        found: dict[CellValue, None] = {}
        for value in dict.fromkeys(values):
            for name, _, shown in sorted(cell for cell in cells if cell[1] == value):
                is_person = name.startswith(PERSON_MARK)
                plain = name.removeprefix(PERSON_MARK) if is_person else name
                found[CellValue(name=plain, value=shown if is_person else value, is_person=is_person)] = None
        return list(found)[:limit]

    async def changes(
        self, scope: Scope, *, since: datetime, until: datetime, users: Sequence[str] = (), limit: int
    ) -> ChangeFeed:
        """Blocks that changed, the latest change of each, newest first."""
        edits = [
            each for each in self._activity if each.deed is ActivityKind.EDIT and (not users or each.user in users)
        ]
        if not users:
            edits += [
                Activity(block_id=block.id, user="", deed=ActivityKind.EDIT, time=block.modified)
                for block in self._blocks.values()
                if block.modified is not None
            ]
        latest: dict[str, Activity] = {}
        for each in sorted(edits, key=lambda edit: (edit.time, edit.user)):
            if since <= each.time < until and self._find(scope, each.block_id) is not None:
                known = latest.get(each.block_id)
                latest[each.block_id] = each if each.user or known is None else replace(each, user=known.user)
        order = sorted(latest.values(), key=lambda each: (-each.time.timestamp(), each.block_id))
        return ChangeFeed(changes=tuple(order[:limit]), total=len(order))

    async def find_named(self, scope: Scope, name: str, *, limit: int) -> Sequence[Block]:
        """Pages, then databases, then rows with this title or alias."""
        wanted = plain_name(name)
        found = [each for each in self._blocks.values() if wanted in link_names(each) and self._may_read(scope, each)]
        found.sort(key=lambda block: (LINKABLE_TYPES.index(block.type), block.id))
        return [self._hide_parent(scope, block) for block in found[: max(0, limit)]]

    async def roots(self, scope: Scope, *, limit: int, after: Block | None = None) -> Sequence[Block]:
        """Blocks without a readable parent, in order."""
        mine = [self._hide_parent(scope, block) for block in self._blocks.values() if self._may_read(scope, block)]
        found = sorted((block for block in mine if block.parent is None), key=_sort_key)
        return [each for each in found if after is None or _sort_key(each) > _sort_key(after)][: max(0, limit)]

    async def history(self, scope: Scope, block_id: str, *, limit: int) -> Sequence[BlockRevision]:
        """The current version: blocks in memory do not change."""
        block = self._find(scope, block_id)
        if block is None or limit <= 0:
            return ()
        time = block.modified or datetime.min.replace(tzinfo=UTC)
        return [
            BlockRevision(
                version=block.version,
                type=block.type,
                text=block.text,
                properties=block.properties,
                user=block.author,
                time=time,
            )
        ]

    async def deletions(self, scope: Scope, *, limit: int, offset: int = 0) -> Sequence[Deletion]:  # noqa: ARG002 - see below
        """Nothing: blocks in memory are not deleted."""
        return ()

    def stale(self) -> Sequence[StaleBlock]:
        """Every block as stale, whoever may read it."""
        return [
            StaleBlock(
                number=number,
                tenant=self._tenant,
                id=block.id,
                readers=block.acl,
                block=block,
                ancestors=tuple(self._ancestors(block)),
                below=self._summary_source(block) if block.type is BlockType.PAGE else None,
            )
            for number, block in enumerate(self._blocks.values())
        ]

    def _summary_source(self, page: Block) -> tuple[Block, ...] | None:
        """The first blocks below a page, or None where one of them has other readers than the page."""
        found = list(self._descendants(None, page.id, SUMMARY_DEPTH, SUMMARY_LEAVES))[:FOCUSED_SUMMARY_BLOCKS]
        return tuple(found) if all(set(each.acl) == set(page.acl) for each in found) else None

    def _ancestors(self, block: Block) -> Iterator[Block]:
        for _ in range(_MAX_DEPTH):
            above = self._blocks.get(block.parent) if block.parent is not None else None
            if above is None:
                return
            yield above
            block = above

    def _find(self, scope: Scope, block_id: str) -> Block | None:
        block = self._blocks.get(block_id)
        return self._hide_parent(scope, block) if block is not None and self._may_read(scope, block) else None

    def _hide_parent(self, scope: Scope, block: Block) -> Block:
        """The block without its parent's id if the scope may not read the parent."""
        above = self._blocks.get(block.parent) if block.parent is not None else None
        return block if above is None or self._may_read(scope, above) else replace(block, parent=None)

    def _may_read(self, scope: Scope | None, block: Block) -> bool:
        """Whether a scope may read a block; None may read everything."""
        if scope is None:
            return True
        return scope.tenant == self._tenant and not set(block.acl).isdisjoint(scope.principals)

    def _may_follow(self, scope: Scope, link: BlockLink) -> bool:
        return self._find(scope, link.source) is not None and self._find(scope, link.target) is not None

    def _readable_ancestors(self, scope: Scope, block: Block) -> Iterator[Block]:
        above = block
        for _ in range(_MAX_DEPTH):
            found = self._find(scope, above.parent) if above.parent is not None else None
            if found is None:
                return
            yield found
            above = found

    def _children(self, scope: Scope | None, parent: str) -> list[Block]:
        mine = (block for block in self._blocks.values() if block.parent == parent and self._may_read(scope, block))
        return sorted(mine, key=_sort_key)

    def _descendants(
        self, scope: Scope | None, parent: str, depth: int, leaves: Sequence[BlockType] = ()
    ) -> Iterator[Block]:
        for child in self._children(scope, parent) if depth > 0 else ():
            yield child
            if child.type not in leaves:
                yield from self._descendants(scope, child.id, depth - 1, leaves)

    def _own_activity(self, scope: Scope) -> list[Activity]:
        return [
            each for each in self._activity if each.user == scope.user and self._find(scope, each.block_id) is not None
        ]

    def _usage(self, scope: Scope, block: Block) -> BlockUsage:
        mine = [each for each in self._own_activity(scope) if each.block_id == block.id]
        return BlockUsage(
            edits=sum(each.deed is ActivityKind.EDIT for each in mine),
            views=sum(each.deed is ActivityKind.VIEW for each in mine),
            last=max((each.time for each in mine), default=None),
            author=block.author == scope.user,
        )


def _matches(block: Block, query: BlockQuery) -> bool:
    """Whether a query selects a block, whoever asks."""
    cells = block_cells(block)
    names = {(name, value) for name, value, _ in cells}
    if not query.types and not query.databases and not query.cells and query.done is None and not is_task(block):
        return False
    if query.databases and block.parent not in query.databases:
        return False
    if query.types and block.type not in query.types:
        return False
    if query.done is not None and (TASK_CELL, "done" if query.done else "open") not in names:
        return False
    if not all(_has_cell(cells, cell) for cell in query.cells):
        return False
    due = task_due(block)
    if due is not None and due.time() == time.max:
        due -= timedelta(seconds=query.utc_offset)
    return _is_within(due, query.due_from, query.due_before) and _is_within(
        block.modified, query.modified_from, query.modified_before
    )


def _has_cell(cells: Sequence[tuple[str, str, str]], wanted: CellFilter) -> bool:
    return any(
        (not wanted.names or name in wanted.names)
        and (not wanted.values or value in wanted.values)
        and (not wanted.start or value >= wanted.start)
        and (not wanted.end or value < wanted.end)
        for name, value, _ in cells
    )


def _is_within(moment: datetime | None, start: datetime | None, end: datetime | None) -> bool:
    if start is None and end is None:
        return True
    return moment is not None and (start is None or moment >= start) and (end is None or moment < end)


def _selection_key(block: Block, *, newest: bool) -> tuple[float, float, float, str]:
    due, modified = task_due(block), -_timestamp(block.modified)
    soonest = float("inf") if due is None else due.timestamp()
    return (modified if newest else 0.0, soonest, modified, block.id)


def _count_values(blocks: Sequence[Block], name: str) -> dict[str, int]:
    spellings: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for block in blocks:
        mine = {value: shown for column, value, shown in sorted(block_cells(block), reverse=True) if column == name}
        counts.update(mine.keys())
        for value, shown in mine.items():
            spellings[value] = min(shown, spellings.get(value, shown))
    order = sorted(counts, key=lambda value: (-counts[value], spellings[value]))
    return {spellings[value]: counts[value] for value in order}


def _effective_readers(block: Block, blocks: Mapping[str, Block]) -> tuple[str, ...]:
    """Who may read a block: its own readers, or those of the nearest ancestor that has some."""
    for _ in range(_MAX_DEPTH):
        if block.readers is not None:
            return block.readers
        above = blocks.get(block.parent) if block.parent is not None else None
        if above is None:
            break
        block = above
    return (PUBLIC,)


def _sort_key(block: Block) -> tuple[float, str]:
    return (block.order, block.id)


def _timestamp(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()
