"""Filters, sorts, groups and aggregates the rows of a database, or the tasks of a workspace."""

from __future__ import annotations

import base64
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from typing_extensions import TypedDict

from contexture.errors import InvalidRequest
from contexture.results import FreeJson
from contexture.types import Json, Scope
from contexture.workspace import (
    CELL_CHARS,
    Block,
    BlockQuery,
    BlockStore,
    BlockType,
    CellFilter,
    is_done,
    is_person_column,
    name_parts,
    parse_moment,
    plain_name,
    task_due,
)

MAX_ROWS = 20_000
"""Rows that one query may select before its limit."""

_ME = "me"


class AggregateFunction(StrEnum):
    """How the values of a column become one."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class ColumnFilter(Struct, frozen=True, kw_only=True):
    """A condition on a column; all conditions that are given hold.

    ColumnFilter(column="status", any_of=("Doing", "Review"))

    `column` is a property, or `title`, `due`, `done`, `created`, `modified`, `author` or `type`. Texts are compared
    without case; a person is equal to each of the names and the address, and `me` is the caller. `start` is included,
    `before` is not.
    """

    column: str
    any_of: tuple[Json, ...] = ()
    contains: str = ""
    start: Json = None
    before: Json = None
    empty: bool | None = None


class SortKey(Struct, frozen=True, kw_only=True):
    """A column to sort by; blocks without a value come last."""

    column: str
    descending: bool = False


class Aggregate(Struct, frozen=True, kw_only=True):
    """A function over the values of a column."""

    column: str
    function: AggregateFunction


class TableQuery(Struct, frozen=True, kw_only=True):
    """A query over the rows of a database, or over tasks."""

    filters: tuple[ColumnFilter, ...] = ()
    sort: tuple[SortKey, ...] = ()
    group_by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()


class GroupJson(TypedDict):
    """A value of a column, how many blocks have it, and their aggregates, named such as `sum(cost)`."""

    value: str
    count: int
    aggregates: FreeJson


class TableResult(Struct, frozen=True, kw_only=True):
    """The blocks that a query selects, in order, with groups by column and aggregates of all of them."""

    blocks: tuple[Block, ...]
    groups: Mapping[str, Sequence[GroupJson]]
    aggregates: Mapping[str, Json]


_Value: TypeAlias = float | str | datetime


async def query_table(store: BlockStore, scope: Scope, query: TableQuery, *, database: str = "") -> TableResult:
    """Run a query over the rows of a database that the scope may read, or without one over the tasks.

    Raises `InvalidRequest` if more than `MAX_ROWS` are selected.
    """
    selection = await store.select(scope, _narrow(query, database), limit=MAX_ROWS + 1)
    if selection.total > MAX_ROWS:
        raise InvalidRequest(f"{selection.total} blocks are selected, and at most {MAX_ROWS} can be; add filters")
    me = frozenset({plain_name(scope.user)})
    found = [block for block in selection.blocks if all(_holds(block, each, me) for each in query.filters)]
    for key in reversed(query.sort):
        found = _sort_blocks(found, key)
    return TableResult(
        blocks=tuple(found),
        groups={column: list(_group(found, column, query.aggregates)) for column in query.group_by},
        aggregates=_aggregate(found, query.aggregates),
    )


def _narrow(query: TableQuery, database: str) -> BlockQuery:
    """The part of a query that the store can answer; the conditions are checked again afterwards."""
    cells = [
        CellFilter(names=(plain_name(each.column),), values=tuple(plain_name(str(value)) for value in each.any_of))
        for each in query.filters
        if each.any_of and all(isinstance(value, str) for value in each.any_of) and _is_stored_cell(each)
    ]
    done = next((each.any_of[0] for each in query.filters if plain_name(each.column) == "done" and each.any_of), None)
    return BlockQuery(
        databases=(database,) if database else (),
        types=(BlockType.DB_ROW,) if database else (),
        done=done if isinstance(done, bool) and not database else None,
        cells=tuple(cells),
    )


def _is_stored_cell(condition: ColumnFilter) -> bool:
    """Whether the store keeps the values of the column as they are compared here."""
    column = plain_name(condition.column)
    short = all(0 < len(str(value).strip()) <= CELL_CHARS for value in condition.any_of)
    return short and column not in _COMPUTED and not is_person_column(column)


def _read_title(block: Block) -> Json:
    return block.text


_COMPUTED: Mapping[str, Callable[[Block], Json | datetime]] = {
    "title": _read_title,
    "text": _read_title,
    "due": task_due,
    "done": is_done,
    "created": lambda block: block.created,
    "modified": lambda block: block.modified,
    "author": lambda block: block.author,
    "type": lambda block: str(block.type),
}


def _values(block: Block, column: str) -> list[Json | datetime]:
    """The values of a block in a column; a list has several."""
    name = plain_name(column)
    own = next((value for key, value in block.properties.items() if plain_name(key) == name), None)
    if name in _COMPUTED and (own is None or name in ("due", "done")):
        own = _COMPUTED[name](block)  # pyright: ignore[reportAssignmentType] - a time is a value too
    many = own if isinstance(own, list) else [own]
    return [value for value in many if value is not None and value != ""]


def _holds(block: Block, condition: ColumnFilter, me: frozenset[str]) -> bool:
    values = _values(block, condition.column)
    if condition.empty is not None and condition.empty != (not values):
        return False
    if condition.any_of and not any(_equals(condition.column, value, condition.any_of, me) for value in values):
        return False
    wanted = plain_name(condition.contains)
    if wanted and not any(wanted in plain_name(_as_text(value)) for value in values):
        return False
    if condition.start is None and condition.before is None:
        return True
    return any(_is_between(value, condition) for value in values)


def _equals(column: str, value: Json | datetime, wanted: Sequence[Json], me: frozenset[str]) -> bool:
    names = set(name_parts(value)) if isinstance(value, str) and is_person_column(column) else set[str]()
    names.add(plain_name(_as_text(value)))
    asked = {plain_name(_as_text(each)) for each in wanted}
    if _ME in asked and (is_person_column(column) or plain_name(column) == "author"):
        asked |= me
    number, numbers = _as_number(value), {_as_number(each) for each in wanted}
    return not names.isdisjoint(asked) or (number is not None and number in numbers)


def _is_between(value: Json | datetime, condition: ColumnFilter) -> bool:
    """Whether a value is in a range; it is compared as a number or a time if all three are one, else as a text."""
    low = value if condition.start is None else condition.start
    high = value if condition.before is None else condition.before
    numbers = [_as_number(each) for each in (low, value, high)]
    moments = [_as_moment(each) for each in (low, value, high)]
    keys: list[list[tuple[float | str | datetime]]] = [
        [(each,) for each in values if each is not None] for values in (numbers, moments)
    ]
    keys.append([(plain_name(_as_text(each)),) for each in (low, value, high)])
    first, middle, last = next(each for each in keys if len(each) == len(numbers))
    return first <= middle and (condition.before is None or middle < last)  # pyright: ignore[reportOperatorIssue] - of one type


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).casefold() if isinstance(value, bool) else str(value)


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _as_moment(value: object) -> datetime | None:
    """A time; a day without a time is its first moment, so that ranges of days contain whole days."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or parse_moment(value.rpartition("/")[2]) is None:
        return None
    found = datetime.fromisoformat(value.rpartition("/")[2].strip())
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _comparable(value: Json | datetime) -> tuple[int, _Value]:
    """A key by which values of one column are ordered: numbers, then times, then texts."""
    number = _as_number(value)
    if number is not None:
        return (0, number)
    moment = _as_moment(value)
    return (1, moment) if moment is not None else (2, plain_name(_as_text(value)))


def _sort_blocks(blocks: Sequence[Block], key: SortKey) -> list[Block]:
    first = {block.id: _comparable(values[0]) for block in blocks if (values := _values(block, key.column))}
    having = [block for block in blocks if block.id in first]
    having.sort(key=lambda block: first[block.id], reverse=key.descending)
    return [*having, *(block for block in blocks if block.id not in first)]


def _group(blocks: Sequence[Block], column: str, aggregates: Sequence[Aggregate]) -> Iterator[GroupJson]:
    """The most frequent value first; blocks without one are the group of the empty text."""
    groups: dict[str, list[Block]] = defaultdict(list)
    shown: dict[str, str] = {}
    for block in blocks:
        for value in _values(block, column) or [""]:
            text = _as_text(value)
            shown.setdefault(plain_name(text), text)
            groups[plain_name(text)].append(block)
    for name in sorted(groups, key=lambda each: (-len(groups[each]), each)):
        mine = groups[name]
        yield GroupJson(value=shown[name], count=len(mine), aggregates=dict(_aggregate(mine, aggregates)))


def _aggregate(blocks: Sequence[Block], aggregates: Sequence[Aggregate]) -> Mapping[str, Json]:
    return {f"{each.function}({each.column})": _compute(blocks, each) for each in aggregates}


def _compute(blocks: Sequence[Block], aggregate: Aggregate) -> Json:
    """The value of an aggregate; sums and averages are of the numbers in a column, None without any."""
    values = [value for block in blocks for value in _values(block, aggregate.column)]
    if aggregate.function is AggregateFunction.COUNT:
        return len(values)
    numbers = [number for value in values if (number := _as_number(value)) is not None]
    match aggregate.function:
        case AggregateFunction.SUM:
            return _tidy(math.fsum(numbers)) if numbers else None
        case AggregateFunction.AVG:
            return _tidy(math.fsum(numbers) / len(numbers)) if numbers else None
        case AggregateFunction.MIN:
            return _as_json(min(values, key=_comparable)) if values else None
        case _:
            return _as_json(max(values, key=_comparable)) if values else None


def _as_json(value: Json | datetime) -> Json:
    return value.isoformat() if isinstance(value, datetime) else value


def _tidy(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def encode_cursor(*parts: str | float) -> str:
    """An opaque cursor of these parts."""
    return base64.urlsafe_b64encode("\n".join(map(str, parts)).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *, parts: int) -> list[str]:
    """The parts of a cursor; raises `InvalidRequest` for a text that is none."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError as failure:
        raise InvalidRequest(f"{cursor!r} is not a cursor; leave it out, or give the `next` of an answer") from failure
    found = text.split("\n", parts - 1)
    if len(found) != parts:
        raise InvalidRequest(f"{cursor!r} is not a cursor; leave it out, or give the `next` of an answer")
    return found
