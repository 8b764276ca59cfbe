"""The rows of databases that a query selects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from contexture import Contexture, Settings
from contexture.builders.workspace._intent import RowOrder, RowSelection, detect_selection
from contexture.workspace import Block, BlockType
from support.service import small_engine

TODAY = date(2023, 11, 30)
NOW = datetime(2023, 11, 30, 9, tzinfo=UTC)


def row(number: int, start: str, who: str = "nadia") -> Block:
    """An event of a calendar."""
    return Block(
        id=f"event-{number:03}",
        type=BlockType.DB_ROW,
        text="sync up",
        parent="calendar",
        order=number,
        properties={"participant": f"{who}@atlas.example", "start": start},
    )


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """A calendar of sixty events, two a day from November on."""
    async with small_engine(Settings(home=new_folder())) as found:
        rows = [row(at, f"2023-{11 + at // 30}-{at % 30 // 2 + 1:02} 09:00:00") for at in range(60)]
        calendar = Block(id="calendar", type=BlockType.DB, text="Meetings", properties={"schema": {"start": "date"}})
        await found.workspace.put(found.scope, [calendar, *rows], now=NOW)
        yield found


async def shown(engine: Contexture, query: str) -> list[str]:
    """The rows of a context, as it shows them."""
    built = await engine.build_workspace({"query": query, "tokenBudget": {"activity": 0}}, now=NOW)
    return [item.block_id for section in built.sections for item in section.items if item.block_type == "db_row"]


@pytest.mark.parametrize(
    ("query", "days"),
    [
        ("my first meeting on December 13", (date(2023, 12, 13),)),
        ("the 3rd of January", (date(2024, 1, 3),)),
        ("встреча 5 декабря", (date(2023, 12, 5),)),
        ("what is on 2023-11-02", (date(2023, 11, 2),)),
        ("on December 32 and on 2023-13-01, all of it", ()),
    ],
)
def test_days_are_read_from_a_query(query: str, days: tuple[date, ...]) -> None:
    """Days in English, in Russian and as ISO dates are read; the year is the nearest one."""
    found = detect_selection(query, TODAY)

    assert found is not None
    assert found.days == days


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("cancel my next meeting", RowOrder.SOONEST),
        ("перенеси ближайшую встречу", RowOrder.SOONEST),
        ("delete my latest mail", RowOrder.NEWEST),
        ("покажи последнее письмо", RowOrder.NEWEST),
        ("all customers of Raj", RowOrder.NONE),
    ],
)
def test_orders_are_read_from_a_query(query: str, order: RowOrder) -> None:
    """What comes next, what came last, and all of a kind are told apart."""
    found = detect_selection(query, TODAY)

    assert found is not None
    assert found.order is order


def test_most_queries_select_nothing() -> None:
    """A query without days, order or number is left to the search."""
    assert detect_selection("How do I reset a gauge?", TODAY) is None


def test_how_dates_suit() -> None:
    """Named days count whole, days since another too, and otherwise the nearer the better."""
    soon, late = row(1, "2023-12-01 09:00"), row(2, "2024-03-01 09:00")
    ahead = RowSelection(days=(), order=RowOrder.SOONEST, today=TODAY)
    since = detect_selection("mail from the last 5 days", date(2023, 12, 3))

    assert 1 > ahead.score_dates(soon) > ahead.score_dates(late) > 0
    assert ahead.score_dates(row(3, "2023-11-29")) == 0
    assert since is not None
    assert (since.score_dates(soon), since.score_dates(late)) == (1, 0)
    assert RowSelection(days=(date(2024, 3, 1),), order=RowOrder.NONE, today=TODAY).score_dates(late) == 1


async def test_the_rows_of_a_day_are_shown(engine: Contexture) -> None:
    """Of sixty rows that read alike, those of the day that the query names are in the context."""
    assert {"event-054", "event-055"} <= set(await shown(engine, "Cancel my meetings on December 13"))


async def test_what_comes_next_is_shown(engine: Contexture) -> None:
    """The next meetings are in the context, before those of the past."""
    found = await shown(engine, "Cancel my next meeting with nadia")

    assert {"event-030", "event-031"} <= set(found)
    assert found.index("event-030") < min(found.index(name) for name in found if name < "event-030")


async def test_an_empty_workspace_has_no_rows(new_folder: Callable[[], Path]) -> None:
    """A query that selects finds nothing where nothing was written."""
    async with small_engine(Settings(home=new_folder())) as empty:
        assert await shown(empty, "all meetings on December 13") == []


async def test_a_row_that_the_question_names_comes_first(engine: Contexture) -> None:
    """A row named by its title is shown although a person of the question has more rows than fit."""
    rows = [
        Block(
            id=f"client-{at}",
            type=BlockType.DB_ROW,
            text=f"Client {at} of the north",
            parent="crm",
            order=at,
            properties={"assigned_to": "lena.schmidt@atlas.example", "notes": "had a call and saw the demo " * 5},
        )
        for at in range(60)
    ]
    named = Block(
        id="reese", type=BlockType.DB_ROW, text="Reese Jones", parent="crm", properties={"assigned_to": "boris"}
    )
    crm = Block(id="crm", type=BlockType.DB, text="CRM", properties={"schema": {"assigned_to": "text"}})
    await engine.workspace.put(engine.scope, [crm, *rows, named], now=NOW)
    request = {"query": "Reassign Reese Jones to Lena in the CRM", "tokenBudget": {"total": 1_000}}
    built = await engine.build_workspace(request, now=NOW)

    assert "reese" in [item.block_id for section in built.sections for item in section.items]


async def test_two_equal_tasks_are_two(engine: Contexture) -> None:
    """Tasks with the same text on different pages are not duplicates of each other."""
    blocks = [
        Block(id=f"{kind}{at}", type=kind, text=text, parent=parent, properties=told)
        for at in range(2)
        for kind, text, parent, told in (
            (BlockType.PAGE, f"Project {at}", None, {}),
            (BlockType.TODO, "Send the report to the harbour master", f"page{at}", {"due": "2023-11-01"}),
        )
    ]
    await engine.workspace.put(engine.scope, blocks, now=NOW)
    built = await engine.build_workspace({"query": "Which tasks are overdue?"}, now=NOW)

    assert "Overdue tasks: 2, all shown below." in built.serialized


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("Which tasks belong to the project Apollo?", "Rows of “Tasks” with project apollo: 2,"),
        ("What are the open tasks?", "Open rows of “Tasks”: 2,"),
        ("Which tasks are done?", "Done rows of “Tasks”: 1,"),
        ("Which tasks are blocked?", "Rows of “Tasks” with status blocked: 1,"),
        ("Сколько задач по статусам?", "Rows of “Tasks”: 3,"),
    ],
)
async def test_rows_of_a_table_of_tasks_without_dates(engine: Contexture, query: str, fact: str) -> None:
    """Rows that have only a status are the tasks of a question when their table is called so."""
    rows = [
        Block(
            id=f"task{at}",
            type=BlockType.DB_ROW,
            text=text,
            parent="tasks",
            properties={"Status": status, "Project": project},
        )
        for at, (text, status, project) in enumerate(
            (("Write plan", "Done", "Apollo"), ("Order parts", "Blocked", "Apollo"), ("Call bank", "Doing", "Gemini"))
        )
    ]
    schema = {"Status": "text", "Project": "text"}
    tasks = Block(id="tasks", type=BlockType.DB, text="Tasks", properties={"schema": schema})
    await engine.workspace.put(engine.scope, [tasks, *rows], now=NOW)
    built = await engine.build_workspace({"query": query}, now=NOW)

    assert fact in built.serialized
