"""Whether a workspace context holds the records that answers name: mail, events, tasks and customers as databases."""

from __future__ import annotations

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.evaluation.bench import Progress, loaded, silent
from contexture.evaluation.metrics import mean
from contexture.ingestion.blocks.draft import Document
from contexture.ingestion.blocks.load import import_blocks
from contexture.ingestion.blocks.run import WorkspaceWriter
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.blocks.tables import Columns, read_table

NOW = datetime(2023, 11, 30, tzinfo=UTC)
"""The day on which the questions are asked; "tomorrow" and "overdue" count from it."""

_NAMED = re.compile(r"(email|event|task|customer)_id=\"(\d+)\"")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A CSV file as a database: its title, what its columns say, and which records its ids name."""

    file: str
    title: str
    names: str
    columns: Columns


TABLES = (
    Table(
        file="emails.csv",
        title="Emails",
        names="email",
        columns=Columns(title="subject", id="email_id", modified="sent_datetime"),
    ),
    Table(
        file="calendar_events.csv",
        title="Calendar: meetings and events",
        names="event",
        columns=Columns(title="event_name", id="event_id"),
    ),
    Table(
        file="project_tasks.csv",
        title="Project tasks",
        names="task",
        columns=Columns(title="task_name", id="task_id", due="due_date", done=("list_name", ("Completed",))),
    ),
    Table(
        file="customer_relationship_manager_data.csv",
        title="CRM: customers and leads",
        names="customer",
        columns=Columns(title="customer_name", id="customer_id"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A question, the records that its answer names, and the file it is from."""

    query: str
    named: frozenset[str]
    domain: str


def databases(folder: Path) -> Iterator[Document]:
    """The tables; a row's id is such as `task:00000149`."""
    for table in TABLES:
        path = folder / table.file
        found = read_table(
            SourceFile(path=table.file, text=_text(path)), columns=table.columns, title=table.title, known=table.names
        )
        rows = [replace(row, known=f"{table.names}:{row.key}", key="") for row in found.root.children]
        yield replace(found, root=replace(found.root, children=rows))


def tasks(folder: Path) -> list[Task]:
    """The questions whose answers name records; the others need none, or none that is stored."""
    found: list[Task] = []
    for path in sorted((folder / "queries_and_answers").glob("*.csv")):
        for row in csv.DictReader(_text(path).splitlines(keepends=True)):
            calls = " ".join(cast("list[str]", ast.literal_eval(row["answer"])))
            named = frozenset(f"{kind}:{number}" for kind, number in _NAMED.findall(calls))
            if named:
                found.append(Task(query=row["query"], named=named, domain=path.stem.partition("_queries")[0]))
    if not found:
        raise InvalidRequest(f"{str(folder)!r} has no queries_and_answers/*.csv that name records")
    return found


async def evaluate(
    folder: Path, *, tokens: int, settings: Settings, progress: Progress | None = None
) -> dict[str, Any]:
    """The share of questions all of whose records are in a context of `tokens`, and the share of records, by domain."""
    show = progress or silent
    asked = tasks(folder)
    async with loaded((), settings, show) as engine:
        await _fill(engine, folder, show)
        rows: list[tuple[Task, float]] = []
        for number, task in enumerate(asked, start=1):
            rows.append((task, await _held(engine, task, tokens)))
            show("build", number, len(asked))
    return _means(rows, tokens)


async def _fill(engine: Contexture, folder: Path, show: Progress) -> None:
    writer = WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=engine.scope, now=NOW)
    await import_blocks(writer, databases(folder), source="workbench", progress=show)
    await engine.index.optimize()


async def _held(engine: Contexture, task: Task, tokens: int) -> float:
    """The share of a question's records that its context holds."""
    request = {"query": task.query, "tokenBudget": {"total": tokens}}
    built = await engine.workspaces.build(request, scope=engine.scope, now=NOW)
    shown = {item.block_id for section in built.sections for item in section.items}
    return len(task.named & shown) / len(task.named)


def _means(rows: Sequence[tuple[Task, float]], tokens: int) -> dict[str, Any]:
    domains: Mapping[str, list[float]] = defaultdict(list)
    for task, share in rows:
        domains[task.domain].append(share)
    return {
        "tokens": tokens,
        "queries": len(rows),
        "inside": mean([float(share == 1) for _, share in rows]),
        "records": mean([share for _, share in rows]),
        "domains": {name: mean([float(share == 1) for share in found]) for name, found in sorted(domains.items())},
    }


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as failure:
        raise InvalidRequest(f"cannot read {str(path)!r}: {failure.strerror}") from failure
