"""Metrics of workspace contexts: whether they contain the expected records, and whether linked pages score higher."""

import ast
import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.evaluation import _harness as harness
from contexture.ingestion.blocks.draft import DraftDocument
from contexture.ingestion.blocks.history import ImportSnapshot
from contexture.ingestion.blocks.import_source import ImportSource
from contexture.ingestion.blocks.importer import ImportReport, WorkspaceWriter, import_blocks
from contexture.ingestion.blocks.sources import SourceFile
from contexture.ingestion.blocks.tables import TableColumns, read_table
from contexture.workspace import person_name

Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkQuestion:
    """A question, and what answers it: a number, rows by id, or texts such as `Backlog 190`."""

    query: str
    count: int | None = None
    rows: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()
    forbidden: frozenset[str] = frozenset()


_QUESTIONS = 60
_COLUMNS = (
    frozenset(("task_id", "assigned_to_email", "list_name", "due_date", "board")),
    frozenset(("customer_id", "assigned_to_email", "product_interest", "status")),
    frozenset(("event_id", "participant_email", "event_start")),
    frozenset(("email_id", "sender/recipient", "sent_datetime")),
)
_FACT = re.compile(r"^\[Workspace\] \[facts\]\n.*?: (\d+|none)[,.]", re.MULTILINE)


def is_answered(question: WorkQuestion, serialized: str, shown: frozenset[str]) -> bool:
    """Whether a context has the computed fact, or every row, and none of the rows that must not be in it."""
    if question.forbidden & shown:
        return False
    if question.texts and not all(text in serialized for text in question.texts):
        return False
    fact = _FACT.search(serialized)
    counted = None if fact is None else 0 if fact[1] == "none" else int(fact[1])
    if question.count is not None and counted == question.count:
        return True
    return question.rows <= shown if question.rows else bool(question.texts)


def make_questions(folder: Path, now: datetime) -> list[WorkQuestion]:
    """Sixty questions, the same for the same tables; none when a table is empty or lacks a column."""
    tasks = _read_rows(folder / "project_tasks.csv")
    customers = _read_rows(folder / "customer_relationship_manager_data.csv")
    events = _read_rows(folder / "calendar_events.csv")
    emails = _read_rows(folder / "emails.csv")
    needed = zip((tasks, customers, events, emails), _COLUMNS, strict=True)
    if not all(rows and columns <= rows[0].keys() for rows, columns in needed):
        return []
    today = now.date().isoformat()
    questions = [
        *_ask_about_tasks(tasks, today),
        *_ask_about_boards(tasks, today),
        *_ask_about_customers(customers),
        *_ask_about_events(events, emails, now),
    ]
    return questions[:_QUESTIONS]


def _read_rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _ids(kind: str, rows: Sequence[Row]) -> frozenset[str]:
    return frozenset(f"{kind}:{row[f'{kind}_id']}" for row in rows)


def _first(address: str) -> str:
    return person_name(address).split()[0]


def _busiest(rows: Sequence[Row], column: str, count: int) -> list[str]:
    return [
        name for name, _ in sorted(Counter(row[column] for row in rows).items(), key=lambda each: (-each[1], each[0]))
    ][:count]


def _ask_about_tasks(tasks: Sequence[Row], today: str) -> Iterator[WorkQuestion]:
    templates: Sequence[tuple[str, Callable[[Row], bool]]] = (
        ("How many tasks does {} have?", bool),
        ("How many of {}'s tasks are overdue?", lambda row: _is_overdue(row, today)),
        ("Which tasks of {} are in review?", lambda row: row["list_name"] == "In Review"),
        ("What are {}'s unfinished tasks?", lambda row: row["list_name"] != "Completed"),
        ("Сколько просроченных задач у {}?", lambda row: _is_overdue(row, today)),
    )
    done = _ids("task", [row for row in tasks if row["list_name"] == "Completed"])
    for text, accepts in templates:
        for address in _busiest(tasks, "assigned_to_email", 10)[:: 2 if "review" in text else 3]:
            mine = [row for row in tasks if row["assigned_to_email"] == address and accepts(row)]
            overdue = "overdue" in text or "просроч" in text
            yield WorkQuestion(
                query=text.format(_first(address)),
                count=len(mine),
                rows=_ids("task", mine),
                texts=(person_name(address),) if mine else (),
                forbidden=done if overdue else frozenset(),
            )


def _is_overdue(row: Row, today: str) -> bool:
    return row["list_name"] != "Completed" and row["due_date"] < today


def _ask_about_boards(tasks: Sequence[Row], today: str) -> Iterator[WorkQuestion]:
    lists, boards = Counter(row["list_name"] for row in tasks), Counter(row["board"] for row in tasks)
    yield WorkQuestion(
        query="How many tasks are there per list?", texts=tuple(f"{name} {count}" for name, count in lists.items())
    )
    yield WorkQuestion(
        query="How many tasks are on each board?", texts=tuple(f"{name} {count}" for name, count in boards.items())
    )
    for board in sorted(boards):
        mine = [row for row in tasks if row["board"] == board]
        backlog = [row for row in mine if row["list_name"] == "Backlog"]
        yield WorkQuestion(
            query=f"How many tasks are in the backlog of the {board} board?",
            count=len(backlog),
            rows=_ids("task", backlog),
        )
        late = [row for row in mine if _is_overdue(row, today)]
        yield WorkQuestion(query=f"Which {board} tasks are overdue?", count=len(late), rows=_ids("task", late))
    late = Counter(row["assigned_to_email"] for row in tasks if _is_overdue(row, today))
    for name, count in late.most_common(1):
        yield WorkQuestion(query="Who has the most overdue tasks?", texts=(f"{person_name(name)} {count}",))
    for day in sorted({row["due_date"] for row in tasks if row["due_date"] > today})[1:4]:
        due = [row for row in tasks if row["due_date"] == day and row["list_name"] != "Completed"]
        text = f"{datetime.fromisoformat(day):%B} {int(day[-2:])}"
        yield WorkQuestion(query=f"Which open tasks are due on {text}?", count=len(due), rows=_ids("task", due))


def _ask_about_customers(customers: Sequence[Row]) -> Iterator[WorkQuestion]:
    statuses = Counter(row["status"] for row in customers)
    yield WorkQuestion(
        query="How many customers are there by status?",
        texts=tuple(f"{name} {count}" for name, count in statuses.items()),
    )
    for status, count in sorted(statuses.items()):
        yield WorkQuestion(query=f"How many customers have the status {status}?", count=count)
    for product, count in sorted(Counter(row["product_interest"] for row in customers).items())[:4]:
        yield WorkQuestion(query=f"How many customers are interested in {product}?", count=count)
    for address in _busiest(customers, "assigned_to_email", 8)[::2]:
        mine = [row for row in customers if row["assigned_to_email"] == address]
        yield WorkQuestion(
            query=f"How many customers are assigned to {_first(address)}?",
            count=len(mine),
            rows=_ids("customer", mine),
            texts=(person_name(address),),
        )
        lost = [row for row in mine if row["status"] == "Lost"]
        yield WorkQuestion(
            query=f"Which of {_first(address)}'s customers are lost?", count=len(lost), rows=_ids("customer", lost)
        )


def _ask_about_events(events: Sequence[Row], emails: Sequence[Row], now: datetime) -> Iterator[WorkQuestion]:
    days = Counter(row["event_start"][:10] for row in events if row["event_start"] > now.date().isoformat())
    for day, _ in sorted(days.items(), key=lambda each: (-each[1], each[0]))[:4]:
        mine = [row for row in events if row["event_start"].startswith(day)]
        text = f"{datetime.fromisoformat(day):%B} {int(day[-2:])}"
        yield WorkQuestion(query=f"Which meetings are on {text}?", count=len(mine), rows=_ids("event", mine))
    for address in _busiest(events, "participant_email", 3):
        mine = [row for row in events if row["participant_email"] == address]
        yield WorkQuestion(query=f"How many meetings are there with {_first(address)}?", count=len(mine))
    start = (now.date() - timedelta(days=5)).isoformat()
    for address in _busiest(emails, "sender/recipient", 9)[::2]:
        mine = [row for row in emails if row["sender/recipient"] == address and row["sent_datetime"] >= start]
        yield WorkQuestion(
            query=f"List all emails with {_first(address)} from the last 5 days",
            count=len(mine),
            rows=_ids("email", mine),
        )


QUESTION_TIME = datetime(2023, 11, 30, tzinfo=UTC)
"""The date on which the questions are asked; "tomorrow" and "overdue" are relative to it."""

_RECORD_REFERENCE = re.compile(r"(email|event|task|customer)_id=\"(\d+)\"")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkbenchTable:
    """A CSV file as a database: its title, the roles of its columns, and the kind of records its ids refer to."""

    file: str
    title: str
    names: str
    columns: TableColumns


TABLES = (
    WorkbenchTable(
        file="emails.csv",
        title="Emails",
        names="email",
        columns=TableColumns(title="subject", id="email_id", modified="sent_datetime"),
    ),
    WorkbenchTable(
        file="calendar_events.csv",
        title="Calendar: meetings and events",
        names="event",
        columns=TableColumns(title="event_name", id="event_id"),
    ),
    WorkbenchTable(
        file="project_tasks.csv",
        title="Project tasks",
        names="task",
        columns=TableColumns(title="task_name", id="task_id", due="due_date", done=("list_name", ("Completed",))),
    ),
    WorkbenchTable(
        file="customer_relationship_manager_data.csv",
        title="CRM: customers and leads",
        names="customer",
        columns=TableColumns(title="customer_name", id="customer_id"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkbenchTask:
    """A question, the records in its answer, and the file it comes from."""

    query: str
    named: frozenset[str]
    domain: str


def load_databases(folder: Path) -> Iterator[DraftDocument]:
    """Yield the tables; row ids have the form `task:00000149`."""
    for table in TABLES:
        path = folder / table.file
        found = read_table(
            SourceFile(path=table.file, text=_read_text(path)),
            columns=table.columns,
            title=table.title,
            known=table.names,
        )
        rows = [replace(row, known=f"{table.names}:{row.key}", key="") for row in found.root.children]
        yield replace(found, root=replace(found.root, children=rows))


def load_tasks(folder: Path) -> list[WorkbenchTask]:
    """Return the questions whose answers name records; the others need no record, or none that is stored."""
    found: list[WorkbenchTask] = []
    for path in sorted((folder / "queries_and_answers").glob("*.csv")):
        for row in csv.DictReader(_read_text(path).splitlines(keepends=True)):
            calls = " ".join(cast("list[str]", ast.literal_eval(row["answer"])))
            named = frozenset(f"{kind}:{number}" for kind, number in _RECORD_REFERENCE.findall(calls))
            if named:
                found.append(WorkbenchTask(query=row["query"], named=named, domain=path.stem.partition("_queries")[0]))
    if not found:
        raise InvalidRequest(f"{str(folder)!r} has no queries_and_answers/*.csv that name records")
    return found


async def evaluate_workbench(
    folder: Path, *, tokens: int, settings: Settings, progress: harness.ProgressCallback | None = None
) -> dict[str, Any]:
    """Return by domain the share of questions with all records in a context of `tokens`, and the share of records."""
    show = progress or harness.ignore_progress
    cases = load_tasks(folder)
    async with harness.open_temporary_engine((), settings, show) as engine:
        await _import_tables(engine, folder, show)
        rows: list[tuple[WorkbenchTask, float]] = []
        for number, task in enumerate(cases, start=1):
            rows.append((task, await _share_in_context(engine, task, tokens)))
            show("build", number, len(cases))
        questions = await _count_answered(engine, folder, tokens, show)
    return {**_average_by_domain(rows, tokens), **questions}


async def _count_answered(
    engine: Contexture, folder: Path, tokens: int, show: harness.ProgressCallback
) -> dict[str, Any]:
    """Return how many of the questions with a computed answer have it in their context, and which have not."""
    cases = make_questions(folder, QUESTION_TIME)
    failed: list[str] = []
    for number, question in enumerate(cases, start=1):
        request = {"query": question.query, "tokenBudget": {"total": tokens}}
        built = await engine.workspaces.build(request, scope=engine.scope, now=QUESTION_TIME)
        shown = frozenset(item.block_id for section in built.sections for item in section.items)
        if not is_answered(question, built.serialized, shown):
            failed.append(question.query)
        show("ask", number, len(cases))
    return {"computed": len(cases), "answered": len(cases) - len(failed), "unanswered": failed}


async def _import_tables(engine: Contexture, folder: Path, show: harness.ProgressCallback) -> None:
    writer = WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=engine.scope, now=QUESTION_TIME)
    await import_blocks(writer, load_databases(folder), source="workbench", progress=show)
    await engine.index.optimize()


async def _share_in_context(engine: Contexture, task: WorkbenchTask, tokens: int) -> float:
    """Return the share of a question's records that its context contains."""
    request = {"query": task.query, "tokenBudget": {"total": tokens}}
    built = await engine.workspaces.build(request, scope=engine.scope, now=QUESTION_TIME)
    shown = {item.block_id for section in built.sections for item in section.items}
    return len(task.named & shown) / len(task.named)


def _average_by_domain(rows: Sequence[tuple[WorkbenchTask, float]], tokens: int) -> dict[str, Any]:
    domains: Mapping[str, list[float]] = defaultdict(list)
    for task, share in rows:
        domains[task.domain].append(share)
    return {
        "tokens": tokens,
        "queries": len(rows),
        "inside": harness.mean([float(share == 1) for _, share in rows]),
        "records": harness.mean([share for _, share in rows]),
        "domains": {
            name: harness.mean([float(share == 1) for share in found]) for name, found in sorted(domains.items())
        },
    }


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as failure:
        raise InvalidRequest(f"cannot read {str(path)!r}: {failure.strerror}") from failure


_LINK_LIMIT = 10_000


async def evaluate_links(
    folder: Path, *, settings: Settings, progress: harness.ProgressCallback | None = None
) -> dict[str, Any]:
    """Return the pairwise AUC, averaged over pages with links: how often a linked page scores above an unlinked one.

    Two pages are linked if a block of either names the other. All links of a page are followed, without a limit, so
    that every linked page is scored; a page that no collector finds scores 0, and a tie counts half.
    """
    show = progress or harness.ignore_progress
    async with harness.open_temporary_engine((), follow_all_links(settings), show) as engine:
        now = engine.clock.now()
        writer = WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=engine.scope, now=now)
        done = await import_blocks(writer, ImportSource(path=folder, now=now).read(), source="links", progress=show)
        await engine.index.optimize()
        return await measure_links(engine, done.remembered, done.report, now, show)


def follow_all_links(settings: Settings) -> Settings:
    """Return the settings with a relation limit that no page exceeds."""
    collectors = {"collectors": {"relations": {"max_items": _LINK_LIMIT}}}
    return settings.model_copy(update={"workspace": collectors})


async def measure_links(
    engine: Contexture, imported: ImportSnapshot, report: ImportReport, now: datetime, show: harness.ProgressCallback
) -> dict[str, Any]:
    """Return the link metrics of a workspace that is already imported."""
    pages = {kept.blocks[0].id: [block.id for block in kept.blocks] for kept in imported.documents.values()}
    linked = await _find_linked_pages(engine, pages)
    found: list[float] = []
    for number, (page, partners) in enumerate(sorted(linked.items()), start=1):
        scores = await _score_pages(engine, page, pages, now)
        found.append(auc(scores, partners, set(pages) - partners - {page}))
        show("build", number, len(linked))
    return {
        "auc": harness.mean(found),
        "pages": len(pages),
        "focused": len(found),
        "blocks": report.blocks,
        "links": report.links,
        "unresolved": len(report.unresolved),
    }


def auc(scores: Mapping[str, float], good: set[str], others: set[str]) -> float:
    """Return how often one of `good` scores above one of `others`; ties count half, and without pairs it is 1."""
    if not good or not others:
        return 1.0
    high, low = [scores.get(name, 0.0) for name in good], [scores.get(name, 0.0) for name in others]
    wins = sum((above > below) + 0.5 * (above == below) for above in high for below in low)
    return wins / (len(high) * len(low))


async def _find_linked_pages(engine: Contexture, pages: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Return for each page those that it names or that name it."""
    home = {block: page for page, blocks in pages.items() for block in blocks}
    found: dict[str, set[str]] = {}
    for page, blocks in pages.items():
        for link in await engine.blocks.links(engine.scope, blocks, limit=_LINK_LIMIT):
            other = home.get(link.target)
            if other is not None and other != page:
                found.setdefault(page, set()).add(other)
                found.setdefault(other, set()).add(page)
    return found


async def _score_pages(
    engine: Contexture, page: str, pages: Mapping[str, Sequence[str]], now: datetime
) -> dict[str, float]:
    """Return the best score of each page's blocks in a context with `page` as its focus."""
    home = {block: name for name, blocks in pages.items() for block in blocks}
    (focused,) = await engine.blocks.get(engine.scope, [page])
    request = {"query": focused.text, "focus": {"pageId": page}}
    built = await engine.workspaces.build(request, scope=engine.scope, now=now)
    best: dict[str, float] = {}
    for entry in built.ledger.entries:
        name = home.get(entry.id.partition(":")[2])  # the part after the section
        if name is not None:
            best[name] = max(best.get(name, 0.0), entry.score)
    return best
