"""Records from JSONL files: one object a line, each line judged by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from contexture.errors import InvalidRequest
from contexture.ingestion.problems import Items, Problem, Sourced
from contexture.ingestion.rows import record_of
from contexture.types import PUBLIC

SUFFIXES = frozenset({".jsonl", ".ndjson"})
LONGEST = 64 * 2**20
"""Bytes up to which a line is read; a longer one is reported and passed over."""


def read_jsonl(path: Path, *, name: str = "", acl: tuple[str, ...] = (PUBLIC,), longest: int = LONGEST) -> Items:
    """The records of a JSONL file in order, and a problem with its line number for every line that is not one.

    A row has `id` and `text`, and may have `title`, `lang`, `source`, `kind`, `session`, `position`, `acl` and an ISO
    `date`, `time`, `timestamp` or `created_at`; all other fields become its payload. A time that cannot be read is a
    warning, and the row is loaded without it. `name` is how the file is called in problems.
    """
    shown = name or str(path)
    try:
        with path.open("rb") as file:
            for number, line in lines(file, longest):
                yield from _items(line, shown, number, acl)
    except OSError as failure:
        yield Problem(path=shown, message=f"cannot be read: {failure.strerror}")


def parse_row(line: bytes) -> dict[str, Any]:
    """The object on one line; raises `InvalidRequest` for anything else."""
    try:
        row = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError as failure:
        raise InvalidRequest(f"invalid UTF-8 at byte {failure.start}") from failure
    except RecursionError as failure:
        raise InvalidRequest("nested too deeply") from failure
    except ValueError as failure:
        raise InvalidRequest(f"not JSON: {failure}") from failure
    if not isinstance(row, dict):
        raise InvalidRequest(f"a row must be an object, not a {type(row).__name__}")
    return cast("dict[str, Any]", row)


def _items(line: bytes | None, path: str, number: int, acl: tuple[str, ...]) -> Items:
    if line is None:
        yield Problem(path=path, line=number, message="the line is too long to be read")
        return
    try:
        record, warnings = record_of(parse_row(line), acl=acl)
    except InvalidRequest as failure:
        yield Problem(path=path, line=number, message=str(failure))
        return
    found = Sourced(record=record, path=path, line=number)
    yield from (found.problem(message, warning=True) for message in warnings)
    yield found


def lines(file: BinaryIO, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """Lines that are not blank, with their numbers; None stands for one that is too long."""
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


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")
