"""One row of JSON as a record: known fields by name and type, the rest as payload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from contexture.errors import InvalidRequest
from contexture.retrieval.prepare import mended, valid
from contexture.types import Record

TIMES = ("date", "time", "timestamp", "created_at")
TEXTS = ("title", "lang", "source", "kind", "session")

_LARGEST = 2**63  # beyond it a whole number has no place in the store


def record_of(row: Mapping[str, Any], *, acl: tuple[str, ...]) -> tuple[Record, tuple[str, ...]]:
    """The record a row describes, and what had to be ignored in it.

    `acl` holds where the row has none of its own. Raises `InvalidRequest` for a row that cannot be
    loaded; an unreadable `acl` is such a case, because guessing it could show the record to anyone.
    """
    time, left, warnings = _time(row)
    known = {"id", "text", "acl", "position", *TEXTS}
    texts = {name: mended(_text(row, name)) for name in TEXTS if row.get(name) is not None}
    record = Record(
        id=_id(row),
        text=_text(row, "text"),
        acl=_acl(row, acl),
        time=time,
        position=_position(row),
        payload=_payload({name: value for name, value in left.items() if name not in known}),
        **texts,
    )
    if not (record.text.strip() or record.title.strip()):
        warnings = (*warnings, "there is neither text nor title, so no search can find it")
    return record, warnings


def row_of(record: Record) -> dict[str, Any]:
    """A row that `record_of` reads as this record."""
    texts = {name: value for name in TEXTS if (value := getattr(record, name))}
    # The first of the time fields, because the others may be among the payload.
    time = {TIMES[0]: record.time.isoformat()} if record.time else {}
    place = {} if record.position is None else {"position": record.position}
    return {**record.payload, "id": record.id, "text": record.text, "acl": list(record.acl), **texts, **time, **place}


def _id(row: Mapping[str, Any]) -> str:
    found = _text(row, "id")
    if not found or not valid(found):
        raise InvalidRequest(f"field 'id' must be a text that is not empty and valid Unicode, not {found!r}")
    return found


def _text(row: Mapping[str, Any], name: str) -> str:
    if row.get(name) is None:
        raise InvalidRequest(f"field {name!r} is missing")
    if not isinstance(row[name], str):
        raise InvalidRequest(f"field {name!r} must be a text, not {_shown(row[name])}")
    return row[name]


def _acl(row: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    found = row.get("acl")
    if found is None:
        return default
    if not isinstance(found, list):
        raise InvalidRequest(f"field 'acl' must be a list of principals such as 'user:anna', not {_shown(found)}")
    names = cast("list[object]", found)
    readers = tuple(name for name in names if isinstance(name, str) and name and valid(name))
    if len(readers) != len(names):
        raise InvalidRequest(f"field 'acl' may hold principals such as 'user:anna' only, not {_shown(names)}")
    return readers


def _position(row: Mapping[str, Any]) -> int | None:
    found = row.get("position")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or abs(found) >= _LARGEST:
        raise InvalidRequest(f"field 'position' must be a whole number, not {_shown(found)}")
    return found


def _time(row: Mapping[str, Any]) -> tuple[datetime | None, dict[str, Any], tuple[str, ...]]:
    """The first readable time, the row without the fields looked at, and the unreadable ones."""
    left, warnings = dict(row), list[str]()
    for name in TIMES:
        value = left.pop(name, None)
        if value is None or value == "":
            continue
        try:
            return parse_time(value), left, tuple(warnings)
        except InvalidRequest as failure:
            warnings.append(f"field {name!r} is ignored: {failure}")
    return None, left, tuple(warnings)


def parse_time(value: object) -> datetime:
    """An ISO date or time in UTC; one without a zone is read as UTC."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        if found is not None:
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(f"{_shown(value)} is not an ISO date or time such as '2026-01-31' or '2026-01-31T09:00:00Z'")


def _payload(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        msgspec.msgpack.encode(fields)
    except (OverflowError, UnicodeEncodeError, RecursionError) as failure:
        raise InvalidRequest(f"a further field cannot be stored: {failure}") from failure
    return fields


def _shown(value: object) -> str:
    """A value short enough for one line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - what fits beside the rest of the message
