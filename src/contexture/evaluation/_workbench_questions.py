"""Questions about the WorkBench tables whose answers are computed from the CSV files: counts, owners, states, dates."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

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
    told = None if fact is None else 0 if fact[1] == "none" else int(fact[1])
    if question.count is not None and told == question.count:
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
