"""Reads records from files: JSONL rows, Markdown and text files.

A file or row that cannot be read yields a `LoadProblem` with its path and line; reading continues with the others.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Required, TypeAlias, cast

import msgspec
from msgspec import Meta
from typing_extensions import TypedDict

from contexture.errors import InvalidRequest
from contexture.ingestion.files import FoundFile, LoadItems, LoadProblem, SourcedRecord, walk_files
from contexture.text.unicode import is_valid_unicode, repair_text
from contexture.types import PUBLIC, Record, check_principal


def read_records(paths: Sequence[Path], *, acl: tuple[str, ...] = (PUBLIC,), skip: Collection[str] = ()) -> LoadItems:
    """Yield records and problems of files and folders, in the order of the paths and then by name.

    A JSONL file yields a record per line, a Markdown or text file one record. A file that is named itself is read as
    text whatever its extension; below a folder, files of other kinds are reported as warnings. Files with an extension
    in `skip` (lower case, without the dot) are skipped, because another loader reads them.
    """
    for path in paths:
        for found in walk_files(path):
            if isinstance(found, LoadProblem):
                yield found
            elif found.path.suffix.lower().removeprefix(".") not in skip:
                yield from _read_file(found, acl, named=found.path == path)


def _read_file(leaf: FoundFile, acl: tuple[str, ...], *, named: bool) -> LoadItems:
    suffix = leaf.path.suffix.lower()
    if suffix in JSONL_SUFFIXES:
        return read_jsonl(leaf.path, name=leaf.name, acl=acl)
    if named or suffix in TEXT_SUFFIXES:
        return read_text_file(leaf.path, name=leaf.name, acl=acl)
    reason = f"files of kind {suffix or leaf.path.name!r} are not loaded"
    return iter([LoadProblem(path=leaf.name, message=reason, warning=True)])


JSONL_SUFFIXES = frozenset({".jsonl", ".ndjson"})
MAX_LINE_BYTES = 64 * 2**20
"""Maximum length of a line in bytes; a longer one is reported and skipped."""


def read_jsonl(
    path: Path, *, name: str = "", acl: tuple[str, ...] = (PUBLIC,), longest: int = MAX_LINE_BYTES
) -> LoadItems:
    """Yield the records of a JSONL file in order, and a problem with its line number for every invalid line.

    A row has `id` and `text`, and may have `title`, `lang`, `source`, `kind`, `session`, `position`, `acl` and an ISO
    `date`, `time`, `timestamp` or `created_at`; all other fields become its payload. A time that cannot be parsed is a
    warning, and the row is loaded without it. `name` is the name of the file in problems.
    """
    shown = name or str(path)
    try:
        with path.open("rb") as file:
            for number, line in iter_lines(file, longest):
                yield from _parse_line(line, shown, number, acl)
    except OSError as failure:
        yield LoadProblem(path=shown, message=f"cannot be read: {failure.strerror}")


def parse_row(line: bytes) -> dict[str, Any]:
    """Parse the JSON object on one line; raises `InvalidRequest` for anything else."""
    try:
        row = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as failure:
        raise InvalidRequest(f"invalid UTF-8 at byte {failure.start}") from failure
    except RecursionError as failure:
        raise InvalidRequest("nested too deeply") from failure
    except ValueError as failure:
        raise InvalidRequest(f"not JSON: {failure}") from failure
    if not isinstance(row, dict):
        raise InvalidRequest(f"a row must be an object, not a {type(row).__name__}")
    return cast("dict[str, Any]", row)


def _parse_line(line: bytes | None, path: str, number: int, acl: tuple[str, ...]) -> LoadItems:
    if line is None:
        yield LoadProblem(path=path, line=number, message="the line is too long to be read")
        return
    try:
        record, warnings = row_to_record(parse_row(line), acl=acl)
    except InvalidRequest as failure:
        yield LoadProblem(path=path, line=number, message=str(failure))
        return
    found = SourcedRecord(record=record, path=path, line=number)
    yield from (found.problem(message, warning=True) for message in warnings)
    yield found


def iter_lines(file: BinaryIO, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield lines that are not blank, with their numbers; None stands for a line that is too long."""
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        whole = line.endswith(b"\n") or len(line) <= longest
        while not line.endswith(b"\n") and len(line) > longest:
            line = file.readline(longest + 1)
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not whole:
            yield number, None
        elif text.strip():
            yield number, text


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


TEXT_SUFFIXES = frozenset({".md", ".markdown", ".txt", ".text", ".rst"})
MAX_FILE_BYTES = 64 * 2**20
"""Maximum size of a file in bytes; a larger one is reported."""

_BINARY_SAMPLE_BYTES = 8_192
_HEADING = re.compile(r"#{1,6}[ \t]+(.+?)[ \t#]*$")
_FENCE = re.compile(r"[ ]{0,3}(```|~~~)")


def read_text_file(
    path: Path, *, name: str = "", acl: tuple[str, ...] = (PUBLIC,), largest: int = MAX_FILE_BYTES
) -> LoadItems:
    """Read a file as one record: its id is `name`, its title the first Markdown heading or the file name.

    Bytes that are not UTF-8 are replaced by U+FFFD and reported; a binary file is reported and not loaded.
    """
    shown = name or path.name
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except OSError as failure:
        yield LoadProblem(path=shown, message=f"cannot be read: {failure.strerror}")
        return
    if reason := _rejection_reason(shown, data, largest):
        yield LoadProblem(path=shown.encode("utf-8", "replace").decode(), message=reason)
        return
    text = data.decode("utf-8-sig", "replace")
    found = SourcedRecord(record=Record(id=shown, text=text, acl=acl, title=find_title(text, path)), path=shown)
    if "\ufffd" in text and not _is_utf8(data):
        yield found.problem("some bytes are not UTF-8 and were replaced", warning=True)
    yield found


def find_title(text: str, path: Path) -> str:
    """Return the first heading outside code, or the file name."""
    fenced = False
    for line in text.splitlines() if path.suffix.lower() in {".md", ".markdown"} else ():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line)):
            return heading[1]
    return path.name


def _rejection_reason(name: str, data: bytes, largest: int) -> str:
    """Return why a file is not loaded; empty if it is."""
    if not is_valid_unicode(name):
        return "the file's name is not valid Unicode"
    if len(data) > largest:
        return f"larger than {largest} bytes; split it, or load it as JSONL"
    return "a binary file, not text" if b"\0" in data[:_BINARY_SAMPLE_BYTES] else ""


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


TIME_FIELDS = ("date", "time", "timestamp", "created_at")
TEXT_FIELDS = ("title", "lang", "source", "kind", "session")

_TimeField: TypeAlias = Annotated[
    str, Meta(description="Its time, as an ISO date or time; the first of these names that can be read.")
]


class RecordRow(TypedDict, total=False):
    """A record as a row of a JSONL file; all further fields are its payload."""

    id: Required[Annotated[str, Meta(description="Its id within the collection.")]]
    text: Required[Annotated[str, Meta(description="Its text.")]]
    acl: Annotated[list[str], Meta(description="Principals that may read it, such as `user:anna` or `public`.")]
    title: Annotated[str, Meta(description="Its title.")]
    lang: Annotated[str, Meta(description="Its language, such as `en`; detected if left out.")]
    source: Annotated[str, Meta(description="Where it comes from.")]
    kind: Annotated[str, Meta(description="What it is, `document` if left out.")]
    session: Annotated[str, Meta(description="The session that it belongs to.")]
    position: Annotated[int, Meta(description="Its place in the session.")]
    date: _TimeField
    time: _TimeField
    timestamp: _TimeField
    created_at: _TimeField


_MAX_INTEGER = 2**63  # larger integers cannot be stored


def row_to_record(row: Mapping[str, Any], *, acl: tuple[str, ...]) -> tuple[Record, tuple[str, ...]]:
    """Convert a row to a record, and return warnings for fields that were ignored.

    `acl` applies if the row has none of its own. Raises `InvalidRequest` for a row that cannot be loaded. That includes
    an invalid `acl`, because guessing it could show the record to anyone.
    """
    time, left, warnings = _parse_first_time(row)
    known = {"id", "text", "acl", "position", *TEXT_FIELDS}
    texts = {name: repair_text(_require_text(row, name)) for name in TEXT_FIELDS if row.get(name) is not None}
    record = Record(
        id=_require_id(row),
        text=_require_text(row, "text"),
        acl=_parse_acl(row, acl),
        time=time,
        position=_parse_position(row),
        payload=_check_payload({name: value for name, value in left.items() if name not in known}),
        **texts,
    )
    if not (record.text.strip() or record.title.strip()):
        warnings = (*warnings, "there is neither text nor title, so no search can find it")
    return record, warnings


def record_to_row(record: Record) -> dict[str, Any]:
    """Return a row that `row_to_record` converts back to this record."""
    texts = {name: value for name in TEXT_FIELDS if (value := getattr(record, name))}
    # The first time field has priority when read back; the payload may contain the others.
    time = {TIME_FIELDS[0]: record.time.isoformat()} if record.time else {}
    place = {} if record.position is None else {"position": record.position}
    return {**record.payload, "id": record.id, "text": record.text, "acl": list(record.acl), **texts, **time, **place}


def _require_id(row: Mapping[str, Any]) -> str:
    found = _require_text(row, "id")
    if not found or not is_valid_unicode(found):
        raise InvalidRequest(f"field 'id' must be a non-empty string of valid Unicode, not {found!r}")
    return found


def _require_text(row: Mapping[str, Any], name: str) -> str:
    if row.get(name) is None:
        raise InvalidRequest(f"field {name!r} is missing")
    if not isinstance(row[name], str):
        raise InvalidRequest(f"field {name!r} must be a string, not {_short_repr(row[name])}")
    return row[name]


def _parse_acl(row: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    found = row.get("acl")
    if found is None:
        return default
    if not isinstance(found, list):
        raise InvalidRequest(f"field 'acl' must be a list of principals such as 'user:anna', not {_short_repr(found)}")
    names = cast("list[object]", found)
    readers = tuple(name for name in names if isinstance(name, str) and name and is_valid_unicode(name))
    if len(readers) != len(names):
        raise InvalidRequest(f"field 'acl' may contain only principals such as 'user:anna', not {_short_repr(names)}")
    for name in readers:
        check_principal("field 'acl'", name)
    return readers


def _parse_position(row: Mapping[str, Any]) -> int | None:
    found = row.get("position")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or abs(found) >= _MAX_INTEGER:
        raise InvalidRequest(f"field 'position' must be a whole number, not {_short_repr(found)}")
    return found


def _parse_first_time(row: Mapping[str, Any]) -> tuple[datetime | None, dict[str, Any], tuple[str, ...]]:
    """Return the first valid time, the row without the time fields tried, and a warning for each invalid one."""
    left, warnings = dict(row), list[str]()
    for name in TIME_FIELDS:
        value = left.pop(name, None)
        if value is None or value == "":
            continue
        try:
            return parse_time(value), left, tuple(warnings)
        except InvalidRequest as failure:
            warnings.append(f"field {name!r} is ignored: {failure}")
    return None, left, tuple(warnings)


def parse_time(value: object) -> datetime:
    """Parse an ISO date or time as UTC; one without a zone is taken as UTC."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        if found is not None:
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(
        f"{_short_repr(value)} is not an ISO date or time such as '2026-01-31' or '2026-01-31T09:00:00Z'"
    )


def _check_payload(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        msgspec.msgpack.encode(fields)
    except (OverflowError, UnicodeEncodeError, RecursionError) as failure:
        raise InvalidRequest(f"a further field cannot be stored: {failure}") from failure
    return fields


def _short_repr(value: object) -> str:
    """The repr of a value, cut to fit into one line of a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - what fits beside the rest of the message
