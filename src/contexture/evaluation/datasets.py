"""Evaluation folders: a corpus, and questions that say what should be found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from contexture.errors import InvalidRequest
from contexture.types import PUBLIC, Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question, the ids of the records that answer it, and the group it may search."""

    id: str
    text: str
    gold: frozenset[str]
    group: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanQuestion:
    """A question and the stretches of one long text that answer it."""

    id: str
    text: str
    corpus: str
    spans: tuple[tuple[int, int], ...]


def corpus(folder: Path) -> list[Record]:
    """The records of `corpus.jsonl`."""
    return [_record(row) for row in _rows(folder / "corpus.jsonl", "id", "text")]


def questions(folder: Path) -> list[Question]:
    """The questions of `queries.jsonl`, the unanswerable ones included."""
    return [
        Question(id=str(row["id"]), text=row["text"], gold=frozenset(map(str, row["gold"])), group=row.get("group"))
        for row in _rows(folder / "queries.jsonl", "id", "text", "gold")
    ]


def span_questions(folder: Path) -> list[SpanQuestion]:
    """The questions of `queries.jsonl` that name spans."""
    return [
        SpanQuestion(
            id=str(row["id"]),
            text=row["text"],
            corpus=row["corpus"],
            spans=tuple((int(start), int(end)) for start, end in row["spans"]),
        )
        for row in _rows(folder / "queries.jsonl", "id", "text", "corpus", "spans")
    ]


def texts(folder: Path) -> dict[str, str]:
    """The long texts in `corpora/*.md`, by name."""
    found = {path.stem: path.read_text("utf-8") for path in sorted((folder / "corpora").glob("*.md"))}
    if not found:
        raise InvalidRequest(f"{str(folder)!r} has no corpora/*.md")
    return found


def _rows(path: Path, *needed: str) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text("utf-8").split("\n")  # not splitlines: JSON texts may hold other line separators
    except OSError as failure:
        raise InvalidRequest(f"cannot read {str(path)!r}: {failure.strerror}") from failure
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as failure:
            raise InvalidRequest(f"{path}:{number}: not JSON: {failure}") from failure
        if not isinstance(row, dict) or any(name not in row for name in needed):
            raise InvalidRequest(f"{path}:{number}: a row needs {', '.join(needed)}")
        yield row  # pyright: ignore[reportUnknownVariableType]


def _record(row: dict[str, Any]) -> Record:
    position = row.get("position")
    return Record(
        id=str(row["id"]),
        text=row["text"],
        acl=(PUBLIC,),
        title=row.get("title") or "",
        lang=row.get("lang") or "",
        source=row.get("source") or "",
        time=_time(row.get("date")),
        session=str(row.get("session") or ""),
        position=position if isinstance(position, int) else None,
        payload={"group": row["group"]} if row.get("group") else {},
    )


def _time(value: object) -> datetime | None:
    """The date of a row; what is no ISO time counts as missing, since ranking does not depend on it."""
    try:
        return datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return None
