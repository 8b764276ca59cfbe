"""What the evaluations share: folders of questions with their answers, measures of a ranking, a temporary engine."""

import json
import math
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from collections.abc import Collection as AbstractCollection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contexture import wiring
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.news.articles import Article
from contexture.types import PUBLIC, Collection, FieldType, Record


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


Offsets = tuple[int, int]


def ndcg(ranking: Sequence[str], gold: AbstractCollection[str], k: int) -> float:
    """Discounted gain of the first `k`, as a share of the best possible."""
    gain = sum(1 / math.log2(rank + 2) for rank, found in enumerate(ranking[:k]) if found in gold)
    best = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(gold))))
    return gain / best if best else 0.0


def recall(ranking: Sequence[str], gold: AbstractCollection[str], k: int) -> float:
    """Share of the gold among the first `k`."""
    return len(set(ranking[:k]) & set(gold)) / len(gold) if gold else 0.0


def reciprocal_rank(ranking: Sequence[str], gold: AbstractCollection[str], k: int) -> float:
    """One over the rank of the first gold among the first `k`; 0 when there is none."""
    return next((1 / rank for rank, found in enumerate(ranking[:k], start=1) if found in gold), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))] if ordered else 0.0


def mean(values: Sequence[float]) -> float:
    """The average; 0 for none."""
    return sum(values) / len(values) if values else 0.0


def merge_spans(spans: Sequence[Offsets]) -> list[Offsets]:
    """The same characters as non-overlapping spans, in order."""
    found: list[Offsets] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def count_characters(spans: Sequence[Offsets]) -> int:
    """The number of characters in non-overlapping spans."""
    return sum(end - start for start, end in spans)


def count_overlap(left: Sequence[Offsets], right: Sequence[Offsets]) -> int:
    """The number of characters in both lists of non-overlapping spans."""
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in left for b in right)


ProgressCallback = Callable[[str, int, int], None]

COLLECTION = "evaluation"

_BATCH_SIZE = 64
_PATIENCE_SECONDS = 600.0


def ignore_progress(task: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""
    del task, done, total


@asynccontextmanager
async def open_temporary_engine(
    records: Sequence[Record], settings: Settings, progress: ProgressCallback
) -> AsyncGenerator[Contexture]:
    """An engine over the records alone, in a temporary folder that is deleted afterwards.

    Embeddings are cached in the home of `settings`, so that a second run only searches.
    """
    folder = Path(tempfile.mkdtemp(prefix="contexture-eval-"))
    try:
        encoders = wiring.encoders(settings)
        # An evaluation measures what is found, however busy the machine is.
        own = {"home": folder, "keep_builds": 0, "collection": COLLECTION, "timeout_seconds": _PATIENCE_SECONDS}
        here = settings.model_copy(update=own)
        store = await wiring.index(here, encoders)
        engine = Contexture(here, store, encoders)
        await engine.create(Collection(name=COLLECTION, fields={"group": FieldType.KEYWORD}))
        await _load_records(engine, records, progress)
        yield engine
        await engine.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _load_records(engine: Contexture, records: Sequence[Record], progress: ProgressCallback) -> None:
    for at in range(0, len(records), _BATCH_SIZE):
        await engine.add(records[at : at + _BATCH_SIZE])
        progress("load", min(at + _BATCH_SIZE, len(records)), len(records))
    await engine.index.optimize()
