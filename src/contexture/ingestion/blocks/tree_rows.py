"""One block, or one deed, of our own JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import Draft
from contexture.ingestion.rows import parse_time
from contexture.types import Json
from contexture.workspace import Activity, BlockType, Deed

FIELDS = frozenset(
    "id type text parent order properties readers author created modified children "
    "due_days in_days created_days modified_hours".split()
)
"""What a block may say of itself."""

DEED_FIELDS = frozenset("block user deed time hours_ago".split())
"""What a deed may say of itself."""

_FARTHEST = 24 * 365 * 1_000  # hours


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A block with the parent it names, the order it asks for, and its place in the file."""

    draft: Draft
    parent: str | None
    order: float
    number: int


def node_from(row: object, *, parent: str | None, number: int, now: datetime) -> Node:
    """The block a row describes; `parent` is the block it stands in, else it may name one."""
    given = _object(row, FIELDS)
    draft = Draft(
        type=_type(given.get("type", "paragraph")),
        text=_text(given, "text"),
        properties=_properties(given, now),
        known=_text(given, "id"),
        readers=_readers(given.get("readers")),
        author=_text(given, "author"),
        created=_time(given, "created", "created_days", now, hours=24),
        modified=_time(given, "modified", "modified_hours", now, hours=1),
    )
    named = given.get("parent") if parent is None else parent
    if named is not None and not isinstance(named, str):
        raise InvalidRequest(f"field 'parent' must be the id of a block, not {named!r:.60}")
    order = given.get("order")
    return Node(
        draft=draft, parent=named, order=float(number) if order is None else _number("order", order), number=number
    )


def deed_from(row: object, now: datetime) -> Activity:
    """The deed a row describes."""
    given = _object(row, DEED_FIELDS)
    block, user = _text(given, "block"), _text(given, "user")
    deed = given.get("deed")
    time = _time(given, "time", "hours_ago", now, hours=1)
    if not block or not user or deed not in list(Deed) or time is None:
        raise InvalidRequest("a deed needs `block`, `user`, `deed` (edit or view) and `time` or `hours_ago`")
    return Activity(block_id=block, user=user, deed=Deed(str(deed)), time=time)


def _object(row: object, fields: frozenset[str]) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InvalidRequest(f"must be an object, not {row!r:.60}")
    found = cast("dict[str, Any]", row)
    strange = sorted(set(found) - fields)
    if strange:
        raise InvalidRequest(f"unknown field {strange[0]!r}; known are {', '.join(sorted(fields))}")
    return found


def _type(given: object) -> BlockType:
    if given not in list(BlockType):
        raise InvalidRequest(f"field 'type' is {given!r:.60}; known are {', '.join(BlockType)}")
    return BlockType(str(given))


def _text(row: Mapping[str, Any], name: str) -> str:
    found = row.get(name, "")
    if not isinstance(found, str):
        raise InvalidRequest(f"field {name!r} must be a text, not {found!r:.60}")
    return found


def _properties(row: Mapping[str, Any], now: datetime) -> dict[str, Json]:
    """The properties, with the dates that are said as days from now."""
    given, offsets = row.get("properties", {}), row.get("in_days", {})
    if not isinstance(given, dict) or not isinstance(offsets, dict):
        raise InvalidRequest("fields 'properties' and 'in_days' must be objects")
    dates = {name: _day(f"in_days.{name}", value, now) for name, value in cast("dict[str, object]", offsets).items()}
    due = {"due": _day("due_days", row["due_days"], now)} if "due_days" in row else {}
    return {**cast("dict[str, Json]", given), **dates, **due}


def _day(name: str, value: object, now: datetime) -> str:
    return (now + timedelta(days=_number(name, value))).date().isoformat()


def _readers(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(name, str) and name for name in cast("list[object]", given)):
        raise InvalidRequest(f"field 'readers' must be a list of principals such as 'user:anna', not {given!r:.60}")
    return tuple(cast("list[str]", given))


def _time(row: Mapping[str, Any], name: str, ago: str, now: datetime, *, hours: int) -> datetime | None:
    """A time, or how long ago it was."""
    if row.get(name) is not None:
        return parse_time(row[name])
    return None if row.get(ago) is None else now - timedelta(hours=_number(ago, row[ago]) * hours)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(f"field {name!r} must be a number, not {value!r:.60}")
    if abs(value) > _FARTHEST:
        raise InvalidRequest(f"field {name!r} is {value!r:.60}, which is too far away")
    return value
