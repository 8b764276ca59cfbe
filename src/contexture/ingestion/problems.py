"""What can go wrong with one row or file, said in one line with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from contexture.types import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that was wrong, and where; `line` is 0 when the whole file is meant.

    A `warning` was worked around and the record is loaded; anything else is not.
    """

    path: str
    message: str
    line: int = 0
    warning: bool = False

    def __str__(self) -> str:
        """`path:line: message`, as compilers say it."""
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sourced:
    """A record and the place it was read from."""

    record: Record
    path: str
    line: int = 0

    def problem(self, message: str, *, warning: bool = False) -> Problem:
        """Something that is wrong with this record."""
        return Problem(path=self.path, line=self.line, message=message, warning=warning)


Item: TypeAlias = Sourced | Problem
Items: TypeAlias = Iterator[Item]
