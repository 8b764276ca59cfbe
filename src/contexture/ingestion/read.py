"""Every record below some paths, each file read by the reader for its kind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from contexture.ingestion import files, jsonl
from contexture.ingestion.problems import Items, Problem
from contexture.ingestion.walk import Leaf, walk
from contexture.types import PUBLIC


def read(paths: Sequence[Path], *, acl: tuple[str, ...] = (PUBLIC,), skip: Collection[str] = ()) -> Items:
    """Records and problems of files and folders, in the order of the paths and then by name.

    JSONL files give a record a line, Markdown and text files one each. A file that is named itself
    is read as text whatever its suffix; below a folder, files of other kinds are reported as warnings.
    Files that end with one of `skip`, lower case and without the dot, are passed over: someone else reads them.
    """
    for path in paths:
        for found in walk(path):
            if isinstance(found, Problem):
                yield found
            elif found.path.suffix.lower().removeprefix(".") not in skip:
                yield from _read(found, acl, named=found.path == path)


def _read(leaf: Leaf, acl: tuple[str, ...], *, named: bool) -> Items:
    suffix = leaf.path.suffix.lower()
    if suffix in jsonl.SUFFIXES:
        return jsonl.read_jsonl(leaf.path, name=leaf.name, acl=acl)
    if named or suffix in files.SUFFIXES:
        return files.read_file(leaf.path, name=leaf.name, acl=acl)
    reason = f"files of kind {suffix or leaf.path.name!r} are not loaded"
    return iter([Problem(path=leaf.name, message=reason, warning=True)])
