"""One block as text: Markdown to be read, and plain words to be searched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from contexture.blocks.columns import relations_of
from contexture.blocks.links import related
from contexture.types import Json
from contexture.workspace import Block, BlockType, done_of, due_of

Resolver = Callable[[str], str | None]
"""The title of what a cell of a relation names, or None where there is nothing that the reader may see."""

NO_SCHEMA: Mapping[str, Json] = {}

HIDDEN_COLUMNS = frozenset(("schema", "due", "done", "level", "language", "alias", "aliases", "icon"))
"""Properties that a block shows in its own way, or not at all."""

_DEEPEST = 6
_FENCE = "```"
_TASKS = (BlockType.TODO, BlockType.KANBAN_CARD)


def unresolved(_name: str) -> None:
    """A resolver that knows nothing: relations are left out."""


def markdown(block: Block, *, schema: Mapping[str, Json] = NO_SCHEMA, resolve: Resolver = unresolved) -> str:
    """The block as Markdown; `schema` is that of the database it is a row of.

    - [ ] Call the supplier (due 2026-11-20)

    The cells of a relation show titles, and only those that `resolve` knows: see `blocks.columns.schema_of`.
    """
    text = block.text.strip("\n")
    match block.type:
        case BlockType.PAGE | BlockType.DB:
            lines = [f"# {text}", *_columns(block, schema, resolve)]
        case BlockType.DB_ROW:
            lines = [f"**{text}**", *_columns(block, schema, resolve)]
        case BlockType.HEADING:
            lines = [f"{'#' * _level(block)} {text}"]
        case BlockType.QUOTE | BlockType.CALLOUT:
            lines = [f"> {line}".rstrip() for line in _called(block, text).split("\n")]
        case BlockType.CODE:
            lines = _code(block, text)
        case _:
            lines = [_listed(block, text)]
    return "\n".join(lines)


def plain(block: Block, schema: Mapping[str, Json] = NO_SCHEMA) -> str:
    """The block's words for searching: its text, a task's dates and state, a row's cells; relations are left out."""
    text = block.text.strip()
    if block.type in _TASKS:
        return _task(block, text)
    if block.type in (BlockType.DB_ROW, BlockType.PAGE, BlockType.DB):
        return "\n".join([text, *_columns(block, schema, unresolved)])
    return text


def _listed(block: Block, text: str) -> str:
    """An item of a list, or a paragraph."""
    match block.type:
        case BlockType.TODO | BlockType.KANBAN_CARD:
            return _item(f"- [{'x' if done_of(block) else ' '}] ", _task(block, text))
        case BlockType.BULLETED | BlockType.TOGGLE:
            return _item("- ", text)
        case BlockType.NUMBERED:
            return _item("1. ", text)
        case BlockType.DIVIDER:
            return "---"
        case _:
            return text


def _task(block: Block, text: str) -> str:
    told = [f"due {_day(block)}"] if due_of(block) is not None else []
    told += [
        f"{name} {shown}" for name in ("status", "priority", "assignee") if (shown := _cell(block.properties.get(name)))
    ]
    return f"{text} ({', '.join(told)})" if told else text


def _day(block: Block) -> str:
    due = due_of(block)
    return str(block.properties.get("due") or (due.date().isoformat() if due else ""))


def _columns(block: Block, schema: Mapping[str, Json], resolve: Resolver) -> Iterator[str]:
    """`Column: value` for each cell that says something; a row's dates are cells like the others."""
    shown_otherwise = HIDDEN_COLUMNS - ({"due", "done"} if block.type is BlockType.DB_ROW else set[str]())
    relations = relations_of(schema)
    for name, value in block.properties.items():
        if name in shown_otherwise:
            continue
        titles = [resolve(each) for each in related(value)] if name in relations else None
        shown = _cell(value) if titles is None else ", ".join(filter(None, titles))
        if shown:
            yield f"{name}: {shown}"


def _cell(value: Json) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str() | int() | float():
            return " ".join(str(value).split())
        case list():
            return ", ".join(filter(None, (_cell(each) for each in value)))
        case _:
            return ""


def _called(block: Block, text: str) -> str:
    kind = block.properties.get("kind")
    return f"**{kind}** {text}" if block.type is BlockType.CALLOUT and isinstance(kind, str) and kind else text


def _code(block: Block, text: str) -> list[str]:
    language = block.properties.get("language")
    fence = _FENCE
    while fence in text:
        fence += "`"
    return [f"{fence}{language if isinstance(language, str) else ''}", text, fence]


def _level(block: Block) -> int:
    level = block.properties.get("level")
    return min(max(int(level), 1), _DEEPEST) if isinstance(level, int | float) else 2


def _item(mark: str, text: str) -> str:
    """The text behind a mark, its further lines below its first."""
    return mark + text.replace("\n", "\n" + " " * (3 if mark[0] == "1" else 2))
