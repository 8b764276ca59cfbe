"""Reads blocks and activity from our own JSON: a list or a nested tree; dates may be offsets from now."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItems, walk_drafts
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.files import LoadProblem
from contexture.ingestion.records import parse_time
from contexture.types import Json
from contexture.workspace import Activity, ActivityKind, BlockType


def read_json_tree(file: SourceFile, *, now: datetime, readers: tuple[str, ...] | None = None) -> ImportItems:
    """Yield a document per root; `readers` applies to roots that name none.

    The file contains a list of blocks, or an object with `blocks` and `activity`. A block contains its children, or
    they name it as `parent`. A block that cannot be parsed is a problem, and its children move to its parent; a block
    in a parent cycle is moved to the top level.
    """
    try:
        whole: object = msgspec.json.decode(file.text)
    except (msgspec.DecodeError, RecursionError) as failure:
        yield LoadProblem(path=file.path, message=f"not JSON: {failure}")
        return
    rows, deeds = _split_parts(whole)
    if rows is None or deeds is None:
        yield LoadProblem(path=file.path, message="neither a list of blocks nor an object with `blocks`")
        return
    reader = _TreeReader(file, now)
    reader.add_rows(rows)
    yield from reader.problems
    yield from reader.build_documents(readers)
    yield from reader.parse_activity(deeds)


def _split_parts(whole: object) -> tuple[list[object] | None, list[object] | None]:
    """Return the blocks and the activity of a file; None for each that is not a list."""
    if isinstance(whole, list):
        return cast("list[object]", whole), []
    found = cast("dict[str, object]", whole) if isinstance(whole, dict) else {}
    blocks, deeds = found.get("blocks"), found.get("activity", [])
    return (
        cast("list[object]", blocks) if isinstance(blocks, list) else None,
        cast("list[object]", deeds) if isinstance(deeds, list) else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _PendingRows:
    rows: list[object]
    parent: str | None
    place: str


class _TreeReader:
    def __init__(self, file: SourceFile, now: datetime) -> None:
        self._file = file
        self._now = now
        self._nodes: dict[str, TreeNode] = {}
        self.problems: list[LoadProblem] = []

    def add_rows(self, rows: list[object]) -> None:
        """Read every block of a nested list, at any depth."""
        waiting = [_PendingRows(rows=rows, parent=None, place="blocks")]
        while waiting:
            level = waiting.pop()
            for number, row in enumerate(level.rows):
                place = f"{level.place}[{number}]"
                name = self._add_row(row, level.parent, number, place)
                inside = cast("dict[str, object]", row).get("children") if isinstance(row, dict) else None
                if isinstance(inside, list):
                    above = level.parent if name is None else name
                    waiting.append(_PendingRows(rows=cast("list[object]", inside), parent=above, place=place))

    def build_documents(self, readers: tuple[str, ...] | None) -> Iterator[DraftDocument | LoadProblem]:
        """Yield the trees, with the blocks of each in order."""
        below: dict[str | None, list[str]] = {}
        for name, node in self._nodes.items():
            below.setdefault(node.parent, []).append(name)
        for names in below.values():
            names.sort(key=lambda name: (self._nodes[name].order, self._nodes[name].number))
        for name, node in self._nodes.items():
            node.draft.children.extend(self._nodes[child].draft for child in below.get(name, ()))
        seen: set[str] = set()
        for name, node in self._nodes.items():
            if node.parent is None or node.parent not in self._nodes:
                yield self._build_document(name, node.parent, readers, seen)
        yield from self._cut_cycles(readers, seen)

    def parse_activity(self, rows: list[object]) -> Iterator[Activity | LoadProblem]:
        """Yield who edited and viewed which block."""
        for number, row in enumerate(rows):
            try:
                yield parse_activity_row(row, self._now)
            except InvalidRequest as failure:
                yield LoadProblem(path=self._file.path, message=f"activity[{number}]: {failure}")

    def _add_row(self, row: object, parent: str | None, number: int, place: str) -> str | None:
        """Add one block; returns its id, or None if it cannot be parsed."""
        where = f"{self._file.path}#{place}"
        try:
            node = parse_block_row(row, parent=parent, number=number, now=self._now)
        except InvalidRequest as failure:
            self.problems.append(LoadProblem(path=where, message=str(failure)))
            return None
        name = node.draft.known or f"\0{place}"
        if name in self._nodes:
            self.problems.append(LoadProblem(path=where, message=f"id {name!r} was read before; the first is kept"))
            return None
        self._nodes[name] = node
        return name

    def _build_document(
        self, name: str, under: str | None, readers: tuple[str, ...] | None, seen: set[str]
    ) -> DraftDocument:
        node = self._nodes[name]
        seen.update(draft.known for draft, _ in walk_drafts(node.draft))
        draft = node.draft
        if draft.readers is None and under is None and readers is not None:
            draft = replace(draft, readers=readers)
        path = f"{self._file.path}#{name.removeprefix(chr(0))}"
        return DraftDocument(path=path, root=draft, under=under, order=node.order)

    def _cut_cycles(self, readers: tuple[str, ...] | None, seen: set[str]) -> Iterator[DraftDocument | LoadProblem]:
        for name, node in self._nodes.items():
            if node.draft.known and node.draft.known not in seen:
                parent = self._nodes[node.parent or ""]
                parent.draft.children[:] = [child for child in parent.draft.children if child is not node.draft]
                message = f"block {name!r} is its own descendant; it was put at the top level"
                yield LoadProblem(path=self._file.path, message=message, warning=True)
                yield self._build_document(name, None, readers, seen)


BLOCK_FIELDS = frozenset(
    "id type text parent order properties readers author created modified children "
    "due_days in_days created_days modified_hours".split()
)
"""Fields of a block row."""

ACTIVITY_FIELDS = frozenset("block user deed time hours_ago".split())
"""Fields of an activity row."""

_MAX_OFFSET_HOURS = 24 * 365 * 1_000  # hours


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeNode:
    """A block draft with the parent it names, its order, and its position in the file."""

    draft: BlockDraft
    parent: str | None
    order: float
    number: int


def parse_block_row(row: object, *, parent: str | None, number: int, now: datetime) -> TreeNode:
    """Parse a block row; `parent` is the block that contains it, otherwise the row may name one."""
    given = _require_object(row, BLOCK_FIELDS)
    draft = BlockDraft(
        type=_parse_type(given.get("type", "paragraph")),
        text=_parse_text(given, "text"),
        properties=_parse_properties(given, now),
        known=_parse_text(given, "id"),
        readers=_parse_readers(given.get("readers")),
        author=_parse_text(given, "author"),
        created=_parse_row_time(given, "created", "created_days", now, hours=24),
        modified=_parse_row_time(given, "modified", "modified_hours", now, hours=1),
    )
    named = given.get("parent") if parent is None else parent
    if named is not None and not isinstance(named, str):
        raise InvalidRequest(f"field 'parent' must be the id of a block, not {named!r:.60}")
    order = given.get("order")
    return TreeNode(
        draft=draft,
        parent=named,
        order=float(number) if order is None else _parse_number("order", order),
        number=number,
    )


def parse_activity_row(row: object, now: datetime) -> Activity:
    """Parse an activity row."""
    given = _require_object(row, ACTIVITY_FIELDS)
    block, user = _parse_text(given, "block"), _parse_text(given, "user")
    deed = given.get("deed")
    time = _parse_row_time(given, "time", "hours_ago", now, hours=1)
    if not block or not user or deed not in list(ActivityKind) or time is None:
        raise InvalidRequest("an activity entry needs `block`, `user`, `deed` (edit or view) and `time` or `hours_ago`")
    return Activity(block_id=block, user=user, deed=ActivityKind(str(deed)), time=time)


def _require_object(row: object, fields: frozenset[str]) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InvalidRequest(f"must be an object, not {row!r:.60}")
    found = cast("dict[str, Any]", row)
    strange = sorted(set(found) - fields)
    if strange:
        raise InvalidRequest(f"unknown field {strange[0]!r}; the known fields are {', '.join(sorted(fields))}")
    return found


def _parse_type(given: object) -> BlockType:
    if given not in list(BlockType):
        raise InvalidRequest(f"field 'type' is {given!r:.60}; the known types are {', '.join(BlockType)}")
    return BlockType(str(given))


def _parse_text(row: Mapping[str, Any], name: str) -> str:
    found = row.get(name, "")
    if not isinstance(found, str):
        raise InvalidRequest(f"field {name!r} must be a string, not {found!r:.60}")
    return found


def _parse_properties(row: Mapping[str, Any], now: datetime) -> dict[str, Json]:
    """Return the properties, with relative dates (days from now) resolved."""
    given, offsets = row.get("properties", {}), row.get("in_days", {})
    if not isinstance(given, dict) or not isinstance(offsets, dict):
        raise InvalidRequest("fields 'properties' and 'in_days' must be objects")
    dates = {
        name: _offset_date(f"in_days.{name}", value, now) for name, value in cast("dict[str, object]", offsets).items()
    }
    due = {"due": _offset_date("due_days", row["due_days"], now)} if "due_days" in row else {}
    return {**cast("dict[str, Json]", given), **dates, **due}


def _offset_date(name: str, value: object, now: datetime) -> str:
    return (now + timedelta(days=_parse_number(name, value))).date().isoformat()


def _parse_readers(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(name, str) and name for name in cast("list[object]", given)):
        raise InvalidRequest(f"field 'readers' must be a list of principals such as 'user:anna', not {given!r:.60}")
    return tuple(cast("list[str]", given))


def _parse_row_time(row: Mapping[str, Any], name: str, ago: str, now: datetime, *, hours: int) -> datetime | None:
    """Return a time, given as such or as an age."""
    if row.get(name) is not None:
        return parse_time(row[name])
    return None if row.get(ago) is None else now - timedelta(hours=_parse_number(ago, row[ago]) * hours)


def _parse_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(f"field {name!r} must be a number, not {value!r:.60}")
    if abs(value) > _MAX_OFFSET_HOURS:
        raise InvalidRequest(f"field {name!r} is {value!r:.60}, which is out of range")
    return value
