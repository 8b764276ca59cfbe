"""Renders blocks as Markdown, as plain text for search and as shown to a reader, and summarizes pages."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from contexture.blocks.links import database_schema, relation_columns, relation_targets
from contexture.pipeline.truncation import extract_sentences
from contexture.ports import TokenCounter
from contexture.text.segmentation import split_sentences
from contexture.text.terms import extract_terms
from contexture.text.unicode import repair_text
from contexture.types import Json
from contexture.workspace import Block, BlockType, is_done, is_person_column, person_name, task_due

Resolver = Callable[[str], str | None]
"""Returns the title of the block that a relation cell refers to, or None if the reader may not see it."""

NO_SCHEMA: Mapping[str, Json] = {}

HIDDEN_COLUMNS = frozenset(("schema", "due", "done", "level", "language", "alias", "aliases", "icon", "attachments"))
"""Properties that are rendered in a special way, or not at all."""

_MAX_HEADING_LEVEL = 6
_FENCE = "```"
_LINE_TYPES = (BlockType.PARAGRAPH, BlockType.BULLETED, BlockType.NUMBERED, BlockType.TOGGLE, BlockType.EMBED)
_LISTED_TASK_TYPES = (BlockType.TODO, BlockType.KANBAN_CARD)


def resolve_nothing(_name: str) -> None:
    """A resolver without any titles: relations are left out."""


def render_markdown(
    block: Block, *, schema: Mapping[str, Json] = NO_SCHEMA, resolve: Resolver = resolve_nothing
) -> str:
    """The block as Markdown; `schema` is that of the database it is a row of.

    - [ ] Call the supplier (due 2026-11-20)

    The cells of a relation show only the titles that `resolve` returns; see `blocks.links.database_schema` for the
    schema.
    """
    text = block.text.strip("\n")
    match block.type:
        case BlockType.PAGE | BlockType.DB:
            lines = [f"# {text}", *_render_cells(block, schema, resolve)]
        case BlockType.DB_ROW:
            lines = [f"**{text}**", *_render_cells(block, schema, resolve)]
        case BlockType.HEADING:
            lines = [f"{'#' * _heading_level(block)} {text}"]
        case BlockType.QUOTE | BlockType.CALLOUT:
            lines = [f"> {line}".rstrip() for line in _render_callout(block, text).split("\n")]
        case BlockType.CODE:
            lines = _render_code(block, text)
        case _:
            lines = [_render_line(block, text)]
    return "\n".join(lines)


def render_plain_text(block: Block, schema: Mapping[str, Json] = NO_SCHEMA) -> str:
    """The block's text for search: its text, a task's dates and state, a row's cells; relations are left out."""
    text = block.text.strip()
    if block.type in _LISTED_TASK_TYPES:
        return _render_task(block, text)
    if block.type in (BlockType.DB_ROW, BlockType.PAGE, BlockType.DB):
        return "\n".join([text, *_render_cells(block, schema, resolve_nothing)])
    return text


def _render_line(block: Block, text: str) -> str:
    """An item of a list, or a paragraph."""
    match block.type:
        case BlockType.TODO | BlockType.KANBAN_CARD:
            return _render_list_item(f"- [{'x' if is_done(block) else ' '}] ", _render_task(block, text))
        case BlockType.BULLETED | BlockType.TOGGLE:
            return _render_list_item("- ", text)
        case BlockType.NUMBERED:
            return _render_list_item("1. ", text)
        case BlockType.DIVIDER:
            return "---"
        case _:
            return text


def _render_task(block: Block, text: str) -> str:
    details = [f"due {_due_day(block)}"] if task_due(block) is not None else []
    given = {**block.properties, "assignee": _name_people(block.properties.get("assignee"))}
    details += [
        f"{name} {shown}" for name in ("status", "priority", "assignee") if (shown := _render_cell(given.get(name)))
    ]
    return f"{text} ({', '.join(details)})" if details else text


def _due_day(block: Block) -> str:
    due = task_due(block)
    return str(block.properties.get("due") or (due.date().isoformat() if due else ""))


def _render_cells(block: Block, schema: Mapping[str, Json], resolve: Resolver) -> Iterator[str]:
    """`Column: value` for each cell that is not empty; `due` and `done` of a row are rendered as ordinary cells."""
    shown_otherwise = HIDDEN_COLUMNS - ({"due", "done"} if block.type is BlockType.DB_ROW else set[str]())
    relations = relation_columns(schema)
    for name, value in block.properties.items():
        if name in shown_otherwise:
            continue
        titles = [resolve(each) for each in relation_targets(value)] if name in relations else None
        given = _name_people(value) if is_person_column(name) else value
        shown = _render_cell(given) if titles is None else ", ".join(filter(None, titles))
        if shown:
            yield f"{name}: {shown}"


def _name_people(value: Json) -> Json:
    """A cell of people by their names: an address would be redacted, and the person with it."""
    if isinstance(value, list):
        return [_name_people(each) for each in value]
    return person_name(value) if isinstance(value, str) else value


def _render_cell(value: Json) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str() | int() | float():
            return " ".join(str(value).split())
        case list():
            return ", ".join(filter(None, (_render_cell(each) for each in value)))
        case _:
            return ""


def _render_callout(block: Block, text: str) -> str:
    kind = block.properties.get("kind")
    return f"**{kind}** {text}" if block.type is BlockType.CALLOUT and isinstance(kind, str) and kind else text


def _render_code(block: Block, text: str) -> list[str]:
    language = block.properties.get("language")
    fence = _FENCE
    while fence in text:
        fence += "`"
    return [f"{fence}{language if isinstance(language, str) else ''}", text, fence]


def _heading_level(block: Block) -> int:
    level = block.properties.get("level")
    return min(max(int(level), 1), _MAX_HEADING_LEVEL) if isinstance(level, int | float) else 2


def _render_list_item(mark: str, text: str) -> str:
    """The text after a list mark, with further lines indented to align with the first."""
    return mark + text.replace("\n", "\n" + " " * (3 if mark[0] == "1" else 2))


def render_for_reader(
    block: Block, above: Sequence[Block], *, resolve: Resolver = resolve_nothing, summary: str = ""
) -> str:
    """The block as shown to a reader; `above` are its ancestors, nearest first, as far as the reader may see them."""
    match block.type:
        case BlockType.PAGE:
            said = summary or render_page_head(block)
        case BlockType.DB:
            said = "\n".join([block.text, *_render_schema(database_schema(block))])
        case BlockType.HEADING:
            said = block.text
        case BlockType.DB_ROW:
            said = _render_row(block, above, resolve)
        case _:
            said = render_markdown(block)
    return repair_text(said)


def render_page_head(page: Block) -> str:
    """The title of a page, and its properties, one a line."""
    return "\n".join([" ".join(page.text.split()), *_render_cells(page, NO_SCHEMA, resolve_nothing)])


_LINK_ONLY = re.compile(
    r"(?:[-*+] |\d+\. |> )?(?:\[ \] )?(?:(?:#?\[\[[^\[\]]+\]\]|\(\([^()\s]+\)\)|#[\w/-]+|!?\[[^\[\]]*\]\([^()\s]*\)"
    r"|<?https?://\S+>?)[\s,;|·]*)+"
)

_WORD = re.compile(r"\w")


def is_bare(block: Block, text: str) -> bool:
    """Whether a block as shown says nothing by itself: a heading, or a line of nothing but links or signs."""
    if block.type is BlockType.HEADING:
        return True
    if block.type in _LINE_TYPES and _LINK_ONLY.fullmatch(text.strip()) is not None:
        return True
    return block.type in (BlockType.PAGE, *_LINE_TYPES) and _WORD.search(text) is None


def _render_row(row: Block, above: Sequence[Block], resolve: Resolver) -> str:
    """A row with its cells; without them if its database is hidden, as a cell might then refer to a hidden block."""
    if not above or above[0].type is not BlockType.DB:
        return render_markdown(replace(row, properties={}))
    return render_markdown(row, schema=database_schema(above[0]), resolve=resolve)


def _render_schema(schema: Mapping[str, Json]) -> list[str]:
    kinds = {name: kind.get("type") if isinstance(kind, dict) else kind for name, kind in schema.items()}
    return [f"{name}: {kind}" for name, kind in kinds.items() if isinstance(kind, str)]


SUMMARY_TOKENS = 160
"""Default length of a summary, in tokens."""

_HEADING_TYPES = (BlockType.PAGE, BlockType.DB, BlockType.HEADING)
_HEADING_WEIGHT = 3.0  # weight of a word that occurs in a title or heading
_LEAD_BONUS = 0.3  # bonus of the first sentence; the words contribute about 1


def summarize_page(page: Block, below: Sequence[Block], counter: TokenCounter, limit: int, *, query: str = "") -> str:
    """The best sentences of the blocks below a page, in their order, in at most `limit` tokens; "" when none fits.

    A sentence ranks higher the more its words recur on the page and in its headings, and the earlier it stands;
    sentences that share words with the query come first.
    """
    text = "\n".join(render_markdown(block) for block in below if block.type not in _HEADING_TYPES)
    heads = tuple(block.text for block in (page, *below) if block.type in _HEADING_TYPES)
    return _summarize_text(text, heads, counter, limit, query)


@lru_cache(maxsize=1_024)
def _summarize_text(text: str, heads: Sequence[str], counter: TokenCounter, limit: int, query: str) -> str:
    """The summary of a page's text; cached, because builds in the same area summarize the same pages."""
    offsets = split_sentences(text)
    if not offsets:
        return ""
    weights = _sentence_weights([text[start:end] for start, end in offsets], heads, query)
    return extract_sentences(text, offsets, query, counter, limit, weights=weights).text


def _sentence_weights(pieces: Sequence[str], heads: Sequence[str], query: str) -> list[float]:
    """The weight of each sentence: query words, words that recur on the page, and position."""
    words = [set(extract_terms(piece)) for piece in pieces]
    common = Counter(word for each in words for word in each)
    named = {word for head in heads for word in extract_terms(head)}
    asked = set(extract_terms(query))
    worth = {word: math.log1p(count) * (_HEADING_WEIGHT if word in named else 1.0) for word, count in common.items()}
    scores = [sum(worth[word] for word in each) / math.sqrt(len(each) + 1) for each in words]
    best = max(scores) or 1.0
    return [
        len(each & asked) + value / best + _LEAD_BONUS / (1 + at)
        for at, (each, value) in enumerate(zip(words, scores, strict=True))
    ]
