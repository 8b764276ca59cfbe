"""The outline of a Logseq page: blocks by bullets and indentation in Markdown, by stars in Org."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BULLET = re.compile(r"([ \t]*)-(?:[ \t]+(.*)|)$")
_STARS = re.compile(r"(\*+)[ \t]+(.*)$")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_TAB = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A block of an outline as raw lines, without its bullet and indentation; `line` is where it begins."""

    lines: list[str]
    line: int
    depth: int
    children: list[Item] = field(default_factory=list["Item"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """What stands before the first block, and the blocks."""

    head: list[str]
    items: list[Item]


def markdown_outline(text: str) -> Outline:
    """Bullets with `-` make blocks; what is indented below one belongs to it, code with bullets in it too."""
    lines = text.split("\n")
    head: list[str] = []
    flat: list[Item] = []
    fenced = _Fences(lines)
    for number, line in enumerate(lines):
        found = None if fenced.covers(number) else _BULLET.match(line)
        if found is not None:
            flat.append(Item(lines=[found[2] or ""], line=number + 1, depth=_width(found[1])))
        elif flat:
            flat[-1].lines.append(_unindented(line, flat[-1].depth + 2))
        else:
            head.append(line)
    return Outline(head=head, items=_nested(flat))


def org_outline(text: str) -> Outline:
    """Headings with stars make blocks; all below one up to the next belongs to it."""
    head: list[str] = []
    flat: list[Item] = []
    for number, line in enumerate(text.split("\n")):
        found = _STARS.match(line)
        if found is not None:
            flat.append(Item(lines=[found[2]], line=number + 1, depth=len(found[1])))
        elif flat:
            flat[-1].lines.append(line.removeprefix(" " * (flat[-1].depth + 1)))
        else:
            head.append(line)
    return Outline(head=head, items=_nested(flat))


class _Fences:
    """Which lines are inside a code fence; one that is not closed before the outline goes on opens nothing."""

    def __init__(self, lines: list[str]) -> None:
        self._covered: set[int] = set()
        at, depth = 0, -1
        while at < len(lines):
            bullet = _BULLET.match(lines[at])
            content = (bullet[2] or "") if bullet else lines[at]
            depth = _width(bullet[1]) if bullet else depth
            opened = _FENCE.match(content)
            end = self._end(lines, at, opened[1], depth) if opened else None
            if end is not None:
                self._covered.update(range(at + 1, end + 1))
                at = end
            at += 1

    def covers(self, number: int) -> bool:
        return number in self._covered

    @staticmethod
    def _end(lines: list[str], start: int, fence: str, depth: int) -> int | None:
        for at in range(start + 1, len(lines)):
            stripped = lines[at].strip()
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                return at
            bullet = _BULLET.match(lines[at])
            if bullet is not None and _width(bullet[1]) <= depth:
                return None
        return None


def _nested(flat: list[Item]) -> list[Item]:
    roots: list[Item] = []
    above: list[Item] = []
    for item in flat:
        while above and above[-1].depth >= item.depth:
            above.pop()
        (above[-1].children if above else roots).append(item)
        above.append(item)
    return roots


def _width(indent: str) -> int:
    return sum(_TAB if sign == "\t" else 1 for sign in indent)


def _unindented(line: str, width: int) -> str:
    """The line without up to `width` columns of indentation."""
    at = done = 0
    while at < len(line) and line[at] in " \t" and done < width:
        done += _TAB if line[at] == "\t" else 1
        at += 1
    return line[at:]
