"""Reads our own JSON: blocks as a list or a nested tree, with dates that may be offsets from now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

import msgspec

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.draft import Document, Reading, drafts
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.blocks.tree_rows import Node, deed_from, node_from
from contexture.ingestion.problems import Problem
from contexture.workspace import Activity


def read_tree(file: SourceFile, *, now: datetime, readers: tuple[str, ...] | None = None) -> Reading:
    """A document per root; `readers` are for roots that name none.

    The file holds a list of blocks, or an object with `blocks` and `activity`. A block has its children inside, or
    they name it as `parent`. A block that cannot be read is a problem, and what it holds goes to its parent; one of
    a cycle is put at the top.
    """
    try:
        whole: object = msgspec.json.decode(file.text)
    except (msgspec.DecodeError, RecursionError) as failure:
        yield Problem(path=file.path, message=f"not JSON: {failure}")
        return
    rows, deeds = _parts(whole)
    if rows is None or deeds is None:
        yield Problem(path=file.path, message="neither a list of blocks nor an object with `blocks`")
        return
    reader = _Tree(file, now)
    reader.take(rows)
    yield from reader.problems
    yield from reader.documents(readers)
    yield from reader.activity(deeds)


def _parts(whole: object) -> tuple[list[object] | None, list[object] | None]:
    """The blocks and the deeds of a file; None for what is no list."""
    if isinstance(whole, list):
        return cast("list[object]", whole), []
    found = cast("dict[str, object]", whole) if isinstance(whole, dict) else {}
    blocks, deeds = found.get("blocks"), found.get("activity", [])
    return (
        cast("list[object]", blocks) if isinstance(blocks, list) else None,
        cast("list[object]", deeds) if isinstance(deeds, list) else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Waiting:
    rows: list[object]
    parent: str | None
    place: str


class _Tree:
    def __init__(self, file: SourceFile, now: datetime) -> None:
        self._file = file
        self._now = now
        self._nodes: dict[str, Node] = {}
        self.problems: list[Problem] = []

    def take(self, rows: list[object]) -> None:
        """Read every block of a nested list, however deep."""
        waiting = [_Waiting(rows=rows, parent=None, place="blocks")]
        while waiting:
            level = waiting.pop()
            for number, row in enumerate(level.rows):
                place = f"{level.place}[{number}]"
                name = self._one(row, level.parent, number, place)
                inside = cast("dict[str, object]", row).get("children") if isinstance(row, dict) else None
                if isinstance(inside, list):
                    above = level.parent if name is None else name
                    waiting.append(_Waiting(rows=cast("list[object]", inside), parent=above, place=place))

    def documents(self, readers: tuple[str, ...] | None) -> Iterator[Document | Problem]:
        """The trees, the blocks of each in order."""
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
                yield self._document(name, node.parent, readers, seen)
        yield from self._cut_cycles(readers, seen)

    def activity(self, rows: list[object]) -> Iterator[Activity | Problem]:
        """Who edited and viewed what."""
        for number, row in enumerate(rows):
            try:
                yield deed_from(row, self._now)
            except InvalidRequest as failure:
                yield Problem(path=self._file.path, message=f"activity[{number}]: {failure}")

    def _one(self, row: object, parent: str | None, number: int, place: str) -> str | None:
        """Keep one block; its name, or None when it cannot be read."""
        where = f"{self._file.path}#{place}"
        try:
            node = node_from(row, parent=parent, number=number, now=self._now)
        except InvalidRequest as failure:
            self.problems.append(Problem(path=where, message=str(failure)))
            return None
        name = node.draft.known or f"\0{place}"
        if name in self._nodes:
            self.problems.append(Problem(path=where, message=f"id {name!r} was read before; the first is kept"))
            return None
        self._nodes[name] = node
        return name

    def _document(self, name: str, under: str | None, readers: tuple[str, ...] | None, seen: set[str]) -> Document:
        node = self._nodes[name]
        seen.update(draft.known for draft, _ in drafts(node.draft))
        draft = node.draft
        if draft.readers is None and under is None and readers is not None:
            draft = replace(draft, readers=readers)
        path = f"{self._file.path}#{name.removeprefix(chr(0))}"
        return Document(path=path, root=draft, under=under, order=node.order)

    def _cut_cycles(self, readers: tuple[str, ...] | None, seen: set[str]) -> Iterator[Document | Problem]:
        for name, node in self._nodes.items():
            if node.draft.known and node.draft.known not in seen:
                parent = self._nodes[node.parent or ""]
                parent.draft.children[:] = [child for child in parent.draft.children if child is not node.draft]
                message = f"block {name!r} stands below itself; it was put at the top"
                yield Problem(path=self._file.path, message=message, warning=True)
                yield self._document(name, None, readers, seen)
