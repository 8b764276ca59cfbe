"""Intent, dates, distance and affinity, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from contexture.builders.workspace._hydrate import affinity
from contexture.builders.workspace._intent import WorkspaceIntent, day_span, detect_intent, due_time, week_span
from contexture.builders.workspace._tree import ancestor_steps, distance, join_path, make_path, page_title, split_path
from contexture.workspace import Block, BlockType, BlockUsage

NOW = datetime(2026, 6, 3, 12, tzinfo=UTC)  # a Wednesday


def intent(query: str, **hints: tuple[BlockType, ...]) -> WorkspaceIntent:
    """What a query is after, at noon of a Wednesday."""
    return detect_intent(query, now=NOW, zone=UTC, **hints)


def task(due: str = "", *, done: bool = False, kind: BlockType = BlockType.TODO) -> Block:
    """A task with a date."""
    return Block(id="t", type=kind, text="Order pumps", properties={"due": due, "done": done} if due else {})


@pytest.mark.parametrize(
    ("query", "kind", "worth"),
    [
        ("What tasks are open?", BlockType.TODO, 0.9),
        ("my to-dos", BlockType.KANBAN_CARD, 0.9),
        ("Какие задачи открыты?", BlockType.TODO, 0.9),
        ("Give me a summary", BlockType.PAGE, 0.8),
        ("Summarize this page", BlockType.PAGE, 0.8),
        ("Сделай краткое резюме", BlockType.PAGE, 0.8),
        ("show me the code", BlockType.CODE, 0.9),
        ("покажи код", BlockType.CODE, 0.9),
        ("which customers are there", BlockType.DB_ROW, 0.9),
        ("notes of the meeting", BlockType.PAGE, 0.7),
        ("hello", BlockType.TODO, 0.5),
        ("hello", BlockType.PAGE, 0.5),
        ("tasks", BlockType.PARAGRAPH, 0.5),
    ],
)
def test_words_ask_for_types(query: str, kind: BlockType, worth: float) -> None:
    """A type that the query speaks of is worth more; all others are worth .5."""
    assert worth == intent(query).type_match(Block(id="b", type=kind, text="x"))


def test_meetings_are_also_known_by_their_pages() -> None:
    """Whatever stands on a page of a meeting suits a question about meetings."""
    note = Block(id="b", type=BlockType.PARAGRAPH, text="Anna will call.")

    assert 0.9 == intent("what did we decide in the meeting?").type_match(note, "Weekly meeting")
    assert 0.5 == intent("what did we decide in the meeting?").type_match(note, "Recipes")


def test_hints_and_preferences_count_like_words() -> None:
    """A hinted type is worth .9, a preferred one .8."""
    quote = Block(id="q", type=BlockType.QUOTE, text="x")

    assert 0.9 == intent("hello", hinted=(BlockType.QUOTE,)).type_match(quote)
    assert 0.8 == intent("hello", preferred=(BlockType.QUOTE,)).type_match(quote)


@pytest.mark.parametrize(
    ("query", "due", "matches"),
    [
        ("What tasks are overdue?", "2026-06-02", True),
        ("What tasks are overdue?", "2026-06-03", False),
        ("What tasks are overdue?", "2026-06-03T11:00:00+00:00", True),
        ("Что просрочено?", "2026-06-02", True),
        ("tasks due today", "2026-06-03", True),
        ("задачи на сегодня", "2026-06-03", True),
        ("tasks due tomorrow", "2026-06-04", True),
        ("tasks due this week", "2026-06-07", True),
        ("tasks due this week", "2026-06-08", False),
        ("какие задачи на этой неделе", "2026-06-05", True),
        ("deadlines next week", "2026-06-08", True),
        ("дедлайны на следующей неделе", "2026-06-14", True),
    ],
)
def test_dates_are_understood(query: str, due: str, matches: bool) -> None:  # noqa: FBT001 - a table
    """Dates are compared with the clock; a day lasts until its end, a week from Monday to Sunday."""
    asked = intent(query)

    assert matches == asked.is_due(task(due))
    assert (1.0 if matches else 0.1) == pytest.approx(asked.type_match(task(due)))


def test_what_is_done_is_not_overdue() -> None:
    """A task that is done, or has no date, is never asked for by date."""
    asked = intent("What tasks are overdue?")

    assert not asked.is_due(task("2026-06-01", done=True))
    assert not asked.is_due(task())
    assert not asked.is_due(task("2026-06-01", kind=BlockType.PARAGRAPH))


def test_a_day_alone_does_not_ask_for_tasks() -> None:
    """Without a word about tasks or deadlines, a day is not a due date."""
    assert intent("What did we decide today?").span is None


def test_a_day_ends_where_the_user_is() -> None:
    """A date without a time is over at midnight in the user's zone."""
    east = ZoneInfo("Asia/Vladivostok")
    due = due_time(task("2026-06-03"), east)

    assert due is not None
    assert due.utcoffset() == timedelta(hours=10)
    assert day_span(NOW, east, 0, 1).contains(due)
    assert week_span(NOW, east, 0).contains(due)


def tree() -> dict[str, list[Block]]:
    """Chains of: page > heading > (a, b), and another page."""
    page = Block(id="page", type=BlockType.PAGE, text="Plan > of [work]")
    head = Block(id="head", type=BlockType.HEADING, text="Now", parent="page")
    return {"page": [], "head": [page], "a": [head, page], "b": [head, page], "other": []}


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [("a", "a", 0), ("a", "b", 2), ("a", "head", 1), ("page", "a", 2), ("a", "other", None)],
)
def test_distance_is_that_of_the_tree(one: str, other: str, steps: int | None) -> None:
    """Steps up to what both stand below, and down again, whichever is asked first."""
    there, back = ancestor_steps(other, tree()), ancestor_steps(one, tree())

    assert steps == distance(one, there, tree()) == distance(other, back, tree())


def test_a_block_knows_its_page_and_its_path() -> None:
    """The title is that of the nearest page; the path is one line that can be parted again."""
    chains = tree()
    block = Block(id="a", type=BlockType.TODO, text="x", parent="head")

    assert "Plan of work" == page_title(block, chains["a"])
    assert ("Plan of work", "Now") == make_path(chains["a"]) == split_path(join_path(make_path(chains["a"])))
    assert () == split_path(join_path(()))


def test_affinity_grows_with_use_and_fades() -> None:
    """Nothing is 0, authorship counts, each further edit adds less, and a month halves it."""
    once, often = BlockUsage(edits=1, last=NOW), BlockUsage(edits=9, views=9, last=NOW, author=True)
    old = BlockUsage(edits=1, last=NOW - timedelta(days=30))

    assert 0.0 == affinity(BlockUsage(), NOW)
    assert 0.4 == affinity(BlockUsage(author=True), NOW)
    assert affinity(once, NOW) / 2 == pytest.approx(affinity(old, NOW))
    assert affinity(once, NOW) < affinity(often, NOW) <= 1.0


def test_views_count_half_as_much_as_edits() -> None:
    """A block that was only looked at has some affinity, each further view adds half as much, and it fades."""
    viewed, often, edited = (BlockUsage(**each, last=NOW) for each in ({"views": 1}, {"views": 2}, {"edits": 1}))
    old = BlockUsage(views=1, last=NOW - timedelta(days=30))

    assert pytest.approx(0.1) == affinity(viewed, NOW) == affinity(edited, NOW) / 2
    assert pytest.approx(0.15) == affinity(often, NOW)
    assert pytest.approx(0.05) == affinity(old, NOW)
