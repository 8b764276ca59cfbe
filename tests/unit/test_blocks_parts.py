"""The parts of the block domain: links in texts, rendering, search records, summaries, checks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from contexture.blocks.links import database_schema, extract_links, relation_columns
from contexture.blocks.records import block_to_record
from contexture.blocks.render import render_markdown, render_plain_text, summarize_page
from contexture.blocks.workspace import check_blocks, check_order, check_targets
from contexture.errors import InvalidRequest
from contexture.testing.blocks_tree import make_block, make_page
from contexture.testing.doubles import NOON, WordCounter
from contexture.types import PUBLIC
from contexture.workspace import (
    Block,
    BlockType,
    LinkKind,
    LinkTarget,
    StaleBlock,
    is_done,
    link_names,
    parse_moment,
    task_due,
)


def named(text, kind=BlockType.PARAGRAPH, **properties):
    """What a text names, as ids and page names."""
    found = extract_links(Block(id="x", type=kind, text=text, properties=properties), {})
    return [each.id or each.page for each in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see [[Home]] and [[Home|here]]", ["Home"]),
        ("[[Page#Heading]] [[C#]] [[#own]]", ["Page", "C#"]),
        ("[[a [[b]] c]]", ["a [[b]] c", "b"]),
        ("[[open", []),
        ("[[" + "x" * 600 + "]] [[y]]", ["y"]),
        ("close]] [[]] [[ ]]", []),
        ("((6421-ab)) {{embed ((x))}}", ["6421-ab", "x"]),
        ("[the plan](block:p%201) [web](https://a.example)", ["p 1"]),
        ("#tag #two-words #[[many words]] a#no &#39; http://a/#frag ##x #1", ["tag", "two-words", "many words"]),
        ("#тег и [[Страница]]", ["тег", "Страница"]),
        ("`[[no]]` ```\n[[no]]\n``` [[yes]]", ["yes"]),
        ("```\n[[never closed]]", []),
        ("[[a]] \ud800 [[\ud800]]", ["a"]),
    ],
)
def test_links_are_found_in_texts(text, found):
    """Pages by name or tag, blocks by id, in the order in which they begin; code names nothing."""
    assert found == named(text)


def test_a_text_names_no_more_than_anyone_follows():
    """Brackets in brackets, and thousands of links, end."""
    assert 1_000 == len(named(" ".join(f"[[{number}]]" for number in range(1_500))))
    assert len(named("[[" * 20_000 + "x" + "]]" * 20_000)) <= 1_000


def test_code_names_nothing_but_its_properties_may():
    """A property may hold links, whatever the block."""
    assert ["p"] == named("[[a]] ((b))", BlockType.CODE, tags="[[p]]", level=2)


def test_cells_of_relations_name_rows():
    """A cell holds one row or several, by id or by title."""
    row = Block(id="r", type=BlockType.DB_ROW, text="R", properties={"To": ["a", " [[B b]] ", 5, ""], "Of": "c"})
    found = extract_links(row, {"To": {"type": "relation"}, "Of": "relation", "No": "relation", "N": "number"})

    told = [("c", "Of"), ("a", "To"), ("B b", "To")]
    assert [LinkTarget(kind=LinkKind.RELATION, id=id_, page=id_, column=column) for id_, column in told] == list(found)


def test_schemas_belong_to_databases():
    """Only a database has columns, and only if they are an object."""
    database = replace(make_page("d"), type=BlockType.DB, properties={"schema": {"To": "relation", "N": "number"}})

    assert {"To"} == relation_columns(database_schema(database))
    assert [{}, {}, {}] == [
        database_schema(each) for each in (None, make_page("p"), replace(database, properties={"schema": "x"}))
    ]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            make_block("a", text="Call", kind=BlockType.TODO, properties={"due": "2026-11-20"}),
            "- [ ] Call (due 2026-11-20)",
        ),
        (
            make_block("a", text="Call", kind=BlockType.KANBAN_CARD, properties={"done": True, "status": "Done"}),
            "- [x] Call (status Done)",
        ),
        (
            make_block("a", text="x = 1", kind=BlockType.CODE, properties={"language": "python"}),
            "```python\nx = 1\n```",
        ),
        (make_block("a", text="```\na\n```", kind=BlockType.CODE), "````\n```\na\n```\n````"),
        (make_block("a", text="one\n\ntwo", kind=BlockType.QUOTE), "> one\n>\n> two"),
        (make_block("a", text="mind", kind=BlockType.CALLOUT, properties={"kind": "warning"}), "> **warning** mind"),
        (make_block("a", text="Title", kind=BlockType.HEADING, properties={"level": 3}), "### Title"),
        (make_block("a", text="Title", kind=BlockType.HEADING, properties={"level": 99}), "###### Title"),
        (make_block("a", text="Title", kind=BlockType.HEADING), "## Title"),
        (make_block("a", text="one\ntwo", kind=BlockType.BULLETED), "- one\n  two"),
        (make_block("a", text="one\ntwo", kind=BlockType.NUMBERED), "1. one\n   two"),
        (make_block("a", kind=BlockType.DIVIDER), "---"),
        (make_block("a", text="| a |\n|---|", kind=BlockType.TABLE), "| a |\n|---|"),
        (make_page("a", text="Home"), "# Home"),
        (make_block("a", text="just text"), "just text"),
    ],
    ids=lambda each: str(each.type) if isinstance(each, Block) else "",
)
def test_a_block_is_shown_as_markdown(given, shown):
    """Each type in its own way."""
    assert shown == render_markdown(given)


def test_a_row_shows_its_cells_and_the_relations_that_can_be_read():
    """Values by column; a relation shows titles, and nothing of what the reader may not see."""
    cells = {"Status": "open", "due": "2026-01-02", "Tags": ["a", "b"], "Hot": True, "To": ["x", "y"], "None": None}
    row = make_block("r", text="Acme", kind=BlockType.DB_ROW, properties={**cells, "icon": "x", "Deep": {"a": 1}})
    schema = {"To": "relation"}

    lines = ["Status: open", "due: 2026-01-02", "Tags: a, b", "Hot: yes"]
    assert "\n".join(["**Acme**", *lines, "To: Xavier"]) == render_markdown(
        row, schema=schema, resolve={"x": "Xavier"}.get
    )
    assert "\n".join(["**Acme**", *lines]) == render_markdown(row, schema=schema)
    assert "\n".join(["Acme", *lines]) == render_plain_text(row, schema)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-20", datetime(2026, 11, 20, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("2026-11-20T10:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20T10:00+02:00", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        ("9999-12-31", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("9999-12-31T23:00-14:00", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_date_lasts_until_its_day_is_over(text, moment):
    """A time is itself; what is no date is none."""
    assert moment == parse_moment(text)


def test_due_dates_and_states_of_rows_are_found_under_the_names_people_use():
    """`due` and `done` on tasks; a database may call them otherwise."""
    row = make_block("r", kind=BlockType.DB_ROW, properties={"Due date": "2026-01-02", "Status": "Completed"})
    assert (True, datetime(2026, 1, 2, 23, 59, 59, 999_999, tzinfo=UTC)) == (is_done(row), task_due(row))
    assert None is task_due(replace(row, type=BlockType.TODO))
    assert None is task_due(replace(row, type=BlockType.PARAGRAPH, properties={"due": "2026-01-02"}))
    assert not is_done(replace(row, properties={"Status": "Completed", "done": False}))
    assert not is_done(replace(row, properties={"Status": "Doing"}))
    assert is_done(replace(row, properties={"Completed": True, "Urgent": False}))
    assert not is_done(replace(row, properties={"Completed": False, "Urgent": True}))
    ranged = replace(row, properties={"Deadline": "2026-01-01/2026-01-02"})
    assert datetime(2026, 1, 2, 23, 59, 59, 999_999, tzinfo=UTC) == task_due(ranged)


def test_pages_are_named_by_title_and_aliases():
    """Aliases are a list or a text with commas; other blocks have no names."""
    told = replace(make_page("p", text=" The  Plan "), properties={"alias": "[[Roadmap]], plan b, "})
    assert ("the plan", "roadmap", "plan b") == link_names(told)
    assert ("p", "x") == link_names(replace(make_page("p"), properties={"aliases": ["X", 5]}))
    assert () == link_names(make_block("a", text="The Plan"))


def stale(of, *ancestors, acl=(PUBLIC,)):
    """A block that the index is to be told of."""
    return StaleBlock(
        number=1, tenant="t", id=of.id, readers=acl, block=replace(of, acl=acl, modified=NOON), ancestors=ancestors
    )


def test_a_search_record_names_the_page_and_what_filters_need():
    """Title and page are those of the nearest page; a task has its date and state."""
    home = replace(make_page("p", text="Home"), acl=(PUBLIC,))
    todo = make_block("t", "s", text="Call", kind=BlockType.TODO, properties={"due": "2026-01-02"})
    record = block_to_record(stale(todo, replace(make_block("s", "p"), acl=(PUBLIC,)), home))

    assert ("Home", "Call (due 2026-01-02)", "todo", NOON) == (record.title, record.text, record.kind, record.time)
    assert {
        "type": "todo",
        "author": "",
        "page": "p",
        "parent": "s",
        "due": "2026-01-02T23:59:59.999999+00:00",
        "done": False,
    } == dict(record.payload)


def test_a_search_record_names_nothing_that_one_of_its_readers_may_not_see():
    """The title of a page with fewer readers is left out, as is its id."""
    secret = replace(make_page("p", text="Layoffs"), acl=("user:anna",))
    shared = block_to_record(stale(make_block("a", "p"), secret, acl=("user:anna", "user:boris")))
    private = block_to_record(stale(make_block("a", "p"), secret, acl=("user:anna",)))

    assert ("", {"type": "paragraph", "author": ""}) == (shared.title, dict(shared.payload))
    assert ("Layoffs", "p") == (private.title, private.payload["page"])


def test_rows_belong_to_their_database_and_their_content_to_the_row():
    """The home of a row is the database; what stands in the row has the row as its page."""
    database = replace(make_page("d", text="Customers"), type=BlockType.DB, acl=(PUBLIC,))
    row = replace(make_block("r", "d", text="Acme", kind=BlockType.DB_ROW), acl=(PUBLIC,))

    found = block_to_record(stale(row, database))
    assert ("Customers", "d", "d") == (found.title, found.payload["page"], found.payload["db"])
    assert "Acme" == block_to_record(stale(make_block("n", "r", text="note"), row, database)).title


def test_what_says_nothing_is_not_searched():
    """Dividers, empty texts and what is gone have no record."""
    blank = replace(make_block("a"), text="  \n")
    assert [None, None, None] == [
        block_to_record(stale(make_block("d", kind=BlockType.DIVIDER))),
        block_to_record(stale(blank)),
        block_to_record(StaleBlock(number=1, tenant="t", id="x", readers=())),
    ]


def test_a_summary_keeps_the_sentences_that_say_most():
    """In their order, within the budget; headings weigh and are not repeated."""
    said = [
        "Weather was fine.",
        "The pump leaks at the valve.",
        "Lunch is at noon.",
        "We ordered a new valve for the pump.",
        "The valve of the pump arrives in May.",
    ]
    below = [
        make_block("h", text="Pump valve", kind=BlockType.HEADING),
        *(make_block(f"b{at}", text=text) for at, text in enumerate(said)),
    ]

    found = summarize_page(make_page("p", text="Maintenance"), below, WordCounter(), 15)
    assert WordCounter().count(found) <= 15
    assert found.startswith("The pump leaks at the valve.")
    assert "Lunch" not in found
    assert "Lunch is at noon." in summarize_page(make_page("p"), below, WordCounter(), 8, query="when is lunch?")


def test_a_page_without_text_has_no_summary():
    """Headings alone say nothing, and nothing fits into no tokens."""
    assert "" == summarize_page(make_page("p"), [make_block("h", kind=BlockType.HEADING)], WordCounter(), 50)
    assert "" == summarize_page(make_page("p"), [make_block("a", text="Something is said.")], WordCounter(), 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (make_block(""), "`id`"),
        (make_block("a\0b"), "without NUL"),
        (make_block("\ud800"), "`id`"),
        (make_block("x" * 513), "1 to 512"),
        (make_block("a", ""), "`parent`"),
        (make_block("a", "a"), "own parent"),
        (make_block("a", order=float("nan")), "`order`"),
        (make_block("a", order=float("inf")), "`order`"),
        (make_block("a", readers=()), "nobody could read"),
        (make_block("a", readers=("anna",)), "'user:NAME'"),
        (make_block("a", readers=("user:a\0b",)), "'user:NAME'"),
        (make_block("a", properties={"x": float("nan")}), "properties"),
        (make_block("a", properties={"x": {1, 2}}), "properties"),
    ],
)
def test_blocks_that_cannot_be_stored_are_refused(given, message):
    """The error names the place, the field and the value."""
    with pytest.raises(InvalidRequest, match=message):
        check_blocks([given])


def test_one_id_may_not_come_twice():
    """Which of two would count is not for us to guess."""
    with pytest.raises(InvalidRequest, match=r"blocks\[1\]: block 'a' is already blocks\[0\]"):
        check_blocks([make_block("a"), make_block("a", text="other")])


def test_broken_unicode_is_mended():
    """Text, author and properties are valid afterwards; what is valid stays the same object."""
    fine, broken = (
        make_block("a"),
        replace(make_block("b", text="x\ud800"), author="\udfff", properties={"\ud800": ["\ud800"]}),
    )
    first, second = check_blocks([fine, broken])

    assert fine is first
    assert ("x\ufffd", "\ufffd", {"\ufffd": ["\ufffd"]}) == (second.text, second.author, second.properties)


def test_places_and_ids_are_checked():
    """A move needs a finite place and ids that can exist."""
    with pytest.raises(InvalidRequest):
        check_order(float("inf"))
    with pytest.raises(InvalidRequest):
        check_targets(["a", ""])
