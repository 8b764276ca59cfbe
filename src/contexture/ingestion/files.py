"""Records from Markdown and text files, each file one record."""

from __future__ import annotations

import re
from pathlib import Path

from contexture.ingestion.problems import Items, Problem, Sourced
from contexture.retrieval.prepare import valid
from contexture.types import PUBLIC, Record

SUFFIXES = frozenset({".md", ".markdown", ".txt", ".text", ".rst"})
LARGEST = 64 * 2**20
"""Bytes up to which a file is read; a larger one is reported."""

_SAMPLE = 8_192
_HEADING = re.compile(r"#{1,6}[ \t]+(.+?)[ \t#]*$")
_FENCE = re.compile(r"[ ]{0,3}(```|~~~)")


def read_file(path: Path, *, name: str = "", acl: tuple[str, ...] = (PUBLIC,), largest: int = LARGEST) -> Items:
    """One record: its id is `name`, its title the first heading of a Markdown file or the file's name.

    Bytes that are not UTF-8 are replaced by U+FFFD and reported; a binary file is reported and not loaded.
    """
    shown = name or path.name
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except OSError as failure:
        yield Problem(path=shown, message=f"cannot be read: {failure.strerror}")
        return
    if reason := _unfit(shown, data, largest):
        yield Problem(path=shown.encode("utf-8", "replace").decode(), message=reason)
        return
    text = data.decode("utf-8-sig", "replace")
    found = Sourced(record=Record(id=shown, text=text, acl=acl, title=title_of(text, path)), path=shown)
    if "\ufffd" in text and not _decodes(data):
        yield found.problem("some bytes are not UTF-8 and were replaced", warning=True)
    yield found


def title_of(text: str, path: Path) -> str:
    """The first heading outside code, or the file's name."""
    fenced = False
    for line in text.splitlines() if path.suffix.lower() in {".md", ".markdown"} else ():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line)):
            return heading[1]
    return path.name


def _unfit(name: str, data: bytes, largest: int) -> str:
    """Why a file is not loaded; empty when it is."""
    if not valid(name):
        return "the file's name is not valid Unicode"
    if len(data) > largest:
        return f"larger than {largest} bytes; split it, or load it as JSONL"
    return "a binary file, not a text" if b"\0" in data[:_SAMPLE] else ""


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
