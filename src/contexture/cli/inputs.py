"""Values from the command line and standard input, each refused with a clear sentence."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from contexture.types import Filter

STDIN = Path("-")


def where_of(text: str | None) -> Filter | None:
    """The filter that `--where` holds as JSON."""
    from contexture.filters import filter_from_json

    return None if text is None else filter_from_json(parsed(text, "--where"))


def parsed(text: str, source: str) -> Any:
    """The JSON in a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise InvalidRequest(f"{source} is not JSON: {failure}") from failure


def object_on_stdin() -> dict[str, Any]:
    """The JSON object on standard input."""
    found = parsed(decoded(read_bytes(STDIN), "standard input"), "standard input")
    if not isinstance(found, dict):
        raise InvalidRequest("the request on standard input must be a JSON object")
    return cast("dict[str, Any]", found)


def moment(text: str | None) -> datetime | None:
    """The ISO time that `--now` holds; one without a zone is UTC."""
    from contexture.ingestion.rows import parse_time

    return None if text is None else parse_time(text)


def read_bytes(path: Path) -> bytes:
    """The content of a file, or of standard input for `-`."""
    if path == STDIN:
        return _stdin()
    try:
        return path.read_bytes()
    except OSError as failure:
        raise InvalidRequest(f"cannot read {str(path)!r}: {failure.strerror}") from failure


def _stdin() -> bytes:
    stream = cast("TextIO | None", sys.stdin)  # None where a shell has closed it
    if stream is None or stream.isatty():
        raise InvalidRequest("nothing is on standard input; pipe something in, or name it on the command line")
    return stream.buffer.read()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file."""
    try:
        path.write_bytes(data)
    except OSError as failure:
        raise InvalidRequest(f"cannot write {str(path)!r}: {failure.strerror}") from failure


def decoded(data: bytes, source: str) -> str:
    """Bytes as text."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise InvalidRequest(f"{source} is not UTF-8: byte {failure.start}") from failure


def folder(path: Path) -> Path:
    """The same path, once it is sure that it is a folder."""
    if not path.is_dir():
        raise InvalidRequest(f"{str(path)!r} is not a folder")
    return path


def numbers(text: str, option: str) -> list[int]:
    """Whole numbers above 0, separated by commas."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InvalidRequest(f"{option} is {text!r}; give whole numbers such as 500,1000")
    return found
