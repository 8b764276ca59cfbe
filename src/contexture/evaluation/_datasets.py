"""Evaluation folders: a corpus, and questions with the records or spans that answer them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contexture.errors import InvalidRequest
from contexture.news.articles import Article
from contexture.types import PUBLIC, Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question, the ids of the records that answer it, the group it may search, and when it is asked.

    An adversarial one asks for something that was never said; its `gold` only looks like an answer.
    """

    id: str
    text: str
    gold: frozenset[str]
    group: str | None = None
    adversarial: bool = False
    asked: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanQuestion:
    """A question and the spans of one long text that answer it."""

    id: str
    text: str
    corpus: str
    spans: tuple[tuple[int, int], ...]


_ADVERSARIAL_CATEGORY = 5  # as dialogue sets number their kinds of questions
_DAY_CHARACTERS = len("2026-01-31")


def load_corpus(folder: Path) -> list[Record]:
    """Return the records of `corpus.jsonl`."""
    return [_parse_record(row) for row in _read_rows(folder / "corpus.jsonl", "id", "text")]


def load_questions(folder: Path) -> list[Question]:
    """Return the questions of `queries.jsonl`, including the unanswerable ones."""
    return [
        Question(
            id=str(row["id"]),
            text=row["text"],
            gold=frozenset(map(str, row["gold"])),
            group=row.get("group"),
            adversarial=row.get("category") == _ADVERSARIAL_CATEGORY,
            asked=_parse_time(row.get("asked")),
        )
        for row in _read_rows(folder / "queries.jsonl", "id", "text", "gold")
    ]


def load_articles(folder: Path) -> list[Article]:
    """Return the records of `corpus.jsonl` as news articles."""
    return [
        Article(
            article_id=str(row["id"]),
            title=row.get("title") or "",
            text=row["text"],
            url=row.get("url") or "",
            source=row.get("source") or "",
            published=_parse_time(row.get("date")),
            lang=row.get("lang") or "",
        )
        for row in _read_rows(folder / "corpus.jsonl", "id", "text")
    ]


def load_span_questions(folder: Path) -> list[SpanQuestion]:
    """The questions of `queries.jsonl` that name spans."""
    return [
        SpanQuestion(
            id=str(row["id"]),
            text=row["text"],
            corpus=row["corpus"],
            spans=tuple((int(start), int(end)) for start, end in row["spans"]),
        )
        for row in _read_rows(folder / "queries.jsonl", "id", "text", "corpus", "spans")
    ]


def load_texts(folder: Path) -> dict[str, str]:
    """The long texts in `corpora/*.md`, by name."""
    found = {path.stem: path.read_text("utf-8") for path in sorted((folder / "corpora").glob("*.md"))}
    if not found:
        raise InvalidRequest(f"{str(folder)!r} has no corpora/*.md")
    return found


def _read_rows(path: Path, *needed: str) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text("utf-8").split("\n")  # not splitlines: JSON strings may contain other line separators
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


def _parse_record(row: dict[str, Any]) -> Record:
    position = row.get("position")
    return Record(
        id=str(row["id"]),
        text=row["text"],
        acl=(PUBLIC,),
        title=row.get("title") or "",
        lang=row.get("lang") or "",
        source=row.get("source") or "",
        time=_parse_time(row.get("date")),
        session=str(row.get("session") or ""),
        position=position if isinstance(position, int) else None,
        payload={"group": row["group"]} if row.get("group") else {},
    )


def _parse_time(value: object) -> datetime | None:
    """Return the time of a row in UTC; of one with an invalid clock time the day, and None if that is invalid too."""
    text = str(value or "").strip().replace("/", "-")
    for form in (text, text[:_DAY_CHARACTERS]):
        try:
            found = datetime.fromisoformat(form)
        except ValueError:
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None
